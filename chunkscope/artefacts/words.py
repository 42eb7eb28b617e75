"""Words where a choice is wanted, and names where a file is: as people write them in Python."""

import datetime
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar, overload

from chunkscope.errors import UsageError

Name = str | os.PathLike[str]
Word = TypeVar("Word", bound=StrEnum)


@overload
def one_of(kind: type[Word], value: Word | str, name: str) -> Word: ...
@overload
def one_of(kind: type[Word], value: Word | str | None, name: str) -> Word | None: ...
def one_of(kind: type[Word], value: Word | str | None, name: str) -> Word | None:
    """The choice that a word names; UsageError with all of them when it names none.

    >>> class Colour(StrEnum):
    ...     RED = "red"
    >>> one_of(Colour, "red", "colour") is Colour.RED
    True
    >>> one_of(Colour, "blue", "colour")
    Traceback (most recent call last):
    ...
    chunkscope.errors.UsageError: colour is 'blue', which is none of: red
    """
    if value is None or isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise UsageError(f"{name} is {value!r}, not one of: {known}") from None


def path_of(name: Name) -> Path:
    """`"~/data"` as a shell would take it."""
    return Path(name).expanduser()


def several(value: str | Sequence[str]) -> tuple[str, ...]:
    """A single word is a list of one, not of its letters.

    >>> several("*.jsonl"), several(["a", "b"])
    (('*.jsonl',), ('a', 'b'))
    """
    return (value,) if isinstance(value, str) else tuple(value)


def day(text: str) -> datetime.date:
    """
    >>> day("2026-01-31")
    datetime.date(2026, 1, 31)
    """
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a date", hint="as in 2026-01-31") from None
