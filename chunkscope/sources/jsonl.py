"""Rows that are lines: JSON Lines and lines of plain text; and a text as one row.

The hot path hands whole blocks of lines to orjson without a Python call per row. Only a
block that holds something odd is looked at line by line.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from chunkscope.sources.base import CHUNK_BYTES, MOST_ROW_BYTES, Chunk, DataError
from chunkscope.sources.input import Input
from chunkscope.sources.open import Stream, read_whole

Line = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive lines, without their ends; `first` is the number of the first one."""

    first: int
    lines: list[Line]


def line_blocks(stream: Stream, path: str) -> Iterator[LineBlock]:
    """Lines in blocks of about a megabyte.

    Only b"\\n" ends a line: U+2028 and U+0085 are data, and `bytes.splitlines` would
    break at a lone carriage return. A line is not copied; one that is longer than a
    block grows in place.
    """
    number = 1
    begun = bytearray()  # the start of a line whose end has not come yet
    # `read1` gives what came before an error; `read` would lose it.
    while data := stream.read1(CHUNK_BYTES):
        view = memoryview(data)
        lines: list[Line] = []
        start = 0
        end = data.find(b"\n")
        while end >= 0:
            lines.append(view[start:end])
            start = end + 1
            end = data.find(b"\n", start)
        if lines:
            begun += lines[0]
            lines[0] = begun
            begun = bytearray()
            yield LineBlock(number, lines)
            number += len(lines)
            lines.clear()  # rows can be 100 MB long: let go of them before reading on
        begun += view[start:]
        if len(begun) > MOST_ROW_BYTES:
            place = f"{path}:{number}"
            raise DataError("too_long", path=place, most=MOST_ROW_BYTES >> 20)
    if begun:
        yield LineBlock(number, [begun])


class JsonLines:
    """A JSON value on each line."""

    format = "jsonl"
    unit = "line"
    metadata: Mapping[str, Any] = {}

    def __init__(self, source: Input) -> None:
        self._input = source

    def chunks(self, _: Sequence[str] | None = None) -> Iterator[Chunk]:
        path = self._input.source.path
        for block in line_blocks(self._input.text, path):
            yield self._chunk(block)

    def _chunk(self, block: LineBlock) -> Chunk:
        positions = range(block.first, block.first + len(block.lines))
        try:
            records = list(map(orjson.loads, block.lines))
        except (ValueError, RecursionError):
            return self._line_by_line(block)
        return Chunk(positions, records)

    def _line_by_line(self, block: LineBlock) -> Chunk:
        """The lines that can be read and are not blank; others are bad rows."""
        positions = []
        records = []
        for number, line in enumerate(block.lines, start=block.first):
            data = bytes(line)
            if not data.strip():
                continue
            try:
                records.append(parse_value(data))
                positions.append(number)
            except DataError as error:
                self._input.problems.bad(number, error)
        return Chunk(positions, records)


class TextLines:
    """Each line of a text that is not blank."""

    format = "text"
    unit = "line"
    metadata: Mapping[str, Any] = {}

    def __init__(self, source: Input) -> None:
        self._input = source

    def chunks(self, _: Sequence[str] | None = None) -> Iterator[Chunk]:
        for block in line_blocks(self._input.text, self._input.source.path):
            positions = []
            records = []
            for number, line in enumerate(block.lines, start=block.first):
                data = bytes(line).removesuffix(b"\r")
                if not data.strip():
                    continue
                try:
                    records.append(text_of(data))
                    positions.append(number)
                except DataError as error:
                    self._input.problems.bad(number, error)
            yield Chunk(positions, records)


class WholeText:
    """A text that is one row; nothing is stripped."""

    format = "text"
    unit = "row"
    metadata: Mapping[str, Any] = {}

    def __init__(self, source: Input) -> None:
        self._input = source

    def chunks(self, _: Sequence[str] | None = None) -> Iterator[Chunk]:
        data = read_whole(self._input.text, self._input.source.path)
        if not data.strip():
            return
        try:
            yield Chunk([1], [text_of(data)])
        except DataError as error:
            self._input.problems.bad(1, error)


def open_text(source: Input) -> TextLines | WholeText:
    if source.options.per_line:
        return TextLines(source)
    return WholeText(source)


def parse_value(data: bytes) -> Any:
    """One JSON value; a DataError says what is wrong with it.

    Python's own parser gets a second try. NaN, Infinity, lone surrogates and integers
    of more than 64 bits are no JSON, or more than orjson takes, but Python writes them.
    """
    with suppress(ValueError, RecursionError):
        return orjson.loads(data)
    text = text_of(data)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        code = "not_json_at" if error.lineno > 1 else "not_json"
        raise DataError(
            code, line=error.lineno, column=error.colno, why=error.msg
        ) from None
    except ValueError as error:  # a number of more digits than Python reads
        raise DataError("not_json", line=1, column=1, why=str(error)) from None
    except RecursionError:
        raise DataError("nested_too_deeply") from None


def text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise DataError("not_utf8", byte=byte, place=error.start + 1) from None
