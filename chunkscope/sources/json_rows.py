"""Rows of text: JSON Lines, JSON documents, plain text.

The hot path hands whole blocks of lines to orjson without a Python call per row. Only a block
that holds something odd is looked at line by line.
"""

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, MOST_ROW_BYTES, Chunk, too_long
from chunkscope.sources.reader import RecordReader, in_chunks
from chunkscope.sources.streams import Stream

LineBytes = bytes | bytearray

# --- a value per line ------------------------------------------------------------------------


def json_lines(reader: RecordReader) -> Iterator[Chunk]:
    """JSON Lines; positions are line numbers, blank lines included."""
    reader.unit, reader.format = "line", "jsonl"
    reader.is_divisible = reader.stream.is_raw
    for first, lines, ended in line_blocks(reader.stream, reader.source.path):
        reader.positions = first + len(lines) - 1
        try:
            records = list(map(orjson.loads, lines))
        except (ValueError, RecursionError):
            yield _carefully(reader, first, lines, ended=ended)
            continue
        yield Chunk(range(first, first + len(records)), records)
        del records  # they may be done with: rows can be 100 MB long


def _carefully(reader: RecordReader, first: int, lines: list[LineBytes], *, ended: bool) -> Chunk:
    """Parse what the hot path refused: leave out blank lines, report bad ones."""
    positions: list[int] = []
    records: list[Any] = []
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        try:
            record = parse_value(line)
        except ValueError as error:
            is_cut = not ended and number == first + len(lines) - 1
            reader.problems.bad(number, f"{error} (truncated?)" if is_cut else str(error))
            continue
        positions.append(number)
        records.append(record)
    return Chunk(positions, records)


def line_blocks(stream: Stream, path: str) -> Iterator[tuple[int, list[LineBytes], bool]]:
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
            raise too_long(path, f"line {number}")
        lines.clear()  # the block is used up: let go of its rows before the next one is read
    if begun:
        yield number, [begun], False


