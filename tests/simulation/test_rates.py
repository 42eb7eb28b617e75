"""The highest rate that a setting sustains."""

import dataclasses
import random

import pytest

from chunkscope.hardware.step_time import StepModel
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import SimulatedRun, SustainedRate
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.sweep import (
    GROWING,
    NEAR_ENOUGH,
    UNIT_RATE,
    axes,
    find_rate,
    pareto,
)
from chunkscope.simulation.workload import Request, arrival_times
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import EngineArgs

# A step takes 10 ms and each token a tenth of one: eight at once with twenty tokens each come to
# nearly forty requests a second.
STEP = StepModel(
    fixed_s=0.01,
    per_token_s=0.0001,
    per_prefill_pair_s=0.0,
    per_decode_context_s=0.0,
    origin="test",
)
ARGS = EngineArgs(max_num_batched_tokens=512, max_num_seqs=8, kv_cache_tokens=64_000)


def coming(slo: str | None = None, *, output: int = 20) -> Scenario:
    times = arrival_times(UNIT_RATE, 400, random.Random(0))
    requests = tuple(
        Request(prompt_tokens=20, output_tokens=output, arrival_s=time) for time in times
    )
    return Scenario(requests=requests, rules=Rules(), step=STEP, slo=read_slo(slo))


def at_rate(c: Scenario, rate: float) -> SimulatedRun:
    faster = tuple(dataclasses.replace(r, arrival_s=r.arrival_s / rate) for r in c.requests)
    return run_setting(dataclasses.replace(c, requests=faster), ARGS)


def found(run: SimulatedRun) -> SustainedRate:
    assert run.rate is not None
    return run.rate


def test_the_rate_that_is_found_keeps_the_limits_and_a_little_more_does_not():
    c = coming("ttft_p95=100ms,itl_p99=1s")
    run = find_rate(c, ARGS)
    rate = found(run).rate_per_s
    assert rate is not None
    assert run.slo == at_rate(c, rate).slo
    assert run.slo is not None
    assert run.slo.is_met
    next_tried = min(p.rate_per_s for p in found(run).points if p.rate_per_s > rate)
    assert next_tried < rate * NEAR_ENOUGH
    above = at_rate(c, next_tried).slo
    assert above is not None
    assert not above.is_met
    assert found(run).breaks == "ttft_p95"


def test_saturation_is_where_requests_come_faster_than_they_are_done():
    """All at once, the engine never waits: so many it can do."""
    c = coming()
    most = len(c.requests) / at_rate(c, 1e9).figures.makespan_s
    rate = found(find_rate(c, ARGS))
    assert rate.saturation_per_s == pytest.approx(most, rel=0.1)
    assert rate.rate_per_s is not None, "without limits, all that the queue allows"
    assert rate.rate_per_s < rate.saturation_per_s < rate.rate_per_s * NEAR_ENOUGH
    assert rate.breaks == GROWING


def test_a_limit_that_even_a_lone_request_breaks_is_kept_at_no_rate():
    run = find_rate(coming("itl_p50=5ms"), ARGS)
    assert (found(run).rate_per_s, found(run).breaks) == (None, "itl_p50")
    assert run.slo is not None
    assert not run.slo.is_met


def test_every_rate_that_was_tried_is_a_point():
    rate = found(find_rate(coming("ttft_p95=100ms"), ARGS))
    rates = [point.rate_per_s for point in rate.points]
    assert rates == sorted(set(rates))
    assert rate.rate_per_s in rates
    assert rate.saturation_per_s in rates
    assert rate.points[-1].grows
    assert not rate.points[0].grows
    assert rate.points[-1].figures.ttft_s.p95 > rate.points[0].figures.ttft_s.p95


def test_settings_are_weighed_by_latencies_where_requests_come_by_themselves():
    """The makespan is the arrivals', whatever the setting: nothing would be on the front."""
    runs = [at_rate(coming(), 20.0), at_rate(coming(output=1), 20.0)]
    assert [axis.promise for axis in axes(runs)] == ["ttft_p95", "itl_p99"]
    assert pareto(runs) == (1,)
    at_once = at_rate(coming(), float("inf"))
    assert [axis.promise for axis in axes([at_once])] == ["makespan", "itl_max"]
