"""From a source to the reader that fits it, and from a large one to parts that others can read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chunkscope.errors import InputError
from chunkscope.sources.base import Chunk, Problems, ReadOptions, Source
from chunkscope.sources.formats import (
    RECOGNISERS,
    START_BYTES,
    RowFunction,
    kind_of_bytes,
    known_suffix,
    recogniser_of,
)
from chunkscope.sources.hub import hub_rows
from chunkscope.sources.json_rows import document_rows, json_lines, plain_text
from chunkscope.sources.reader import RecordReader
from chunkscope.sources.streams import COMPRESSED_SUFFIXES
from chunkscope.sources.tables import columnar_rows, csv_rows, looks_like_table, saved_rows


def json_rows(reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
    """JSON Lines or a document, or a harness's log in one: the name may be wrong."""
    start = reader.stream.peek(START_BYTES)
    if reader.format == "jsonl" and start.split(b"\n", 1)[0].strip() != b"[":
        return json_lines(reader)
    claim = next((one for one in RECOGNISERS if one.claims_start(start)), None)
    return claim.rows(reader, columns) if claim and claim.rows else document_rows(reader)


def rows_by_content(reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
    """Of standard input, or of a file whose name says nothing."""
    start = reader.plain.peek(START_BYTES)
    kind = kind_of_bytes(start)
    if kind == "text" and looks_like_table(start):
        kind = "csv"
    if kind not in _ROWS:
        raise InputError(
            f"cannot tell what {reader.source.path} is" + (f" ({kind}?)" if kind else ""),
            hint='say so in chunkscope.toml: [analyze] input_format = "jsonl"',
        )
    reader.format = kind
    return _ROWS[kind](reader, columns)


_ROWS: dict[str, RowFunction] = {
    "": rows_by_content,
    "jsonl": json_rows,
    "json": json_rows,
    "text": plain_text,
    "csv": csv_rows,
    "parquet": columnar_rows,
    "arrow": columnar_rows,
    "saved": saved_rows,
    "hub": hub_rows,
}
_COLUMNAR = ("parquet", "arrow", "saved", "hub")


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
    is_packed = known_suffix(source.path).lower().endswith(tuple(COMPRESSED_SUFFIXES))
    has_places = source.format in ("jsonl", "parquet") and not source.member and not is_packed
    size = source.bytes or 0
    if not has_places or source.rendered or size <= target_bytes:
        return [Part(source=source)]
    starts = range(0, size, target_bytes)
    ends = [*starts[1:], None]
    return [Part(source=source, start=s, end=e) for s, e in zip(starts, ends, strict=True)]


def open_reader(source: Source, options: ReadOptions, problems: Problems) -> RecordReader:
    """Open a source for reading once: `with open_reader(...) as reader`."""
    return open_part(Part(source=source), options, problems)


def open_part(part: Part, options: ReadOptions, problems: Problems) -> RecordReader:
    """Open a part of a source whose reader `is_divisible`; its positions begin at 1."""
    source, claim = part.source, recogniser_of(part.source.format)
    rows = claim.rows if claim and claim.rows else _ROWS[source.format]
    restarts = source.format in _COLUMNAR
    between = (part.start, part.end)
    return RecordReader(source, options, problems, rows, restarts=restarts, part=between)
