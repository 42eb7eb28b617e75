"""Limits on latencies: how they are written, and what a run makes of them."""

import dataclasses

import numpy as np
import pytest

from chunkscope.errors import UsageError
from chunkscope.hardware.step_time import StepModel
from chunkscope.simulation.result import Backlog, Simulation
from chunkscope.simulation.simulate import simulate
from chunkscope.simulation.slo import Limit, RequestTimes, read_slo, slo_found
from chunkscope.simulation.workload import Request
from chunkscope.vllm.settings import EngineArgs

STEP = StepModel(
    fixed_s=1.0, per_token_s=0.001, per_prefill_pair_s=0.0, per_decode_context_s=0.0, origin="test"
)
ARGS = EngineArgs(max_num_batched_tokens=256, max_num_seqs=8, kv_cache_tokens=16_000)


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        ("ttft_p95=1s,itl_p99=50ms", [("ttft", "p95", 1.0), ("itl", "p99", 0.05)]),
        (" TTFT_P95 = 1s , e2e_max=1.5min", [("ttft", "p95", 1.0), ("e2e", "max", 90.0)]),
        ("e2el_mean=30s,tpot_p99.9=20ms", [("e2e", "mean", 30.0), ("tpot", "p99.9", 0.02)]),
        ("time_to_first_token_p50=200ms", [("ttft", "p50", 0.2)]),
        ("inter_token_latency_p90=20ms", [("tpot", "p90", 0.02)]),
        ("request_latency_p99=8s", [("e2e", "p99", 8.0)]),
    ],
)
def test_limits_are_read_as_the_benchmarks_name_them(written, limits):
    assert read_slo(written) == tuple(
        Limit(metric=metric, at=at, seconds=seconds) for metric, at, seconds in limits
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "knows no ''"),
        ("ttft=1s", "knows no 'ttft'"),
        ("p95=1s", "knows no 'p95'"),
        ("ttft_p100=1s", "knows no 'ttft_p100'"),
        ("ttft_p95", "no unit"),
        ("ttft_p95=1", "no unit"),
        ("ttft_p95=-1s", "no unit"),
        ("ttft_p95=0ms", "no time"),
        ("ttft_p95=1s,", "knows no ''"),
        ("ttft_p95=1s,time_to_first_token_p95=2s", "twice"),
    ],
)
def test_a_bad_limit_says_what_there_is(written, said):
    with pytest.raises(UsageError, match=said) as error:
        read_slo(written)
    assert "ttft" in str(error.value) + (error.value.hint or "")


def test_a_limit_is_on_its_percentile_and_goodput_on_each_request():
    times = [RequestTimes(ttft_s=n / 10, e2e_s=n / 10 + 1.0, output_tokens=11) for n in range(10)]
    limits = read_slo("ttft_p90=0.5s,tpot_max=100ms,e2e_mean=2s")
    found = slo_found(limits, times, [(0.1, 100)])
    assert found is not None
    firsts = [n / 10 for n in range(10)]
    assert found.found_s == pytest.approx((np.percentile(firsts, 90), 0.1, np.mean(firsts) + 1))
    assert found.tightest.name == "ttft_p90"
    assert found.room == pytest.approx(1 - 0.81 / 0.5)
    assert not found.is_met
    assert found.good_requests == 6, "0.0 to 0.5 s"


def test_a_request_without_a_second_token_keeps_every_limit_on_gaps():
    found = slo_found(
        read_slo("itl_p99=1ms,tpot_p99=1ms"),
        [RequestTimes(ttft_s=9.0, e2e_s=9.0, output_tokens=1)],
        [],
    )
    assert found is not None
    assert found.found_s == (None, None)
    assert found.is_met
    assert found.good_requests == 1


def test_a_run_has_the_figures_of_its_limits_and_its_goodput():
    """Two prompts fill a step each: the second one's first token comes with the second step."""
    run = simulate([(256, 3), (256, 3)], ARGS, STEP, slo="ttft_max=2s,itl_max=10s").run
    assert run.slo is not None
    assert run.slo.found_s == (
        run.figures.ttft_s.max,
        run.figures.itl_s.max if run.figures.itl_s else None,
    )
    assert run.slo.good_requests == 1
    assert run.figures.goodput_per_s == pytest.approx(1 / run.figures.makespan_s)


def test_without_limits_there_is_no_goodput():
    run = simulate([(10, 3)], ARGS, STEP).run
    assert (run.slo, run.figures.goodput_per_s, run.backlog) == (None, None, None)


# -- a closed loop -------------------------------------------------------------------------------


def test_the_next_request_is_sent_when_one_ends():
    """One at a time: each takes its prompt's step and a second token's, from when it is sent."""
    run = simulate([(100, 2)] * 3, ARGS, STEP, concurrency=1).run
    assert run.figures.steps == 6
    assert run.figures.makespan_s == pytest.approx(3 * (1.1 + 1.001))
    assert (run.figures.ttft_s.p50, run.figures.ttft_s.max) == pytest.approx((1.1, 1.1))
    assert run.figures.e2e_s.max == pytest.approx(2.101)


def test_with_async_scheduling_the_next_misses_the_step_that_is_already_scheduled():
    args = dataclasses.replace(ARGS, async_scheduling=True)
    three = [(100, 2), (100, 9), (100, 1)]
    plain, late = (simulate(three, a, STEP, concurrency=2).run for a in (ARGS, args))
    assert plain.figures.ttft_s.max == pytest.approx(1.2), "the first two; the third's took 1.101"
    assert late.figures.ttft_s.max == pytest.approx(1.001 + 1.101)


def test_a_client_that_keeps_all_under_way_sends_at_once():
    requests = [(300, 9), (20, 30), (100, 1)]
    assert simulate(requests, ARGS, STEP, concurrency=3).run == simulate(requests, ARGS, STEP).run


def test_a_rate_and_a_concurrency_both_hold():
    requests = [Request(prompt_tokens=100, output_tokens=2, arrival_s=at) for at in (0, 0.5, 60)]
    run = simulate(requests, ARGS, STEP, concurrency=1).run
    assert run.figures.ttft_s.max == pytest.approx(1.1), (
        "the second waits with the client, not the engine"
    )
    assert run.figures.makespan_s == pytest.approx(60 + 2.101)


# -- overload ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("apart_s", "grows"), [(3.0, False), (0.5, True)])
def test_a_queue_that_grows_is_seen(apart_s, grows):
    """The engine does about one of these a second: eight at once take eight tokens each."""
    requests = [
        Request(prompt_tokens=100, output_tokens=8, arrival_s=n * apart_s) for n in range(200)
    ]
    run = simulate(requests, ARGS, STEP).run
    assert run.backlog is not None
    assert run.backlog.grows is grows


def test_chance_alone_makes_no_queue():
    assert not Backlog(early=100, late=140).grows
    assert Backlog(early=100, late=150).grows


def test_a_simulation_with_limits_is_read_back():
    made = simulate([(10, 3)], ARGS, STEP, slo="ttft_p95=1s", concurrency=2)
    assert Simulation.from_json(made.to_json()).to_json() == made.to_json()
    assert made.to_json()["runs"][0]["figures"]["goodput_per_s"] == made.run.figures.goodput_per_s
