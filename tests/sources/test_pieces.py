"""Pieces of the input: every row is in one of them, and every shard agrees on which."""

import io
from itertools import chain, pairwise
from pathlib import Path

import pytest
from chunkscope.sources.byte_stream import FileStream, before, lines_between
from chunkscope.sources.pieces import Piece, Shard, digest, pieces_of
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import UsageError
from chunkscope.sources.base import Source


def source(size: int | None, path: str = "x.jsonl", **more: object) -> Source:
    form = path.split(".")[1]
    return Source(name="x", group="", path=path, format=form, file=Path(path), bytes=size, **more)


def read(data: bytes, start: int, end: int | None) -> bytes:
    file = io.BytesIO(data)
    raw = FileStream(file, "x", start=before(start))
    stream = lines_between(raw, start, end)
    return b"".join(iter(lambda: stream.read(7), b""))


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"bc", b"defghij" * 3]), max_size=30),
    st.sets(st.integers(1, 60), max_size=5),
    st.booleans(),
)
def test_every_line_is_in_the_piece_where_it_begins(
    parts: list[bytes], cuts: set[int], has_mark: bool
) -> None:
    text = b"".join(parts)
    data = b"\xef\xbb\xbf" + text if has_mark else text
    bounds = [0, *sorted(cuts), None]
    pieces = [read(data, start or 0, end) for start, end in pairwise(bounds)]
    assert b"".join(pieces) == text
    at, mark = 0, len(data) - len(text)  # the first line begins with the mark
    for piece, (start, end) in zip(pieces, pairwise(bounds), strict=True):
        for line in piece.splitlines(keepends=True):
            assert (start or 0) <= at
            assert end is None or at < end
            at, mark = at + mark + len(line), 0


def test_only_large_files_that_have_places_to_begin_at_are_divided() -> None:
    large = 1000
    assert [(p.start, p.end) for p in pieces_of(source(large), 400)] == [
        (0, 400),
        (400, 800),
        (800, None),
    ]
    assert len(pieces_of(source(large, "x.parquet"), 400)) == 3
    for other in (
        source(400),
        source(None),
        source(large, "x.csv"),
        source(large, "x.jsonl.gz"),
        source(large, member="a.jsonl"),
        source(large, rendered=True),
    ):
        assert pieces_of(other, 400) == [Piece(source=other)]
    assert pieces_of(source(large), None) == [Piece(source=source(large))]


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 5000)), min_size=1, max_size=20),
    st.integers(1, 9),
)
def test_every_piece_is_in_one_shard(sizes: list[int | None], of: int) -> None:
    pieces = [piece for size in sizes for piece in pieces_of(source(size), 700)]
    places = [Shard(number=n, of=of).places(pieces) for n in range(1, of + 1)]
    assert list(chain(*places)) == list(range(len(pieces)))


def test_shards_have_about_as_many_bytes() -> None:
    pieces = pieces_of(source(10_000), 100)
    sizes = [
        sum(pieces[p].bytes or 0 for p in Shard(number=n, of=8).places(pieces)) for n in range(1, 9)
    ]
    assert max(sizes) - min(sizes) <= 100


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "a/b", "1/0", "-1/4", "1/4/2"])
def test_what_is_no_shard_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="not a shard"):
        Shard.parse(text)


def test_another_size_is_another_input() -> None:
    assert digest(pieces_of(source(10), 100)) == digest(pieces_of(source(10), 100))
    assert digest(pieces_of(source(10), 100)) != digest(pieces_of(source(11), 100))
    assert digest(pieces_of(source(150), 100)) != digest(pieces_of(source(150), 140))
