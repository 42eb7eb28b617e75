"""A seeded sample: the same every time, in the order of the rows, and fair."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.lengths.sampling import draw
from chunkscope.lengths.tally import Tally
from chunkscope.sources.base import Chunk


def chunks(rows: int, size: int) -> list[Chunk]:
    positions = range(1, rows + 1)
    return [
        Chunk(positions[i : i + size], [f"row {p}" for p in positions[i : i + size]])
        for i in range(0, rows, size)
    ]


@given(rows=st.integers(0, 200), size=st.integers(0, 60), chunk=st.integers(1, 50))
def test_a_sample_has_the_wanted_size_and_keeps_the_order(rows: int, size: int, chunk: int) -> None:
    sample, seen = draw(chunks(rows, chunk), size, seed=1)
    assert seen == rows
    assert len(sample.records) == min(rows, size)
    assert list(sample.positions) == sorted(set(sample.positions))
    assert sample.records == [f"row {position}" for position in sample.positions]


@given(first=st.integers(1, 50), second=st.integers(1, 50), seed=st.integers())
def test_it_depends_on_the_seed_and_not_on_how_the_file_was_read(
    first: int, second: int, seed: int
) -> None:
    a, b = (draw(chunks(150, size), 20, seed) for size in (first, second))
    assert a == b


def test_another_seed_is_another_sample() -> None:
    assert draw(chunks(500, 50), 20, seed=1) != draw(chunks(500, 50), 20, seed=2)


def test_every_row_is_as_likely_as_any_other() -> None:
    hits = dict.fromkeys(range(1, 21), 0)
    for seed in range(2000):
        for position in draw(chunks(20, 7), 5, seed)[0].positions:
            hits[position] += 1
    assert min(hits.values()) > 400  # 500 expected, with a deviation of 19
    assert max(hits.values()) < 600


@pytest.mark.parametrize("keep", [0, 1, 3, 10])
def test_the_longest_are_kept_longest_first_and_of_equals_the_earlier(keep: int) -> None:
    tally = Tally(keep)
    tally.add([1, 2, 3], [5, 9, 5])
    tally.add([], [])
    tally.add([4, 5], [9, 1])
    found = [(prompt.tokens, prompt.position) for prompt in tally.longest]
    assert found == [(9, 2), (9, 4), (5, 1), (5, 3), (1, 5)][:keep]
    assert tally.lengths.total == 29


def test_what_was_not_counted_is_unknown() -> None:
    tally = Tally(3)
    assert (tally.chars, tally.output_lengths) == (None, None)
    tally.add_outputs([])
    tally.add_chars(0)
    assert tally.chars == 0
    assert tally.output_lengths is not None
