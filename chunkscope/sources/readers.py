"""From a source to the reader that fits it, and from a large one to parts that others can read."""

from collections.abc import Iterator, Sequence

from chunkscope.errors import InputError
from chunkscope.sources.base import Chunk, Problems, ReadOptions, Source
from chunkscope.sources.formats import (
    RECOGNISERS,
    START_BYTES,
    RowFunction,
    format_of_name,
    kind_of_bytes,
)
from chunkscope.sources.hub import hub_rows
from chunkscope.sources.json_rows import document_rows, json_lines, plain_text
from chunkscope.sources.reader import Part, RecordReader
from chunkscope.sources.streams import COMPRESSED_SUFFIXES
from chunkscope.sources.tables import columnar_rows, csv_rows, looks_like_table, saved_rows

_ROWS: dict[str, RowFunction] = {
    "jsonl": json_lines,
    "json": document_rows,
    "text": plain_text,
    "csv": csv_rows,
    "parquet": columnar_rows,
    "arrow": columnar_rows,
    "saved": saved_rows,
    "hub": hub_rows,
}
_COLUMNAR = ("parquet", "arrow", "saved", "hub")


def rows_of(reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
    """By the format that the name says, where the content agrees; of standard input, or of a file
    whose name says nothing, by the content.
    """
    for one in RECOGNISERS:
        if one.rows and one.format == reader.format:
            return one.rows(reader, columns)
    if not reader.format:
        start = reader.plain.peek(START_BYTES)
        kind = kind_of_bytes(start)
        reader.format = "csv" if kind == "text" and looks_like_table(start) else kind or ""
        if reader.format not in _ROWS:
            raise InputError(
                f"cannot tell what {reader.source.path} is" + (f" ({kind}?)" if kind else ""),
                hint='say so in chunkscope.toml: [analyze] input_format = "jsonl"',
            )
    if reader.format in ("json", "jsonl"):
        start = reader.stream.peek(START_BYTES)
        if reader.format == "jsonl" and start.split(b"\n", 1)[0].strip() != b"[":
            return json_lines(reader)
        claims = (one.rows for one in RECOGNISERS if one.rows and one.claims_start(start))
        return next(claims, document_rows)(reader, columns)
    return _ROWS[reader.format](reader, columns)


def open_reader(data: Source | Part, options: ReadOptions, problems: Problems) -> RecordReader:
    """Open a source for reading once: `with open_reader(...) as reader`; or a part of one whose
    reader `is_divisible`, where positions begin at 1.
    """
    part = data if isinstance(data, Part) else Part(source=data)
    restarts = part.source.format in _COLUMNAR
    return RecordReader(part, options, problems, rows_of, restarts=restarts)


def split(source: Source, target_bytes: int) -> list[Part]:
    """The parts of a source, in order. One where no reading could begin in the middle: only lines
    and the row groups of parquet, as they are in the file, can be read by themselves.
    """
    is_packed = format_of_name(source.path)[1].lower().endswith(tuple(COMPRESSED_SUFFIXES))
    has_places = source.format in ("jsonl", "parquet") and not source.member and not is_packed
    size = source.bytes or 0
    if not has_places or source.rendered or size <= target_bytes:
        return [Part(source=source)]
    starts = range(0, size, target_bytes)
    ends = [*starts[1:], None]
    return [Part(source=source, start=s, end=e) for s, e in zip(starts, ends, strict=True)]
