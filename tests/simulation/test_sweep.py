"""Many settings of one workload, limits on latencies, and the highest rate that keeps them."""

import dataclasses
import random

import numpy as np
import pytest

from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import Ranked
from chunkscope.simulation.loop import Scenario, run_setting, simulated
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.slo import (
    GROWING,
    LatencyLimit,
    RequestTimes,
    read_slo,
    slo_result,
)
from chunkscope.simulation.sweep import PER_DOUBLING, UNIT_RATE, find_rate
from chunkscope.simulation.workload import Request, arrival_times
from tests.build import with_shared_prefix
from tests.simulation.common import ARGS, STEP, parts_of, simulate

SETTINGS, POOL, RULES = parts_of(ARGS)


# -- the highest rate ----------------------------------------------------------------------------

# A step takes 10 ms and each token a tenth of one: eight at once with twenty tokens each come to
# nearly forty requests a second.
NEXT = 2 ** (1 / PER_DOUBLING)
QUICK = dataclasses.replace(STEP, fixed_s=0.01, per_token_s=0.0001)


def coming(slo: str | None = None, *, output: int = 20) -> Scenario:
    times = arrival_times(UNIT_RATE, 400, random.Random(0))
    requests = tuple(
        Request(prompt_tokens=20, output_tokens=output, arrival_s=time)
        for time in times
    )
    return Scenario(requests=requests, rules=RULES, step=QUICK, slo=read_slo(slo))


def at_rate(c: Scenario, rate: float) -> SimulatedRun:
    faster = tuple(
        dataclasses.replace(r, arrival_s=r.arrival_s / rate) for r in c.requests
    )
    return run_setting(dataclasses.replace(c, requests=faster), SETTINGS, POOL)


def test_the_rate_that_is_found_keeps_the_limits_and_a_little_more_does_not():
    c = coming("ttft_p95=100ms,itl_p99=1s")
    found, run = find_rate(c, SETTINGS, POOL)
    assert run().slo == at_rate(c, found.rate_per_s).slo
    assert (run().slo.is_met, at_rate(c, found.rate_per_s * NEXT).slo.is_met) == (
        True,
        False,
    )
    assert found.breaks == "ttft_p95"


@pytest.mark.parametrize("start", [None, 1, 17.5, 25, 300])
def test_from_wherever_one_begins_the_rate_is_the_same(start):
    """recommend named 7.32/s and simulate --find-rate 7.20/s: each ended where its steps led."""
    c = coming("ttft_p95=100ms,itl_p99=1s")
    found = find_rate(c, SETTINGS, POOL, start=start)[0]
    assert found == find_rate(c, SETTINGS, POOL)[0]


@pytest.mark.parametrize(
    ("slo", "replicas"),
    [
        *[("ttft_p95=100ms,itl_p99=1s", 1), ("ttft_p95=100ms,itl_p99=1s", 2)],
        *[("ttft_mean=100ms", 2), ("itl_mean=10.5ms", 1), ("e2e_mean=300ms", 2)],
        *[("tpot_mean=10.5ms", 1), ("tpot_p90=10.8ms", 1), ("e2e_max=500ms", 1)],
    ],
)
def test_what_is_sure_of_a_run_is_true_of_all_of_it(slo, replicas):
    c, sure = coming(slo), set()
    settings = dataclasses.replace(SETTINGS, data_parallel_size=replicas)
    for rate in (5, 20, 40, 80, 160):
        requests = [
            dataclasses.replace(r, arrival_s=r.arrival_s / rate) for r in c.requests
        ]
        at_rate = dataclasses.replace(c, requests=tuple(requests))
        known, run = simulated(at_rate, settings, POOL, give_up=1.0)
        assert run() == run_setting(at_rate, settings, POOL)
        in_doubt = bool(known.broken) or known.pressure >= 1 or replicas > 1
        assert bool(known.broken) <= bool(run().breaks) <= in_doubt
        sure.add(bool(known.broken))
    assert sure == {True, False}


