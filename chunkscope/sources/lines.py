"""JSON Lines: a JSON value per line.

The hot path hands whole blocks of lines to orjson without a Python call per row. Only a block
that holds something odd is looked at line by line.
"""

import json
from collections.abc import Iterator
from typing import Any

import orjson

from chunkscope.sources.base import (
    CHUNK_BYTES,
    MOST_ROW_BYTES,
    Chunk,
    Problems,
    Source,
    too_long,
)
from chunkscope.sources.byte_stream import ByteStream, FileStream
from chunkscope.sources.reader import StreamReader

LineBytes = bytes | bytearray


class LinesReader(StreamReader):
    """Reads JSON Lines; positions are line numbers, blank lines included."""

    unit = "line"

    def __init__(
        self, source: Source, problems: Problems, stream: ByteStream, *, after: int = 0
    ) -> None:
        super().__init__(source, problems, stream)
        self.format = "jsonl"
        self._after = after  # so many bytes of the file the lines are counted

    @property
    def is_divisible(self) -> bool:
        """Whether a line's bytes are those of the file: nothing had to be made of them first."""
        return isinstance(self._stream, FileStream)

    def _read(self) -> Iterator[Chunk]:
        for first, lines, ended in line_blocks(self._stream, self.source.path, self._after):
            self.positions = first + len(lines) - 1
            try:
                records = list(map(orjson.loads, lines))
            except (ValueError, RecursionError):
                yield self._carefully(first, lines, ended)
                continue
            yield Chunk(range(first, first + len(records)), records)
            del records  # they may be done with: rows can be 100 MB long

    def _carefully(self, first: int, lines: list[LineBytes], ended: bool) -> Chunk:
        """Parse what the hot path refused: leave out blank lines, report bad ones."""
        numbered = [(first + i, line) for i, line in enumerate(lines) if line.strip()]
        positions: list[int] = []
        records: list[Any] = []
        for number, line in numbered:
            try:
                record = parse_line(line)
            except ValueError as error:
                cut = not ended and number == first + len(lines) - 1
                if not (cut and self._stream.grew):
                    self.problems.bad(number, f"{error} (truncated?)" if cut else str(error))
                continue
            positions.append(number)
            records.append(record)
        return Chunk(positions, records)


def line_blocks(
    stream: ByteStream, path: str, after: int = 0
) -> Iterator[tuple[int, list[LineBytes], bool]]:
    """Lines in blocks of about a megabyte: the first one's number, the lines, and whether the
    last of them ended in a newline.

    Splits at b"\\n" only: U+2028 and U+0085 are data, and `bytes.splitlines` would break at a
    lone carriage return. A line longer than a block grows in place, never copied as a whole.
    """
    number = 1
    begun = bytearray()  # the start of a line whose end has not come yet
    while block := stream.read(CHUNK_BYTES):
        lines: list[LineBytes] = [*block.split(b"\n")]
        last = lines.pop()
        if lines:
            begun += lines[0]
            lines[0], begun = begun, bytearray()
            yield number, lines, True
            number += len(lines)
        begun += last
        if len(begun) > MOST_ROW_BYTES:
            raise too_long(path, f"line {number}" + (f" after byte {after:,}" if after else ""))
        lines.clear()  # the block is used up: let go of its rows before the next one is read
    if begun:
        yield number, [begun], False


def parse_line(line: LineBytes) -> Any:
    """One JSON value; a ValueError says in plain words what is wrong with it.

    Python's own parser gets a second try: NaN, Infinity, lone surrogates and integers of more than
    64 bits are no JSON, or more than orjson takes, but Python writes them.
    """
    try:
        return orjson.loads(line)
    except (ValueError, RecursionError):
        pass
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(line[error.start], error.start + 1)) from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {in_words(error)} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        raise ValueError("a number with too many digits") from None


def not_utf8(byte: int, column: int) -> str:
    return f"byte 0x{byte:02x} at column {column} is not UTF-8 (try --encoding latin-1)"


def in_words(error: json.JSONDecodeError) -> str:
    """The parser's complaint, as part of a sentence: "Expecting value" -> "expecting a value"."""
    words = {
        "Expecting value": "expecting a value",
        "Unterminated string starting at": "a string that does not end, starting",
        "Extra data": "something more after the value",
        "Invalid control character at": "a control character (unescaped)",
        "Invalid \\escape": "an invalid \\escape",
        "Invalid \\uXXXX escape": "an invalid \\uXXXX escape",
    }
    said = error.msg.rstrip(": ")
    return words.get(said) or said[:1].lower() + said[1:].removesuffix(" at")
