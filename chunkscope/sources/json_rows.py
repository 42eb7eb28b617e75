"""Rows of text: JSON Lines, JSON documents, plain text.

The hot path hands whole blocks of lines to orjson without a Python call per row. Only a block
that holds something odd is looked at line by line.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import orjson

from chunkscope.sources.base import CHUNK_BYTES, MOST_ROW_BYTES, Chunk, DataError
from chunkscope.sources.reader import Format, RecordReader, register
from chunkscope.sources.streams import Stream

LineBytes = bytes | bytearray | memoryview
# Two lines of JSON, or an array of objects to its end, whatever the name of the file.
_ROWS = re.compile(
    rb'\{".*\}\s*\n\{"|\[\s*\{\s*"[^"]+":[\s\S]*(\]\s*|[\s\S]{500000})\Z'
)


def _one_by_one(
    reader: RecordReader,
    first: int,
    lines: Iterable[LineBytes],
    parse: Callable[[bytes], Any],
) -> Chunk:
    """Records of lines that are not blank; a bad one is reported."""
    positions, records = list[int](), list[Any]()
    for number, line in enumerate(map(bytes, lines), start=first):
        if not line.strip():
            continue
        try:
            records.append(parse(line))
            positions.append(number)
        except DataError as error:
            reader.problems.bad(number, error)
    return Chunk(positions, records)


def line_blocks(stream: Stream, path: str) -> Iterator[tuple[int, list[LineBytes]]]:
    """Lines in blocks of about a megabyte, with the number of the first.

    Splits at b"\\n" only: U+2028 and U+0085 are data, and `bytes.splitlines` would break at a
    lone carriage return. A line is not copied; one longer than a block grows in place.
    """
    number = 1
    begun = bytearray()  # the start of a line whose end has not come yet
    while block := stream.read(CHUNK_BYTES):
        view, start, lines = memoryview(block), 0, list[LineBytes]()
        while (end := block.find(b"\n", start)) >= 0:
            lines.append(view[start:end])
            start = end + 1
        if lines:
            begun += lines[0]
            lines[0], begun = begun, bytearray()
            yield number, lines
            number += len(lines)
        begun += view[start:]
        if len(begun) > MOST_ROW_BYTES:
            raise DataError(
                "too_long", path=f"{path}:{number}", most=MOST_ROW_BYTES >> 20
            )
        lines.clear()  # the block is used up: let go of its rows before the next one is read
    if begun:
        yield number, [begun]


def parse_value(data: bytes) -> Any:
    """One JSON value; a DataError says what is wrong with it.

    Python's own parser gets a second try: NaN, Infinity, lone surrogates and integers of more than
    64 bits are no JSON, or more than orjson takes, but Python writes them.
    """
    with suppress(ValueError, RecursionError):
        return orjson.loads(data)
    try:
        return json.loads(_text(data))
    except ValueError as error:  # or a number of more digits than Python reads
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        code, why = (
            "not_json_at" if line > 1 else "not_json",
            getattr(error, "msg", str(error)),
        )
        raise DataError(code, line=line, column=column, why=why) from None
    except RecursionError:
        raise DataError("nested_too_deeply") from None


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            "not_utf8", byte=data[error.start], place=error.start + 1
        ) from None


# --- a document ------------------------------------------------------------------------------

MOST_DOCUMENT_BYTES = 1 << 30  # it needs several times as much memory
_CHAT_KEYS = frozenset(
    {"messages", "conversations", "conversation", "chat", "dialogue"}
)
_SAID = {
    "content",
    "value",
    "text",
    "parts",
    "tool_calls",
    "arguments",
    "output",
    "summary",
}
_ASKS = _CHAT_KEYS | {"prompt", "question", "query", "instruction", "problem"}
# Who speaks in a chat, by ShareGPT's names and by those that chat templates know.
ROLES = dict.fromkeys(
    ("gpt", "chatgpt", "bing", "bard", "bot", "model", "ai"), "assistant"
)
ROLES |= {
    r: r
    for r in ("system", "developer", "user", "assistant", "tool", "function", "ipython")
}
ROLES |= dict.fromkeys(
    ("function_response", "function_call_output", "observation"), "tool"
)
ROLES |= {"human": "user", "function_call": "assistant", "reasoning": "assistant"}


def json_rows(
    reader: RecordReader, _: Sequence[str] | None = None, *, under: str | None = None
) -> Iterator[Chunk]:
    """JSON Lines, or the rows of a document: an array, an object that holds them, columns, or a
    single row. Where it is known `under` which key they are, other lists are no rows.
    """
    path, stream = reader.source.path, reader.stream
    sample = stream.peek(CHUNK_BYTES)
    is_document = re.match(rb"\s*([\[{]\s*\n|\[[^\n]*\s*\Z)", sample)
    if (not is_document and reader.format == "jsonl") or is_json_lines(sample):
        reader.unit, reader.format, reader.is_divisible = "line", "jsonl", stream.is_raw
        for first, lines in line_blocks(stream, path):
            reader.positions = first + len(lines) - 1
            try:
                records = list(
                    map(orjson.loads, lines)
                )  # which takes no lone surrogates
                chunk = Chunk(
                    range(first, first + len(lines)), records, is_unicode=True
                )
            except (ValueError, RecursionError):
                chunk = _one_by_one(reader, first, lines, parse_value)
            yield chunk
            del chunk  # it may be done with: rows can be 100 MB long
        return
    data = stream.read_whole(path, MOST_DOCUMENT_BYTES)
    try:
        value = parse_value(data)
    except DataError as error:
        try:  # none, or rows one after the other, as `jq` writes them
            value = parse_value(b"[%b]" % re.sub(rb"\}[ \t\r]*\n\s*\{", b"},{", data))
        except DataError:
            raise DataError("not_a_document", path=path, reason=error.note) from None
    rows_at, records = rows_of(value, under)
    if rows_at is not None:
        reader.metadata = {key: held for key, held in value.items() if key != rows_at}
    per_chunk = max(1, min(4096, len(records) * CHUNK_BYTES // max(1, len(data))))
    for start in range(0, len(records), per_chunk):
        part = records[start : start + per_chunk]
        yield Chunk(range(start + 1, start + 1 + len(part)), part)


def is_json_lines(data: bytes) -> bool:
    """Is this JSON Lines in spite of its name? Its first line (or, should that one be broken, an
    object on its second) is a value by itself, and more follows.
    """
    lines = data.lstrip().split(b"\n", 2)
    if lines[0].rstrip() in (b"[", b"{") or not b"".join(lines[1:]).strip():
        return False
    for line in lines[: 2 if lines[0][:1] == lines[1][:1] == b"{" else 1]:
        with suppress(DataError):
            parse_value(line)
            return True
    return False


def rows_of(value: Any, under: str | None = None) -> tuple[str | None, list[Any]]:
    """The rows in a document and the key they were under.

    [{"q": 1}, ...]                        the elements
    {"q": ["a", "b"], "n": [1, 2]}         columns of one length: {"q": "a", "n": 1}, ...
    {"q": {"0": "a", "1": "b"}}            pandas' columns, likewise; so is its "split"
    {"x1": {"q": "a"}, "x2": {"q": "b"}}   objects by number, or that all ask: the objects
    {"canary": "...", "examples": [{}]}    the only list of objects, or "rows"
    {"q": "a"}                             one row; so is one chat, {"history": [{}, {}]} or
                                           [{"role": "user", "content": "hi"}, ...]
    """
    if isinstance(value, list):
        return None, [value] if begins_a_chat(value) else value
    if not isinstance(value, dict) or not value:
        return None, [value]
    if not (under or _CHAT_KEYS.isdisjoint(value) or _are(dict, [*value.values()])):
        return None, [value]
    if under is not None:
        rows = value.get(under)
        return under, rows if isinstance(rows, list) else []
    if rows := _from_columns(value):
        return None, rows
    lists = [key for key, held in value.items() if _are(dict, held)]
    lists = ["rows"] if "rows" in lists else lists
    if len(lists) == 1 and not begins_a_chat(value[lists[0]]):
        return lists[0], value[lists[0]]
    return None, [value]


def begins_a_chat(rows: Any) -> bool:
    """Whether they are the messages of one chat: {role, content}, {from, value} or LangChain's."""
    start = rows[:3] if isinstance(rows, list) else []
    return _are(dict, start) and all(
        role_of(m) and not _SAID.isdisjoint(m) for m in start
    )


