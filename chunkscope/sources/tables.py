"""CSV and its relatives: delimiter and header are found by looking, and can be given.

Records are dicts of strings. A row with a cell too many or too few, or with bytes that are not
text, is a bad row and never moves the cells of the others.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import IO, Protocol, cast

from chunkscope.errors import InputError, UsageError
from chunkscope.prompts.paths import all_unicode
from chunkscope.sources.base import (
    CHUNK_BYTES,
    MOST_ROW_BYTES,
    Chunk,
    Problems,
    ReadOptions,
    Source,
    too_long,
    unique_names,
)
from chunkscope.sources.byte_stream import ByteStream
from chunkscope.sources.lines import not_utf8
from chunkscope.sources.reader import StreamReader, in_chunks

_DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_BYTES = 1 << 16
_SAMPLE_ROWS = 200
# One cell may be this long; more means that a quote was never closed.
_CELL_CHARS = 256 << 20
# Put after the last line: a row by itself, unless a quote that is still open swallows it.
_END = "\0"


class CsvRows(Protocol):
    """What csv.reader returns; its class has no public name."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...


@dataclass(frozen=True, slots=True)
class TableDialect:
    delimiter: str
    quoted: bool = True

    def rows(self, lines: Iterator[str]) -> CsvRows:
        if self.quoted:
            return csv.reader(lines, delimiter=self.delimiter)
        return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)


class TableReader(StreamReader):
    """Reads .csv and .tsv; positions are the line numbers on which rows start."""

    unit = "line"

    def __init__(
        self, source: Source, problems: Problems, stream: ByteStream, options: ReadOptions
    ) -> None:
        super().__init__(source, problems, stream)
        self._options = options
        self._ended = False

    def _read(self) -> Iterator[Chunk]:
        start = self._stream.peek(_SAMPLE_BYTES)
        if not start.strip():
            return
        sample = start.decode("utf-8", errors="surrogateescape")
        cut = len(start) == _SAMPLE_BYTES
        dialect = self._dialect(sample, cut)
        rows = sample_rows(sample, dialect, cut=cut)
        has_header = self._options.header
        if has_header is None:
            has_header = looks_like_header(rows)
        text = io.TextIOWrapper(
            cast("IO[bytes]", _Raw(self._stream)),
            encoding="utf-8",
            errors="surrogateescape",
            newline="",
        )
        try:
            yield from self._records(dialect.rows(self._lines(text)), rows, has_header)
        finally:
            with suppress(ValueError):  # closed already, because the reader was
                text.detach()

    def _lines(self, text: io.TextIOWrapper) -> Iterator[str]:
        for line in iter(partial(text.readline, MOST_ROW_BYTES), ""):
            if len(line) >= MOST_ROW_BYTES:
                raise too_long(self.source.path, "a line")
            yield line
        self._ended = True
        yield _END

    def _dialect(self, sample: str, cut: bool) -> TableDialect:
        if self._options.delimiter is not None:
            return TableDialect(checked_delimiter(self._options.delimiter))
        is_tsv = ".tsv" in PurePath(self.source.path.lower()).suffixes
        return find_dialect(sample, cut=cut, likely="\t" if is_tsv else ",")

    def _records(
        self, reader: CsvRows, sample: list[list[str]], has_header: bool
    ) -> Iterator[Chunk]:
        names = column_names(sample, has_header=has_header)
        for chunk in in_chunks(self._data_rows(reader, len(names), has_header)):
            positions, rows = self._without_bad_bytes(chunk)
            yield Chunk(positions, [dict(zip(names, row, strict=True)) for row in rows])

    def _data_rows(
        self, reader: CsvRows, width: int, header_due: bool
    ) -> Iterator[tuple[int, list[str], int]]:
        """Rows as wide as the table, each with the line it starts on and its size."""
        line = 1
        for row in self._rows(reader):
            start, line = line, reader.line_num + 1
            if not row:
                continue
            if self._ended:
                if row != [_END] and not self._stream.grew:
                    self.problems.bad(start, "a quote is opened here and never closed (truncated?)")
                return
            if header_due:
                header_due = False
            elif len(row) == width:
                yield start, row, sum(map(len, row))
            elif len(row) == width + 1 and not row[-1]:
                row.pop()  # a delimiter at the end of each line
                yield start, row, sum(map(len, row))
            else:
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                self.problems.bad(start, f"{cells} where the table has {width}")

    def _rows(self, reader: CsvRows) -> Iterator[list[str]]:
        """The reader's rows; what it cannot parse is a bad row, and it goes on after it."""
        # The limit is one for the whole process, and other threads may be reading tables too: it
        # is raised and left so.
        csv.field_size_limit(_CELL_CHARS)
        while True:
            start = reader.line_num + 1
            try:
                yield from reader
            except csv.Error as error:
                self.problems.bad(start, _csv_words(error))
                yield []
            else:
                return

    def _without_bad_bytes(self, chunk: Chunk) -> tuple[Sequence[int], list[list[str]]]:
        positions, rows = chunk
        if all_unicode(map("".join, rows)):
            return positions, rows
        good: list[tuple[int, list[str]]] = []
        for position, row in zip(positions, rows, strict=True):
            try:
                joined = ",".join(row)
                joined.encode("utf-8")
            except UnicodeEncodeError as error:
                byte = ord(joined[error.start]) & 0xFF
                self.problems.bad(position, not_utf8(byte, error.start + 1))
            else:
                good.append((position, row))
        return [position for position, _ in good], [row for _, row in good]


