"""Stamps -> figures, by hand-made stamps."""

import pytest

from chunkscope.simulation.slo import read_slo
from chunkscope.verification.latencies import Answer, distribution_of, figures_of, median_of
from tests.build import WORKLOAD

SHORT = Answer(sent=0.0, times=(1.0, 1.5, 2.5), counts=(1, 1, 2), cached=0)
LONG = Answer(sent=0.5, times=(3.0, 4.0), counts=(1, 1), cached=510)


@pytest.fixture
def made():
    steps = {
        "duration_s": [0.5, 0.5, 0.5, None],
        "prefill_tokens": [2_048, 2_048, 1_004, 0],
        "decode_requests": [0, 1, 1, 2],
        "chunks": {"r0.0": 1, "r0.1": 3},
        "preemptions": 2,
    }
    return figures_of([SHORT, LONG], WORKLOAD, steps)


def test_times_are_counted_from_the_moment_of_sending(made) -> None:
    assert (made.short.ttft_s.max, made.long.ttft_s.max, made.long.e2e_s.max) == (1.0, 2.5, 3.5)
    assert made.makespan_s == 4.0  # from the first sent to the last token
    assert (made.input_tokens_per_s, made.output_tokens_per_s) == (5_100 / 4, 6 / 4)
    assert SHORT.gaps_s == [0.5, 0.5, 0.5]  # tokens that come together share the wait
    assert made.itl_s.max == 1.0


def test_steps_say_how_prompts_were_cut_and_what_was_cached(made) -> None:
    assert (made.steps, made.tokens_per_step) == (4, 1_276)
    assert (made.chunked_prompts, made.chunks_max, made.preemptions) == (1, 3, 2)
    assert made.prefix_hit_rate == pytest.approx(0.1)


def test_what_the_sender_cannot_know_is_not_measured() -> None:
    unknown = Answer(sent=0.0, times=(1.0,), counts=(1,))
    made = figures_of([unknown, LONG], WORKLOAD)
    assert made.steps is made.chunked_prompts is made.prefix_hit_rate is None


def test_repeats_give_the_median_figure_by_figure(made) -> None:
    slower = figures_of([Answer(sent=0.0, times=(9.0,), counts=(1,)), LONG], WORKLOAD, steps=None)
    merged = median_of([made, slower, made])
    assert merged.makespan_s == 4.0
    assert merged.steps == 4
    assert merged.short.ttft_s.max == 1.0


def test_the_distribution_has_every_percentile_of_all_answers() -> None:
    found = distribution_of([SHORT, LONG])
    assert len(found.ttft_s) == len(found.itl_s) == 101
    assert (found.ttft_s[0], found.ttft_s[50], found.ttft_s[100]) == (1.0, 1.75, 2.5)
    assert found.itl_s[100] == 1.0
    assert distribution_of([]) is None


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (None, None),
        ("ttft_p95=1s", 1 / 4),  # the long one's took 2.5 s
        ("ttft_p95=3s,itl_p99=0.6s", 1 / 4),  # and its mean gap is 1 s
        ("tpot_max=1s,e2e_mean=3.5s", 2 / 4),
    ],
)
def test_goodput_is_requests_a_second_that_met_every_limit(slo, good) -> None:
    assert figures_of([SHORT, LONG], WORKLOAD, slo=read_slo(slo)).goodput_per_s == good


def test_the_use_of_the_tightest_limit_is_of_the_percentile_that_is_limited() -> None:
    found = figures_of([SHORT, LONG], WORKLOAD, slo=read_slo("ttft_p95=1s,itl_p99=50ms"))
    assert found.slo_use == max(found.ttft_s.p95 / 1, found.itl_s.p99 / 0.05)
    assert figures_of([SHORT, LONG], WORKLOAD).slo_use is None
