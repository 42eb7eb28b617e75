"""Which parts of the input a shard of `analyze --shard` counts."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import orjson

from chunkscope.errors import UsageError
from chunkscope.sources.readers import Part

PIECE_BYTES = 256 << 20


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

    def places(self, pieces: Sequence[Part]) -> list[int]:
        """Which of the pieces are this shard's: neighbours, with about as many bytes as others'."""
        sizes = [max(1, piece.bytes or 0) for piece in pieces]
        total = sum(sizes)
        middles = (end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True))
        shards = (int(middle * self.of / total) + 1 for middle in middles)
        return [place for place, shard in enumerate(shards) if shard == self.number]


def digest(pieces: Sequence[Part]) -> str:
    """By which two machines know that they divided the same input in the same way."""
    listed = [
        [p.source.name, p.source.path, p.source.format, p.source.bytes, p.start] for p in pieces
    ]
    return hashlib.sha256(orjson.dumps(listed)).hexdigest()
