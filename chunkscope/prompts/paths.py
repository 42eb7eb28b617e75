"""The parts of a record: paths such as `ctxs[].text`, templates, and which paths there are.

A path is a chain of keys, list positions and "all elements". Nothing in a path or a template is
evaluated: they are split once and looked up literally.
"""

import ast
import json
import re
from codecs import utf_16_le_encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import EllipsisType
from typing import Any
from warnings import catch_warnings

from chunkscope.errors import UsageError
from chunkscope.sources.base import DataError, printable
from chunkscope.sources.json_document import begins_a_chat

# A key, a position in a list, or `...` for every element of a list.
Step = str | int | EllipsisType
Steps = tuple[Step, ...]

EXAMPLE_CHARS = 60
JOINER = (
    "\n\n"  # between the fields a prompt is made of, and between the texts of a list
)


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A parsed path; the empty one is the record itself.

    >>> parse_path("ctxs[].text").get({"ctxs": [{"text": "a"}, {"text": "b"}]})
    ['a', 'b']
    """

    steps: Steps
    as_json: bool = False  # `tools|json`: whatever is there, written as JSON

    @property
    def text(self) -> str:
        """As it has to be written for `parse_path`."""
        text = ""
        for step in self.steps:
            if not isinstance(step, str):
                text += "[]" if step is ... else f"[{step}]"
            elif (
                step and not re.search(r"[.\[\]{}\"'\\]", step) and step == step.strip()
            ):
                text += f".{step}"
            else:
                escaped = step.replace("\\", "\\\\").replace('"', '\\"')
                text += f'["{escaped}"]'
        return (
            text.removeprefix(".").encode(errors="replace").decode()
        )  # half a character: "?"

    def find(self, record: Any) -> Any:
        """The value, or None where there is none."""
        with suppress(DataError):
            return self.get(record)
        return None

    def get(self, value: Any, start: int = 0) -> Any:
        """The value. Raises DataError where there is none."""
        for place, step in enumerate(self.steps[start:], start=start + 1):
            container: type[Any] = dict if isinstance(step, str) else list
            value = (
                value if isinstance(value, container) else json_in(value)
            )  # a table's cell
            if not isinstance(value, container):
                found, wanted = json_type(value), _TYPES[container]
                raise DataError(
                    "no_way_to_field", field=self.text, found=found, wanted=wanted
                )
            if isinstance(step, EllipsisType):
                return [self.get(element, place) for element in value]
            try:
                value = value[step]
            except LookupError:
                raise DataError("field_missing", field=self.text) from None
        return value


RECORD = FieldPath(())
_TYPES = {
    bool: "boolean",
    str: "text",
    list: "list",
    dict: "object",
    type(None): "null",
}
_TYPES |= dict.fromkeys((int, float), "number")


def json_type(value: Any) -> str:
    """What a value is, nearly as JSON calls it: `json_type(3)` is "number"."""
    return _TYPES.get(type(value), type(value).__name__)


def wrong_type(value: Any, field: str, wanted: str, **message: int) -> DataError:
    """Of a field of the row, or of one of its messages; of the row itself where that is ""."""
    code = "wrong_in_message" if message else "wrong_type" if field else "wrong_row"
    return DataError(
        code, field=field, found=json_type(value), wanted=wanted, **message
    )


def text_at(
    record: Any, path: FieldPath, *, joiner: str = JOINER, numbers: bool = False
) -> str:
    """The text a path leads to; a list of texts is joined. Raises DataError otherwise."""
    value = path.get(record)
    if isinstance(value, str):
        return value
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if path.as_json and value is not None:
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, list):
        return joiner.join(_texts_in(value, path.text))
    if isinstance(value, dict) and path.steps:
        raise DataError("object_not_text", field=path.text)
    raise wrong_type(value, path.text, "text")


def _texts_in(values: list[Any], field: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield from _texts_in(value, field)
        elif isinstance(value, str):
            yield value
        else:
            raise wrong_type(value, f"{field}[]", "text")


def json_in(value: Any) -> Any:
    """What a cell holds as JSON, or as Python wrote it, with NumPy's lists; or the cell itself."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
        with (
            suppress(Exception),
            catch_warnings(action="ignore"),
        ):  # which Python gives of "\\d"
            return json.loads(
                json.dumps(ast.literal_eval(value.replace("}\n {", "}, {")))
            )
    return value


