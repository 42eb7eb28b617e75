"""Rows of tables: CSV and its relatives, Parquet, Arrow, and what `save_to_disk` wrote.

The columnar formats go through pyarrow (imported when needed). Their data is checked before it
becomes Python objects: Arrow trusts the offsets in a file, and a damaged one would otherwise be
read out of bounds.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import IO, Any, cast

import orjson

from chunkscope.errors import ChunkscopeError, InputError, UsageError
from chunkscope.sources.base import MOST_ROW_BYTES, Chunk, first_line, too_long, unique_names
from chunkscope.sources.json_rows import not_utf8
from chunkscope.sources.reader import RecordReader, in_chunks
from chunkscope.sources.remote import explained

_DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_BYTES = 1 << 16
_SAMPLE_ROWS = 200
# One cell may be this long; more means that a quote was never closed.
_CELL_CHARS = 256 << 20
# Put after the last line: a row by itself, unless a quote that is still open swallows it.
_END = "\0end of file\0"


@dataclass(frozen=True, slots=True)
class TableDialect:
    delimiter: str
    quoted: bool = True

    def rows(self, lines: Iterator[str]) -> Any:  # csv.reader's class has no public name
        if self.quoted:
            return csv.reader(lines, delimiter=self.delimiter)
        return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)


def csv_rows(reader: RecordReader, _: Sequence[str] | None) -> Iterator[Chunk]:
    """Dicts of strings; positions are the lines on which rows start.

    A row with a cell too many or too few, or with bytes that are not text, is a bad row and never
    moves the cells of the others.
    """
    reader.unit = "line"
    start = reader.stream.peek(_SAMPLE_BYTES)
    if not start.strip():
        return
    sample, is_cut = start.decode("utf-8", errors="surrogateescape"), len(start) == _SAMPLE_BYTES
    if reader.options.delimiter is not None:
        dialect = TableDialect(checked_delimiter(reader.options.delimiter))
    else:
        is_tsv = ".tsv" in PurePath(reader.source.path.lower()).suffixes
        dialect = find_dialect(sample, cut=is_cut, likely="\t" if is_tsv else ",")
    rows, header = sample_rows(sample, dialect, cut=is_cut), reader.options.header
    has_header = looks_like_header(rows) if header is None else header
    names = column_names(rows, has_header=has_header)
    text = io.TextIOWrapper(
        cast("IO[bytes]", reader.stream), "utf-8", errors="surrogateescape", newline=""
    )
    try:
        table = dialect.rows(_lines(text, reader.source.path))
        for positions, cells in in_chunks(_data_rows(reader, table, len(names), has_header)):
            yield Chunk(positions, [dict(zip(names, row, strict=True)) for row in cells])
    finally:
        with suppress(ValueError):  # closed already, because the reader was
            text.detach()


def _lines(text: io.TextIOWrapper, path: str) -> Iterator[str]:
    for line in iter(partial(text.readline, MOST_ROW_BYTES), ""):
        if len(line) >= MOST_ROW_BYTES:
            raise too_long(path, "a line")
        yield line
    yield _END


def _data_rows(
    reader: RecordReader, table: Any, width: int, header_due: bool
) -> Iterator[tuple[int, list[str], int]]:
    """Rows as wide as the table, each with the line it starts on and its size."""
    bad, line = reader.problems.bad, 1
    for row in _parsed(table, reader):
        start, line = line, table.line_num + 1
        if not row or row == [_END]:
            continue
        if row[-1].endswith(_END):
            bad(start, "a quote is opened here and never closed (truncated?)")
            return
        if header_due:
            header_due = False
            continue
        if len(row) == width + 1 and not row[-1]:
            row.pop()  # a delimiter at the end of each line
        if len(row) != width:
            cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            bad(start, f"{cells} where the table has {width}")
            continue
        joined = ",".join(row)
        if not joined.isascii():
            try:
                joined.encode("utf-8")
            except UnicodeEncodeError as error:
                bad(start, not_utf8(ord(joined[error.start]) & 0xFF, error.start + 1))
                continue
        yield start, row, len(joined)


def _parsed(table: Any, reader: RecordReader) -> Iterator[list[str]]:
    """The rows; what cannot be parsed is a bad row, and it goes on after it."""
    # The limit is one for the whole process, and other threads may be reading tables too: it is
    # raised and left so.
    csv.field_size_limit(_CELL_CHARS)
    while True:
        start = table.line_num + 1
        try:
            yield from table
        except csv.Error as error:
            is_long = "field limit" in str(error)
            limit = f"a cell of more than {_CELL_CHARS >> 20} MB (a quote that is never closed?)"
            reader.problems.bad(start, limit if is_long else f"not valid CSV: {error}")
            yield []
        else:
            return


def checked_delimiter(given: str) -> str:
    r"""A delimiter from the command line, where a tab may be spelled `\t`."""
    delimiter = {"\\t": "\t", "tab": "\t"}.get(given, given)
    if len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise UsageError(
            f"not a delimiter: {given!r}", hint=r"one character, such as ';' or '\t' for a tab"
        )
    return delimiter


def sample_rows(sample: str, dialect: TableDialect, *, cut: bool) -> list[list[str]]:
    """The first rows; where the sample was cut off the last one is not whole and left out."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        for row in dialect.rows(iter(io.StringIO(sample, newline=""))):
            if row:
                rows.append(row)
            if len(rows) > _SAMPLE_ROWS:
                return rows
        return rows[:-1] if cut and len(rows) > 1 else rows
    return rows


