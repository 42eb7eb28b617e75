"""The clock around the scheduler: what a setting costs, in seconds."""

import random
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.step_time import READ_AGAIN, Host, StepModel
from chunkscope.models import find_model
from chunkscope.simulation import run as run_module
from chunkscope.simulation.run import simulate as simulate_workload
from chunkscope.simulation.workload import Phase, Session, Turn, single
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.simulation.common import (
    ARGS,
    STEP,
    args,
    arriving,
    simulate,
    talk,
    workload_of,
)


def test_the_first_token_comes_with_the_step_that_ends_the_prompt():
    run = simulate([(300, 3)])

    assert run.figures.steps == 4  # 256, 44, and two more tokens
    assert run.figures.ttft_s.max == pytest.approx(2.3)
    assert run.figures.makespan_s == pytest.approx(2.3 + 2 * 1.001)
    assert run.figures.itl_s.p50 == pytest.approx(1.001)
    assert (run.figures.chunked_prompts, run.figures.chunks_max) == (1, 2)


@pytest.mark.parametrize(
    ("lag", "wait_s"), [(False, 1.1 + 1.101), (True, 1.1 + 1.001 + 1.101)]
)
def test_a_request_waits_for_the_steps_that_are_scheduled_when_it_arrives(lag, wait_s):
    requests = arriving((100, 3, 0.0), (100, 1, 0.5))

    run = simulate(requests, args(async_scheduling=lag))

    assert run.figures.ttft_s.max == pytest.approx(wait_s - 0.5)


def test_the_first_step_waits_for_the_host():
    """Nothing runs beside its preparation: 0.7 of 2 s; then 0.3 of 2 s to hand out its
    token."""
    step = replace(STEP, host=Host(fixed_s=2.0))

    run = simulate([(100, 1)], ARGS, step)

    assert run.figures.makespan_s == pytest.approx(1.4 + 1.1 + 0.6)


@pytest.mark.parametrize(("lag", "first_s"), [(True, 6.0), (False, 3.0)])
def test_with_async_scheduling_a_token_waits_until_the_next_step_is_launched(
    lag, first_s
):
    """The GPU needs a second, launching three: two steps are launched before the first
    token."""
    step = replace(STEP, host=Host(ungraphed_s=3.0), graphed_tokens=8)

    run = simulate(
        [(256, 1), (256, 1)], args(max_num_seqs=4, async_scheduling=lag), step
    )

    assert run.figures.ttft_s.p50 == pytest.approx((first_s + 6.0) / 2)


@pytest.mark.parametrize(("lag", "gap_s"), [(True, 3.0), (False, 4.001)])
def test_the_host_works_beside_the_gpu_only_with_async_scheduling(lag, gap_s):
    step = replace(STEP, host=Host(fixed_s=3.0))

    run = simulate([(100, 9)], args(async_scheduling=lag), step)

    assert run.figures.itl_s.p50 == pytest.approx(gap_s)


@pytest.mark.parametrize("lag", [False, True])
def test_with_a_host_that_takes_no_time_the_gpu_never_waits(lag):
    """So one run tells both: what comes all at once is scheduled alike, whoever is
    faster."""
    requests = [(tokens, 20) for tokens in range(10, 400, 7)]
    setting = args(max_num_seqs=64, kv_cache_tokens=4_000, async_scheduling=lag)
    slow_host = replace(STEP, host=Host(fixed_s=0.4, per_request_s=0.3))

    slow, free = (simulate(requests, setting, step) for step in (slow_host, STEP))

    assert free.figures.makespan_s == free.gpu_s == slow.gpu_s
    assert slow.figures.makespan_s > 1.5 * slow.gpu_s


@pytest.mark.parametrize(
    ("prompt", "changed", "seconds"),
    [
        pytest.param(16, {}, 1.016, id="twice max_num_seqs"),
        pytest.param(17, {}, 5.0, id="one more"),
        pytest.param(17, {"max_cudagraph_capture_size": 32}, 1.017, id="asked for"),
    ],
)
def test_few_requests_have_small_graphs(prompt, changed, seconds):
    """Over the graphs' size the host launches kernel by kernel, which takes 5 s
    here."""
    step = replace(STEP, host=Host(ungraphed_s=5.0))

    run = simulate([(prompt, 1)], args(async_scheduling=True, **changed), step)

    assert run.figures.makespan_s == pytest.approx(seconds)


def test_an_idle_engine_waits_without_steps():
    run = simulate(arriving((10, 1, 0.0), (10, 1, 100.0)))

    assert run.figures.steps == 2
    assert run.figures.makespan_s == pytest.approx(101.01)
    assert run.figures.ttft_s.max == pytest.approx(1.01)


