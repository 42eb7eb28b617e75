"""The fast scheduler beside the plain one: the same steps, the same times, to the last bit."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
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
from tests.simulation.common import parts_of, simulate
from tests.simulation.generated import Workload, closed_loop, crowd, with_windows, workload
from tests.simulation.twin import trace

VERSIONS = ["0.10.2", "0.11.2", "0.16.0", "0.20.0", "0.24.0", "0.28.0", "0.32.0"]
EVERY_STEP = 1_000_000
STEP = StepModel(fixed_s=1.0, per_token_s=0.01, per_prefill_pair_s=0.0, per_decode_context_s=1e-4)
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
@settings(deadline=None)
@given(seed=seeds, rules=rules)
# A prompt that is still being read keeps all of its last chunk.
@example(seed=719, rules=release("0.28.0").rules)
def test_every_step_holds_the_same_tokens(drawn, seed, rules):
    asked = drawn(seed)
    engine, stretches = known(asked["engine"], rules), asked["stretches"]
    plain, fast = (
        trace(asked["requests"], engine, rules=rules, stretches=stretches, fast=fast)
        for fast in (False, True)
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
        # Halves are exact: sums do not depend on their order.
        window=AttentionWindow(tokens=window, share=0.5),
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
    return [run_setting(scenario, settings, pool, watch=watch, fast=fast) for fast in (False, True)]


LAGGING = partial(workload, lag=True)


@pytest.mark.parametrize("drawn", [workload, LAGGING, with_windows, closed_loop])
@settings(deadline=None)
@given(
    seed=seeds,
    rules=rules,
    policy=st.sampled_from(ChunkPolicy),
    pace=st.sampled_from([1e-3, 0.02, 0.2]),
    watch=st.sampled_from([0, 7, EVERY_STEP]),
    window=st.sampled_from([0, 5, 40, 300]),
)
# The free blocks are taken before those of the request that gives way are there.
@example(
    seed=165,
    rules=release("0.24.0").rules,
    policy=ChunkPolicy.VLLM,
    pace=1e-3,
    watch=EVERY_STEP,
    window=0,
)
# By priority a step may only preempt: the last request gives way to nobody.
@example(
    seed=173,
    rules=release("0.20.0").rules,
    policy=ChunkPolicy.INTERACTIVE_FIRST,
    pace=1e-3,
    watch=0,
    window=0,
)
def test_every_time_is_the_same(drawn, seed, rules, policy, pace, watch, window):
    plain, fast = both(drawn(seed), rules, policy, pace, watch, window)
    assert fast == plain


@settings(deadline=None)
@given(seed=seeds)
def test_chunks_that_grow_and_leave_nothing_to_those_behind_are_the_same(seed):
    plain, fast = both(crowd(seed), Rules(), ChunkPolicy.ADAPTIVE, 1e-3)
    assert fast == plain


def test_steps_that_are_alike_are_not_scheduled_one_by_one(monkeypatch):
    """Even where some wait for room: it only gets less until somebody ends."""
    scheduled = []
    plain = FastScheduler.schedule
    monkeypatch.setattr(
        FastScheduler, "schedule", lambda self: scheduled.append(self) or plain(self)
    )
    run = simulate([(100, 200)] * 6, {**SMALL, "kv_cache_tokens": 1_000}, STEP)
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
