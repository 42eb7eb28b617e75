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
_COLUMN = re.compile(r"(choice_?)?([A-J]|(?<=_)[a-j])")


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

        They are a list, {"text": [...], "label": [...]}, [{"text", "label"}, ...],
        {"A": ..., "B": ...}, or a field for each.
        """
        texts = self._value(record)
        labels: Any = None
        if isinstance(texts, dict) and isinstance(texts.get("text"), list):
            labels = texts.get("label")
            texts = texts["text"]
        elif isinstance(texts, dict):
            labels = list(texts)
            texts = list(texts.values())
        elif isinstance(texts, list) and _are_objects(texts):
            labels = [choice.get("label") for choice in texts]
            texts = [choice.get("text") for choice in texts]
        if not isinstance(texts, list):
            raise wrong_type(texts, self.text, "list")
        if not 2 <= len(texts) <= len(ascii_uppercase):
            raise DataError("choices", field=self.text, count=len(texts))
        if not isinstance(labels, list) or len(labels) != len(texts) or None in labels:
            labels = list(ascii_uppercase[: len(texts)])
        choices = []
        for label, text in zip(labels, texts, strict=True):
            choices.append(Choice(self._text_of(label), self._text_of(text)))
        return choices

    def _value(self, record: Any) -> Any:
        """What the field of all choices holds, or a list of those in a field each."""
        if len(self.paths) == 1:
            return json_in(self.paths[0].get(record))
        values = [path.get(record) for path in self.paths]
        return [value for value in values if value not in (None, "")]

    def _text_of(self, value: Any) -> str:
        """A choice may be a number."""
        if value is None or isinstance(value, bool | list | dict):
            raise wrong_type(value, f"{self.text}[]", "text")
        return str(value)


def _are_objects(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def choice_lines(choices: Sequence[Choice]) -> str:
    """What comes after the question, as MMLU's own evaluation and lm-eval write it.

    >>> choice_lines([Choice("A", "yes"), Choice("B", "no")])
    '\\nA. yes\\nB. no\\nAnswer:'
    """
    lines = ""
    are_labelled = _all_labelled(choices)
    for choice in choices:
        if are_labelled:  # "A) yes" has its label already
            lines += f"\n{choice.text}"
        else:
            lines += f"\n{choice.label}. {choice.text}"
    return f"{lines}\nAnswer:"


def _all_labelled(choices: Sequence[Choice]) -> bool:
    for choice in choices:
        if not re.match(rf"\s*\(?{re.escape(choice.label)}[).:]", choice.text):
            return False
    return True


def find_choices(records: Sequence[Any]) -> Choices | None:
    """The fields that hold the choices of the question beside them; None if there are
    none.

    >>> find_choices([{"A": "x", "B": "y", "C": "z", "answer": "B"}]).text
    'A,B,C'
    """
    keys = keys_of(records)
    likely = [[key] for key in keys if key.lower() in CHOICE_LISTS]
    columns: dict[str, list[str]] = {}
    for key in keys:
        match = _COLUMN.fullmatch(key)
        if match is not None:
            columns.setdefault(match[1] or "", []).append(key)
    likely += [names for names in columns.values() if len(names) >= 3]
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