@pytest.mark.parametrize(("threshold", "gap_s"), [(0, 1.201), (50, 1.051)])
def test_a_long_prompt_makes_those_who_decode_wait(threshold, gap_s):
    short_first = arriving((10, 30, 0.0), (200, 1, 0.1))

    run = simulate(short_first, args(long_prefill_token_threshold=threshold))

    assert run.figures.itl_s.max == pytest.approx(gap_s)


def test_a_preempted_request_has_a_gap_as_long_as_it_waited():
    tight = args(kv_cache_tokens=16 * 12, enable_prefix_caching=False)

    run = simulate([(60, 60), (60, 60)], tight)

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
        simulate(requests, setting)


def test_the_last_turn_of_a_session_must_fit_as_well():
    with pytest.raises(InputError, match="request 3 has 75 tokens"):
        simulate([talk(*((20, 5, 0.0),) * 3)], args(max_model_len=64))


def test_a_setting_that_vllm_refuses_is_a_usage_error():
    larger = args(long_prefill_token_threshold=65, max_model_len=64)

    with pytest.raises(UsageError, match=r"long_prefill.* 64"):
        simulate([(10, 1)], larger, vllm="0.28")


# -- what an engine knows by itself --------------------------------------------


def test_an_engine_brings_its_defaults_its_kv_cache_and_its_step_times():
    engine = Engine(
        release=release("0.30"), shape=find_model("llama-3.1-8b"), gpu=find_gpu("h100")
    )

    run = simulate_workload(workload_of([(100, 5)]), Settings(), engine)

    assert run.settings == engine.complete()
    assert run.pool.tokens == engine.memory().kv_cache_tokens
    assert 0.01 < run.figures.makespan_s < 0.2


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (Settings(), "defaults"),
        (Settings(max_num_batched_tokens=64, max_num_seqs=8), "KV cache"),
    ],
)
def test_what_is_not_known_without_a_gpu_is_named(settings, missing):
    engine = Engine(release=release("0.30"), shape=find_model("llama-3.1-8b"))

    with pytest.raises(MissingError, match=missing):
        simulate_workload(workload_of([(100, 5)]), settings, engine, STEP)


# -- policies ------------------------------------------------------------------

LARGE = args(max_num_batched_tokens=8_192, kv_cache_tokens=100_000)


@pytest.mark.parametrize(
    ("prompt", "chunk"),
    [(4_095, 512), (4_096, 1_024), (16_383, 1_024), (16_384, 2_048)],
)
def test_chunks_by_length_follow_the_prompt(prompt, chunk):
    run = simulate([(prompt, 1)] * 2, LARGE, policy=ChunkPolicy.BY_LENGTH, timeline=1)

    assert run.timeline[0].chunks[0].end == chunk


@pytest.mark.parametrize(
    ("step_s", "sizes"),
    [
        pytest.param(0.11, [2_048, 1_024, 512], id="slow"),
        pytest.param(0.09, [2_048, 2_048, 2_048], id="right"),
        pytest.param(0.04, [4_096, 7_904], id="fast"),
    ],
)
def test_the_adaptive_chunk_follows_the_time_of_a_step(step_s, sizes):
    requests = arriving((10, 40, 0.0), (12_000, 1, 0.01))
    step = StepModel(fixed_s=step_s)

    run = simulate(requests, LARGE, step, policy=ChunkPolicy.ADAPTIVE, timeline=4)

    chunks = [chunk for one in run.timeline for chunk in one.chunks]
    assert [one.end - one.start for one in chunks if one.request == 1] == sizes


# -- properties ----------------------------------------------------------------

rows = st.tuples(st.integers(1, 900), st.integers(1, 60), st.floats(0, 5))
workloads = st.lists(rows, min_size=1, max_size=25)


@given(
    rows=workloads,
    caps=st.sampled_from([(16, 0), (100, 10), (512, 0), (512, 300), (4_096, 300)]),
    blocks=st.sampled_from([62, 80, 400]),
    lag=st.booleans(),
    policy=st.sampled_from(ChunkPolicy),
)
def test_every_token_is_given_once_and_time_only_passes(
    rows, caps, blocks, lag, policy
):
    budget, threshold = caps
    requests = arriving(*sorted(rows, key=lambda row: row[2]))
    setting = args(
        max_num_batched_tokens=budget,
        max_num_seqs=min(8, budget),
        kv_cache_tokens=blocks * 16,
        long_prefill_token_threshold=threshold,
        async_scheduling=lag,
    )

    run = simulate(requests, setting, policy=policy, timeline=100_000)

    assert run.output_tokens == sum(output for _, output, _ in rows)
    read = [sum(one.end - one.start for one in step.chunks) for step in run.timeline]
    assert sum(read) >= run.input_tokens - run.cached_tokens
    for tokens, step in zip(read, run.timeline, strict=True):
        assert step.decode_requests + tokens <= budget
    starts = [step.start_s for step in run.timeline]
    assert starts == sorted(starts)
    ttft = run.figures.ttft_s
    assert 0 < ttft.p50 <= ttft.p95 <= ttft.max <= run.figures.e2e_s.max
    assert run == simulate(requests, setting, policy=policy, timeline=100_000)


