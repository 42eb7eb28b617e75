"""Limits on latencies: how they are written, and when they are kept."""

import numpy as np
import pytest

from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import Ranked
from chunkscope.simulation.slo import LatencyLimit, RequestTimes, read_slo, slo_result
from tests.simulation.common import simulate


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
    expected = []
    for metric, at, seconds in limits:
        expected.append(LatencyLimit(metric=metric, at=at, seconds=seconds))

    assert read_slo(written) == tuple(expected)


def test_several_texts_and_limits_are_taken_together():
    first = read_slo("ttft_p95=1s")

    assert read_slo([*first, "itl_p99=50ms"]) == read_slo("ttft_p95=1s,itl_p99=50ms")


def test_nothing_is_no_limit():
    assert read_slo(None) == ()


@pytest.mark.parametrize(
    "written",
    [
        "",
        "fast",
        "ttft=1s",
        "p95=1s",
        "ttft_p0=1s",
        "ttft_p100=1s",
        "ttft_p95",
        "ttft_p95=1",
        "ttft_p95=-1s",
        "ttft_p95=0ms",
        "ttft_p95=1s,",
        "ttft_p95=1s,ttft_p95=2s",
        "itl_p50=10ms,itl_p50.0=10ms",
    ],
)
def test_a_bad_limit_is_a_usage_error_with_an_example(written):
    with pytest.raises(UsageError) as error:
        read_slo(written)

    assert "ttft" in str(error.value) + (error.value.hint or "")


def test_a_limit_is_on_its_percentile_and_goodput_on_each_request():
    firsts_s = [n / 10 for n in range(10)]
    times = []
    for first_s in firsts_s:
        times.append(RequestTimes(first_s, e2e_s=first_s + 1.0, output_tokens=11))

    limits = read_slo("ttft_p90=0.5s,tpot_max=100ms,e2e_mean=2s")
    result = slo_result(limits, times, Ranked([0.1], [100]))

    assert result is not None
    expected = (np.percentile(firsts_s, 90), 0.1, np.mean(firsts_s) + 1)
    assert result.found_s == pytest.approx(expected)
    assert result.tightest.name == "ttft_p90"
    assert not result.is_met
    assert result.good_requests == 6, "0.0 to 0.5 s"


def test_a_request_without_a_second_token_keeps_every_limit_on_gaps():
    limits = read_slo("itl_p99=1ms,tpot_p99=1ms")
    times = [RequestTimes(ttft_s=9.0, e2e_s=9.0, output_tokens=1)]

    result = slo_result(limits, times, Ranked([]))

    assert result is not None
    assert result.found_s == (None, None)
    assert result.is_met
    assert result.good_requests == 1


def test_a_run_has_the_figures_of_its_limits_and_its_goodput():
    """Two prompts fill a step each: the second one's first token comes with the second
    step."""
    run = simulate([(256, 3), (256, 3)], slo="ttft_max=2s,itl_max=10s")

    assert run.slo is not None
    assert run.slo.found_s == (run.figures.ttft_s.max, run.figures.itl_s.max)
    assert run.slo.good_requests == 1
    assert run.figures.goodput_per_s == pytest.approx(1 / run.figures.makespan_s)
