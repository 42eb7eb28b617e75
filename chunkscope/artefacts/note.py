"""Something to tell people, as a value: a code and its numbers.

`report/notes.py` has the sentence.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, Union

from chunkscope.errors import UsageError

Fact = bool | int | float | str | None
# A forward reference to Note alone: it is resolved where an artefact is read back.
Values = dict[str, Union[Fact, list[Fact], "Note"]]
Word = TypeVar("Word", bound=StrEnum)


def one_of(kind: type[Word], value: str, name: str) -> Word:
    """The choice that a word names; UsageError with all of them when it names none."""
    try:
        return kind(value)
    except ValueError:
        raise UsageError(
            f"{name} is {value!r}, not one of: {', '.join(kind)}"
        ) from None


class Label(StrEnum):
    """Where a number comes from: assumed never passes for measured."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is worth saying, and the values its sentence needs."""

    code: str
    values: Values = field(default_factory=dict)


def note(code: str, **values: Any) -> Note:
    """
    >>> note("media_rows", count=3).values
    {'count': 3}
    """
    return Note(code=code, values=values)