def test_a_beginning_that_neighbours_share_is_read_faster():
    """Two requests that go on together: one decode step, with a context of 2 x 65
    tokens."""
    step = replace(STEP, per_decode_context_s=0.01)
    run, alone = (
        simulate([(64, 2)] * 2, ARGS, step, shared_prefix=shared) for shared in (32, 0)
    )

    share = 32 / 130  # of the second with the first, in all that both look back on
    taken = 1 - share * (1 - READ_AGAIN)
    assert alone.figures.itl_s.p50 == pytest.approx(1.002 + 130 * 0.01)
    assert run.figures.itl_s.p50 == pytest.approx(1.002 + 130 * 0.01 * taken)


# -- sessions ------------------------------------------------------------------

THREE_TURNS = talk((100, 2, 0.0), (50, 3, 10.0), (20, 1, 0.0))


def test_the_next_turn_comes_after_the_answer_and_the_pause():
    run = simulate([THREE_TURNS], args(enable_prefix_caching=False))

    # 100 tokens and one; then 152 and two; then 175.
    answers_s = [1.1 + 1.001, 1.152 + 2 * 1.001, 1.175]
    assert run.requests == 3
    assert run.input_tokens == 100 + 152 + 175
    assert run.figures.makespan_s == pytest.approx(sum(answers_s) + 10)
    assert run.figures.ttft_s.max == pytest.approx(1.175)


def test_a_turn_finds_what_the_turns_before_it_left():
    """Whole blocks of 16: of 101 computed tokens 96, of 154 144."""
    run = simulate([THREE_TURNS])

    assert run.cached_tokens == 96 + 144


def test_a_turn_whose_blocks_were_evicted_meanwhile_reads_them_again():
    session = THREE_TURNS
    others = arriving((1_000, 1, 5.0))  # while the user thinks
    tight = args(kv_cache_tokens=16 * 64)

    assert simulate([session], tight).cached_tokens == 96 + 144
    assert simulate([session, *others], tight).cached_tokens < 96 + 144


def test_the_hosts_memory_has_what_the_kv_cache_forgot():
    others = arriving((1_000, 1, 5.0))  # while the user thinks
    tight = args(kv_cache_tokens=16 * 64, host_tokens=16_000)

    free, paid = (
        simulate([THREE_TURNS, *others], args(**tight, host_token_s=seconds))
        for seconds in (0.0, 0.01)
    )

    assert free.cached_tokens == 96 + 144
    assert paid.figures.makespan_s > free.figures.makespan_s


def test_sessions_find_the_beginning_that_they_share():
    sessions = [replace(one, arrival_s=100.0 * n) for n, one in enumerate(_two())]

    run = simulate(sessions, shared_prefix=64)

    assert run.cached_tokens == 2 * (96 + 144) + 64


def _two() -> list[Session]:
    return [THREE_TURNS] * 2


def test_a_client_keeps_so_many_sessions_under_way():
    run = simulate(_two(), args(enable_prefix_caching=False), samples_at_once=1)

    one = simulate(_two()[:1], args(enable_prefix_caching=False))
    assert run.figures.makespan_s == pytest.approx(2 * one.figures.makespan_s)


# -- replicas ------------------------------------------------------------------

TWO = args(data_parallel_size=2)


def some(count: int, pause_s: float = 0.0) -> list[Session]:
    chance, now = random.Random(0), 0.0
    rows = []
    for _ in range(count):
        rows.append((chance.randint(1, 900), chance.randint(1, 60), now))
        now += chance.expovariate(1 / pause_s) if pause_s else 0.0
    return arriving(*rows)


def test_of_requests_that_come_at_once_each_replica_gets_every_second():
    requests = some(30)

    both = simulate(requests, TWO)

    halves = [simulate(requests[number::2]) for number in (0, 1)]
    assert both.figures.steps == sum(half.figures.steps for half in halves)
    assert both.most_running == sum(half.most_running for half in halves)
    per_s = both.output_tokens / both.figures.makespan_s
    assert both.figures.output_tokens_per_s == per_s
    longest_s = max(half.figures.makespan_s for half in halves)
    assert both.figures.makespan_s == longest_s


@pytest.mark.parametrize(
    ("sticky", "finds"), [pytest.param(True, 96, id="sticky"), pytest.param(False, 0)]
)
def test_a_session_finds_its_turns_where_it_stays_on_a_replica(sticky, finds):
    """When its second turn comes, its own replica is the one with more to do."""
    session = talk((100, 1, 0.0), (10, 1, 1.0))
    others = [single(100, 60, arrival_s) for arrival_s in (0.1, 0.2, 0.3)]

    run = simulate([session, *others], TWO, sticky=sticky)

    assert run.cached_tokens == finds