# --- parsing --------------------------------------------------------------------------------------

_AS_JSON = "|json"
_PATH_PART = re.compile(
    r"""
      \[ \s* (?P<index> -?\d{1,9} ) \s* \]
    | (?P<all> \[ \s* \] )
    | \[ \s* (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) \s* \]
    | (?: ^ | (?!^)\. ) (?P<key> [^.\[\]]+ )
    """,
    re.VERBOSE,
)


@lru_cache(1024)
def parse_path(text: str) -> FieldPath:
    """Split `turns[0]`, `a.b`, `ctxs[].text` or `["odd key"]` into steps.

    >>> parse_path("tools|json")
    FieldPath(steps=('tools',), as_json=True)
    """
    if text.endswith(_AS_JSON) and len(text) > len(_AS_JSON):
        return replace(parse_path(text.removesuffix(_AS_JSON)), as_json=True)
    steps: list[Step] = []
    end = 0
    while match := _PATH_PART.match(text, end):
        quoted = re.sub(r"\\(.)", r"\1", (match["quoted"] or "")[1:-1], flags=re.DOTALL)
        step = match["key"] or (quoted if match["quoted"] else ...)
        steps.append(int(match["index"]) if match["index"] else step)
        end = match.end()
    if end < len(text) or not steps:
        hint = 'paths look like question, a.b, turns[0], ctxs[].text or ["odd key"]'
        raise UsageError(
            f"cannot read the field path {text!r}, from {text[end:]!r} on", hint=hint
        )
    return FieldPath(tuple(steps))


_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\", "{{": "{", "}}": "}"}

Part = str | FieldPath


def parse_template(
    text: str, path: Callable[[str], FieldPath] = parse_path
) -> list[Part]:
    r"""Split a template into literal text and paths.

    `\n`, `\t` and `\\` are what they are in most languages, since a shell hands them over as typed;
    a brace itself is written twice.

    >>> parse_template(r"Q: {question}\n")
    ['Q: ', FieldPath(steps=('question',), as_json=False), '\n']
    """
    parts: list[Part] = []
    for part in filter(None, re.split(r"(\{\{|\}\}|\\[nt\\]|\{[^{}]+\})", text)):
        if part in _ESCAPES:
            parts.append(_ESCAPES[part])
        elif part[0] == "{" and part[-1] == "}":
            parts.append(path(part[1:-1].strip()))
        elif "{" in part or "}" in part:
            hint = "fields are written {question}; a brace itself is written {{ or }}"
            raise UsageError(
                f"cannot read the template {text!r}, at {part!r}", hint=hint
            )
        else:
            parts.append(part)
    return parts


# --- values ---------------------------------------------------------------------------------------


def shorten(value: Any) -> str:
    """The start of its JSON, on one line; of a list or an object how much it holds."""
    if isinstance(value, list | dict):
        return str(len(value))
    start = value[: EXAMPLE_CHARS + 1] if isinstance(value, str) else value
    text = printable(json.dumps(start, ensure_ascii=False, default=str))
    return text if len(text) <= EXAMPLE_CHARS + 2 else text[: EXAMPLE_CHARS - 2] + "..."


def all_unicode(texts: Iterable[str]) -> bool:
    """False when a text holds a lone surrogate, which the encoder for UTF-16 finds fastest."""
    with suppress(UnicodeEncodeError):
        deque(
            map(utf_16_le_encode, [text for text in texts if not text.isascii()]),
            maxlen=0,
        )
        return True
    return False


# --- what there is in the records -----------------------------------------------------------------

# Names of what is asked.
QUESTIONS = {"question", "query", "prompt", "instruction", "problem"}
_MOST_ELEMENTS = 50  # of a list, where it is only looked at


