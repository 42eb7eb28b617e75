"""Columns of a table of lengths, by their headings: `p95` is a percentile, `>2K` a share."""

from collections.abc import Iterable

from chunkscope.artefacts.numbers import number, share
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import LONG_LENGTHS


def length(lengths: LengthHistogram, column: str) -> float | None:
    if _is_share(column):
        return lengths.share_over(LONG_LENGTHS[column[1:]])
    if column.startswith("p"):
        return lengths.percentile(float(column[1:]))
    found: float | None = getattr(lengths, column)
    return found


def _is_share(column: str) -> bool:
    return column.startswith(">")


def written(lengths: LengthHistogram, column: str) -> str:
    return (share if _is_share(column) else number)(length(lengths, column))


def length_cells(lengths: LengthHistogram, columns: Iterable[str]) -> list[str]:
    """
    >>> length_cells(LengthHistogram.of([10, 20, 3000]), ["count", "p50", "max", ">2K"])
    ['3', '20', '3,000', '33 %']
    """
    return [written(lengths, column) for column in columns]