def find_dialect(sample: str, *, cut: bool, likely: str) -> TableDialect:
    """The delimiter that gives most rows the same number of cells, more than one.

    Cells are counted as csv would split them, so that commas in quoted prose do not vote.
    """
    best, best_share, best_rows = TableDialect(likely), 0.0, 0
    for delimiter in (likely, *(d for d in _DELIMITERS if d != likely)):
        share, rows = _consistency(sample, TableDialect(delimiter), cut)
        if share > best_share:
            best, best_share, best_rows = TableDialect(delimiter), share, rows
    if best_share and best.delimiter == "\t":
        # Tabs often come without any quoting: a quote at the start of a cell is then just text,
        # and taking it for quoting would glue lines together that are fine by themselves.
        unquoted = TableDialect("\t", quoted=False)
        share, rows = _consistency(sample, unquoted, cut)
        if share >= best_share and rows > best_rows:
            return unquoted
    return best


def looks_like_table(sample: str, *, cut: bool) -> bool:
    """Is text without a suffix a table? Only if it begins with a header that is known to be one:
    prose has commas too.
    """
    dialect = find_dialect(sample, cut=cut, likely=",")
    share, count = _consistency(sample, dialect, cut)
    rows = sample_rows(sample, dialect, cut=cut)
    is_known = rows and any(cell.strip().lower() in _KNOWN_NAMES for cell in rows[0])
    return bool(is_known) and share > 0.9 and count > 1 and looks_like_header(rows)


def _consistency(sample: str, dialect: TableDialect, cut: bool) -> tuple[float, int]:
    """The share of rows that are as wide as most, 0 for a single column; and the number of rows."""
    widths = Counter(map(len, sample_rows(sample, dialect, cut=cut)))
    if not widths:
        return 0.0, 0
    width, count = widths.most_common(1)[0]
    return (count / widths.total() if width > 1 else 0.0), widths.total()


_KNOWN_NAMES = frozenset((
    "answer", "answers", "category", "choices", "completion", "content", "context", "contexttokens",
    "generatedtokens", "id", "index", "input", "input_length", "instruction", "label", "messages",
    "output", "output_length", "prompt", "question", "response", "subject", "target", "task",
    "text", "timestamp",
))  # fmt: skip
_NAME = re.compile(r"[^\W\d][\w .:/#()\[\]-]{0,39}")


