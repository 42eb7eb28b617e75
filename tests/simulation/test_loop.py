"""The clock around the scheduler: what a setting costs, in seconds."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chunkscope
from chunkscope.artefacts.percentiles import Ranked
from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.step_time import READ_AGAIN, Host, StepModel
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.simulate import simulate
from chunkscope.simulation.workload import Request
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.settings import EngineArgs

# Numbers that make times easy to follow: a step takes a second, each token a thousandth more.
STEP = StepModel(
    fixed_s=1.0, per_token_s=0.001, per_prefill_pair_s=0.0, per_decode_context_s=0.0, origin="test"
)
ARGS = EngineArgs(max_num_batched_tokens=256, max_num_seqs=8, kv_cache_tokens=16_000)
OLD = {"vllm_version": "0.28"}


def arriving(*rows: tuple[int, int, float]) -> list[Request]:
    return [Request(prompt_tokens=p, output_tokens=o, arrival_s=s) for p, o, s in rows]


def test_the_first_token_comes_with_the_step_that_ends_the_prompt():
    run = simulate([(300, 3)], ARGS, STEP).run
    assert run.figures.steps == 4  # 256, 44, and two more tokens
    assert run.figures.ttft_s.max == pytest.approx(2.3)
    assert run.figures.makespan_s == pytest.approx(2.3 + 2 * 1.001)
    assert run.figures.itl_s is not None
    assert run.figures.itl_s.p50 == pytest.approx(1.001)
    assert (run.figures.chunked_prompts, run.figures.chunks_max) == (1, 2)


def test_a_request_waits_for_the_step_that_runs_when_it_arrives():
    run = simulate(arriving((100, 1, 0.0), (100, 1, 0.5)), ARGS, STEP).run
    assert run.figures.steps == 2
    assert run.figures.ttft_s.max == pytest.approx(2.2 - 0.5)


def test_with_async_scheduling_it_waits_for_one_step_more():
    """The next step is already scheduled when it arrives."""
    three = arriving((100, 3, 0.0), (100, 1, 0.5))
    plain = simulate(three, ARGS, STEP).run
    late = simulate(three, dataclasses.replace(ARGS, async_scheduling=True), STEP).run
    assert plain.figures.ttft_s.max == pytest.approx(1.1 + 1.101 - 0.5)
    assert late.figures.ttft_s.max == pytest.approx(1.1 + 1.001 + 1.101 - 0.5)


def test_the_first_step_waits_for_the_host():
    """Nothing runs beside its preparation: 0.7 of 2 s; then 0.3 of 2 s to hand out its token."""
    step = dataclasses.replace(STEP, host=Host(fixed_s=2.0))
    assert simulate([(100, 1)], ARGS, step).run.figures.makespan_s == pytest.approx(1.4 + 1.1 + 0.6)


def test_with_async_scheduling_a_token_waits_until_the_next_step_is_launched():
    """The GPU needs a second, launching three: two steps are launched before the first token."""
    step = dataclasses.replace(STEP, host=Host(ungraphed_s=3.0), graphed_tokens=8)
    args = dataclasses.replace(ARGS, max_num_seqs=4, async_scheduling=True)
    run = simulate([(256, 1), (256, 1)], args, step).run
    assert run.figures.ttft_s.p50 == pytest.approx((6.0 + 6.0) / 2)
    plain = simulate([(256, 1), (256, 1)], dataclasses.replace(args, async_scheduling=False), step)
    assert plain.run.figures.ttft_s.p50 == pytest.approx((3.0 + 6.0) / 2)


@pytest.mark.parametrize(("async_scheduling", "gap"), [(True, 3.0), (False, 4.001)])
def test_the_host_works_beside_the_gpu_only_with_async_scheduling(async_scheduling, gap):
    args = dataclasses.replace(ARGS, async_scheduling=async_scheduling)
    step = dataclasses.replace(STEP, host=Host(fixed_s=3.0))
    run = simulate([(100, 9)], args, step).run
    assert run.figures.itl_s is not None
    assert run.figures.itl_s.p50 == pytest.approx(gap)


def test_few_requests_have_small_graphs():
    """vLLM captures graphs up to 2 x max_num_seqs tokens: 17 are over it here."""
    step = dataclasses.replace(STEP, host=Host(ungraphed_s=5.0))
    args = dataclasses.replace(ARGS, async_scheduling=True)
    assert simulate([(16, 1)], args, step).run.figures.makespan_s == pytest.approx(1.016)
    assert simulate([(17, 1)], args, step).run.figures.makespan_s == pytest.approx(5.0)


def test_an_idle_engine_waits_without_steps():
    run = simulate(arriving((10, 1, 0.0), (10, 1, 100.0)), ARGS, STEP).run
    assert run.figures.steps == 2
    assert run.figures.makespan_s == pytest.approx(101.01)
    assert run.figures.ttft_s.max == pytest.approx(1.01)


def test_a_long_prompt_makes_those_who_decode_wait():
    short_first = arriving((10, 30, 0.0), (200, 1, 0.1))
    run = simulate(short_first, ARGS, STEP).run
    assert run.figures.itl_s is not None
    assert run.figures.itl_s.max == pytest.approx(1.201)
    capped = dataclasses.replace(ARGS, long_prefill_token_threshold=50)
    smoother = simulate(short_first, capped, STEP).run
    assert smoother.figures.itl_s is not None
    assert smoother.figures.itl_s.max == pytest.approx(1.051)


def test_a_preempted_request_has_a_gap_as_long_as_it_waited():
    tight = dataclasses.replace(ARGS, kv_cache_tokens=16 * 12, enable_prefix_caching=False)
    run = simulate([(60, 60), (60, 60)], tight, STEP).run
    assert run.figures.preemptions == 1
    assert run.figures.itl_s is not None
    assert run.figures.itl_s.max > 20
    assert run.kv_peak_tokens == 16 * 10


def test_requests_may_name_the_stretches_that_they_share():
    """Two pairs that have 64 tokens in common, and each pair 64 more."""
    stretches = [Stretch(parent=parent, tokens=64) for parent in (-1, 0, 0)]
    requests = [Request(prompt_tokens=160, output_tokens=1, stretch=s) for s in (1, 2, 1, 2)]
    run = simulate(requests, ARGS, STEP, stretches=stretches).run
    assert run.cached_tokens == 64 + 128 + 128
    with pytest.raises(InputError, match="not there"):
        simulate(requests, ARGS, STEP)


def test_a_shared_prefix_is_read_once():
    run = simulate([(160, 1), (160, 1), (128, 1)], ARGS, STEP, shared_prefix=128).run
    assert run.cached_tokens == 448 - 208


def test_prompts_of_a_likelihood_eval_find_nothing_in_the_cache():
    from chunkscope.vllm.enums import Task

    both = {"shared_prefix": 128, "task": Task.LOGLIKELIHOOD}
    assert simulate([(160, 1), (160, 1)], ARGS, STEP, **both).run.cached_tokens == 0


@pytest.mark.parametrize(
    ("requests", "args", "said"),
    [
        pytest.param([], ARGS, "no requests", id="nothing to do"),
        pytest.param([(-5, 1)], ARGS, "at least 1", id="a negative length"),
        pytest.param([(10, 0)], ARGS, "at least 1", id="no output"),
        pytest.param([(15_990, 1)], ARGS, "can never fit", id="larger than the cache"),
        pytest.param(
            arriving((1, 1, 2.0), (1, 1, 1.0)), ARGS, "arrivals", id="arrivals out of order"
        ),
        pytest.param(arriving((1, 1, float("nan"))), ARGS, "arrives", id="no time at all"),
        pytest.param(
            [(400, 1)],
            dataclasses.replace(ARGS, enable_chunked_prefill=False),
            "chunking off",
            id="unchunked over the budget",
        ),
        pytest.param(
            [(40, 40)], dataclasses.replace(ARGS, max_model_len=64), "max_model_len", id="too long"
        ),
    ],
)
def test_what_can_never_be_served_is_an_input_error(requests, args, said):
    with pytest.raises(InputError) as error:
        simulate(requests, args, STEP)
    assert said in error.value.message + (error.value.hint or "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_num_batched_tokens": 4}, "max_num_seqs"),
        ({"max_num_batched_tokens": 0}, "at least 1"),
        ({"long_prefill_token_threshold": -1}, "negative"),
        ({"watermark": 1.0}, "watermark"),
        ({"long_prefill_token_threshold_adaptive": True}, "0.31"),
        ({"max_num_active_seqs": 4}, "0.31"),
        ({"max_num_active_seqs": 4_000}, "0.31"),
    ],
)
def test_a_setting_that_vllm_refuses_is_a_usage_error(change, said):
    with pytest.raises(UsageError, match=said):
        simulate([(10, 1)], dataclasses.replace(ARGS, **change), STEP, **OLD)


def test_arguments_may_be_a_dictionary_of_known_names():
    plain = {"max_num_batched_tokens": 256, "max_num_seqs": 8, "kv_cache_tokens": 16_000}
    assert simulate([(300, 3)], plain, STEP).run == simulate([(300, 3)], ARGS, STEP).run
    with pytest.raises(UsageError, match="max_num_tokens"):
        simulate([(300, 3)], {**plain, "max_num_tokens": 1}, STEP)
    with pytest.raises(UsageError, match="kv_cache_tokens"):
        simulate([(300, 3)], {"max_num_batched_tokens": 256, "max_num_seqs": 8}, STEP)


def test_the_public_names_lead_here():
    assert chunkscope.simulate is simulate
    assert isinstance(chunkscope.simulate([(1, 1)], ARGS, STEP), chunkscope.Simulation)


# -- policies ----------------------------------------------------------------------------------


def first_chunks(policy: ChunkPolicy, prompt: int) -> int:
    args = dataclasses.replace(ARGS, max_num_batched_tokens=8_192, kv_cache_tokens=100_000)
    both = [(prompt, 1), (prompt, 1)]
    run = simulate(both, args, STEP, policy=policy, timeline=1).run
    chunk = run.timeline[0].chunks[0]
    return chunk.end - chunk.start


@pytest.mark.parametrize(
    ("prompt", "chunk"), [(4_095, 512), (4_096, 1_024), (16_383, 1_024), (16_384, 2_048)]
)
def test_chunks_by_length_follow_the_prompt(prompt, chunk):
    assert first_chunks(ChunkPolicy.BY_LENGTH, prompt) == chunk


def test_the_adaptive_chunk_halves_while_steps_are_slow():
    args = dataclasses.replace(ARGS, max_num_batched_tokens=8_192, kv_cache_tokens=100_000)
    requests = arriving((10, 40, 0.0), (12_000, 1, 0.1))
    run = simulate(requests, args, STEP, policy=ChunkPolicy.ADAPTIVE, timeline=4).run
    sizes = [c.end - c.start for step in run.timeline for c in step.chunks if c.request == 1]
    assert sizes == [2_048, 1_024, 512]


def test_short_prompts_go_first_when_they_are_interactive():
    requests = [(2_000, 1)] * 5 + [(100, 1)]
    plain, first = (
        simulate(requests, ARGS, STEP, policy=policy, timeline=1).run.timeline[0].chunks[0]
        for policy in (ChunkPolicy.VLLM, ChunkPolicy.INTERACTIVE_FIRST)
    )
    assert (plain.request, first.request) == (0, 5)


# -- properties --------------------------------------------------------------------------------

workloads = st.lists(
    st.tuples(st.integers(1, 900), st.integers(1, 60), st.floats(0, 5)), min_size=1, max_size=25
).map(lambda rows: arriving(*sorted(rows, key=lambda row: row[2])))


@settings(max_examples=100, deadline=None)
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
    args = EngineArgs(
        max_num_batched_tokens=budget,
        max_num_seqs=min(8, budget),
        kv_cache_tokens=blocks * 16,
        long_prefill_token_threshold=threshold,
        async_scheduling=lag,
    )
    run = simulate(requests, args, STEP, policy=policy, timeline=100_000).run
    outputs = sum(r.output_tokens for r in requests)
    assert run.output_tokens == outputs
    read = sum(c.end - c.start for step in run.timeline for c in step.chunks)
    assert read >= run.input_tokens - run.cached_tokens
    starts = [step.start_s for step in run.timeline]
    assert starts == sorted(starts)
    assert (
        0
        < run.figures.ttft_s.p50
        <= run.figures.ttft_s.p95
        <= run.figures.ttft_s.max
        <= run.figures.e2e_s.max
    )
    assert run.kv_peak_tokens <= (blocks - 1) * 16
    assert all(
        step.decode_requests + sum(c.end - c.start for c in step.chunks) <= budget
        for step in run.timeline
    )
    again = simulate(requests, args, STEP, policy=policy, timeline=100_000).run
    assert run == again


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e3), st.integers(0, 4)), min_size=1))
def test_percentiles_are_numpys(pairs):
    values = [value for value, times in pairs for _ in range(times)]
    found = Ranked(pairs).percentiles()
    if not values:
        assert found is None
        return
    assert found is not None
    for percent, mine in ((50, found.p50), (95, found.p95), (99, found.p99)):
        assert mine == pytest.approx(np.percentile(values, percent))
    assert found.max == max(values)


def test_a_beginning_that_neighbours_share_is_read_faster():
    """Two requests that go on together: one decode step, with a context of 2 x 65 tokens."""
    step = dataclasses.replace(STEP, per_decode_context_s=0.01)
    run, alone = (
        simulate([(64, 2)] * 2, ARGS, step, shared_prefix=shared).run for shared in (32, 0)
    )
    share = 32 / 130  # of the second with the first, in all that both look back on
    assert alone.figures.itl_s.p50 == pytest.approx(1.002 + 130 * 0.01)
    assert run.figures.itl_s.p50 == pytest.approx(
        1.002 + 130 * 0.01 * (1 - share * (1 - READ_AGAIN))
    )