@dataclass(slots=True)
class Leaf:
    """A path that leads to something simple or to a conversation, with what was seen there."""

    path: FieldPath
    example: Any = None
    chars: int = 0
    texts: list[str] = field(default_factory=list)
    chats: int = 0


def leaves(records: Sequence[Any]) -> list[Leaf]:
    """Every path in the records, four levels deep.

    >>> [leaf.path.text for leaf in leaves([{"id": 1, "ctxs": [{"text": "a"}]}])]
    ['id', 'ctxs[].text']
    """
    by_steps: dict[Steps, Leaf] = {}
    for record in records:
        for steps, value, is_chat in (
            _below((), record) if isinstance(record, dict) else ()
        ):
            leaf = by_steps.get(steps) or by_steps.setdefault(
                steps, Leaf(FieldPath(steps))
            )
            leaf.example = value if leaf.example is None else leaf.example
            if is_chat or isinstance(value, str):
                leaf.chats += is_chat
                leaf.chars += len(str(value))
                leaf.texts += [] if is_chat else [value]
    return list(by_steps.values())


def _below(
    steps: Steps, value: Any, levels: int = 4
) -> Iterator[tuple[Steps, Any, bool]]:
    """The leaves of a value, and whether they are conversations. A list is opened where its first
    elements are of one kind; of a list of conversations it is the first."""
    is_cell = isinstance(value, str) and value[:2] in (
        "[{",
        '["',
        "['",
        '{"',
        "{'",
    )  # a table's
    is_opened = is_cell and (value[0] == "[" or "role" in value or steps == ("inputs",))
    parsed = json_in(value) if is_opened else value
    elements = parsed[:_MOST_ELEMENTS] if isinstance(parsed, list) else []
    elements = (
        [parsed] if is_cell and begins_a_chat([parsed]) else elements
    )  # Multi-IF's
    kinds = {type(element) for element in elements[:3]}
    is_talk = kinds == {str} and steps[-1:] in (
        ("conversations",),
        ("data",),
    )  # texts in turns
    if is_talk or (kinds == {dict} and begins_a_chat(elements)):
        yield steps, value, True
    elif kinds == {list} and begins_a_chat(elements[0]):
        yield (*steps, 0), elements[0], True
    elif levels and isinstance(parsed, dict) and parsed:
        inside = [
            x for key in parsed for x in _below((*steps, key), parsed[key], levels - 1)
        ]
        asks = any(is_chat or path[-1] in QUESTIONS for path, _, is_chat in inside)
        yield from (
            inside if asks or not is_cell else [(steps, value, False)]
        )  # asks: a request
    elif (levels and kinds in ({dict}, {list}) and not is_cell) or kinds == {str}:
        for element in elements:
            yield from _below((*steps, ...), element, levels - (kinds == {list}))
    else:
        with suppress(DataError):  # HotpotQA's [title, [sentence, ...]] is a text
            value = text_at(value, RECORD) if kinds == {str, list} else value
        yield steps, value, False


def field_table(fields: Sequence[Leaf], *, most: int = 30) -> dict[str, Any]:
    """The fields of the records, a line for each: path, type, example; and how many more."""
    names = [printable(leaf.path.text) for leaf in fields[:most]]
    width = max(map(len, names), default=0)
    lines = [
        f"{name:<{width}}  {json_type(leaf.example):<7}  {shorten(leaf.example)}"
        for name, leaf in zip(names, fields, strict=False)
    ]
    return {"field_table": lines, "more": len(fields[most:])}


def keys_of(head: Sequence[Any]) -> list[str]:
    """The top-level keys, in order of appearance."""
    return list(
        dict.fromkeys(k for record in head if isinstance(record, dict) for k in record)
    )


def of_one(steps: Steps, lists: Steps) -> FieldPath:
    """The path where an element stands in the place of each list that `lists` has, too."""
    kept = (
        s
        for n, s in enumerate(steps)
        if s is not ... or steps[: n + 1] != lists[: n + 1]
    )
    return FieldPath(tuple(kept))


def lists_in(steps: Steps) -> tuple[FieldPath, ...]:
    return tuple(
        of_one(steps[:n], steps) for n, step in enumerate(steps) if step is ...
    )
