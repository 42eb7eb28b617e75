"""Where something is in a record, and what is there: `question`, `turns[0]`,
`ctxs[].text`.

A path is a chain of keys, places in a list, and "all elements". Nothing in it is
evaluated: it is split once and looked up literally.
"""

import ast
import json
import re
from codecs import utf_16_le_encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType
from typing import Any
from warnings import catch_warnings

from chunkscope.errors import UsageError
from chunkscope.sources.base import DataError, printable

# A key, a place in a list, or `...` for every element of a list.
Step = str | int | EllipsisType
Steps = tuple[Step, ...]

JOINER = "\n\n"  # between the fields of a prompt, and between the texts of a list
EXAMPLE_CHARS = 60  # of a value that is shown to people


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A parsed path; the empty one is the record itself.

    >>> parse_path("ctxs[].text").get({"ctxs": [{"text": "a"}, {"text": "b"}]})
    ['a', 'b']
    """

    steps: Steps

    @property
    def text(self) -> str:
        """As people write it."""
        text = ""
        for step in self.steps:
            if isinstance(step, str):
                text += f".{step}"
            elif isinstance(step, int):
                text += f"[{step}]"
            else:
                text += "[]"
        # Half a character in a key is shown as a question mark.
        return text.removeprefix(".").encode(errors="replace").decode()

    @property
    def column(self) -> str | None:
        """The top-level field that it begins at; None for the record itself."""
        if self.steps and isinstance(self.steps[0], str):
            return self.steps[0]
        return None

    def find(self, record: Any) -> Any:
        """The value, or None where there is none."""
        try:
            return self.get(record)
        except DataError:
            return None

    def get(self, record: Any) -> Any:
        """The value. Raises DataError where there is none."""
        return self._follow(record, 0)

    def _follow(self, value: Any, start: int) -> Any:
        for place in range(start, len(self.steps)):
            step = self.steps[place]
            if isinstance(step, str):
                value = self._container(value, dict)
            else:
                value = self._container(value, list)
            if isinstance(step, EllipsisType):
                return [self._follow(element, place + 1) for element in value]
            try:
                value = value[step]
            except LookupError:
                raise DataError("field_missing", field=self.text) from None
        return value

    def _container(self, value: Any, kind: type[Any]) -> Any:
        """The object or list itself, or the one that a table's cell holds as text."""
        if isinstance(value, kind):
            return value
        parsed = json_in(value)
        if isinstance(parsed, kind):
            return parsed
        wanted = _TYPE_NAMES[kind]
        found = json_type(value)
        raise DataError("no_way_to_field", field=self.text, found=found, wanted=wanted)


RECORD = FieldPath(())
_TYPE_NAMES: dict[type[Any], str] = {
    bool: "boolean",
    str: "text",
    int: "number",
    float: "number",
    list: "list",
    dict: "object",
    type(None): "null",
}
_PART = re.compile(r"(?P<key>[^\[\]]*)(?P<places>(\[(-?\d+)?\])*)")  # turns[0], ctxs[]


@lru_cache(1024)
def parse_path(text: str) -> FieldPath:
    """Split `turns[0]`, `a.b` or `ctxs[].text` into steps.

    >>> parse_path("ctxs[].text").steps
    ('ctxs', Ellipsis, 'text')
    """
    steps: list[Step] = []
    for number, part in enumerate(text.split(".")):
        match = _PART.fullmatch(part)
        if match is None or not part or (number > 0 and not match["key"]):
            raise UsageError(
                f"cannot read the field path {text!r}, at {part!r}",
                hint="paths look like question, a.b, turns[0] or ctxs[].text",
            )
        if match["key"]:
            steps.append(match["key"])
        for place in re.findall(r"\[(.*?)\]", match["places"]):
            steps.append(int(place) if place else ...)
    return FieldPath(tuple(steps))


# --- values ---------------------------------------------------------------------------


def json_type(value: Any) -> str:
    """What a value is, nearly as JSON calls it.

    >>> json_type(3)
    'number'
    """
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def wrong_type(value: Any, field: str, wanted: str, **message: int) -> DataError:
    """The error of a field of the row, or of one of its messages; of the row where it
    is "".
    """
    if message:
        code = "wrong_in_message"
    elif field:
        code = "wrong_type"
    else:
        code = "wrong_row"
    found = json_type(value)
    return DataError(code, field=field, found=found, wanted=wanted, **message)


def text_at(record: Any, path: FieldPath) -> str:
    """The text that a path leads to; a list of texts is joined. Raises DataError
    otherwise.
    """
    value = path.get(record)
    if isinstance(value, str):
        return value
    return joined_text(value, path.text)


def joined_text(value: Any, field: str) -> str:
    """The texts of a list, also of lists in it, with an empty line between them."""
    if isinstance(value, list):
        return JOINER.join(_texts_in(value, field))
    if isinstance(value, dict) and field:
        raise DataError("object_not_text", field=field)
    raise wrong_type(value, field, "text")


def _texts_in(values: list[Any], field: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield from _texts_in(value, field)
        elif isinstance(value, str):
            yield value
        else:
            raise wrong_type(value, f"{field}[]", "text")


def json_in(value: Any) -> Any:
    """What a cell holds as JSON, or as Python wrote it; else the cell itself."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    # Python warns of "\\d" in a text, and raises many kinds of errors for other texts.
    with suppress(Exception), catch_warnings(action="ignore"):
        return ast.literal_eval(value)
    return value


def shorten(value: Any) -> str:
    """The start of its JSON, on one line; of a list or an object how much it holds."""
    if isinstance(value, list | dict):
        return str(len(value))
    start = value
    if isinstance(value, str):
        start = value[: EXAMPLE_CHARS + 1]
    text = printable(json.dumps(start, ensure_ascii=False, default=str))
    if len(text) <= EXAMPLE_CHARS + 2:
        return text
    return text[: EXAMPLE_CHARS - 2] + "..."


def all_unicode(texts: Iterable[str]) -> bool:
    """False when a text holds half a surrogate pair, which is no character."""
    for text in texts:
        if not text.isascii():
            try:
                utf_16_le_encode(text)  # which finds it fastest
            except UnicodeEncodeError:
                return False
    return True
