"""Which fields the first records of a dataset have, with what was seen in each."""

import difflib
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from chunkscope.console import printable
from chunkscope.prompts.paths import (
    FieldPath,
    Steps,
    json_in,
    json_type,
    parse_path,
    shorten,
)
from chunkscope.sources.base import DataError
from chunkscope.sources.json_document import begins_a_chat

LEVELS = 4  # of objects and lists that are opened
ELEMENTS = 50  # of a list, where it is only looked at
LABEL_CHARS = 40  # of the longest name of a subject, or another label
TABLE_LINES = 30  # of the fields that an error lists


@dataclass(slots=True)
class Field:
    """A path that leads to something simple or to a conversation."""

    path: FieldPath
    example: Any = None
    texts: list[str] = field(default_factory=list)  # those that are not empty
    strings: int = 0  # records that have a text there, empty ones included
    chats: int = 0  # records that have a conversation there

    @property
    def chars(self) -> int:
        return sum(len(text) for text in self.texts)

    @property
    def name(self) -> str:
        """The last key of its path."""
        keys = [step for step in self.path.steps if isinstance(step, str)]
        return keys[-1] if keys else ""

    @property
    def is_prose(self) -> bool:
        """Whether most texts have several words, or a script without blanks between
        them; and are not the same few over and over, as names of subjects are.
        """
        count = len(self.texts)
        prose = 0
        longest = 0
        for text in self.texts:
            longest = max(longest, len(text))
            has_words = " " in text.strip() and any(map(str.isalpha, text))
            if has_words or not text.isascii():
                prose += 1
        come_again = count >= 4 and 2 * len(set(self.texts)) <= count
        if come_again and longest <= LABEL_CHARS:
            return False
        return prose * 2 > count


def fields_of(records: Sequence[Any]) -> list[Field]:
    """Every field of the records, four levels deep.

    >>> [field.path.text for field in fields_of([{"id": 1, "ctxs": [{"text": "a"}]}])]
    ['id', 'ctxs[].text']
    """
    fields: dict[Steps, Field] = {}
    for record in records:
        if not isinstance(record, dict) or not record:
            continue
        for steps, value in leaves((), record, LEVELS):
            leaf = fields.setdefault(steps, Field(FieldPath(steps)))
            if leaf.example is None:
                leaf.example = value
            if is_chat(value):
                leaf.chats += 1
            elif isinstance(value, str):
                leaf.strings += 1
                if value.strip():
                    leaf.texts.append(value)
    return list(fields.values())


def leaves(steps: Steps, value: Any, levels: int) -> Iterator[tuple[Steps, Any]]:
    """What has no fields of its own; a conversation is one thing."""
    elements = value[:ELEMENTS] if isinstance(value, list) else []
    is_opened = bool(elements) and isinstance(elements[0], dict | list | str)
    if levels and isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves((*steps, key), inner, levels - 1)
    elif is_opened and levels and not is_chat(value):
        for element in elements:
            yield from leaves((*steps, ...), element, levels - 1)
    else:
        yield steps, value


def is_chat(value: Any) -> bool:
    """Whether it is a conversation or, in a table's cell, also a single message."""
    if isinstance(value, str):
        value = json_in(value)
        if isinstance(value, dict):
            value = [value]
    return begins_a_chat(value)


def keys_of(records: Sequence[Any]) -> list[str]:
    """The top-level keys, in order of appearance."""
    keys: dict[str, None] = {}
    for record in records:
        if isinstance(record, dict):
            keys.update(dict.fromkeys(record))
    return list(keys)


def resolve(text: str, option: str, records: Sequence[Any]) -> FieldPath:
    """The path that an option names, which at least one record has.

    A name that the table of fields shows is always understood.
    """
    fields = fields_of(records)
    paths = [FieldPath((key,)) for key in keys_of(records)]
    paths += [leaf.path for leaf in fields]
    for path in paths:
        if path.text == text:
            return path
    path = parse_path(text)
    for record in records:
        with suppress(DataError):
            path.get(record)
            return path
    raise unknown_field(text, option, paths, fields)


def unknown_field(
    text: str, option: str, paths: Sequence[FieldPath], fields: Sequence[Field]
) -> DataError:
    """The error of a name that no record has, with the nearest that there is."""
    names = {path.text.lower(): printable(path.text) for path in paths}
    values = {"field": text, "option": option, **field_table(fields)}
    near = difflib.get_close_matches(text.lower(), list(names), n=1)
    if not near:
        return DataError("no_field", **values)
    name = names[near[0]]
    if option == "--template":
        name = f"{{{{ {name} }}}}"
    return DataError("no_field", **values, cause="near", near=shlex.quote(name))


def field_table(fields: Sequence[Field]) -> dict[str, Any]:
    """A line for each field, with path, type and example; and how many more."""
    shown = fields[:TABLE_LINES]
    width = max((len(printable(leaf.path.text)) for leaf in shown), default=0)
    lines = []
    for leaf in shown:
        name = printable(leaf.path.text).ljust(width)
        kind = json_type(leaf.example).ljust(7)
        lines.append(f"{name}  {kind}  {shorten(leaf.example)}")
    return {"field_table": lines, "more": len(fields) - len(shown)}
