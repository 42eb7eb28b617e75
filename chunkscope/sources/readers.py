"""From a source to the reader that fits it, and from a large one to parts that others can read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chunkscope.errors import UsageError
from chunkscope.sources.base import Chunk, Problems, ReadOptions, Source
from chunkscope.sources.formats import START_BYTES, formats
from chunkscope.sources.hub import hub_rows
from chunkscope.sources.json_rows import document_rows, json_lines, plain_text
from chunkscope.sources.reader import RecordReader
from chunkscope.sources.recognisers import RowFunction, claimed_format, recogniser_of
from chunkscope.sources.streams import compression_named
from chunkscope.sources.tables import columnar_rows, csv_rows, saved_rows


def json_rows(reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
    """JSON Lines or a document, or a harness's log in one: the name may be wrong."""
    start = reader.stream.peek(START_BYTES)
    if reader.format == "jsonl" and start.split(b"\n")[0].strip() != b"[":
        return json_lines(reader)
    claim = recogniser_of(claimed_format(start=start))
    return claim.rows(reader, columns) if claim and claim.rows else document_rows(reader)


_ROWS: dict[str, RowFunction] = {
    "jsonl": json_rows,
    "json": json_rows,
    "text": plain_text,
    "csv": csv_rows,
}
_COLUMNS: dict[str, RowFunction] = {
    "parquet": columnar_rows,
    "arrow": columnar_rows,
    "saved": saved_rows,
    "hub": hub_rows,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A source, or those of its rows that begin between two bytes of its file."""

    source: Source
    start: int = 0
    end: int | None = None  # None: all that follows

    @property
    def is_whole(self) -> bool:
        return (self.start, self.end) == (0, None)

    @property
    def bytes(self) -> int | None:
        end = self.source.bytes if self.end is None else self.end
        return None if end is None else end - self.start


def split(source: Source, target_bytes: int) -> list[Part]:
    """The parts of a source, in order. One where no reading could begin in the middle: only lines
    and the row groups of parquet, as they are in the file, can be read by themselves.
    """
    can_divide = (
        source.format in ("jsonl", "parquet")
        and source.member is None
        and not source.rendered
        and not compression_named(source.path)
    )
    size = source.bytes or 0
    if not can_divide or size <= target_bytes:
        return [Part(source=source)]
    starts = range(0, size, target_bytes)
    ends = [*starts[1:], None]
    return [Part(source=source, start=s, end=e) for s, e in zip(starts, ends, strict=True)]


def open_reader(source: Source, options: ReadOptions, problems: Problems) -> RecordReader:
    """Open a source for reading once: `with open_reader(...) as reader`."""
    return open_part(Part(source=source), options, problems)


def open_part(part: Part, options: ReadOptions, problems: Problems) -> RecordReader:
    """Open a part of a source whose reader `is_divisible`; its positions begin at 1."""
    source, between = part.source, (part.start, part.end)
    rows = _COLUMNS.get(source.format) or _ROWS.get(source.format)
    if rows is None and (claim := recogniser_of(source.format)):
        rows = claim.rows
    if rows is None:
        raise UsageError(
            f"unknown format: {source.format}", hint=f"one of {', '.join(sorted(formats()))}"
        )
    restarts = source.format in _COLUMNS
    return RecordReader(source, options, problems, rows, restarts=restarts, part=between)