def looks_like_header(rows: list[list[str]]) -> bool:
    """Is the first row made of names? They are short, distinct, no numbers and no sentences, and
    do not come again in the column below them.
    """
    if not rows:
        return False
    cells, below = [cell.strip() for cell in rows[0]], rows[1:]
    named = cells[1:] if len(cells) > 1 and not cells[0] else cells  # pandas' index has no name
    if not all(_is_name(cell) for cell in named) or len({*named}) != len(named):
        return False
    if any(cell.lower() in _KNOWN_NAMES for cell in named):
        return True
    return bool(below) and not any(
        cell and any(index < len(row) and row[index].strip() == cell for row in below)
        for index, cell in enumerate(cells)
    )


def _is_name(cell: str) -> bool:
    return bool(_NAME.fullmatch(cell)) and len(cell.split()) <= 4 and not cell.endswith((".", ":"))


def column_names(sample: list[list[str]], *, has_header: bool) -> list[str]:
    """The header's names made unique, or column0, column1, ... as many as most rows have."""
    if not sample:
        raise InputError(
            "no rows could be read",
            hint="is it a table? See input_format in `chunkscope help config`",
        )
    if not has_header:
        width = Counter(map(len, sample)).most_common(1)[0][0]
        return [f"column{index}" for index in range(width)]
    cells = [cell.strip().encode("utf-8", "replace").decode("utf-8") for cell in sample[0]]
    return unique_names([cell or f"column{i}" for i, cell in enumerate(cells)], "_")


# --- columns ---------------------------------------------------------------------------------

# About what one chunk holds, in Arrow's memory; as Python objects it is somewhat more.
_BATCH_BYTES = 2 << 20
_BATCH_ROWS = 4096
_PROBE_ROWS = 16


