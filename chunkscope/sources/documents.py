"""JSON documents: an array of rows, an object that holds them, columns, or a single row.

A file of ordinary size is parsed in one go. A larger one, and one with something wrong in it, is
read element by element, so that memory stays bounded and the rows before a mistake still count.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

from chunkscope.errors import InputError
from chunkscope.prompts.chat import begins_a_chat
from chunkscope.sources.base import (
    CHUNK_BYTES,
    MOST_ROW_BYTES,
    Chunk,
    Problems,
    Source,
    printable,
    too_long,
)
from chunkscope.sources.byte_stream import ByteStream
from chunkscope.sources.lines import LinesReader, in_words, parse_line
from chunkscope.sources.reader import StreamReader, in_chunks

WHOLE_BYTES = 64 << 20
_CHAT_KEYS = frozenset({"messages", "conversations", "conversation", "chat", "dialogue"})
_BROKEN_HINT = "check it with `python -m json.tool`; the rows before that place were read"


class DocumentReader(StreamReader):
    """Reads .json. `rows_at` names the key the rows were under, if they were under one.

    Where it is known that they are `rows_under` some key, other lists are no rows.
    """

    def __init__(
        self,
        source: Source,
        problems: Problems,
        stream: ByteStream,
        *,
        whole_bytes: int = WHOLE_BYTES,
        rows_under: str | None = None,
    ) -> None:
        super().__init__(source, problems, stream)
        self._rows_under = rows_under
        self._whole_bytes = whole_bytes

    def _read(self) -> Iterator[Chunk]:
        data = self._stream.peek(self._whole_bytes + 1)
        if len(data) <= self._whole_bytes:
            if not data.strip():
                return
            try:
                value = orjson.loads(data)
            except (ValueError, RecursionError):
                pass  # JSON Lines, NaN, bad bytes or broken: found out below
            else:
                yield from self._shaped(value, len(data))
                return
        if is_json_lines(data):
            yield from self._as_lines()
        else:
            del data
            yield from self._streamed()

    def _as_lines(self) -> Iterator[Chunk]:
        lines = LinesReader(self.source, self.problems, self._stream)
        self.unit, self.format = lines.unit, lines.format
        return lines.chunks()

    def _shaped(self, value: Any, size: int) -> Iterator[Chunk]:
        self.rows_at, records = rows_of(value, self._rows_under)
        if self.rows_at is not None:
            self.beside = {key: held for key, held in value.items() if key != self.rows_at}
        per_chunk = max(1, min(4096, len(records) * CHUNK_BYTES // size))
        for start in range(0, len(records), per_chunk):
            part = records[start : start + per_chunk]
            yield Chunk(range(start + 1, start + 1 + len(part)), part)

    def _streamed(self) -> Iterator[Chunk]:
        """Element by element; how far it got decides whether a mistake costs all rows."""
        text = _Text(self._stream, self.source.path)
        opener = text.next_char()
        if opener == "[":
            yield from self._elements(text)
        elif opener == "{":
            yield from self._object(text)
        else:
            value, source_text = text.value()
            if self._is_utf8(1, source_text):
                yield Chunk([1], [value])
        if text.next_char():
            raise text.broken("something more after the end of the document")

    def _elements(self, text: "_Text") -> Iterator[Chunk]:
        """The elements of the array that starts here, in chunks."""
        return in_chunks(
            (row, value, len(source_text))
            for row, (value, source_text) in enumerate(text.array(), start=1)
            if self._is_utf8(row, source_text)
        )

    def _is_utf8(self, row: int, text: str) -> bool:
        """Whether the row is text at all; if not, that is said."""
        bad = None if text.isascii() else _BAD_BYTE.search(text)
        if bad:
            byte, column = ord(bad[0]) - 0xDC00, bad.start() + 1
            self.problems.bad(
                row,
                f"byte 0x{byte:02x} at character {column} of the row is not UTF-8 "
                "(try --encoding latin-1)",
            )
        return bad is None

    def _object(self, text: "_Text") -> Iterator[Chunk]:
        """An object: rows stream from the one list of objects in it; all else is kept."""
        kept = self.beside
        kept_text: list[str] = []
        for key in text.object_keys():
            if self._may_be_rows(key) and text.at_list_of_objects():
                if self.rows_at is not None:
                    raise InputError(
                        f"{self.source.path} holds more than one list of rows: "
                        f"'{printable(self.rows_at)}' and '{printable(key)}'",
                        hint="put each of them into a file of its own",
                    )
                self.rows_at = key
                yield from self._elements(text)
            else:
                kept[key], source_text = text.value()
                kept_text += key, source_text
        if self.rows_at is None and self._is_utf8(1, "".join(kept_text)):
            yield from self._shaped(kept, size=CHUNK_BYTES)

    def _may_be_rows(self, key: str) -> bool:
        return key == self._rows_under if self._rows_under else key not in _CHAT_KEYS


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
        parse_line(line)
    except ValueError:
        return False
    return True


# --- what the rows are -----------------------------------------------------------------------


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


class _Text:
    """JSON text that is parsed a value at a time while more of it is read.

    Python's own parser does it: as fast as a streaming one, it takes NaN and large integers, and
    it says where it stopped, so that "there is more to come" and "this is wrong" can be told apart.
    """

    def __init__(self, stream: ByteStream, path: str) -> None:
        self._stream = stream
        self._path = path
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape").decode
        self._parse = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._lines_before = 0  # lines, and characters of the last of them, already let go
        self._column_before = 0
        self._error: InputError | None = None

    def value(self) -> tuple[Any, str]:
        """The value that starts here, and its text."""
        self.next_char()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error) or not self._more():
                    raise self.broken(in_words(error), error.pos) from None
            except RecursionError:
                raise self.broken("nested too deeply") from None
            except ValueError:  # Python's limit on the digits of a number
                raise self.broken("a number with too many digits") from None
            else:
                # A number that ends with the text may go on in the next block.
                if end < len(self._text) or not self._more():
                    text = self._text[self._at : end]
                    self._at = end
                    return value, text

    def array(self) -> Iterator[tuple[Any, str]]:
        """The elements of the array that starts here, each with its text."""
        self._at += 1
        if self.next_char() == "]":
            self._at += 1
            return
        while True:
            yield self.value()
            if self._separator("]", "array") == "]":
                return

    def object_keys(self) -> Iterator[str]:
        """The keys of the object that starts here; the caller takes the value after each."""
        self._at += 1
        if self.next_char() == "}":
            self._at += 1
            return
        while True:
            if self.next_char() != '"':
                raise self.broken("expecting a key in double quotes")
            key, _ = self.value()
            if self.next_char() != ":":
                raise self.broken("expecting ':' after a key")
            self._at += 1
            self.next_char()
            yield str(key)
            if self._separator("}", "object") == "}":
                return

    def at_list_of_objects(self) -> bool:
        """Does a list start here whose first element is an object?"""
        if self.next_char() != "[":
            return False
        while True:
            after = _SPACE.match(self._text, self._at + 1)
            end = after.end() if after else self._at + 1
            if end < len(self._text):
                return self._text[end] == "{"
            if not self._more():
                return False

    def next_char(self) -> str:
        """The next character that is no space, "" at the end; it stays unread."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def broken(self, what: str, at: int | None = None) -> InputError:
        if self._error is not None:  # the file itself ended early: that is the reason to give
            return self._error
        at = self._at if at is None else at
        line = self._lines_before + self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        if line == self._lines_before + 1:
            column += self._column_before
        ends = at >= len(self._text) or "does not end" in what
        what = f"{what} (truncated?)" if self._ended and ends else what
        return InputError(
            f"{self._path} is not valid JSON: {what}, line {line} column {column}",
            hint=_BROKEN_HINT,
        )

    def _separator(self, closing: str, kind: str) -> str:
        char = self.next_char()
        if char not in (",", closing) or not char:
            raise self.broken(f"expecting ',' or the end of the {kind}")
        self._at += 1
        return char

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        unterminated = error.msg.startswith("Unterminated string")
        return unterminated or error.pos >= len(self._text) - _LOOK_AHEAD

    def _more(self) -> bool:
        """Read on: at least as much again as is still unparsed, so that the retries for one long
        value add up to no more than twice its length. False at the end.
        """
        if self._ended:
            return False
        self._let_go()
        if len(self._text) > MOST_ROW_BYTES:
            raise too_long(self._path, "a value in it")
        parts = [self._text]
        wanted = max(CHUNK_BYTES, len(self._text))
        while wanted > 0 and not self._ended:
            try:
                data = self._stream.read(CHUNK_BYTES)
            except InputError as error:
                self._error, data = error, b""
            self._ended = not data
            parts.append(self._decode(data, final=self._ended))
            wanted -= len(data)
        before = len(self._text)
        self._text = "".join(parts)
        return len(self._text) > before

    def _let_go(self) -> None:
        """Forget what was parsed, but for where we are."""
        done = self._text[: self._at]
        lines = done.count("\n")
        if lines:
            self._lines_before += lines
            self._column_before = len(done) - done.rfind("\n") - 1
        else:
            self._column_before += len(done)
        self._text = self._text[self._at :]
        self._at = 0
