"""The simulator's scheduler beside vLLM's own: the same requests, tokens and preemptions.

vLLM's scheduler runs without a model (scheduler_probe.py); all workloads share one process.
"""

import random
from itertools import pairwise
from typing import Any

import pytest

from chunkscope.engine.flags import release
from chunkscope.engine.rules import rules_of
from tests.simulation.twin import trace

pytestmark = pytest.mark.vllm

WORKLOADS = 320
ASYNC_WORKLOADS = 80
Workload = dict[str, Any]


def workload(seed: int, *, lag: bool = False) -> Workload:
    """One of many: each trait is drawn by itself, so that they meet in all combinations."""
    chance = random.Random(seed)
    size = chance.choice([4, 16, 16, 16, 32])
    longest = chance.choice([40, 200, 700, 2_000])
    requests = [_request(chance, longest) for _ in range(chance.randint(1, 24))]
    pause = chance.choice([0, 0, 3, 20])  # steps between two requests, at most
    for before, request in pairwise(requests):
        request["comes_at"] = before["comes_at"] + chance.randint(0, pause)
    context = max(r["prompt"] + r["output"] for r in requests) + chance.choice([0, 1, 50])
    one = -(-context // size) + 1
    off = chance.random() < 0.2
    budget = chance.choice([16, 64, 100, 256, 1_000, 4_096])
    budget = max(budget, context) if off else budget
    threshold = chance.choice([0, 0, 0, 8, 32, 100, 500])
    return {
        "engine": {
            "max_num_batched_tokens": budget,
            "max_num_seqs": min(budget, chance.choice([1, 2, 3, 8, 64])),
            "max_model_len": context,
            "long_prefill_token_threshold": min(threshold, context),
            "enable_chunked_prefill": not off,
            "enable_prefix_caching": chance.random() < 0.6,
            "async_scheduling": lag,
            # Of these two an older version knows nothing.
            "watermark": chance.choice([0.0, 0.0, 0.0, 0.05, 0.2]),
            "long_prefill_token_threshold_adaptive": threshold > 0 and chance.random() < 0.5,
            "policy": chance.choice(["fcfs", "fcfs", "priority"]),
            "block_size": size,
            # Tight, a little roomier, or no object.
            "num_blocks": chance.choice([one, one + 1, one + one // 2, 3 * one, 100 * one]),
        },
        "requests": requests,
        "shared_prefix": chance.choice([0, 0, longest // 2, longest]),
    }


def _request(chance: random.Random, longest: int) -> dict[str, Any]:
    short = chance.random() < 0.5
    return {
        "prompt": chance.randint(1, max(1, longest // 8 if short else longest)),
        "output": chance.choice([1, 2, 5, 30, 80]),
        "prompt_logprobs": chance.random() < 0.1,
        "priority": chance.choice([0, 0, 1, 2]),
        "comes_at": 0,
    }


@pytest.fixture(scope="module")
def workloads() -> list[Workload]:
    plain = [workload(seed) for seed in range(WORKLOADS)]
    return plain + [workload(10_000 + seed, lag=True) for seed in range(ASYNC_WORKLOADS)]


@pytest.fixture(scope="module")
def asked_vllm(probe, workloads):
    return probe("scheduler_probe", workloads)


@pytest.fixture(scope="module")
def real(asked_vllm):
    """By workload, what each step of the real scheduler held."""
    return [
        [{**step, "tokens": {int(k): v for k, v in step["tokens"].items()}} for step in steps]
        for steps in asked_vllm["answers"]
    ]


def twin(asked: Workload, vllm: dict[str, Any], *, fast: bool) -> list[dict[str, Any]]:
    return trace(
        asked["requests"],
        {name: value for name, value in asked["engine"].items() if name not in vllm["unknown"]},
        rules=rules_of(release(vllm["vllm"])),
        shared_prefix=asked["shared_prefix"],
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
    assert not wrong, f"{len(wrong)} of {len(workloads)} differ: (workload, first step) {wrong[:9]}"


def test_the_workloads_reach_what_is_hard(workloads, real):
    """Preemptions, chunks and prefix hits all occur, and often: the comparison means something."""
    preempting = sum(any(step["preempted"] for step in steps) for steps in real)
    prompts = [sum(r["prompt"] for r in asked["requests"]) for asked in workloads]
    computed = [sum(sum(step["tokens"].values()) for step in steps) for steps in real]
    outputs = [sum(r["output"] - 1 for r in asked["requests"]) for asked in workloads]
    hits = sum(c < p + o for c, p, o in zip(computed, prompts, outputs, strict=True))
    assert preempting > 60
    assert hits > 40
