"""The choices of a multiple-choice question, written after it as MMLU's own evaluation does.

lm-eval and OpenCompass have the same form for MMLU: the question without blanks around it, then

    A. the first
    B. the second
    Answer:
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

import orjson

from chunkscope.prompts.fields import (
    FieldPath,
    UnusableError,
    describe,
    parse_path,
    quote_key,
)

# Under these names evaluation sets have them.
_LISTS = {"choices", "options", "answer_choices", "endings"}
# `A`, `choice_a`, `option1`, `opa`: one column for each. A bare letter has to be a capital.
_COLUMN = re.compile(
    r"(?:(?:choice|option|opt?|answer|ans|sol|ending)[_ ]?(?P<mark>[a-jA-J0-9])|(?P<bare>[A-J]))"
)
# GPQA's and SciQ's: the right one and the others, which an evaluation shuffles.
_RIGHT_OR_WRONG = re.compile(r"(?:in)?correct[_ ]answer[_ ]?\d?|distractor[_ ]?\d", re.IGNORECASE)
_FEWEST_COLUMNS = 3  # two of them may be anything, unless their name says more
_SURE = {"choice", "option", "sol", "ending"}


@dataclass(frozen=True, slots=True)
class ChoiceList:
    """The fields that hold the choices: one with all of them, or one for each."""

    paths: tuple[FieldPath, ...]

    def lines(self, record: Any) -> str:
        """What comes after the question. Raises UnusableError.

        >>> ChoiceList((FieldPath.to("choices"),)).lines({"choices": ["yes", "no"]})
        '\\nA. yes\\nB. no\\nAnswer:'
        """
        if len(self.paths) == 1:
            labels, texts = _labelled(self.paths[0].get(record), self._name)
        else:
            values = [path.get(record) for path in self.paths]
            texts = [_text(value, self._name) for value in values if value not in (None, "")]
            labels = _letters(len(texts), self._name)
        if len(texts) < 2:
            raise UnusableError(f"{self._name} holds no choices")
        if not all(map(_is_labelled, labels, texts)):
            texts = [f"{label}. {text}" for label, text in zip(labels, texts, strict=True)]
        return "".join(f"\n{text}" for text in texts) + "\nAnswer:"

    @property
    def _name(self) -> str:
        return f'field "{",".join(path.text for path in self.paths)}"'


def _labelled(value: Any, name: str) -> tuple[list[str], list[str]]:
    """The labels and texts of a list, of ARC's {text, label}, of [{text, label}] or of {A: ...}."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _of_json(value, name)  # a list in a cell of a table
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        texts, labels = value["text"], value.get("label")
    elif isinstance(value, dict):
        texts, labels = list(value.values()), list(value)
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        texts = [one.get("text") for one in value]
        labels = [one.get("label") for one in value]
    elif isinstance(value, list):
        texts, labels = value, None
    else:
        raise UnusableError(f"{name} is {describe(value)}, not a list of choices")
    if not isinstance(labels, list) or len(labels) != len(texts) or None in labels:
        labels = _letters(len(texts), name)
    return [_text(label, name) for label in labels], [_text(text, name) for text in texts]


def _of_json(text: str, name: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        raise UnusableError(f"{name} is text, not a list of choices") from None


def _text(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise UnusableError(f"{name} holds {describe(value)}, not only text")


def _letters(count: int, name: str) -> list[str]:
    if count > len(ascii_uppercase):
        raise UnusableError(f"{name} holds {count} choices, more than there are letters")
    return list(ascii_uppercase[:count])


def _is_labelled(label: str, text: str) -> bool:
    """Whether a choice brings its letter along: `A) yes`, `(A) yes`."""
    return re.match(rf"\s*\(?{re.escape(label)}[).:]", text) is not None


# --- finding them ---------------------------------------------------------------------------------


def find_choices(head: Sequence[Any]) -> tuple[str, ...]:
    """The fields that look like the choices of the question beside them; empty if there are none.

    >>> find_choices([{"question": "So?", "A": "x", "B": "y", "C": "z", "answer": "B"}])
    ('A', 'B', 'C')
    """
    objects = [record for record in head if isinstance(record, dict)]
    keys = list(dict.fromkeys(str(key) for record in objects for key in record))
    lists = [(key,) for key in keys if key.lower() in _LISTS]
    lists += [
        (f"{quote_key(key)}.{name}",)  # ARC's own files: the question is an object that has them
        for key, held in (objects[0] if objects else {}).items()
        if isinstance(held, dict)
        for name in held
        if name in _LISTS
    ]
    columns: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        if match := _COLUMN.fullmatch(key):
            columns[key.removesuffix(match["mark"] or match["bare"])].append(key)
    sets = [
        tuple(found)
        for name, found in columns.items()
        if len(found) >= (2 if name.lower().rstrip("_ ") in _SURE else _FEWEST_COLUMNS)
    ]
    answers = tuple(filter(_RIGHT_OR_WRONG.fullmatch, keys))
    sets += [answers] if len(answers) >= _FEWEST_COLUMNS else []
    for names in (*lists, *sets, *_of_a_bare_table(objects, keys)):
        paths = (FieldPath.to(name) if name in keys else parse_path(name) for name in names)
        choices = ChoiceList(tuple(paths))
        if sum(_has_choices(choices, record) for record in objects) * 2 > len(head):
            return names
    return ()


def _of_a_bare_table(objects: Sequence[dict[str, Any]], keys: list[str]) -> list[tuple[str, ...]]:
    """MMLU's own files have no header: a question, its choices, and the letter of the answer."""
    between = tuple(keys[1:-1])
    letters = _letters(min(len(between), 26), "")
    is_bare = keys == [f"column{place}" for place in range(len(keys))]
    if is_bare and len(between) >= _FEWEST_COLUMNS:
        return [between] if all(record.get(keys[-1]) in letters for record in objects) else []
    return []


def _has_choices(choices: ChoiceList, record: Any) -> bool:
    try:
        return bool(choices.lines(record))
    except UnusableError:
        return False
