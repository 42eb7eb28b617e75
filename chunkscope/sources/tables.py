"""Rows of tables: CSV and its relatives, Parquet, Arrow, and what `save_to_disk` wrote."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, Any, cast

import orjson

from chunkscope.errors import UsageError
from chunkscope.sources.base import (
    MOST_ROW_BYTES,
    Chunk,
    DataError,
    in_chunks,
    unique_names,
)
from chunkscope.sources.reader import Format, RecordReader, register
from chunkscope.sources.remote import explaining

_DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_BYTES = 1 << 16
_SAMPLE_ROWS = 200
# One cell may be this long; more means that a quote was never closed.
_CELL_CHARS = 256 << 20
# Put after the last line: a row by itself, unless a quote that is still open swallows it. Half a
# character is in no text, and no delimiter.
_END = "\ud800"

Dialect = tuple[str, Any]  # the delimiter, and csv's name for how cells are quoted


def csv_rows(reader: RecordReader, _: Sequence[str] | None) -> Iterator[Chunk]:
    """Dicts of strings; positions are the lines on which rows start.

    A row with a cell too many or too few, or with bytes that are not text, is a bad row and never
    moves the cells of the others.
    """
    reader.unit = "line"
    start = reader.stream.peek(_SAMPLE_BYTES)
    excel = re.match(
        rb'"?sep=(.)"?\r?\n', start
    )  # what stands between cells, in a line by itself
    start = start[excel.end() if excel else 0 :]
    if not start.strip():
        return
    given = excel[1].decode("latin-1") if excel else reader.options.delimiter
    chosen: Dialect | None = None
    if given is not None:
        delimiter = given.replace("\\t", "\t")
        if len(delimiter) != 1 or delimiter in '\r\n"\0':
            hint = r"one character, such as ';' or '\t' for a tab"
            raise UsageError(f"not a delimiter: {delimiter!r}", hint=hint)
        chosen = (delimiter, csv.QUOTE_MINIMAL)
    likely = "\t" if ".tsv" in PurePath(reader.source.path.lower()).suffixes else ","
    # Spark writes a backslash before a quote in a cell, where csv expects a second quote.
    texts = dict.fromkeys((start, start.replace(b'\\"', b'""')))
    ways = [(text, chosen or _dialect(text, likely)) for text in texts]
    sample, dialect = max(ways, key=lambda way: len(_first_rows(*way, strict=True)))
    rows, header = _first_rows(sample, dialect), reader.options.header
    has_header = _is_header(rows) if header is None else header
    names = _column_names(rows, has_header=has_header)
    stream = cast("IO[bytes]", reader.stream)
    text = io.TextIOWrapper(stream, "utf-8", errors="surrogateescape", newline="")
    # The limit is one for the whole process, where other threads may be reading tables, too.
    csv.field_size_limit(_CELL_CHARS)
    lines = _lines(text, reader.source.path, is_escaped=sample != start)
    table = csv.reader(lines, delimiter=dialect[0], quoting=dialect[1])
    try:
        header_rows = has_header + bool(excel)
        for at, cells, _known in in_chunks(
            _data_rows(reader, table, len(names), header_rows)
        ):
            yield Chunk(at, [dict(zip(names, row, strict=True)) for row in cells])
    finally:
        with suppress(ValueError):  # closed already, because the reader was
            text.detach()


def _lines(text: io.TextIOWrapper, path: str, *, is_escaped: bool) -> Iterator[str]:
    for line in iter(partial(text.readline, MOST_ROW_BYTES), ""):
        if len(line) >= MOST_ROW_BYTES:
            raise DataError("too_long", path=path, most=MOST_ROW_BYTES >> 20)
        yield line.replace('\\"', '""') if is_escaped else line
    yield _END


def _data_rows(
    reader: RecordReader, table: Any, width: int, header_rows: int
) -> Iterator[tuple[int, list[str], int]]:
    """Rows as wide as the table, each with the line it starts on and its size."""
    bad, line = reader.problems.bad, 1
    while True:
        start = line
        try:
            row = next(table)
        except csv.Error as error:
            path, why = reader.source.path, str(error)
            raise DataError("not_a_table", path=path, line=start, why=why) from error
        line = table.line_num + 1
        if row == [_END]:
            return
        if row and row[-1].endswith(_END):
            return bad(start, DataError("open_quote"))
        if not row or header_rows:
            header_rows -= bool(row)
            continue
        if len(row) == width + 1 and not row[-1]:
            row.pop()  # a delimiter at the end of each line
        if len(row) != width:
            bad(start, DataError("cells", cells=len(row), width=width))
            continue
        joined = ",".join(row)
        if not joined.isascii():
            try:
                joined.encode("utf-8")
            except UnicodeEncodeError as error:
                byte = ord(joined[error.start]) & 0xFF
                bad(start, DataError("not_utf8", byte=byte, place=error.start + 1))
                continue
        yield start, row, len(joined)


def _first_rows(
    start: bytes, dialect: Dialect, *, strict: bool = False
) -> list[list[str]]:
    """Without the last one where the sample was cut off; `strict`, up to a cell that goes on after
    its closing quote."""
    text = io.StringIO(start.decode("utf-8", "surrogateescape"), newline="")
    table = csv.reader(text, delimiter=dialect[0], quoting=dialect[1], strict=strict)
    rows = list[list[str]]()
    with suppress(csv.Error):
        rows.extend(islice(filter(None, table), _SAMPLE_ROWS))
    return rows[:-1] if len(start) == _SAMPLE_BYTES and len(rows) > 1 else rows


def _dialect(start: bytes, likely: str) -> Dialect:
    """The one that gives most rows the same number of cells, more than one.

    Cells are counted as csv would split them, so that commas in quoted prose do not vote. Tabs
    often come without any quoting: a quote at the start of a cell is then just text, and taking it
    for quoting would glue lines together that are fine by themselves.
    """
    quoted = [(delimiter, csv.QUOTE_MINIMAL) for delimiter in (likely, *_DELIMITERS)]
    return max([*quoted, ("\t", csv.QUOTE_NONE)], key=partial(_consistency, start))


def _consistency(start: bytes, dialect: Dialect) -> tuple[float, int]:
    """The share of rows that are as wide as most, 0 for a single column; and the number of rows."""
    widths = Counter(map(len, _first_rows(start, dialect)))
    width, count = widths.most_common(1)[0] if widths else (0, 0)
    return (count / widths.total(), widths.total()) if width > 1 else (0.0, 0)


def looks_like_table(start: bytes) -> bool:
    """Is text without a suffix a table? Only if it begins with a header that is known to be one:
    prose has commas too.
    """
    if start[:1] in b"{[":
        return False
    dialect = _dialect(start, ",")
    (share, count), rows = _consistency(start, dialect), _first_rows(start, dialect)
    is_known = rows and any(cell.strip().lower() in _KNOWN_NAMES for cell in rows[0])
    return bool(is_known) and share > 0.9 and count > 1 and _is_header(rows)


_KNOWN_NAMES = frozenset((
    "answer", "answers", "category", "choices", "completion", "content", "context", "contexttokens",
    "generatedtokens", "id", "index", "input", "input_length", "instruction", "label", "messages",
    "output", "output_length", "prompt", "question", "response", "subject", "target", "task",
    "text", "timestamp",
))  # fmt: skip
_NAME = re.compile(r"#?[^\W\d][\w .:/#()\[\]'?@%&+-]{0,59}(?<![.:?])")


def _is_header(rows: list[list[str]]) -> bool:
    """Is the first row made of names? They are short, no numbers and no sentences; and unless one
    is known, distinct, and do not come again in the column below them.
    """
    if not rows:
        return False
    cells, below = [cell.strip() for cell in rows[0]], rows[1:]
    names = [cell for cell in cells if cell]  # pandas' index has no name
    is_known = any(cell.lower() in _KNOWN_NAMES for cell in names)
    words = 6 if is_known else 4
    are_names = all(
        _NAME.fullmatch(cell) and len(cell.split()) <= words for cell in names
    )
    if is_known or not are_names:
        return are_names
    are_distinct = bool(below and names) and len({*cells}) == len(cells)
    return are_distinct and not any(
        cell and any(index < len(row) and row[index].strip() == cell for row in below)
        for index, cell in enumerate(cells)
    )


def _column_names(rows: list[list[str]], *, has_header: bool) -> list[str]:
    """The header's names made unique, or column0, column1, ... as many as most rows have."""
    if not has_header:
        return [
            f"column{index}"
            for index in range(Counter(map(len, rows)).most_common(1)[0][0])
        ]
    cells = [
        cell.strip().encode("utf-8", "replace").decode("utf-8") for cell in rows[0]
    ]
    return unique_names([cell or f"column{i}" for i, cell in enumerate(cells)], "_")


