"""The clock around the scheduler: what a setting costs, in seconds."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.step_time import READ_AGAIN, Host, StepModel
from chunkscope.simulation.workload import Request
from chunkscope.vllm.enums import ChunkPolicy
from tests.build import with_shared_prefix
from tests.simulation.common import ARGS, STEP, args, arriving, simulate


def test_the_first_token_comes_with_the_step_that_ends_the_prompt():
    run = simulate([(300, 3)], ARGS, STEP)
    assert run.figures.steps == 4  # 256, 44, and two more tokens
    assert run.figures.ttft_s.max == pytest.approx(2.3)
    assert run.figures.makespan_s == pytest.approx(2.3 + 2 * 1.001)
    assert run.figures.itl_s.p50 == pytest.approx(1.001)
    assert (run.figures.chunked_prompts, run.figures.chunks_max) == (1, 2)


@pytest.mark.parametrize(
    ("lag", "wait"), [(False, 1.1 + 1.101), (True, 1.1 + 1.001 + 1.101)]
)
def test_a_request_waits_for_the_steps_that_are_scheduled_when_it_arrives(lag, wait):
    requests = arriving((100, 3, 0.0), (100, 1, 0.5))
    run = simulate(requests, args(async_scheduling=lag), STEP)
    assert run.figures.ttft_s.max == pytest.approx(wait - 0.5)


def test_the_first_step_waits_for_the_host():
    """Nothing runs beside its preparation: 0.7 of 2 s; then 0.3 of 2 s to hand out its token."""
    step = dataclasses.replace(STEP, host=Host(fixed_s=2.0))
    assert simulate([(100, 1)], ARGS, step).figures.makespan_s == pytest.approx(
        1.4 + 1.1 + 0.6
    )


@pytest.mark.parametrize(("lag", "first"), [(True, 6.0), (False, 3.0)])
def test_with_async_scheduling_a_token_waits_until_the_next_step_is_launched(
    lag, first
):
    """The GPU needs a second, launching three: two steps are launched before the first token."""
    step = dataclasses.replace(STEP, host=Host(ungraphed_s=3.0), graphed_tokens=8)
    run = simulate(
        [(256, 1), (256, 1)], args(max_num_seqs=4, async_scheduling=lag), step
    )
    assert run.figures.ttft_s.p50 == pytest.approx((first + 6.0) / 2)


@pytest.mark.parametrize(("lag", "gap"), [(True, 3.0), (False, 4.001)])
def test_the_host_works_beside_the_gpu_only_with_async_scheduling(lag, gap):
    step = dataclasses.replace(STEP, host=Host(fixed_s=3.0))
    run = simulate([(100, 9)], args(async_scheduling=lag), step)
    assert run.figures.itl_s.p50 == pytest.approx(gap)


@pytest.mark.parametrize(("prompt", "seconds"), [(16, 1.016), (17, 5.0)])
def test_few_requests_have_small_graphs(prompt, seconds):
    """vLLM captures graphs up to 2 x max_num_seqs tokens: 17 are over it here."""
    step = dataclasses.replace(STEP, host=Host(ungraphed_s=5.0))
    run = simulate([(prompt, 1)], args(async_scheduling=True), step)
    assert run.figures.makespan_s == pytest.approx(seconds)


def test_an_idle_engine_waits_without_steps():
    run = simulate(arriving((10, 1, 0.0), (10, 1, 100.0)), ARGS, STEP)
    assert run.figures.steps == 2
    assert run.figures.makespan_s == pytest.approx(101.01)
    assert run.figures.ttft_s.max == pytest.approx(1.01)


@pytest.mark.parametrize(("threshold", "gap"), [(0, 1.201), (50, 1.051)])
def test_a_long_prompt_makes_those_who_decode_wait(threshold, gap):
    short_first = arriving((10, 30, 0.0), (200, 1, 0.1))
    run = simulate(short_first, args(long_prefill_token_threshold=threshold), STEP)
    assert run.figures.itl_s.max == pytest.approx(gap)


def test_a_preempted_request_has_a_gap_as_long_as_it_waited():
    tight = args(kv_cache_tokens=16 * 12, enable_prefix_caching=False)
    run = simulate([(60, 60), (60, 60)], tight, STEP)
    assert run.figures.preemptions == 1
    assert run.figures.itl_s.max > 20


@pytest.mark.parametrize(
    ("requests", "setting", "place"),
    [
        pytest.param([], ARGS, "requests", id="nothing to do"),
        pytest.param([(15_990, 1)], ARGS, "request 1", id="larger than the cache"),
        pytest.param(
            [(400, 1)], args(enable_chunked_prefill=False), "request 1", id="unchunked"
        ),
        pytest.param(
            [(40, 40)], args(max_model_len=64), "max_model_len", id="too long"
        ),
    ],
)
def test_what_can_never_be_served_is_an_input_error(requests, setting, place):
    with pytest.raises(InputError, match=place):
        simulate(requests, setting, STEP)


def test_a_setting_that_vllm_refuses_is_a_usage_error():
    larger = args(long_prefill_token_threshold=65, max_model_len=64)
    with pytest.raises(UsageError, match=r"long_prefill.* 64"):
        simulate([(10, 1)], larger, STEP, vllm="0.28")


# -- policies ----------------------------------------------------------------------------------


LARGE = args(max_num_batched_tokens=8_192, kv_cache_tokens=100_000)


@pytest.mark.parametrize(
    ("prompt", "chunk"),
    [(4_095, 512), (4_096, 1_024), (16_383, 1_024), (16_384, 2_048)],
)
def test_chunks_by_length_follow_the_prompt(prompt, chunk):
    run = simulate(
        [(prompt, 1)] * 2, LARGE, STEP, policy=ChunkPolicy.BY_LENGTH, timeline=1
    )
    assert run.timeline[0].chunks[0].end == chunk


@pytest.mark.parametrize(
    ("step_s", "sizes"),
    [
        (0.11, [2_048, 1_024, 512]),
        (0.09, [2_048, 2_048, 2_048]),
        (0.04, [4_096, 7_904]),
    ],
    ids=["slow", "right", "fast"],
)
def test_the_adaptive_chunk_follows_the_time_of_a_step(step_s, sizes):
    requests = arriving((10, 40, 0.0), (12_000, 1, 0.01))
    step = StepModel(fixed_s=step_s)
    run = simulate(requests, LARGE, step, policy=ChunkPolicy.ADAPTIVE, timeline=4)
    chunks = [
        c.end - c.start for step in run.timeline for c in step.chunks if c.request == 1
    ]
    assert chunks == sizes


def test_short_prompts_go_first_when_they_are_interactive():
    requests = [(2_000, 1)] * 5 + [(100, 1)]
    plain, first = (
        simulate(requests, ARGS, STEP, policy=policy, timeline=1).timeline[0].chunks[0]
        for policy in (ChunkPolicy.VLLM, ChunkPolicy.INTERACTIVE_FIRST)
    )
    assert (plain.request, first.request) == (0, 5)


# -- properties --------------------------------------------------------------------------------

workloads = st.lists(
    st.tuples(st.integers(1, 900), st.integers(1, 60), st.floats(0, 5)),
    min_size=1,
    max_size=25,
).map(lambda rows: arriving(*sorted(rows, key=lambda row: row[2])))


@given(
    requests=workloads,
    budget=st.sampled_from([16, 100, 512, 4_096]),
    threshold=st.sampled_from([0, 10, 300]),
    blocks=st.sampled_from([62, 80, 400]),
    lag=st.booleans(),
    policy=st.sampled_from(ChunkPolicy),
)
def test_every_token_is_given_once_and_time_only_passes(
    requests, budget, threshold, blocks, lag, policy
):
    setting = args(
        max_num_batched_tokens=budget,
        max_num_seqs=min(8, budget),
        kv_cache_tokens=blocks * 16,
        long_prefill_token_threshold=threshold,
        async_scheduling=lag,
    )
    run = simulate(requests, setting, STEP, policy=policy, timeline=100_000)
    outputs = sum(r.output_tokens for r in requests)
    assert run.output_tokens == outputs
    read = sum(c.end - c.start for step in run.timeline for c in step.chunks)
    assert read >= run.input_tokens - run.cached_tokens
    starts = [step.start_s for step in run.timeline]
    assert starts == sorted(starts)
    ttft = run.figures.ttft_s
    assert 0 < ttft.p50 <= ttft.p95 <= ttft.max <= run.figures.e2e_s.max
    assert all(
        step.decode_requests + sum(c.end - c.start for c in step.chunks) <= budget
        for step in run.timeline
    )
    again = simulate(requests, setting, STEP, policy=policy, timeline=100_000)
    assert run == again


def test_a_beginning_that_neighbours_share_is_read_faster():
    """Two requests that go on together: one decode step, with a context of 2 x 65 tokens."""
    step = dataclasses.replace(STEP, per_decode_context_s=0.01)
    run, alone = (
        simulate([(64, 2)] * 2, ARGS, step, shared_prefix=shared) for shared in (32, 0)
    )
    share = 32 / 130  # of the second with the first, in all that both look back on
    assert alone.figures.itl_s.p50 == pytest.approx(1.002 + 130 * 0.01)
    assert run.figures.itl_s.p50 == pytest.approx(
        1.002 + 130 * 0.01 * (1 - share * (1 - READ_AGAIN))
    )


# -- replicas ------------------------------------------------------------------------------------

TWO = args(data_parallel_size=2)


def some(count: int, pause: float = 0.0) -> list[Request]:
    chance, now, requests = random.Random(0), 0.0, []
    for _ in range(count):
        requests += arriving((chance.randint(1, 900), chance.randint(1, 60), now))
        now += chance.expovariate(1 / pause) if pause else 0.0
    return requests


@pytest.mark.parametrize("pause", [0.0, 0.5, 8.0])
def test_each_replica_gets_every_second_request(pause):
    requests = some(30, pause)
    both = simulate(requests, TWO)
    halves = [simulate(requests[n::2]) for n in (0, 1)]
    assert both.figures.steps == sum(half.figures.steps for half in halves)
    assert both.most_running == sum(half.most_running for half in halves)
    assert (
        both.figures.output_tokens_per_s == both.output_tokens / both.figures.makespan_s
    )
    assert both == simulate(requests, TWO, fast=False)
    if not pause:
        assert both.figures.makespan_s == max(
            half.figures.makespan_s for half in halves
        )


def test_each_replica_reads_what_all_prompts_share_for_itself():
    later = arriving(*[(200, 2, 100.0 * n) for n in range(10)])
    requests, stretches = with_shared_prefix(later, 160)
    one, two = (simulate(requests, a, stretches=stretches) for a in (ARGS, TWO))
    assert (one.cached_tokens, two.cached_tokens) == (9 * 160, 8 * 160)


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (3, 3), (8, 8)])
def test_a_closed_loop_keeps_so_many_under_way_on_all_replicas(concurrency, most):
    assert simulate(some(30), TWO, concurrency=concurrency).most_running == most


# -- a closed loop, and overload -----------------------------------------------------------------


def test_the_next_request_is_sent_when_one_ends():
    """One at a time: each takes its prompt's step and a second token's, from when it is sent."""
    figures = simulate([(100, 2)] * 3, ARGS, STEP, concurrency=1).figures
    assert figures.steps == 6
    assert figures.makespan_s == pytest.approx(3 * (1.1 + 1.001))
    assert (figures.ttft_s.p50, figures.ttft_s.max) == pytest.approx((1.1, 1.1))


def test_with_async_scheduling_the_next_misses_the_step_that_is_already_scheduled():
    three = [(100, 2), (100, 9), (100, 1)]
    plain, late = (
        simulate(
            three, args(async_scheduling=lag), STEP, concurrency=2
        ).figures.ttft_s.max
        for lag in (False, True)
    )
    assert (plain, late) == pytest.approx((1.2, 1.001 + 1.101))


@pytest.mark.parametrize(("apart_s", "grows"), [(3.0, False), (0.5, True)])
def test_a_queue_that_grows_is_seen(apart_s, grows):
    """The engine does about one of these a second: eight at once take eight tokens each."""
    run = simulate(arriving(*[(100, 8, n * apart_s) for n in range(200)]), ARGS, STEP)
    assert run.backlog.grows is grows


def test_a_backlog_is_how_many_waited_early_and_late():
    """By Little's law; the last one's wait lies beyond the time in which requests came."""
    run = simulate(
        arriving(*((100, 1, float(second)) for second in range(4))), ARGS, STEP
    )
    assert run.backlog.early == pytest.approx((1.1 + 1.2) / 2)
    assert run.backlog.late == pytest.approx(1.3)
