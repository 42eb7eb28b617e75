"""Rows of CSV and its relatives: dicts of strings."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from typing import Any

from chunkscope.errors import UsageError
from chunkscope.sources.base import (
    MOST_ROW_BYTES,
    Chunk,
    DataError,
    Row,
    in_chunks,
    unique_names,
)
from chunkscope.sources.input import Input

DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_BYTES = 1 << 16
_SAMPLE_ROWS = 200
# One cell may be this long; more means that a quote was never closed.
_CELL_CHARS = 256 << 20
# Stands after the last line: a row by itself, unless a quote that is still open
# swallows it. Half a character is in no text, and no delimiter.
_END = "\ud800"


class CsvRows:
    """Positions are the lines on which rows start.

    A row with a cell too many or too few, or with bytes that are not text, is a bad row
    and never moves the cells of the others.
    """

    format = "csv"
    unit = "line"
    metadata: Mapping[str, Any] = {}

    def __init__(self, source: Input) -> None:
        self._input = source
        start = source.text.peek(_SAMPLE_BYTES)[:_SAMPLE_BYTES]
        sample = Sample(start if start.strip() else b"")
        self._delimiter = _delimiter_of(source, sample)
        rows = sample.rows(self._delimiter)
        self._has_header = source.options.header
        if self._has_header is None:
            self._has_header = is_header(rows)
        self._names = _column_names(rows, has_header=self._has_header)

    def chunks(self, _: Sequence[str] | None = None) -> Iterator[Chunk]:
        names = self._names
        if not names:  # an empty file
            return
        for chunk in in_chunks(self._rows()):
            records = [dict(zip(names, row, strict=True)) for row in chunk.records]
            yield Chunk(chunk.positions, records)

    def _rows(self) -> Iterator[Row]:
        """Rows that are as wide as the table."""
        problems = self._input.problems
        width = len(self._names)
        skips_header = self._has_header
        for line, cells in self._table():
            if skips_header:
                skips_header = False
                continue
            if cells[-1].endswith(_END):
                problems.bad(line, DataError("open_quote"))
                return
            if len(cells) == width + 1 and not cells[-1]:
                cells.pop()  # a delimiter at the end of each line
            if len(cells) != width:
                problems.bad(line, DataError("cells", cells=len(cells), width=width))
                continue
            text = ",".join(cells)
            error = _not_utf8(text)
            if error is not None:
                problems.bad(line, error)
                continue
            yield Row(line, cells, len(text))

    def _table(self) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not empty, each with the line on which it starts."""
        # The limit holds for the whole process, where other threads may read tables.
        csv.field_size_limit(_CELL_CHARS)
        table = csv.reader(self._lines(), delimiter=self._delimiter)
        while True:
            line = table.line_num + 1
            try:
                cells = next(table)
            except csv.Error as error:
                path = self._input.source.path
                why = str(error)
                raise DataError("not_a_table", path=path, line=line, why=why) from error
            if cells == [_END]:
                return
            if cells:
                yield line, cells

    def _lines(self) -> Iterator[str]:
        stream = self._input.text
        text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline="")
        try:
            while line := text.readline(MOST_ROW_BYTES):
                if len(line) >= MOST_ROW_BYTES:
                    path = self._input.source.path
                    raise DataError("too_long", path=path, most=MOST_ROW_BYTES >> 20)
                yield line
            yield _END
        finally:
            with suppress(ValueError):  # closed already, with the source
                text.detach()


def _not_utf8(text: str) -> DataError | None:
    """The bad row that a text with undecodable bytes is."""
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        return DataError("not_utf8", byte=byte, place=error.start + 1)
    return None