# --- columns ---------------------------------------------------------------------------------

# About what one chunk holds, in Arrow's memory; as Python objects it is somewhat more.
_BATCH_BYTES = 2 << 20
_BATCH_ROWS = 4096


def saved_files(folder: Path, shown: str) -> list[Path]:
    """The data files of a saved dataset, in order, as its state.json lists them."""
    try:
        listed = orjson.loads((folder / "state.json").read_bytes())["_data_files"]
        names = [str(entry["filename"]) for entry in listed]
    except (OSError, ValueError, KeyError, TypeError):
        names = []
    if not names or any(name != PurePath(name).name for name in names):
        raise DataError("no_saved_files", path=f"{shown}/state.json")
    return [folder / name for name in names]


def columnar_rows(
    reader: RecordReader, columns: Sequence[str] | None
) -> Iterator[Chunk]:
    """Parquet, or Arrow's file and stream formats, whatever the name says; of what
    `datasets.save_to_disk` wrote, the Arrow files of the folder.
    """
    source = reader.source
    files = (
        saved_files(source.file or Path(), source.path)
        if source.format == "saved"
        else [None]
    )
    reader.is_divisible = source.format == "parquet" and source.member is None
    for path in files:
        with explaining(str(path or source.path)):
            file = reader.enter_context(path.open("rb")) if path else reader.file
            file.seek(0)
            start = file.read(8)
            file.seek(0)
            if start.startswith(b"PAR1"):
                batches = _parquet_batches(file, source.part, columns)
            else:
                batches = _ipc_batches(
                    file, columns, is_file=start.startswith(b"ARROW1")
                )
            for batch in batches:
                for part in _sliced(batch):
                    row, reader.positions = (
                        reader.positions,
                        reader.positions + part.num_rows,
                    )
                    reader.bytes_taken += part.nbytes
                    named = part.rename_columns(unique_names(part.schema.names, "_"))
                    # Spark's messages are maps; without any, asking takes five times as long.
                    maps = "lossy" if "map<" in str(part.schema.types) else None
                    records = named.to_pylist(maps_as_pydicts=maps)
                    yield Chunk(range(row + 1, reader.positions + 1), records)