def columnar_rows(reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
    """Parquet, or Arrow's file and stream formats, whatever the name says."""
    reader.is_divisible = reader.source.format == "parquet" and reader.source.member is None
    yield from _batch_chunks(reader, reader.file, columns)


def saved_rows(reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
    source = reader.source
    if source.file is None:
        raise InputError(f"{source.path} is no folder", hint="name a folder from save_to_disk")
    for path in saved_files(source.file, source.path):
        with path.open("rb") as file:
            yield from _batch_chunks(reader, file, columns)


def _batch_chunks(
    reader: RecordReader, file: IO[bytes], columns: Sequence[str] | None
) -> Iterator[Chunk]:
    try:
        for batch in _batches(reader, file, columns):
            for part in _sliced(batch):
                records, row = part.to_pylist(), reader.positions + 1
                reader.positions += len(records)
                reader.bytes_taken += part.nbytes
                yield Chunk(range(row, row + len(records)), records)
    except (ChunkscopeError, MemoryError, GeneratorExit):
        raise
    except Exception as error:  # pyarrow borrows from all over Python's own error tree
        if reader.source.url is not None and not isinstance(error, ValueError):
            raise explained(reader.source.path, error) from error
        raise InputError(
            f"cannot read {reader.source.path} as {reader.format}: {first_line(error)}",
            hint="the file may be damaged or cut off; fetch or write it again",
        ) from error


def _batches(reader: RecordReader, file: IO[bytes], columns: Sequence[str] | None) -> Iterator[Any]:
    file.seek(0)
    start = file.read(8)
    file.seek(0)
    if start.startswith(b"PAR1"):
        return _parquet_batches(reader, file, columns)
    if start.startswith(b"FEA1"):
        raise InputError(
            f"{reader.source.path} is Feather version 1, which is not read",
            hint="write it again as version 2, with pyarrow.feather.write_feather",
        )
    return _ipc_batches(file, columns, is_file=start.startswith(b"ARROW1"))


def _parquet_batches(
    reader: RecordReader, file: IO[bytes], columns: Sequence[str] | None
) -> Iterator[Any]:
    import pyarrow.parquet

    # Without pre-buffering a row group is read page by page, not whole.
    with pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as parquet:
        meta = parquet.metadata
        groups = [i for i in range(meta.num_row_groups) if _is_in(meta.row_group(i), reader.part)]
        size = sum(meta.row_group(i).total_byte_size for i in groups)
        num_rows = sum(meta.row_group(i).num_rows for i in groups)
        rows = max(1, min(_BATCH_ROWS, num_rows * _BATCH_BYTES // max(size, 1)))
        wanted = _existing(parquet.schema_arrow.names, columns)
        read = partial(parquet.iter_batches, row_groups=groups, columns=wanted)
        # A text that comes again and again is written once: rows can hold far more than the file.
        for first in read(batch_size=min(rows, _PROBE_ROWS)):
            rows = max(1, min(rows, first.num_rows * _BATCH_BYTES // max(first.nbytes, 1)))
            break
        yield from read(batch_size=rows)


def _is_in(group: Any, part: tuple[int, int | None]) -> bool:
    """Whether a row group's first page lies between two bytes of the file."""
    column, (start, end) = group.column(0), part
    place = column.data_page_offset
    if column.has_dictionary_page:
        place = min(place, column.dictionary_page_offset)
    return bool(start <= place and (end is None or place < end))


def _ipc_batches(file: IO[bytes], columns: Sequence[str] | None, *, is_file: bool) -> Iterator[Any]:
    import pyarrow.ipc

    open_ipc = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
    with open_ipc(file) as ipc:
        names = ipc.schema.names
    file.seek(0)
    wanted = _existing(names, columns)
    fields = [names.index(name) for name in wanted] if wanted is not None else None
    with open_ipc(file, options=pyarrow.ipc.IpcReadOptions(included_fields=fields)) as ipc:
        if is_file:
            for index in range(ipc.num_record_batches):
                yield ipc.get_batch(index)
        else:
            yield from ipc


def _existing(names: Sequence[str], columns: Sequence[str] | None) -> list[str] | None:
    """The wanted columns that there are; all of them (None) when there is not one."""
    wanted = [name for name in names if columns is not None and name in columns]
    return wanted or None


def _sliced(batch: Any) -> Iterator[Any]:
    """A batch in parts of bounded size: Feather writes 64 Ki rows at once, however long. Before it
    is known to be sound all through nothing may look inside, not even nbytes.
    """
    batch.validate(full=True)
    # A dictionary's words come again in each row.
    words = sum(
        batch.num_rows * column.dictionary.nbytes // max(len(column.dictionary), 1)
        for column in batch.columns
        if hasattr(column, "dictionary")
    )
    rows = batch.num_rows * _BATCH_BYTES // max(batch.nbytes + words, 1)
    step = max(1, min(_BATCH_ROWS, rows))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


# --- datasets.save_to_disk -------------------------------------------------------------------


def saved_splits(folder: Path) -> list[str] | None:
    """The splits of a saved `DatasetDict`, [""] for a single saved dataset, None for neither."""
    if (folder / "dataset_dict.json").is_file():
        listed = _json_object(folder / "dataset_dict.json").get("splits")
        splits = listed if isinstance(listed, list) else []
        return [s for s in splits if _is_plain_name(s) and (folder / s).is_dir()]
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        return [""]
    return None


def saved_files(folder: Path, shown: str) -> list[Path]:
    """The data files of a saved dataset, in order, as its state.json lists them."""
    state = _json_object(folder / "state.json")
    listed = state.get("_data_files")
    names = [entry.get("filename") for entry in listed or [] if isinstance(entry, dict)]
    if not names or not all(map(_is_plain_name, names)):
        raise InputError(
            f"{shown}/state.json lists no data files", hint="save the dataset again: save_to_disk"
        )
    if state.get("_indices_data_files"):
        raise InputError(
            f"{shown} was saved with an index on top, by an old version of datasets",
            hint="load it and save it again with save_to_disk",
        )
    return [folder / str(name) for name in names]


def _json_object(path: Path) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}", hint="save the dataset again") from error
    return value if isinstance(value, dict) else {}


def _is_plain_name(name: object) -> bool:
    """A name inside the folder, not a way out of it."""
    is_name = isinstance(name, str) and bool(name) and name not in (".", "..")
    return is_name and "/" not in str(name) and "\\" not in str(name)
