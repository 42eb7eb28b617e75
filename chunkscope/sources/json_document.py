"""Rows of a JSON document; and whether a file is one, or a value on each line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from chunkscope.sources.base import CHUNK_BYTES, Chunk, DataError
from chunkscope.sources.input import Input
from chunkscope.sources.jsonl import JsonLines, parse_value
from chunkscope.sources.open import read_whole

MOST_DOCUMENT_BYTES = 1 << 30  # it needs several times as much memory
MOST_CHUNK_ROWS = 4096
# Two lines of JSON, or an array of objects to its end, whatever the name of the file.
ROWS = re.compile(
    rb'\{".*\}\s*\n\{"'
    rb'|\[\s*\{\s*"[^"]+":[\s\S]*(\]\s*|[\s\S]{500000})\Z'
)
# A bracket alone on its line, or an array that ends on its first line.
_DOCUMENT = re.compile(rb"\s*([\[{]\s*\n|\[[^\n]*\s*\Z)")
_BETWEEN_ROWS = re.compile(rb"\}[ \t\r]*\n\s*\{")


class JsonDocument:
    """The rows of a document. With `under`, they are the list of that key."""

    unit = "row"

    def __init__(self, source: Input, *, under: str | None = None) -> None:
        self.format = source.source.format or "json"
        data = read_whole(source.text, source.source.path, MOST_DOCUMENT_BYTES)
        value = _parsed(data, source.source.path)
        document = rows_of(value) if under is None else rows_under(value, under)
        self.metadata = document.metadata
        self._rows = document.rows
        rows_per_chunk = len(self._rows) * CHUNK_BYTES // max(1, len(data))
        self._rows_per_chunk = max(1, min(MOST_CHUNK_ROWS, rows_per_chunk))

    def chunks(self, _: Sequence[str] | None = None) -> Iterator[Chunk]:
        for start in range(0, len(self._rows), self._rows_per_chunk):
            rows = self._rows[start : start + self._rows_per_chunk]
            yield Chunk(range(start + 1, start + 1 + len(rows)), rows)


def open_json(source: Input) -> JsonLines | JsonDocument:
    """JSON Lines or a document, by the content rather than by the name."""
    sample = source.text.peek(CHUNK_BYTES)
    if is_json_lines(sample):
        return JsonLines(source)
    if source.source.format == "jsonl" and not _DOCUMENT.match(sample):
        return JsonLines(source)
    return JsonDocument(source)


def is_json_lines(sample: bytes) -> bool:
    """Whether the first line is a value by itself, and more lines follow.

    Should it be broken, an object on the second line counts as well.
    """
    lines = sample.lstrip().split(b"\n", 2)
    is_one_line = not b"".join(lines[1:]).strip()
    if lines[0].rstrip() in (b"[", b"{") or is_one_line:
        return False
    if _is_value(lines[0]):
        return True
    are_objects = lines[0].startswith(b"{") and lines[1].startswith(b"{")
    return are_objects and _is_value(lines[1])


def _is_value(line: bytes) -> bool:
    with suppress(DataError):
        parse_value(line)
        return True
    return False


def _parsed(data: bytes, path: str) -> Any:
    try:
        return parse_value(data)
    except DataError as error:
        # Rows that stand one after the other, as `jq` writes them, are no document.
        with suppress(DataError):
            return parse_value(b"[%b]" % _BETWEEN_ROWS.sub(b"},{", data))
        raise DataError("not_a_document", path=path, reason=error.note) from None


# --- the rows -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Document:
    """The rows of a document, and what stands beside their list."""

    rows: list[Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)


def rows_of(value: Any) -> Document:
    """The rows that a document holds.

    [{"q": 1}, ...]                       the elements
    {"q": ["a", "b"], "n": [1, 2]}        columns of one length
    {"q": {"0": "a", "1": "b"}}           columns as pandas writes them
    {"0": {"q": "a"}, "1": {"q": "b"}}    objects by number
    {"canary": "x", "examples": [{}]}     the only list of objects, or "rows"
    {"q": "a"}                            one row, and so is a chat
    """
    if isinstance(value, list):
        return Document([value] if begins_a_chat(value) else value)
    if not isinstance(value, dict) or not value:
        return Document([value])
    columns = list(value.values())
    if _are_all(dict, columns):
        return Document(_numbered_rows(value) or _pandas_rows(value) or [value])
    if _are_columns(columns) and _CHAT_KEYS.isdisjoint(value):
        return Document(_rows_of_columns(value))
    key = _key_of_rows(value)
    return Document([value]) if key is None else rows_under(value, key)


def _key_of_rows(value: dict[str, Any]) -> str | None:
    """The key of the only list of objects, or "rows"; None if the value is one row."""
    if not _CHAT_KEYS.isdisjoint(value):
        return None
    lists = [key for key, items in value.items() if _is_list_of_objects(items)]
    if "rows" in lists:
        return "rows"
    if len(lists) == 1 and not begins_a_chat(value[lists[0]]):
        return lists[0]
    return None


def rows_under(value: Any, key: str) -> Document:
    """The rows in the list of a key."""
    if not isinstance(value, dict):
        return Document([])
    rows = value.get(key)
    metadata = {name: item for name, item in value.items() if name != key}
    return Document(rows if isinstance(rows, list) else [], metadata)


def _numbered_rows(value: dict[str, Any]) -> list[Any] | None:
    if all(key.isdecimal() for key in value):
        return list(value.values())
    return None


def _pandas_rows(value: dict[str, Any]) -> list[Any] | None:
    """Rows of columns that all have the same numbers as keys."""
    columns = list(value.values())
    index = list(columns[0])
    if not index or not all(key.isdecimal() for key in index):
        return None
    if any(list(column) != index for column in columns):
        return None
    lists = {name: list(column.values()) for name, column in value.items()}
    return _rows_of_columns(lists)


def _are_columns(columns: list[Any]) -> bool:
    """Whether they are lists of one length.

    Lists of objects, as in {"train": [{}], "test": [{}]}, are tables of their own.
    """
    if not _are_all(list, columns):
        return False
    if len({len(column) for column in columns}) != 1 or not columns[0]:
        return False
    return not all(_is_list_of_objects(column) for column in columns)


def _rows_of_columns(columns: dict[str, list[Any]]) -> list[Any]:
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, cells, strict=True)) for cells in rows]


def _are_all(kind: type, values: list[Any]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and _are_all(dict, value)


# --- chats ----------------------------------------------------------------------------

_CHAT_KEYS = frozenset(
    ("messages", "conversations", "conversation", "chat", "dialogue")
)
_SAID = frozenset(
    (
        "content",
        "value",
        "text",
        "parts",
        "tool_calls",
        "arguments",
        "output",
        "summary",
    )
)
# Who speaks in a chat: the names of ShareGPT, and those that chat templates have.
ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "function_call": "assistant",
    "reasoning": "assistant",
    "tool": "tool",
    "function_response": "tool",
    "function_call_output": "tool",
    "observation": "tool",
    "function": "function",
    "ipython": "ipython",
}


def begins_a_chat(rows: Any) -> bool:
    """Whether rows are the messages of one chat: each has a role and says something."""
    if not isinstance(rows, list) or not _is_list_of_objects(rows[:3]):
        return False
    for message in rows[:3]:
        if role_of(message) is None or _SAID.isdisjoint(message):
            return False
    return True


def role_of(message: dict[str, Any]) -> str | None:
    """The role of a message: {role, content}, {from, value} or LangChain's {type}."""
    for key in ("role", "from", "type"):
        if message.get(key):
            return ROLES.get(str(message[key]).lower())
    if list(message) == ["parts"]:  # Gemini's user may have no role
        return "user"
    return None
