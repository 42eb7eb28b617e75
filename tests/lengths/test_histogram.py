"""Every figure from the histogram equals the one from all lengths, to the last bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope import LengthHistogram
from chunkscope.lengths.histogram import PERCENTILES, added_up

lengths = st.lists(st.integers(0, 200_000) | st.integers(0, 5), min_size=1, max_size=300)
histograms = st.dictionaries(st.integers(0, 10**6), st.integers(1, 10**9)).map(LengthHistogram)


@settings(deadline=None)
@given(lengths=lengths, percent=st.floats(0, 100) | st.sampled_from([*PERCENTILES, 0, 100]))
def test_percentiles_are_numpys_bit_for_bit(lengths: list[int], percent: float) -> None:
    found = LengthHistogram.of(lengths).percentile(percent)
    assert found == float(np.percentile(lengths, percent))


@given(lengths=lengths)
def test_the_summary_is_what_all_lengths_give(lengths: list[int]) -> None:
    summary = LengthHistogram.of(lengths).summary()
    assert summary["count"] == len(lengths)
    assert summary["total"] == sum(lengths)
    assert summary["mean"] == sum(lengths) / len(lengths)
    assert (summary["min"], summary["max"]) == (min(lengths), max(lengths))


def test_percentiles_of_more_rows_than_an_array_could_hold() -> None:
    many = LengthHistogram({10: 10**15, 20: 10**15})
    assert many.percentile(50) == 15.0  # halfway between the last 10 and the first 20
    assert (many.percentile(99), many.count) == (20.0, 2 * 10**15)


@given(a=histograms, b=histograms, c=histograms)
def test_adding_up_does_not_depend_on_the_order(a, b, c) -> None:
    assert added_up([added_up([a, b]), c]) == added_up([a, added_up([b, c])]) == added_up([a, b, c])
    assert added_up([a, b]) == added_up([b, a])
    assert added_up([a, LengthHistogram({})]) == a


@given(lengths=lengths, limit=st.integers(-1, 200_001))
def test_over_counts_the_longer_ones(lengths: list[int], limit: int) -> None:
    histogram = LengthHistogram.of(lengths)
    longer = sum(length > limit for length in lengths)
    assert histogram.over(limit) == longer
    assert histogram.share_over(limit) == longer / len(lengths)


def test_nothing_counted_is_unknown_and_not_zero() -> None:
    empty = LengthHistogram({})
    assert empty.summary() == {
        "count": 0, "mean": None, "min": None, "p50": None, "p75": None, "p90": None,
        "p95": None, "p99": None, "max": None, "total": 0,
    }  # fmt: skip
    assert empty.share_over(10) is None
    assert empty.over(10) == 0


def test_steps_double_up_to_the_longest() -> None:
    assert LengthHistogram.of([200_000]).doubling() == [(131_072, 262_144, 1)]
    assert LengthHistogram.of([300_000]).doubling() == [(131_072, 300_001, 1)]