def role_of(message: dict[str, Any]) -> str | None:
    names = filter(
        None, map(message.get, ("role", "from", "type"))
    )  # Gemini's user may have none
    return ROLES.get(
        str(next(names, "user" if [*message] == ["parts"] else None)).lower()
    )


def _are(kind: type, rows: Any) -> bool:
    return (
        isinstance(rows, list)
        and bool(rows)
        and all(isinstance(row, kind) for row in rows)
    )


def _from_columns(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    columns = list(value.values())
    if all(isinstance(column, dict) and column for column in columns):
        index = list(columns[0])
        if not all(key.isdecimal() for key in index) or any(
            list(c) != index for c in columns
        ):
            shared = set(index).intersection(*columns) if len(value) > 1 else ()
            are_rows = shared and all(re.search(r"\d", key) for key in value)
            return columns if are_rows or not _ASKS.isdisjoint(shared) else None
        columns = [list(column.values()) for column in columns]
    elif not all(isinstance(column, list) and column for column in columns):
        return None
    elif value.keys() >= {"columns", "data"} and _are(list, value["data"]):
        return [
            dict(zip(map(str, value["columns"]), row, strict=False))
            for row in value["data"]
        ]
    # Parallel lists of objects ({"train": [{}], "test": [{}]}) are no columns of one table.
    if len({*map(len, columns)}) != 1 or all(_are(dict, column) for column in columns):
        return None
    return [
        dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)
    ]


# --- plain text ------------------------------------------------------------------------------


def plain_text(reader: RecordReader, _: Sequence[str] | None) -> Iterator[Chunk]:
    """The file is the prompt, or each of its lines is one; nothing but newlines is stripped."""
    path = reader.source.path
    if reader.options.per_line:
        reader.unit = "line"
        for first, lines in line_blocks(reader.stream, path):
            yield _one_by_one(
                reader, first, lines, lambda line: _text(line.removesuffix(b"\r"))
            )
    elif data := reader.stream.read_whole(path):
        yield _one_by_one(reader, 1, [data], _text)


register(  # .traj is SWE-agent's
    Format(name="jsonl", suffixes=(".jsonl", ".ndjson", ".jsonlines"), rows=json_rows),
    Format(
        name="json",
        suffixes=(".json", ".traj"),
        rows=json_rows,
        claims_start=_ROWS.match,
    ),
    Format(name="text", suffixes=(".txt", ".md"), rows=plain_text),
)
