"""The pieces in which input is counted: whole sources, and ranges of the bytes of large ones.

Threads, Ray's workers and the shards of `analyze --shard` all count these pieces, which follow from
names and sizes alone. So everybody gets the same ones, and what comes of them adds up to the same.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import orjson

from chunkscope.errors import UsageError
from chunkscope.prompts.selection import LengthsSelection, Selection
from chunkscope.sources.base import Source
from chunkscope.sources.columnar import ColumnarReader
from chunkscope.sources.compression import compression_named
from chunkscope.sources.lines import LinesReader
from chunkscope.sources.reader import RecordReader

PIECE_BYTES = 256 << 20
_DIVIDED = ("jsonl", "parquet")  # others have no places at which reading could begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A source, or those of its rows that begin between two bytes of its file."""

    source: Source
    start: int = 0
    end: int | None = None  # None: all that follows

    @property
    def is_first(self) -> bool:
        return self.start == 0

    @property
    def is_whole(self) -> bool:
        return self.is_first and self.end is None

    @property
    def bytes(self) -> int | None:
        end = self.source.bytes if self.end is None else self.end
        return None if end is None else end - self.start


def pieces_of(source: Source, piece_bytes: int | None) -> list[Piece]:
    """The pieces of a source, in order; one, where there is no size to divide it by."""
    size = source.bytes or 0
    may_divide = source.format in _DIVIDED and source.member is None and not source.rendered
    if not piece_bytes or size <= piece_bytes or not may_divide or compression_named(source.path):
        return [Piece(source=source)]
    starts = range(0, size, piece_bytes)
    ends = [*starts[1:], None]
    return [Piece(source=source, start=s, end=e) for s, e in zip(starts, ends, strict=True)]


def is_divisible(reader: RecordReader, selection: Selection) -> bool:
    """Whether the pieces can be read one without the others; if not, the first one is all.

    A log's requests belong together, as do the blocks that a trace's prompts name.
    """
    if selection.kind == "requests" or (
        isinstance(selection, LengthsSelection) and selection.blocks is not None
    ):
        return False
    return isinstance(reader, LinesReader | ColumnarReader) and reader.is_divisible


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The `number`th of so many parts of the work, counted from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        number, of = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= of:
            raise UsageError(
                f"not a shard: {text}", hint="write --shard 3/16 for the third of sixteen"
            )
        return cls(number=number, of=of)

    def places(self, pieces: Sequence[Piece]) -> list[int]:
        """Which of the pieces are this shard's: neighbours, with about as many bytes as others'."""
        sizes = [max(1, piece.bytes or 0) for piece in pieces]
        total = sum(sizes)
        middles = (end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True))
        shards = (int(middle * self.of / total) + 1 for middle in middles)
        return [place for place, shard in enumerate(shards) if shard == self.number]


def digest(pieces: Sequence[Piece]) -> str:
    """By which two machines know that they divided the same input in the same way."""
    listed = [
        [p.source.name, p.source.path, p.source.format, p.source.bytes, p.start] for p in pieces
    ]
    return hashlib.sha256(orjson.dumps(listed)).hexdigest()
