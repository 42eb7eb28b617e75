"""Arguments as people write them in Python: a word for a choice, one for a list of one."""

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from chunkscope.errors import UsageError

Name = str | os.PathLike[str]  # of a file
Word = TypeVar("Word", bound=StrEnum)


def one_of(kind: type[Word], value: str, name: str) -> Word:
    """The choice that a word names; UsageError with all of them when it names none."""
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}, not one of: {', '.join(kind)}") from None


def several(value: Name | Sequence[Name]) -> tuple[str, ...]:
    """A single word or path is a list of one, not of its letters.

    >>> several("*.jsonl"), several(["a", "b"])
    (('*.jsonl',), ('a', 'b'))
    """
    return (str(value),) if isinstance(value, str | os.PathLike) else tuple(map(str, value))