def _parquet_batches(
    file: IO[bytes], part: range | None, columns: Sequence[str] | None
) -> Iterator[Any]:
    import pyarrow.parquet

    # Without pre-buffering a row group is read page by page, not whole.
    with pyarrow.parquet.ParquetFile(
        file, pre_buffer=False, buffer_size=1 << 20
    ) as parquet:
        groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
        columns_0 = [group.column(0) for group in groups]
        places = [c.dictionary_page_offset or c.data_page_offset for c in columns_0]
        chosen = [i for i, place in enumerate(places) if part is None or place in part]
        rows = max((groups[i].num_rows for i in chosen), default=1)
        wanted = [
            n for n in parquet.schema_arrow.names if n in (columns or ())
        ] or None  # all
        read = partial(parquet.iter_batches, row_groups=chosen, columns=wanted)
        # A text that comes again and again is written once: rows can hold far more than the file.
        for first in read(batch_size=16):
            rows = min(rows, first.num_rows * _BATCH_BYTES // max(first.nbytes, 1))
            break
        yield from read(batch_size=max(1, min(_BATCH_ROWS, rows)))


def _ipc_batches(
    file: IO[bytes], columns: Sequence[str] | None, *, is_file: bool
) -> Iterator[Any]:
    """Each is checked before anything looks inside: Arrow trusts the offsets in a file, and a
    damaged one would be read out of bounds.
    """
    import pyarrow.ipc

    with (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(file) as ipc:
        wanted = [name for name in ipc.schema.names if name in (columns or ())]
        numbered = (
            (ipc.get_batch(i) for i in range(ipc.num_record_batches))
            if is_file
            else ipc
        )
        for batch in numbered:
            chosen = batch.select(wanted) if wanted else batch
            chosen.validate(full=True)
            yield chosen


def _sliced(batch: Any) -> Iterator[Any]:
    """A batch in parts of bounded size: Feather writes 64 Ki rows at once, however long."""
    # A dictionary's words come again in each row.
    words = sum(
        batch.num_rows * column.dictionary.nbytes // max(len(column.dictionary), 1)
        for column in batch.columns
        if hasattr(column, "dictionary")
    )
    step = max(
        1,
        min(_BATCH_ROWS, batch.num_rows * _BATCH_BYTES // max(batch.nbytes + words, 1)),
    )
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


register(
    Format(
        name="csv",
        suffixes=(".csv", ".tsv"),
        rows=csv_rows,
        claims_start=looks_like_table,
    ),
    Format(
        name="parquet",
        suffixes=(".parquet", ".pq"),
        rows=columnar_rows,
        is_columnar=True,
    ),
    Format(
        name="arrow",
        suffixes=(".arrow", ".feather", ".ipc"),
        rows=columnar_rows,
        is_columnar=True,
    ),
    Format(name="saved", rows=columnar_rows, is_columnar=True),
)
