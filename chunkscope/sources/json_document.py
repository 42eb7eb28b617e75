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
# A bracket alone on its line, or an array that ends on its first line.
DOCUMENT = re.compile(rb"\s*([\[{]\s*\n|\[[^\n]*\s*\Z)")
BETWEEN_ROWS = re.compile(rb"\}[ \t\r]*\n\s*\{")


class JsonDocument:
    """The rows of a document. With `under`, they are the list of that key."""

    unit = "row"

    def __init__(self, source: Input, *, under: str | None = None) -> None:
        self.format = source.source.format or "json"
        data = read_whole(source.text, source.source.path, MOST_DOCUMENT_BYTES)
        value = parsed(data, source.source.path)
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
    if are_json_lines(sample):
        return JsonLines(source)
    if source.source.format == "jsonl" and not DOCUMENT.match(sample):
        return JsonLines(source)
    return JsonDocument(source)


def are_json_lines(sample: bytes) -> bool:
    """Whether the first line is a value by itself, and more lines follow.

    Should it be broken, an object on the second line counts as well.
    """
    lines = sample.lstrip().split(b"\n", 2)
    is_one_line = not b"".join(lines[1:]).strip()
    if lines[0].rstrip() in (b"[", b"{") or is_one_line:
        return False
    if is_value(lines[0]):
        return True
    are_objects = lines[0].startswith(b"{") and lines[1].startswith(b"{")
    return are_objects and is_value(lines[1])


def is_value(line: bytes) -> bool:
    with suppress(DataError):
        parse_value(line)
        return True
    return False


def parsed(data: bytes, path: str) -> Any:
    try:
        return parse_value(data)
    except DataError as error:
        # Rows that stand one after the other, as `jq` writes them, are no document.
        with suppress(DataError):
            return parse_value(b"[%b]" % BETWEEN_ROWS.sub(b"},{", data))
        raise DataError("not_a_document", path=path, reason=error.note) from None


# --- the rows -------------------------------------------------------------------------

CHAT_KEYS = ("messages", "conversations", "conversation")


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
    {"canary": "x", "examples": [{}]}     the only list of objects
    {"q": "a"}                            one row, and so is a chat
    """
    if isinstance(value, list) and not begins_a_chat(value):
        return Document(value)
    if not isinstance(value, dict):
        return Document([value])
    if any(isinstance(value.get(key), list) for key in CHAT_KEYS):
        return Document([value])
    columns = columns_of(value)
    if columns:
        rows = zip(*columns.values(), strict=True)
        return Document([dict(zip(columns, cells, strict=True)) for cells in rows])
    lists = [key for key, items in value.items() if is_list_of_objects(items)]
    if len(lists) == 1 and not begins_a_chat(value[lists[0]]):
        return rows_under(value, lists[0])
    return Document([value])


def rows_under(value: Any, key: str) -> Document:
    """The rows in the list of a key."""
    if not isinstance(value, dict):
        return Document([])
    rows = value.get(key)
    metadata = {name: item for name, item in value.items() if name != key}
    return Document(rows if isinstance(rows, list) else [], metadata)


def columns_of(value: dict[str, Any]) -> dict[str, list[Any]]:
    """The columns that an object consists of, none where it is something else.

    They are lists of one length, or objects with the same numbers as keys. Lists of
    objects, as in {"train": [{}], "test": [{}]}, are tables of their own.
    """
    columns: dict[str, list[Any]] = {}
    indexes = set()
    for name, column in value.items():
        if isinstance(column, list):
            columns[name] = column
            indexes.add(tuple(range(len(column))))
        elif isinstance(column, dict) and all(key.isdecimal() for key in column):
            columns[name] = list(column.values())
            indexes.add(tuple(column))
        else:
            return {}
    if len(indexes) != 1 or indexes == {()}:
        return {}
    if all(is_list_of_objects(column) for column in value.values()):
        return {}
    return columns


def is_list_of_objects(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(item, dict) for item in value)


# --- chats ----------------------------------------------------------------------------

SAID = frozenset(
    ("content", "value", "text", "tool_calls", "arguments", "output", "summary")
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
    if not isinstance(rows, list) or not is_list_of_objects(rows[:3]):
        return False
    for message in rows[:3]:
        if role_of(message) is None or SAID.isdisjoint(message):
            return False
    return True


def role_of(message: dict[str, Any]) -> str | None:
    """The role of a message: {role, content}, {from, value} or LangChain's {type}."""
    for key in ("role", "from", "type"):
        if message.get(key):
            return ROLES.get(str(message[key]).lower())
    return None
