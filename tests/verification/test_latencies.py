"""Time stamps -> latencies, throughput, and what became of the limits."""

import pytest

from chunkscope.simulation.slo import read_slo
from chunkscope.verification.inside.chunkscope_sessions import Answer
from chunkscope.verification.latencies import (
    EngineSteps,
    distribution_of,
    ended_by,
    figures_of,
    median_of,
    rows_of,
    served_from_cache_by_turn,
)
from tests.build import run

LONG_OVER = 2_048


# Session, turn, prompt tokens, when it was sent, times and counts of tokens.
SHORT = Answer(0, 0, 100, 0.0, [1.0, 1.5, 2.5], [1, 1, 2], cached=0)
LONG = Answer(1, 0, 5_000, 0.5, [3.0, 4.0], [1, 1], cached=510)
ONE_TOKEN = Answer(0, 0, 100, 0.0, [1.0], [1])
STEPS = EngineSteps(
    prefill_tokens=[2_048, 2_048, 1_004, 0],
    prefill_pairs=[0, 0, 0, 0],
    prefill_requests=[1, 1, 1, 0],
    decode_requests=[0, 1, 1, 2],
    decode_context_tokens=[0, 0, 0, 0],
    duration_s=[0.5, 0.5, 0.5, None],
    chunks={"r0.0": 1, "r0.1": 3},
    preemptions=2,
)


@pytest.fixture
def figures():
    return figures_of([SHORT, LONG], LONG_OVER, STEPS)


def test_times_count_from_the_moment_of_sending(figures):
    assert figures.short.ttft_s.max == 1.0
    assert figures.long.ttft_s.max == 2.5
    assert figures.long.e2e_s.max == 3.5


def test_the_makespan_is_from_the_first_sent_to_the_last_token(figures):
    assert figures.makespan_s == 4.0
    assert figures.requests_per_s == 2 / 4
    assert figures.input_tokens_per_s == 5_100 / 4
    assert figures.output_tokens_per_s == 6 / 4


def test_tokens_that_come_together_share_the_wait(figures):
    assert SHORT.gaps_s == [0.5, 0.5, 0.5]
    assert figures.itl_s.max == 1.0


def test_an_answer_of_one_token_has_no_gaps():
    assert figures_of([ONE_TOKEN, ONE_TOKEN], LONG_OVER).itl_s is None


def test_steps_say_how_prompts_were_cut(figures):
    assert (figures.steps, figures.tokens_per_step) == (4, 1_276)
    assert (figures.chunked_prompts, figures.chunks_max) == (1, 3)
    assert figures.preemptions == 2


def test_without_steps_nobody_knows_how_prompts_were_cut():
    figures = figures_of([SHORT, LONG], LONG_OVER)
    assert figures.steps is figures.chunked_prompts is figures.preemptions is None


def test_hits_are_known_where_every_answer_tells_of_them(figures):
    assert figures.prefix_hit_rate == pytest.approx(0.1)
    assert figures_of([ONE_TOKEN, LONG], LONG_OVER).prefix_hit_rate is None


def test_repeats_give_the_median_figure_by_figure(figures):
    slower = figures_of([Answer(0, 0, 100, 0.0, [9.0], [1]), LONG], LONG_OVER)
    median = median_of([figures, slower, figures])
    assert median.makespan_s == 4.0
    assert median.steps == 4
    assert median.short.ttft_s.max == 1.0


def test_the_median_of_two_counts_is_the_lower():
    assert median_of([3, None, 4]) == 3
    assert median_of([3.0, 4.0]) == 3.5
    assert median_of([None]) is None


def test_the_distribution_has_every_percentile_of_all_answers():
    distribution = distribution_of([[SHORT], [LONG]])
    assert len(distribution.ttft_s) == len(distribution.itl_s) == 101
    ends = (distribution.ttft_s[0], distribution.ttft_s[100])
    assert (*ends, distribution.ttft_s[50]) == (1.0, 2.5, 1.75)
    assert distribution.itl_s[100] == 1.0
    assert distribution_of([]) is None


def test_goodput_and_the_use_of_the_tightest_limit_are_those_of_the_answers():
    limits = read_slo("ttft_p95=1s,itl_p99=0.6s")
    figures = figures_of([SHORT, LONG], LONG_OVER, slo=limits)
    assert figures.goodput_per_s == 1 / 4  # the long one's first token took 2.5 s
    assert figures.slo_use == max(figures.ttft_s.p95 / 1, figures.itl_s.p99 / 0.6)


def test_without_limits_there_is_no_goodput(figures):
    assert figures.goodput_per_s is figures.slo_use is None


# -- every request ---------------------------------------------------------------------


def test_each_request_is_a_row_with_its_times():
    measured = run(requests=(rows_of([SHORT]), rows_of([SHORT, LONG])))
    row = measured.to_frame().iloc[2]
    assert (row["repeat"], row.session, row.turn, row.prompt_tokens) == (1, 1, 0, 5_000)
    assert (row.cached_tokens, row.output_tokens) == (510, 2)
    assert (row.start_s, row.first_token_s, row.end_s) == (0.5, 3.0, 4.0)


def test_the_share_served_from_the_cache_is_told_by_turn():
    first = Answer(0, 0, 100, 0.0, [1.0], [1], cached=0)
    second = Answer(0, 1, 150, 2.0, [3.0], [1], cached=96)
    repeat = rows_of([first, second])
    assert served_from_cache_by_turn([repeat, repeat]) == {0: 0.0, 1: 0.64}


def test_cached_tokens_that_not_all_answers_tell_are_not_known():
    rows = rows_of([SHORT, ONE_TOKEN])
    assert run(requests=(rows,)).to_frame().cached_tokens.isna().all()
    assert served_from_cache_by_turn([rows]) == {}


def test_what_had_ended_by_then_is_cut_out_of_a_simulation():
    (answer,) = ended_by(rows_of([SHORT, LONG]), limit_s=3.0)
    assert (answer.prompt_tokens, answer.cached, answer.tokens) == (100, 0, 4)
    assert (answer.ttft_s, answer.e2e_s) == (1.0, 2.5)