def test_without_limits_as_many_come_as_the_engine_can_do_when_it_never_waits():
    rate, most = find_rate(c := coming(), SETTINGS, POOL)[0], at_rate(c, 1e9)
    most_per_s = len(c.requests) / most.figures.makespan_s
    assert (rate.rate_per_s, rate.breaks) == (
        pytest.approx(most_per_s, rel=0.1),
        GROWING,
    )


def test_a_limit_that_even_a_lone_request_breaks_is_kept_at_no_rate():
    rate, run = find_rate(coming("itl_p50=5ms"), SETTINGS, POOL)
    assert (rate.rate_per_s, rate.breaks, run().slo.is_met) == (None, "itl_p50", False)


def test_requests_that_are_tried_alone_stay_scored_or_not():
    c = coming("itl_p50=5ms")
    requests, stretches = with_shared_prefix(c.requests, 16)
    odd = frozenset(
        range(1, len(requests), 2)
    )  # of every second, which are tried, none
    scored = dataclasses.replace(c, requests=requests, stretches=stretches, scored=odd)
    run = find_rate(scored, SETTINGS, POOL)[1]()
    assert run.cached_tokens == 16 * (run.requests - 1)


# -- limits on latencies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        ("ttft_p95=1s,itl_p99=50ms", [("ttft", "p95", 1.0), ("itl", "p99", 0.05)]),
        (
            " TTFT_P95 = 1s , e2e_max=1.5min",
            [("ttft", "p95", 1.0), ("e2e", "max", 90.0)],
        ),
        (
            "e2e_mean=30s,tpot_p99.9=20ms",
            [("e2e", "mean", 30.0), ("tpot", "p99.9", 0.02)],
        ),
    ],
)
def test_limits_are_read_as_the_benchmarks_name_them(written, limits):
    assert read_slo(written) == tuple(
        LatencyLimit(metric=metric, at=at, seconds=seconds)
        for metric, at, seconds in limits
    )


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "ttft=1s",
            "p95=1s",
            "ttft_p100=1s",
            "ttft_p95",
            "ttft_p95=1",
            "ttft_p95=-1s",
        ),
        *("ttft_p95=0ms", "ttft_p95=1s,", "ttft_p95=1s,ttft_p95=2s"),
    ],
)
def test_a_bad_limit_is_a_usage_error_with_an_example(written):
    with pytest.raises(UsageError) as error:
        read_slo(written)
    assert "ttft" in str(error.value) + (error.value.hint or "")


def test_a_limit_is_on_its_percentile_and_goodput_on_each_request():
    times = [
        RequestTimes(ttft_s=n / 10, e2e_s=n / 10 + 1.0, output_tokens=11)
        for n in range(10)
    ]
    limits = read_slo("ttft_p90=0.5s,tpot_max=100ms,e2e_mean=2s")
    found = slo_result(limits, times, Ranked([0.1], [100]))
    assert found is not None
    firsts = [n / 10 for n in range(10)]
    assert found.found_s == pytest.approx(
        (np.percentile(firsts, 90), 0.1, np.mean(firsts) + 1)
    )
    assert found.tightest.name == "ttft_p90"
    assert not found.is_met
    assert found.good_requests == 6, "0.0 to 0.5 s"


def test_a_request_without_a_second_token_keeps_every_limit_on_gaps():
    found = slo_result(
        read_slo("itl_p99=1ms,tpot_p99=1ms"),
        [RequestTimes(ttft_s=9.0, e2e_s=9.0, output_tokens=1)],
        Ranked([]),
    )
    assert found is not None
    assert found.found_s == (None, None)
    assert found.is_met
    assert found.good_requests == 1


def test_a_run_has_the_figures_of_its_limits_and_its_goodput():
    """Two prompts fill a step each: the second one's first token comes with the second step."""
    run = simulate([(256, 3), (256, 3)], ARGS, STEP, slo="ttft_max=2s,itl_max=10s")
    assert run.slo is not None
    assert run.slo.found_s == (run.figures.ttft_s.max, run.figures.itl_s.max)
    assert run.slo.good_requests == 1
    assert run.figures.goodput_per_s == pytest.approx(1 / run.figures.makespan_s)
