"""The simulator's scheduler beside vLLM's own: the same requests, tokens and
preemptions.

vLLM's scheduler runs without a model (scheduler_probe.py); all workloads share one
process.
"""

from typing import Any

import pytest

from chunkscope.vllm.flags import release
from tests.simulation.generated import KINDS, Workload
from tests.simulation.twin import trace

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def workloads() -> dict[str, list[Workload]]:
    drawn = {}
    for kind, (draw, seeds) in KINDS.items():
        drawn[kind] = [draw(seed) for seed in seeds]
    return drawn


@pytest.fixture(scope="module")
def told(probe, workloads):
    everything = [asked for part in workloads.values() for asked in part]
    return probe("scheduler_probe", everything)


@pytest.fixture(scope="module")
def real(told, workloads):
    """By kind and workload, what each step of the real scheduler held."""
    answers = iter(told["answers"])
    found = {}
    for kind, part in workloads.items():
        found[kind] = [_with_numbers(next(answers)) for _ in part]
    return found


def _with_numbers(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON has made texts of the requests' numbers."""
    made = []
    for step in steps:
        tokens = {int(place): count for place, count in step["tokens"].items()}
        made.append({**step, "tokens": tokens})
    return made


def twin(asked: Workload, told: dict[str, Any]) -> list[dict[str, Any]]:
    engine = dict(asked["engine"])
    for name in told["unknown"]:
        engine.pop(name)
    return trace(
        asked["requests"],
        engine,
        rules=release(told["vllm"]).rules,
        stretches=asked["stretches"],
        concurrency=asked.get("concurrency"),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_of_every_workload_is_the_same(told, workloads, real, kind):
    wrong = []
    for place, asked in enumerate(workloads[kind]):
        expected, steps = real[kind][place], twin(asked, told)
        if steps != expected:
            pairs = enumerate(zip(steps, expected, strict=False))
            first = next((n for n, (ours, theirs) in pairs if ours != theirs), "length")
            wrong.append((place, first))
    assert not wrong, f"{len(wrong)} differ: (workload, first step) {wrong[:9]}"


def test_the_workloads_preempt_often(real):
    """So the comparison means something."""
    preempting = 0
    for part in real.values():
        for steps in part:
            preempting += any(step["preempted"] for step in steps)
    assert preempting > 80


@pytest.mark.parametrize(
    ("kind", "least"), [("plain", 40), ("cached windows", 60), ("sessions", 60)]
)
def test_the_workloads_find_prefixes(workloads, real, kind, least):
    hits = 0
    for asked, steps in zip(workloads[kind], real[kind], strict=True):
        computed = sum(sum(step["tokens"].values()) for step in steps)
        hits += computed < tokens_without_cache(asked)
    assert hits > least


def tokens_without_cache(asked: Workload) -> int:
    """The last token of an answer is never computed."""
    tokens = 0
    for request in asked["requests"]:
        said = request["prompt"] + request["output"]
        tokens += said - 1
        for turn in request.get("turns", ()):
            said += turn["new"] + turn["output"]
            tokens += said - 1
    return tokens


def test_fewer_may_run_than_there_are_places(told, workloads, real):
    """max_num_active_seqs binds, where this version has it; and the threshold
    adapts."""
    if told["unknown"]:
        pytest.skip(f"vLLM {told['vllm']} does not know {told['unknown'][0]}")
    binding = adapting = 0
    for asked, steps in zip(workloads["plain"], real["plain"], strict=True):
        engine = asked["engine"]
        cap, threshold = (
            engine["max_num_active_seqs"],
            engine["long_prefill_token_threshold"],
        )
        if cap and cap < engine["max_num_seqs"]:
            binding += max(len(step["tokens"]) for step in steps) == cap
        if engine["long_prefill_token_threshold_adaptive"]:
            adapting += any(max(step["tokens"].values()) > threshold for step in steps)
    assert binding > 15
    assert adapting > 15


def test_a_closed_loop_keeps_so_many_under_way(workloads, real):
    """The client's own limit binds: with all of them at once other steps would have
    come."""
    binding = 0
    for asked, steps in zip(workloads["closed loop"], real["closed loop"], strict=True):
        most = max(len(step["tokens"]) for step in steps)
        assert most <= asked["concurrency"]
        binding += most == asked["concurrency"] < asked["engine"]["max_num_seqs"]
    assert binding > 20