# --- delimiter and header -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """The start of a table."""

    data: bytes

    def rows(self, delimiter: str) -> list[list[str]]:
        """The first rows, without the last one where the sample was cut off."""
        text = self.data.decode("utf-8", "surrogateescape")
        table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows = []
        with suppress(csv.Error):
            for row in islice(table, _SAMPLE_ROWS):
                if row:
                    rows.append(row)
        if len(self.data) == _SAMPLE_BYTES and len(rows) > 1:
            rows.pop()
        return rows

    def consistency(self, delimiter: str) -> float:
        """The share of rows that are as wide as most; 0 for a single column.

        Cells are counted as csv splits them, so that commas in quoted prose do not
        count.
        """
        widths = Counter(len(row) for row in self.rows(delimiter))
        if not widths:
            return 0.0
        width, count = widths.most_common(1)[0]
        return count / widths.total() if width > 1 else 0.0

    def delimiter(self) -> str:
        """The delimiter that splits most rows into the same number of cells."""
        return max(DELIMITERS, key=self.consistency)


def _delimiter_of(source: Input, sample: Sample) -> str:
    if source.options.delimiter is not None:
        return _checked_delimiter(source.options.delimiter)
    if ".tsv" in PurePath(source.source.path.lower()).suffixes:
        if sample.consistency("\t") > 0:
            return "\t"
    return sample.delimiter()


def _checked_delimiter(text: str) -> str:
    delimiter = text.replace("\\t", "\t")
    if len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise UsageError(
            f"not a delimiter: {delimiter!r}",
            hint=r"one character, such as ';' or '\t' for a tab",
        )
    return delimiter


def looks_like_table(start: bytes) -> bool:
    """Whether text without a suffix is a table.

    It has to begin with a header that has a well-known name: prose has commas, too.
    """
    if start[:1] in (b"{", b"["):
        return False
    sample = Sample(start[:_SAMPLE_BYTES])
    delimiter = sample.delimiter()
    rows = sample.rows(delimiter)
    if len(rows) < 2 or sample.consistency(delimiter) <= 0.9:
        return False
    return _has_known_name(rows[0]) and is_header(rows)


_KNOWN_NAMES = frozenset((
    "answer", "answers", "category", "choices", "completion", "content", "context",
    "contexttokens", "generatedtokens", "id", "index", "input", "input_length",
    "instruction", "label", "messages", "output", "output_length", "prompt", "question",
    "response", "subject", "target", "task", "text", "timestamp",
))  # fmt: skip
# A name is short and no sentence: `#alpha`, `Source URL`, `pass@1`, `Is it?_1 (a b) c`.
_NAME = re.compile(r"#?[^\W\d][\w .:/#()\[\]'?@%&+-]{0,59}(?<![.:?])")
_NAME_WORDS = 4
_NAME_WORDS_BESIDE_KNOWN = 6


def is_header(rows: list[list[str]]) -> bool:
    """Whether the first row is made of names.

    Unless one of them is well known, they have to differ, and none may come again in
    the column below it.
    """
    if not rows:
        return False
    cells = [cell.strip() for cell in rows[0]]
    has_known = _has_known_name(cells)
    most_words = _NAME_WORDS_BESIDE_KNOWN if has_known else _NAME_WORDS
    names = [cell for cell in cells if cell]  # pandas' index has no name
    if not all(_is_name(name, most_words) for name in names):
        return False
    if has_known or not names:
        return True
    if len(rows) == 1 or len(set(cells)) < len(cells):
        return False
    return not any(_comes_again(cells, row) for row in rows[1:])


def _is_name(cell: str, most_words: int) -> bool:
    return _NAME.fullmatch(cell) is not None and len(cell.split()) <= most_words


def _has_known_name(cells: list[str]) -> bool:
    return any(cell.strip().lower() in _KNOWN_NAMES for cell in cells)


def _comes_again(names: list[str], row: list[str]) -> bool:
    """Whether a cell of a row is the name of its column."""
    pairs = zip(names, row, strict=False)
    return any(name and name == cell.strip() for name, cell in pairs)


def _column_names(rows: list[list[str]], *, has_header: bool) -> list[str]:
    """The header's names made unique, or column0, column1, ... of the usual width."""
    if not has_header:
        widths = Counter(len(row) for row in rows)
        width = max(widths, key=widths.__getitem__, default=0)
        return [f"column{index}" for index in range(width)]
    names = []
    for index, cell in enumerate(rows[0]):
        name = cell.strip().encode("utf-8", "replace").decode("utf-8")
        names.append(name or f"column{index}")
    return unique_names(names, "_")