def test_a_turn_finds_what_the_client_kept_and_no_more():
    """Of 100 tokens that were kept of 101 six blocks of 16, of 50 three."""
    turns = []
    for kept_tokens in (101, 50):
        first = Turn(prompt_tokens=100, output_tokens=2)
        later = Turn(prompt_tokens=150, output_tokens=1, kept_tokens=kept_tokens)
        turns.append((first, later))

    found = [simulate([Session(turns=pair)]).cached_tokens for pair in turns]

    assert found == [96, 48]


def test_each_replica_reads_what_all_prompts_share_for_itself():
    later = arriving(*[(200, 2, 100.0 * (n // 2)) for n in range(10)])

    one, two = (simulate(later, setting, shared_prefix=160) for setting in (ARGS, TWO))

    assert (one.cached_tokens, two.cached_tokens) == (9 * 160, 8 * 160)


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_a_closed_loop_keeps_so_many_under_way_on_all_replicas(concurrency):
    run = simulate(some(30), TWO, concurrency=concurrency)

    # Each replica may have its most at another time.
    assert concurrency <= run.most_running <= concurrency + 1


# -- a closed loop, and overload -----------------------------------------------


def test_the_next_request_is_sent_when_one_ends():
    """One at a time: each takes its prompt's step and a second token's, from when it is
    sent."""
    figures = simulate([(100, 2)] * 3, concurrency=1).figures

    assert figures.steps == 6
    assert figures.makespan_s == pytest.approx(3 * (1.1 + 1.001))
    assert (figures.ttft_s.p50, figures.ttft_s.max) == pytest.approx((1.1, 1.1))


def test_with_async_scheduling_the_next_misses_the_step_that_is_already_scheduled():
    three = [(100, 2), (100, 9), (100, 1)]
    plain, late = (
        simulate(three, args(async_scheduling=lag), concurrency=2).figures.ttft_s.max
        for lag in (False, True)
    )

    assert (plain, late) == pytest.approx((1.2, 1.001 + 1.101))


@pytest.mark.parametrize(("apart_s", "grows"), [(3.0, False), (0.5, True)])
def test_a_queue_that_grows_is_seen(apart_s, grows):
    """The engine does about one of these a second: eight at once take eight tokens
    each."""
    run = simulate(arriving(*[(100, 8, n * apart_s) for n in range(200)]))

    assert run.backlog.grows is grows


def test_a_backlog_is_how_many_waited_early_and_late():
    """By Little's law; the last one's wait lies beyond the time in which requests
    came."""
    run = simulate(arriving(*[(100, 1, float(second)) for second in range(4)]))

    assert run.backlog.early == pytest.approx((1.1 + 1.2) / 2)
    assert run.backlog.late == pytest.approx(1.3)


# -- datasets one after the other ----------------------------------------------


def test_a_phase_begins_when_the_one_before_has_ended():
    """Each with its own client: the second sends one request at a time."""
    phases = (
        Phase(name="a", sessions=2),
        Phase(name="b", sessions=2, concurrency=1),
    )

    run = simulate([(100, 2)] * 4, phases=phases)

    at_once_s = 1.2 + 1.002
    alone_s = 1.1 + 1.001
    assert [phase.seconds for phase in run.phases] == pytest.approx(
        [at_once_s, 2 * alone_s]
    )
    assert run.figures.makespan_s == pytest.approx(at_once_s + 2 * alone_s)


def test_requests_that_take_longer_than_the_client_waits_are_counted():
    run = simulate([(100, 2)] * 3, concurrency=1, e2e_timeout_s=2.0)

    assert run.timeouts == 3


# -- decode steps at once ------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(Settings(), id="room for all"),
        pytest.param(Settings(gpu_memory_utilization=0.25), id="little room"),
        pytest.param(Settings(max_num_seqs=16), id="few places"),
    ],
)
def test_steps_that_are_taken_at_once_change_nothing(settings, monkeypatch):
    chance = random.Random(3)
    answers = [round(chance.lognormvariate(6.5, 0.8)) for _ in range(150)]
    sent = workload_of([(150, 1 + answer) for answer in answers], samples_at_once=100)
    engine = Engine(
        release=release("0.30"), shape=find_model("llama-3.1-8b"), gpu=find_gpu("h100")
    )

    together = simulate_workload(sent, settings, engine)
    monkeypatch.setattr(run_module, "FEWEST_SKIPPED", sys.maxsize)
    one_by_one = simulate_workload(sent, settings, engine)

    assert together.figures == one_by_one.figures
