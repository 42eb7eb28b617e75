import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.planning.rule import LengthRule, Rate, Tier, chunked, decide
from chunkscope.vllm.enums import Mode


def lengths(*, longest: int, p95: int) -> LengthHistogram:
    """100 prompts whose 95th percentile is exact: ranks 94 and 95 are equal."""
    return LengthHistogram.of([min(10, p95)] * 94 + [p95] * 5 + [longest])


@pytest.mark.parametrize(
    ("longest", "p95", "mode", "threshold"),
    [
        pytest.param(999, 900, Mode.OFF, None, id="every prompt is short"),
        pytest.param(
            1_000, 900, Mode.CONSERVATIVE, 2_048, id="one prompt reaches 1000 tokens"
        ),
        pytest.param(
            90_000, 2_047, Mode.CONSERVATIVE, 2_048, id="a long one, but p95 under 2048"
        ),
        pytest.param(
            9_000, 2_048, Mode.AGGRESSIVE, 1_638, id="one prompt in twenty is long"
        ),
        pytest.param(10_000, 10_000, Mode.AGGRESSIVE, 8_000, id="0.8 of p95"),
    ],
)
def test_mode_follows_the_longest_prompt_and_the_tail(longest, p95, mode, threshold):
    decision = decide(lengths(longest=longest, p95=p95))
    assert (decision.mode, decision.threshold) == (mode, threshold)


def test_the_cut_offs_are_settings():
    rule = LengthRule(off_below=100, conservative_threshold=300, aggressive_factor=0.5)
    assert decide(lengths(longest=99, p95=99), rule).mode is Mode.OFF
    assert decide(lengths(longest=100, p95=99), rule).threshold == 300
    assert decide(lengths(longest=400, p95=300), rule).threshold == 150


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("off_below", 0), ("conservative_threshold", 0)),
        *(("aggressive_factor", value) for value in (0.0, 1.01, float("nan"))),
    ],
)
def test_a_cut_off_that_makes_no_sense_is_a_usage_error(name, value):
    with pytest.raises(UsageError):
        LengthRule(**{name: value})


def test_a_forced_mode_is_taken_and_the_rules_own_is_kept():
    decision = decide(lengths(longest=500, p95=400), mode=Mode.AGGRESSIVE)
    assert (decision.mode, decision.threshold, decision.forced) == (
        Mode.AGGRESSIVE,
        320,
        True,
    )
    with pytest.raises(InputError):
        decide(LengthHistogram({}), mode=Mode.AGGRESSIVE)


def test_the_benefit_tier_follows_the_longest_prompt():
    for number, first in enumerate((1_000, 2_048, 4_096, 8_192)):
        below, above = (
            decide(LengthHistogram.of([n])).tier for n in (first - 1, first)
        )
        assert (below, above) == tuple(list(Tier)[number : number + 2])


@pytest.mark.parametrize(
    ("prompts", "size", "rate", "share", "median", "longest"),
    [
        ([10, 20], None, Rate.DISABLED, 0.0, None, None),
        ([100, 100], 100, Rate.DISABLED, 0.0, None, None),
        ([100, 101], 100, Rate.SELECTIVE, 0.5, 2, 2),
        ([101, 250, 301], 100, Rate.ALWAYS_ON, 1.0, 3, 4),
        ([50, 201, 399, 1_000], 200, Rate.SELECTIVE, 0.75, 2, 5),
    ],
    ids=[
        "no threshold",
        "none is over",
        "one is over",
        "all are over",
        "median of the chunked",
    ],
)
def test_chunks_count_only_the_prompts_over_the_threshold(  # noqa: PLR0913
    prompts, size, rate, share, median, longest
):
    chunks = chunked(LengthHistogram.of(prompts), size)
    assert (chunks.rate, chunks.share) == (rate, share)
    assert (chunks.median, chunks.longest) == (median, longest)


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=60))
def test_any_lengths_get_a_decision_that_agrees_with_itself(prompts):
    decision = decide(LengthHistogram.of(prompts))
    assert (decision.threshold is None) == (decision.mode is Mode.OFF)
    assert 0 <= decision.chunks.share <= 1
    assert (decision.tier is Tier.SKIP) == (decision.mode is Mode.OFF)
    if decision.chunks.prompts:
        assert 2 <= decision.chunks.median <= decision.chunks.longest
