"""The fast scheduler beside the plain one: the same steps, the same times, to the last bit."""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chunkscope.hardware.step_time import AttentionWindow, Host, StepModel
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.fast_scheduler import FastScheduler
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.workload import Request
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.flags import release
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import UNUSUAL
from tests.simulation.common import arriving, parts_of, simulate
from tests.simulation.generated import (
    Workload,
    closed_loop,
    crowd,
    with_windows,
    workload,
)
from tests.simulation.twin import trace

VERSIONS = ["0.10.2", "0.11.2", "0.16.0", "0.20.0", "0.24.0", "0.28.0", "0.32.0"]
EVERY_STEP = 1_000_000
STEP = StepModel(
    fixed_s=1.0, per_token_s=0.01, per_prefill_pair_s=0.0, per_decode_context_s=1e-4
)
SMALL = {"max_num_batched_tokens": 256, "max_num_seqs": 64}
seeds = st.integers(0, 2**32)
rules = st.sampled_from(VERSIONS).map(lambda version: release(version).rules)


def known(engine: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Without what this version knows nothing of."""
    unknown = UNUSUAL[:2] if rules.lone_request_is_capped else ()
    return {name: value for name, value in engine.items() if name not in unknown}


@pytest.mark.parametrize(
    "drawn",
    [workload, partial(workload, lag=True), with_windows],
    ids=["plain", "async", "windows"],
)
@given(seed=seeds, rules=rules)
# A prompt that is still being read keeps all of its last chunk.
@example(seed=719, rules=release("0.28.0").rules)
@example(seed=3176983841, rules=release("0.32.0").rules)
def test_every_step_holds_the_same_tokens(drawn, seed, rules):
    asked = drawn(seed)
    engine = known(asked["engine"], rules)
    how = {"with_free": True, "stretches": asked["stretches"], "rules": rules}
    plain, fast = (
        trace(asked["requests"], engine, fast=fast, **how) for fast in (False, True)
    )
    assert fast == plain


def both(
    asked: Workload,
    rules: Rules,
    policy: ChunkPolicy,
    pace: float,
    watch: int = EVERY_STEP,
    window: int = 0,
) -> list[SimulatedRun]:
    """Plain and fast; steps after the `watch`ed ones are not shown. `pace`: about a step's time."""
    requests = tuple(
        Request(
            prompt_tokens=r["prompt"],
            output_tokens=r["output"],
            arrival_s=r["comes_at"] * pace,
            stretch=r.get("stretch", -1),
        )
        for r in asked["requests"]
    )
    step = StepModel(
        fixed_s=pace,
        per_token_s=pace / 500,
        per_prefill_pair_s=pace * 1e-7,
        per_decode_context_s=pace * 1e-6,
        per_request_s=pace / 1_000,
        host=Host(fixed_s=pace / 2, per_request_s=pace / 100, ungraphed_s=pace / 2),
        experts_s=pace / 2,
        expert_share=0.1,
        window=AttentionWindow(tokens=window, share=0.5 if window else 0.0),
    )
    stretches = tuple(Stretch(**stretch) for stretch in asked["stretches"])
    settings, pool, rules = parts_of(known(asked["engine"], rules), rules)
    scenario = Scenario(
        requests=requests,
        rules=rules,
        step=step,
        stretches=stretches,
        policy=policy,
        concurrency=asked.get("concurrency"),
        slo=read_slo("ttft_p95=1s,itl_p99=50ms"),
    )
    return [
        run_setting(scenario, settings, pool, watch=watch, fast=fast)
        for fast in (False, True)
    ]


def once(seed: int, version: str, policy: ChunkPolicy, pace: float, watch: int) -> Any:
    rules = release(version).rules
    return example(
        seed=seed, rules=rules, policy=policy, pace=pace, watch=watch, window=0
    )


LAGGING = partial(workload, lag=True)


@pytest.mark.parametrize("drawn", [workload, LAGGING, with_windows, closed_loop, crowd])
@given(
    seed=seeds,
    rules=rules,
    policy=st.sampled_from(ChunkPolicy),
    pace=st.sampled_from([1e-3, 0.02, 0.2]),
    watch=st.sampled_from([0, 7, EVERY_STEP]),
    window=st.sampled_from([0, 5, 40, 300]),
)
# The free blocks are taken before those of the request that gives way are there.
@once(165, "0.24.0", ChunkPolicy.VLLM, 1e-3, EVERY_STEP)
# What waits finds room as soon as chunks are smaller.
@once(4071333413, "0.10.2", ChunkPolicy.ADAPTIVE, 0.2, 0)
# By priority a step may only preempt: the last request gives way to nobody.
@once(173, "0.20.0", ChunkPolicy.INTERACTIVE_FIRST, 1e-3, 0)
def test_every_time_is_the_same(drawn, seed, rules, policy, pace, watch, window):
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # quarters are exact, in whatever order they add up
        patch.setattr("chunkscope.hardware.step_time.WINDOW_SLOWNESS", 1.25)
        plain, fast = both(drawn(seed), rules, policy, pace, watch, window)
    assert fast == plain


KINDS = {"plain": workload, "async": LAGGING, "windows": with_windows, "closed loop": closed_loop,
         "crowd": crowd}  # fmt: skip
# Of 20 workloads in each of the versions: a checksum of who got how many tokens in which step, as
# vLLM's own scheduler has it (test_scheduler_twin.py compares the two).
CHECKSUMS = {
    "plain": "053b5ed6",
    "async": "be8fa461",
    "windows": "15bc9197",
    "closed loop": "51d40122",
    "crowd": "47ecf2d5",
}
# Seconds in all, to 19 of 20 first tokens, of the longest gaps, and how far limits are used: sums;
# cached tokens, requests at once, steps, preemptions, chunked prompts.
FIGURES = {
    ("plain", ChunkPolicy.VLLM):
        (249.65791, 178.49558, 18.677693, 182.02624, 1968, 94, 7349, 35, 186),
    ("async", ChunkPolicy.VLLM):
        (177.05551, 122.21276, 13.104539, 124.6718, 1968, 94, 7415, 36, 184),
    ("windows", ChunkPolicy.VLLM):
        (185.13668, 123.32567, 2.7749847, 134.22303, 0, 97, 6493, 17, 184),
    ("closed loop", ChunkPolicy.VLLM):
        (243.45808, 55.78436, 8.2075425, 62.679301, 1760, 49, 8679, 11, 170),
    ("crowd", ChunkPolicy.BY_LENGTH):
        (118.86471, 60.825213, 1.4807323, 62.639751, 0, 230, 3643, 0, 212),
    ("crowd", ChunkPolicy.ADAPTIVE):
        (122.67501, 67.481141, 2.578476, 69.810682, 0, 235, 3706, 0, 211),
    ("plain", ChunkPolicy.INTERACTIVE_FIRST):
        (240.71491, 167.64876, 7.5491185, 171.17941, 2016, 96, 7103, 23, 186),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHECKSUMS)
def test_the_steps_are_those_that_were_compared_with_vllms(kind):
    checksum = 0
    for version, asked in product(VERSIONS, map(KINDS[kind], range(20))):
        rules = release(version).rules
        drawn = {name: asked.get(name) for name in ("stretches", "concurrency")}
        steps = trace(
            asked["requests"], known(asked["engine"], rules), rules=rules, **drawn
        )
        rows = [(sorted(step["tokens"].items()), step["preempted"]) for step in steps]
        checksum = crc32(repr(rows).encode(), checksum)
    assert f"{checksum:08x}" == CHECKSUMS[kind]


@pytest.mark.parametrize(("kind", "policy"), FIGURES)
def test_the_figures_of_generated_workloads(kind, policy):
    rules = release("0.32.0").rules
    runs = [
        both(KINDS[kind](seed), rules, policy, 0.02, 7, 40)[1] for seed in range(30)
    ]
    figures = [run.figures for run in runs]
    found = (
        *(
            sum(one.makespan_s for one in figures),
            sum(one.ttft_s.p95 for one in figures),
        ),
        sum(one.itl_s.max if one.itl_s else 0 for one in figures),
        sum(one.slo_use for one in figures),
        *(
            sum(run.cached_tokens for run in runs),
            sum(run.most_running for run in runs),
        ),
        sum(one.steps for one in figures),
        *(
            sum(one.preemptions for one in figures),
            sum(one.chunked_prompts for one in figures),
        ),
    )
    assert found == pytest.approx(FIGURES[kind, policy], rel=1e-6)


@pytest.mark.parametrize(
    ("requests", "room"),
    [
        ([(100, 200)] * 6, {"kv_cache_tokens": 1_000}),
        ([(100, 200)] * 6, {"num_blocks": 60, "kv_groups": (1, 1, 64)}),
        ([(10, 400), (80_000, 5), (9, 9)], {"kv_cache_tokens": 100_000}),
        (
            arriving((80_000, 5, 0), *((9, 9, 15 * n) for n in range(60))),
            {"num_blocks": 9_000},
        ),
    ],
)
def test_steps_that_are_alike_are_not_scheduled_one_by_one(monkeypatch, requests, room):
    """Even where some wait for room, and while a prompt leaves nothing of a step to who comes."""
    scheduled, plain = [], FastScheduler.schedule
    monkeypatch.setattr(
        FastScheduler, "schedule", lambda self: scheduled.append(self) or plain(self)
    )
    run = simulate(requests, SMALL | room, STEP)
    assert run.figures.steps > 300
    assert len(scheduled) < 40


@pytest.mark.parametrize("lag", [False, True])
def test_with_a_host_that_takes_no_time_the_gpu_never_waits(lag):
    """So one run tells both: what comes all at once is scheduled alike, whoever is faster."""
    requests = [(n, 20) for n in range(10, 400, 7)]
    args = {**SMALL, "kv_cache_tokens": 4_000, "async_scheduling": lag}
    hosts = (Host(fixed_s=0.4, per_request_s=0.3), Host())
    slow, free = (simulate(requests, args, replace(STEP, host=host)) for host in hosts)
    assert free.figures.makespan_s == free.gpu_s == slow.gpu_s
    assert slow.figures.makespan_s > 1.5 * slow.gpu_s
