"""The highest rate at which a setting keeps its limits, and settings around one."""

import random
from dataclasses import replace

import pytest

from chunkscope.simulation.rate import PER_DOUBLING, UNIT_RATE, highest_rate
from chunkscope.simulation.result import Judged, SimulatedRun
from chunkscope.simulation.run import simulate
from chunkscope.simulation.slo import GROWING, read_slo
from chunkscope.simulation.sweep import points
from chunkscope.simulation.workload import Workload, arrival_times
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.simulation.common import ARGS, STEP, arriving, parts_of, workload_of

ENGINE = Engine(release=release("0.30"))
SETTINGS, POOL, _ = parts_of(ARGS, ENGINE.release.rules)
# A step takes 10 ms and each token a tenth of one: eight at once with twenty tokens
# each come to nearly forty requests a second.
QUICK = replace(STEP, fixed_s=0.01, per_token_s=0.0001)
NEXT = 2 ** (1 / PER_DOUBLING)
BOTH = "ttft_p95=100ms,itl_p99=1s"


def coming(count: int = 400, **sent) -> Workload:
    times = arrival_times(UNIT_RATE, count, random.Random(0))
    return workload_of(arriving(*[(20, 20, time) for time in times]), **sent)


def highest(workload: Workload, slo: str | None = None, **more) -> SimulatedRun:
    return highest_rate(
        workload, SETTINGS, ENGINE, QUICK, limits=read_slo(slo), kv_pool=POOL, **more
    )


def at_rate(workload: Workload, rate: float, slo: str | None = None) -> SimulatedRun:
    return simulate(
        workload.times_as_fast(rate),
        SETTINGS,
        ENGINE,
        QUICK,
        judged=Judged(limits=read_slo(slo)),
        kv_pool=POOL,
    )


def test_the_rate_keeps_the_limits_and_a_little_more_does_not():
    run = highest(coming(), BOTH)

    rate = run.rate.rate_per_s
    assert replace(run, rate=None) == at_rate(coming(), rate, BOTH)
    assert run.slo.is_met
    assert not at_rate(coming(), rate * NEXT, BOTH).slo.is_met
    assert run.rate.breaks == "ttft_p95"


def test_a_dozen_runs_suffice():
    runs = []

    highest(coming(), BOTH, tick=lambda: runs.append(1))

    assert len(runs) <= 12


def test_without_limits_as_many_come_as_the_engine_can_do_when_it_never_waits():
    run, at_once = highest(coming()), at_rate(coming(), 1e9)

    served_per_s = 400 / at_once.figures.makespan_s
    assert run.rate.rate_per_s == pytest.approx(served_per_s, rel=0.1)
    assert run.rate.breaks == GROWING


def test_a_limit_that_even_a_lone_request_breaks_is_kept_at_no_rate():
    run = highest(coming(), "itl_p50=5ms")

    assert (run.rate.rate_per_s, run.rate.breaks) == (None, "itl_p50")
    assert not run.slo.is_met


def test_requests_that_are_tried_alone_stay_scored_or_not():
    """Every second is tried, and none of these is scored: all but the first find their
    block."""
    odd = range(1, 400, 2)

    run = highest(coming(shared_prefix=16, scored=odd), "itl_p50=5ms")

    assert run.requests == 200
    assert run.cached_tokens == 16 * (run.requests - 1)


# -- a sweep -------------------------------------------------------------------


def test_a_sweep_tries_budgets_and_then_thresholds_below_its_own():
    base = Settings(max_num_batched_tokens=4_096, max_num_seqs=300)

    tried = [(p.step_tokens, p.long_prefill_token_threshold) for p in points(base)]

    budgets = [256 * 2**n for n in range(9)]
    assert tried[:9] == [(budget, 0) for budget in budgets]
    assert tried[9:] == [(4_096, 512), (4_096, 2_048)]


def test_a_budget_below_max_num_seqs_runs_fewer_requests():
    smallest = next(points(Settings(max_num_batched_tokens=4_096, max_num_seqs=300)))

    assert smallest.max_num_seqs == 256