class _Raw(io.BufferedIOBase):
    """A ByteStream as what TextIOWrapper wants."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read1(self, size: int | None = -1, /) -> bytes:
        return self._stream.read(CHUNK_BYTES if size is None or size < 0 else max(size, 1 << 16))

    def read(self, size: int | None = -1, /) -> bytes:
        return self.read1(size)


def _csv_words(error: csv.Error) -> str:
    if "field limit" in str(error):
        return f"a cell of more than {_CELL_CHARS >> 20} MB (a quote that is never closed?)"
    return f"not valid CSV: {error}"


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
    lines = io.StringIO(sample, newline="")
    try:
        for row in dialect.rows(iter(lines)):
            if row:
                rows.append(row)
            if len(rows) > _SAMPLE_ROWS:
                return rows
    except csv.Error:
        return rows
    return rows[:-1] if cut and len(rows) > 1 else rows


def find_dialect(sample: str, *, cut: bool, likely: str) -> TableDialect:
    """The delimiter that gives most rows the same number of cells, more than one.

    Cells are counted as csv would split them, so that commas in quoted prose do not vote.
    """
    best, best_share = TableDialect(likely), 0.0
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
    known = rows and any(cell.strip().lower() in _KNOWN_NAMES for cell in rows[0])
    return bool(known) and share > 0.9 and count > 1 and looks_like_header(rows)


def _consistency(sample: str, dialect: TableDialect, cut: bool) -> tuple[float, int]:
    """The share of rows that are as wide as most, 0 for a single column; and the number of rows."""
    widths = Counter(map(len, sample_rows(sample, dialect, cut=cut)))
    if not widths:
        return 0.0, 0
    width, count = widths.most_common(1)[0]
    return (count / widths.total() if width > 1 else 0.0), widths.total()


# --- header ----------------------------------------------------------------------------------

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
    first, below = rows[0], rows[1:]
    cells = [cell.strip() for cell in first]
    named = cells[1:] if len(cells) > 1 and not cells[0] else cells  # pandas' index has no name
    if not all(_is_name(cell) for cell in named) or len({*named}) != len(named):
        return False
    if any(cell.lower() in _KNOWN_NAMES for cell in named):
        return True
    if not below:
        return False
    return not any(
        cell and any(index < len(row) and row[index].strip() == cell for row in below)
        for index, cell in enumerate(cells)
    )


def _is_name(cell: str) -> bool:
    return bool(_NAME.fullmatch(cell)) and len(cell.split()) <= 4 and not cell.endswith((".", ":"))


def column_names(sample: list[list[str]], *, has_header: bool) -> list[str]:
    """The header's names made unique, or column0, column1, ... as many as most rows have."""
    if not sample:
        raise InputError("no rows could be read", hint="is it a table? try --input-format text")
    if not has_header:
        width = Counter(map(len, sample)).most_common(1)[0][0]
        return [f"column{index}" for index in range(width)]
    cells = [cell.strip().encode("utf-8", "replace").decode("utf-8") for cell in sample[0]]
    return unique_names([cell or f"column{i}" for i, cell in enumerate(cells)], "_")
