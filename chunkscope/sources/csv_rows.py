"""Rows of CSV and its relatives: dicts of strings."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
START_BYTES = 1 << 16  # in which the first row is looked for
# One cell may be this long; more means that a quote was never closed.
CELL_CHARS = 256 << 20
# Stands after the last line: a row by itself, unless a quote that is still open
# swallows it. Half a character is in no text, and no delimiter.
END = "\ud800"
# A name in a header is short and no sentence: `#alpha`, `Source URL`, `pass@1`.
NAME = re.compile(r"#?[^\W\d][\w .:/#()\[\]'?@%&+-]{0,59}(?<![.:?])")
NAME_WORDS = 4


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
        start = source.text.peek(START_BYTES)[:START_BYTES]
        self._delimiter = delimiter_of(source, start)
        first = first_row(start, self._delimiter)
        self._has_header = source.options.header
        if self._has_header is None:
            self._has_header = is_header(first)
        self._names = column_names(first, has_header=self._has_header)

    def chunks(self, _: Sequence[str] | None = None) -> Iterator[Chunk]:
        for chunk in in_chunks(self._rows()):
            records = [
                dict(zip(self._names, row, strict=True)) for row in chunk.records
            ]
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
            if cells[-1].endswith(END):
                problems.bad(line, DataError("open_quote"))
                return
            if len(cells) == width + 1 and not cells[-1]:
                cells.pop()  # a delimiter at the end of each line
            text = ",".join(cells)
            error = not_utf8(text)
            if len(cells) != width:
                error = DataError("cells", cells=len(cells), width=width)
            if error is None:
                yield Row(line, cells, len(text))
            else:
                problems.bad(line, error)

    def _table(self) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not empty, each with the line on which it starts."""
        # The limit holds for the whole process, where other threads may read tables.
        csv.field_size_limit(CELL_CHARS)
        table = csv.reader(self._lines(), delimiter=self._delimiter)
        while True:
            line = table.line_num + 1
            try:
                cells = next(table)
            except csv.Error as error:
                path = self._input.source.path
                why = str(error)
                raise DataError("not_a_table", path=path, line=line, why=why) from error
            if cells == [END]:
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
            yield END
        finally:
            with suppress(ValueError):  # closed already, with the source
                text.detach()


def not_utf8(text: str) -> DataError | None:
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


def first_row(start: bytes, delimiter: str) -> list[str]:
    """The first row that is not empty; cells are split as csv does, quotes and all."""
    text = start.decode("utf-8", "surrogateescape")
    with suppress(csv.Error):
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if row:
                return row
    return []


def delimiter_of(source: Input, start: bytes) -> str:
    """As the options or the name say, else the one that splits the first row most."""
    if source.options.delimiter is not None:
        return checked_delimiter(source.options.delimiter)
    if ".tsv" in PurePath(source.source.path.lower()).suffixes:
        return "\t"
    return max(DELIMITERS, key=lambda delimiter: len(first_row(start, delimiter)))


def checked_delimiter(text: str) -> str:
    delimiter = text.replace("\\t", "\t")
    if len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise UsageError(
            f"not a delimiter: {delimiter!r}",
            hint=r"one character, such as ';' or '\t' for a tab",
        )
    return delimiter


def is_header(row: list[str]) -> bool:
    """Whether it is made of different names; pandas' index has none."""
    names = [cell.strip() for cell in row if cell.strip()]
    for name in names:
        if NAME.fullmatch(name) is None or len(name.split()) > NAME_WORDS:
            return False
    return len(set(names)) == len(names)


def column_names(first: list[str], *, has_header: bool) -> list[str]:
    """The header's names made unique; column0, column1, ... where there is none."""
    names = []
    for index, cell in enumerate(first):
        name = cell.strip().encode("utf-8", "replace").decode("utf-8")
        if not has_header or not name:
            name = f"column{index}"
        names.append(name)
    return unique_names(names, "_")
