"""Where the rows of a file are, byte for byte, to write them again in another order.

A row reaches from the line on which it begins to the next that begins one: cells of several lines
stay whole, and blank or bad lines stay behind the row they follow. Nothing is ever lost.
"""

import io
from array import array
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

_PIECE = 1 << 20


def rows_in_order(file: Path, lines: Sequence[int], *, lone_returns: bool) -> Iterator[bytes]:
    """The file's bytes, its rows in the order of the lines (from 1) on which they begin.

    What comes before the first row, such as a header, stays in front. `lone_returns`: a carriage
    return by itself ends a line too, as in tables.
    """
    begins = array("q", sorted(lines))
    with file.open("rb") as source:
        starts = array("q", _line_starts(source, begins, lone_returns=lone_returns))
        size = source.seek(0, io.SEEK_END)
        starts.append(size)
        yield from _bytes(source, 0, starts[0])
        for place, line in enumerate(lines, start=1):
            row = bisect_left(begins, line)
            end = b""
            for piece in _bytes(source, starts[row], starts[row + 1]):
                end = piece[-1:]
                yield piece
            if end not in (b"\n", b"\r") and place < len(lines):
                yield _line_ending(source)  # the file ends without one


def _line_starts(source: IO[bytes], lines: Sequence[int], *, lone_returns: bool) -> Iterator[int]:
    """At which byte each of these lines begins; a byte order mark stays before the first."""
    wanted = iter(lines)
    due = next(wanted, None)
    offset = 0
    for number, size in enumerate(_line_sizes(source, lone_returns=lone_returns), start=1):
        if number == due:
            yield offset if number > 1 else _mark(source)
            due = next(wanted, None)
        if due is None:
            return
        offset += size


def _mark(source: IO[bytes]) -> int:
    """The size of the byte order mark, if there is one."""
    place = source.tell()
    source.seek(0)
    start = source.read(len(BOM_UTF8))
    source.seek(place)
    return len(BOM_UTF8) if start == BOM_UTF8 else 0


def _line_sizes(source: IO[bytes], *, lone_returns: bool) -> Iterator[int]:
    source.seek(0)
    if not lone_returns:
        yield from map(len, source)
        return
    text = io.TextIOWrapper(source, encoding="latin-1", newline="")  # a character is a byte
    try:
        yield from map(len, text)
    finally:
        text.detach()


def _bytes(source: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    source.seek(start)
    while start < end and (piece := source.read(min(_PIECE, end - start))):
        yield piece
        start += len(piece)


def _line_ending(source: IO[bytes]) -> bytes:
    """As the file's first line ends."""
    source.seek(0)
    return b"\r\n" if source.readline().endswith(b"\r\n") else b"\n"
