"""The simulator's scheduler beside vLLM's own: the same requests, tokens and preemptions.

vLLM's scheduler runs without a model (scheduler_probe.py); all workloads share one process.
"""

from typing import Any

import pytest

from chunkscope.vllm.flags import release
from tests.simulation.generated import Workload, closed_loop, with_windows, workload
from tests.simulation.twin import trace

pytestmark = pytest.mark.real

WORKLOADS = 280
ASYNC_WORKLOADS = 80
CLOSED_LOOPS = 60
WITH_WINDOWS = 80


@pytest.fixture(scope="module")
def workloads() -> list[Workload]:
    plain = [workload(seed) for seed in range(WORKLOADS)]
    lagging = [workload(10_000 + seed, lag=True) for seed in range(ASYNC_WORKLOADS)]
    grouped = [with_windows(30_000 + seed) for seed in range(WITH_WINDOWS)]
    return (
        plain
        + lagging
        + grouped
        + [closed_loop(20_000 + seed) for seed in range(CLOSED_LOOPS)]
    )


@pytest.fixture(scope="module")
def asked_vllm(probe, workloads):
    return probe("scheduler_probe", workloads)


@pytest.fixture(scope="module")
def real(asked_vllm):
    """By workload, what each step of the real scheduler held."""
    return [
        [
            {**step, "tokens": {int(k): v for k, v in step["tokens"].items()}}
            for step in steps
        ]
        for steps in asked_vllm["answers"]
    ]


def twin(asked: Workload, vllm: dict[str, Any], *, fast: bool) -> list[dict[str, Any]]:
    return trace(
        asked["requests"],
        {
            name: value
            for name, value in asked["engine"].items()
            if name not in vllm["unknown"]
        },
        rules=release(vllm["vllm"]).rules,
        stretches=asked["stretches"],
        concurrency=asked.get("concurrency"),
        fast=fast,
    )


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "fast"])
def test_every_step_of_every_workload_is_the_same(asked_vllm, workloads, real, fast):
    assert len(workloads) >= 300
    wrong = []
    for place, (asked, expected) in enumerate(zip(workloads, real, strict=True)):
        mine = twin(asked, asked_vllm, fast=fast)
        if mine != expected:
            pairs = zip(mine, expected, strict=False)
            first = next((i for i, (a, b) in enumerate(pairs) if a != b), "length")
            wrong.append((place, first))
    assert not wrong, (
        f"{len(wrong)} of {len(workloads)} differ: (workload, first step) {wrong[:9]}"
    )


def test_the_workloads_reach_what_is_hard(workloads, real):
    """Preemptions, chunks and prefix hits all occur, and often: the comparison means something."""
    preempting = sum(any(step["preempted"] for step in steps) for steps in real)
    prompts = [sum(r["prompt"] for r in asked["requests"]) for asked in workloads]
    computed = [sum(sum(step["tokens"].values()) for step in steps) for steps in real]
    outputs = [sum(r["output"] - 1 for r in asked["requests"]) for asked in workloads]
    hits = sum(c < p + o for c, p, o in zip(computed, prompts, outputs, strict=True))
    assert preempting > 60
    assert hits > 40


def test_fewer_may_run_than_there_are_places(asked_vllm, workloads, real):
    """max_num_active_seqs binds, where this version has it; and the threshold adapts."""
    if asked_vllm["unknown"]:
        pytest.skip(
            f"vLLM {asked_vllm['vllm']} does not know {asked_vllm['unknown'][0]}"
        )
    binding = adapting = 0
    for asked, steps in zip(workloads, real, strict=True):
        engine = asked["engine"]
        threshold = engine["long_prefill_token_threshold"]
        if (cap := engine["max_num_active_seqs"]) and cap < engine["max_num_seqs"]:
            binding += max(len(step["tokens"]) for step in steps) == cap
        if engine["long_prefill_token_threshold_adaptive"]:
            adapting += any(max(step["tokens"].values()) > threshold for step in steps)
    assert binding > 20
    assert adapting > 20


def test_a_closed_loop_keeps_so_many_under_way(workloads, real):
    """The client's own limit binds: with all of them at once other steps would have come."""
    binding = 0
    for asked, steps in zip(workloads, real, strict=True):
        if "concurrency" in asked:
            most = max(len(step["tokens"]) for step in steps)
            assert most <= asked["concurrency"]
            binding += most == asked["concurrency"] < asked["engine"]["max_num_seqs"]
    assert binding > 20