def parse_value(data: LineBytes) -> Any:
    """One JSON value; a ValueError says in plain words what is wrong with it.

    Python's own parser gets a second try: NaN, Infinity, lone surrogates and integers of more than
    64 bits are no JSON, or more than orjson takes, but Python writes them.
    """
    try:
        return orjson.loads(data)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(data[error.start], error.start + 1)) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column" if error.lineno > 1 else "column"
        raise ValueError(f"not valid JSON: {_in_words(error)} at {where} {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        raise ValueError("a number with too many digits") from None


def not_utf8(byte: int, column: int) -> str:
    return f"byte 0x{byte:02x} at column {column} is not UTF-8 (try --encoding latin-1)"


def _in_words(error: json.JSONDecodeError) -> str:
    """The parser's complaint, as part of a sentence: "Expecting value" -> "expecting value"."""
    return error.msg[:1].lower() + error.msg[1:].rstrip(": ").removesuffix(" at")


# --- a document ------------------------------------------------------------------------------

WHOLE_BYTES = 64 << 20  # an array that is larger is read element by element
_OPENS_ARRAY = re.compile(rb"\s*\[")
_CHAT_KEYS = frozenset({"messages", "conversations", "conversation", "chat", "dialogue"})
_SPEAKERS = frozenset((
    "system", "developer", "user", "assistant", "tool", "function", "ipython", "human", "gpt",
    "chatgpt", "bing", "bard", "bot", "model", "ai", "function_response", "observation",
))  # fmt: skip


def document_rows(reader: RecordReader, under: str | None = None) -> Iterator[Chunk]:
    """The rows of a .json: an array, an object that holds them, columns, or a single row. Where it
    is known `under` which key they are, other lists are no rows.

    An array that is large, or has something wrong in it, is read element by element: memory stays
    bounded, and the rows before a mistake still count.
    """
    stream, path = reader.stream, reader.source.path
    data = stream.peek(WHOLE_BYTES + 1)
    if not data.strip():
        return
    if len(data) <= WHOLE_BYTES:
        try:
            value = orjson.loads(data)
        except (ValueError, RecursionError):
            pass  # JSON Lines, NaN, bad bytes or broken: found out below
        else:
            yield from _shaped(reader, value, len(data), under)
            return
    if is_json_lines(data):
        yield from json_lines(reader)
    elif _OPENS_ARRAY.match(data):
        del data
        yield from _array(reader)
    else:
        data = stream.read(MOST_ROW_BYTES + 1)
        if len(data) > MOST_ROW_BYTES:
            limit = f"{MOST_ROW_BYTES >> 20} MB"
            raise InputError(
                f"{path} is one JSON object of more than {limit}, which is not read",
                hint="write its rows as JSON Lines, for example with `jq -c '.rows[]'`",
            )
        try:
            value = parse_value(data)
        except ValueError as error:
            raise _broken(path, str(error)) from None
        yield from _shaped(reader, value, len(data), under)


def _broken(path: str, what: str) -> InputError:
    return InputError(
        f"{path} is no JSON document: {what}",
        hint="check it with `python -m json.tool`; it may be cut off",
    )


def is_json_lines(data: bytes) -> bool:
    """Is this JSON Lines in spite of its name? Its first line (or, should that one be broken, an
    object on its second) is a value by itself, and more follows.
    """
    lines = data.lstrip().split(b"\n", 2)
    if not b"".join(lines[1:]).strip():
        return False
    if _is_value(lines[0]):
        return True
    return lines[0].startswith(b"{") and lines[1].startswith(b"{") and _is_value(lines[1])


def _is_value(line: bytes) -> bool:
    try:
        parse_value(line)
    except ValueError:
        return False
    return True


def _shaped(reader: RecordReader, value: Any, size: int, under: str | None) -> Iterator[Chunk]:
    reader.rows_at, records = rows_of(value, under)
    if reader.rows_at is not None:
        reader.metadata = {key: held for key, held in value.items() if key != reader.rows_at}
    per_chunk = max(1, min(4096, len(records) * CHUNK_BYTES // size))
    for start in range(0, len(records), per_chunk):
        part = records[start : start + per_chunk]
        yield Chunk(range(start + 1, start + 1 + len(part)), part)


def rows_of(value: Any, under: str | None = None) -> tuple[str | None, list[Any]]:
    """The rows in a document and the key they were under.

    [{"q": 1}, ...]                        the elements
    {"q": ["a", "b"], "n": [1, 2]}         columns of one length: {"q": "a", "n": 1}, ...
    {"q": {"0": "a", "1": "b"}}            pandas' columns, likewise
    {"canary": "...", "examples": [{}]}    the only list of objects: under "examples"
    {"q": "a"}                             one row; so is one chat, {"history": [{}, {}]} or
                                           [{"role": "user", "content": "hi"}, ...]
    """
    if isinstance(value, list):
        return None, [value] if begins_a_chat(value) else value
    if not isinstance(value, dict) or not value:
        return None, [value]
    if under is not None:
        rows = value.get(under)
        return under, rows if isinstance(rows, list) else []
    if not _CHAT_KEYS.isdisjoint(value):
        return None, [value]
    if rows := _from_columns(value):
        return None, rows
    lists = [key for key, held in value.items() if _is_list_of_objects(held)]
    if len(lists) == 1 and not begins_a_chat(value[lists[0]]):
        return lists[0], value[lists[0]]
    return None, [value]


def begins_a_chat(rows: Sequence[Any]) -> bool:
    """Whether they are the messages of one chat: {role, content} or {from, value}."""
    return bool(rows) and all(
        isinstance(row, dict)
        and len(row) > 1
        and isinstance(speaker := row.get("role", row.get("from")), str)
        and speaker in _SPEAKERS
        and not {"content", "value", "text", "tool_calls"}.isdisjoint(row)
        for row in rows[:3]
    )


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _from_columns(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    columns = list(value.values())
    if all(isinstance(column, dict) and column for column in columns):
        index = list(columns[0])
        if not all(key.isdecimal() for key in index) or any(list(c) != index for c in columns):
            return None
        columns = [list(column.values()) for column in columns]
    elif not all(isinstance(column, list) and column for column in columns):
        return None
    if len({len(column) for column in columns}) != 1:
        return None
    # Parallel lists of objects ({"train": [{}], "test": [{}]}) are no columns of one table.
    if all(_is_list_of_objects(column) for column in columns):
        return None
    return [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]


# --- element by element ----------------------------------------------------------------------

_BAD_BYTE = re.compile("[\udc80-\udcff]")
_SPACE = re.compile(r"[ \t\r\n]*")
# How far the parser looks ahead of where it complains: the longest token is "-Infinity".
_LOOK_AHEAD = 32


def _array(reader: RecordReader) -> Iterator[Chunk]:
    text = _Text(reader.stream, reader.source.path)
    chunks = in_chunks(
        (row, value, len(json_text))
        for row, (value, json_text) in enumerate(text.elements(), start=1)
        if _is_utf8(reader, row, json_text)
    )
    for chunk in chunks:
        if chunk.positions[0] == 1 and begins_a_chat(chunk.records):
            yield Chunk([1], [[*chunk.records, *(row for more in chunks for row in more.records)]])
        else:
            yield chunk


def _is_utf8(reader: RecordReader, row: int, text: str) -> bool:
    bad = None if text.isascii() else _BAD_BYTE.search(text)
    if bad:
        reader.problems.bad(row, not_utf8(ord(bad[0]) - 0xDC00, bad.start() + 1))
    return bad is None


class _Text:
    """The text of a JSON array, parsed an element at a time while more of it is read.

    Python's own parser says where it stopped, so that "there is more to come" and "this is wrong"
    can be told apart.
    """

    def __init__(self, stream: Stream, path: str) -> None:
        self._stream = stream
        self._path = path
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape").decode
        self._parse = json.JSONDecoder().raw_decode
        self._text, self._at = "", 0
        self._ended = False

    def elements(self) -> Iterator[tuple[Any, str]]:
        """Each value, and its text."""
        self._char()  # the opening bracket
        self._at += 1
        row, is_empty = 0, self._char() == "]"
        while not is_empty:
            row += 1
            yield self._value(row)
            separator = self._char()
            self._at += 1
            if separator == "]":
                break
            if separator != ",":
                raise _broken(self._path, f"row {row} is followed by neither ',' nor ']'")
            self._char()
        if not is_empty and self._char():
            raise _broken(self._path, "something more follows the array")

    def _value(self, row: int) -> tuple[Any, str]:
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except json.JSONDecodeError as error:
                if not (self._may_be_cut(error) and self._read_on(row)):
                    raise _broken(self._path, f"{_in_words(error)} in row {row}") from None
            except RecursionError:
                raise _broken(self._path, f"row {row} is nested too deeply") from None
            except ValueError:  # Python's limit on the digits of a number
                raise _broken(self._path, f"a number with too many digits in row {row}") from None
            else:
                # A number that ends with the text may go on in the next block.
                if end < len(self._text) or not self._read_on(row):
                    start, self._at = self._at, end
                    return value, self._text[start:end]

    def _char(self) -> str:
        """The next character that is no space, "" at the end; it stays unread."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or not self._read_on():
                return self._text[self._at : self._at + 1]

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _LOOK_AHEAD

    def _read_on(self, row: int = 0) -> bool:
        """Read at least as much again as is still unparsed, so that the retries for one long value
        add up to no more than twice its length. False at the end.
        """
        if self._ended:
            return False
        rest = self._text[self._at :]
        if len(rest) > MOST_ROW_BYTES:
            raise too_long(self._path, f"row {row}")
        data = self._stream.read(max(CHUNK_BYTES, len(rest)))
        self._ended = not data
        self._text, self._at = rest + self._decode(data, final=self._ended), 0
        return True


# --- plain text ------------------------------------------------------------------------------


def plain_text(reader: RecordReader, _: Sequence[str] | None) -> Iterator[Chunk]:
    """The file is the prompt, or each of its lines is one; nothing but newlines is stripped."""
    path = reader.source.path
    if reader.options.per_line:
        reader.unit = "line"
        for first, lines, _ended in line_blocks(reader.stream, path):
            yield _decoded(reader, first, [line.removesuffix(b"\r") for line in lines])
        return
    data = reader.stream.read(MOST_ROW_BYTES + 1)
    if len(data) > MOST_ROW_BYTES:
        raise too_long(path, "the text")
    if data:
        yield _decoded(reader, 1, [data])


def _decoded(reader: RecordReader, first: int, texts: Sequence[LineBytes]) -> Chunk:
    positions: list[int] = []
    records: list[str] = []
    for number, data in enumerate(texts, first):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            at = error.start
            line, start = data.count(b"\n", 0, at) + 1, data.rfind(b"\n", 0, at)
            where = "" if reader.options.per_line else f"line {line}: "
            reader.problems.bad(number, where + not_utf8(data[at], at - start))
            continue
        if text.strip():
            positions.append(number)
            records.append(text)
    return Chunk(positions, records)
