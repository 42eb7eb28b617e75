"""The choices of a question, and the lines in which an evaluation sends them."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from chunkscope.prompts.fields import keys_of
from chunkscope.prompts.paths import FieldPath, json_in, wrong_type
from chunkscope.sources.base import DataError

# Under these names, in any case, a record has a list of choices.
CHOICE_LISTS = ("choices", "options", "answer_choices", "endings")
# One column each: A to D, or choice_a to choice_d.
COLUMN = re.compile(r"(choice_?)?([A-J]|(?<=_)[a-j])")


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice, with the letter or number that a model is asked for."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Choices:
    """Where the choices are: one field with all of them, or one for each."""

    paths: tuple[FieldPath, ...]

    @property
    def text(self) -> str:
        """As --choices takes it."""
        return ",".join(path.text for path in self.paths)

    def of(self, record: Any) -> list[Choice]:
        """The choices of a record. Raises DataError.

        They are a list, ARC's {"text": [...], "label": [...]}, {"A": ...}, or a field
        for each.
        """
        value = self._value(record)
        texts = value
        labels: Any = None
        if isinstance(value, dict):
            texts = value.get("text")
            labels = value.get("label")
            if not isinstance(texts, list):  # {"A": ...}
                texts = list(value.values())
                labels = list(value)
        if not isinstance(texts, list):
            raise wrong_type(texts, self.text, "list")
        if not 2 <= len(texts) <= len(ascii_uppercase):
            raise DataError("choices", field=self.text, count=len(texts))
        if not isinstance(labels, list) or len(labels) != len(texts):
            labels = list(ascii_uppercase[: len(texts)])
        choices = []
        for label, text in zip(labels, texts, strict=True):
            if not isinstance(text, str | int | float):  # a choice may be a number
                raise wrong_type(text, f"{self.text}[]", "text")
            choices.append(Choice(str(label), str(text)))
        return choices

    def _value(self, record: Any) -> Any:
        """What the field of all choices holds, or a list of those in a field each."""
        if len(self.paths) == 1:
            return json_in(self.paths[0].get(record))
        values = [path.get(record) for path in self.paths]
        return [value for value in values if value not in (None, "")]


def choice_lines(choices: Sequence[Choice]) -> str:
    """What comes after the question, as MMLU's own evaluation and lm-eval write it.

    >>> choice_lines([Choice("A", "yes"), Choice("B", "no")])
    '\\nA. yes\\nB. no\\nAnswer:'
    """
    lines = [f"\n{choice.label}. {choice.text}" for choice in choices]
    return f"{''.join(lines)}\nAnswer:"


def find_choices(records: Sequence[Any]) -> Choices | None:
    """The fields that hold the choices of the question beside them; None if there are
    none.

    >>> find_choices([{"A": "x", "B": "y", "C": "z", "answer": "B"}]).text
    'A,B,C'
    """
    keys = keys_of(records)
    likely = [[key] for key in keys if key.lower() in CHOICE_LISTS]
    columns = [key for key in keys if COLUMN.fullmatch(key)]
    if len(columns) >= 3:
        likely.append(columns)
    for names in likely:
        choices = Choices(tuple(FieldPath((name,)) for name in names))
        having = 0
        for record in records:
            with suppress(DataError):
                choices.of(record)
                having += 1
        if having * 2 > len(records):
            return choices
    return None
