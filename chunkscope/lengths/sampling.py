"""A seeded sample of rows, the same on every machine."""

import random
from collections.abc import Iterable
from typing import Any

from chunkscope.sources.base import Chunk


def draw(chunks: Iterable[Chunk], size: int, seed: int) -> tuple[Chunk, int]:
    """`size` rows out of all, each as likely as any other, and how many there were.

    One pass with room for the sample only (reservoir sampling), so any file size will do.
    """
    chance = random.Random(seed)  # noqa: S311  (a sample, not a secret)
    kept: list[tuple[int, Any]] = []
    seen = 0
    for chunk in chunks:
        for row in zip(chunk.positions, chunk.records, strict=True):
            seen += 1
            if len(kept) < size:
                kept.append(row)
            elif (place := chance.randrange(seen)) < size:
                kept[place] = row
    kept.sort(key=lambda row: row[0])
    return Chunk([position for position, _ in kept], [record for _, record in kept]), seen
