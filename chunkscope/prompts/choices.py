"""The choices of a multiple-choice question, written after it as MMLU's own evaluation does.

lm-eval and OpenCompass have the same form for MMLU: the question without blanks around it, then

    A. the first
    B. the second
    Answer:
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

import orjson

from chunkscope.prompts.paths import FieldPath, UnusableError, json_type, parse_path, quote_key

_LIST_NAMES = {"choices", "options", "answer_choices", "endings"}
# `A`, `choice_a`, `option1`, `opa`: one column for each. A bare letter has to be a capital.
_COLUMN = re.compile(
    r"(?P<name>(?:choice|option|opt?|answer|ans|sol|ending)[_ ]?)[a-jA-J0-9]|(?P<bare>[A-J])"
)
# GPQA's and SciQ's: the right one and the others, which an evaluation shuffles.
_RIGHT_OR_WRONG = re.compile(r"(?:in)?correct[_ ]answer[_ ]?\d?|distractor[_ ]?\d", re.IGNORECASE)
_FEWEST_COLUMNS = 3  # two of them may be anything, unless their name says more
_SURE_NAMES = {"choice", "option", "sol", "ending"}


@dataclass(frozen=True, slots=True)
class ChoiceList:
    """The fields that hold the choices: one with all of them, or one for each."""

    paths: tuple[FieldPath, ...]

    def lines(self, record: Any) -> str:
        """What comes after the question. Raises UnusableError.

        >>> ChoiceList((FieldPath.to("choices"),)).lines({"choices": ["yes", "no"]})
        '\\nA. yes\\nB. no\\nAnswer:'
        """
        pairs = self.labelled(record)
        has_labels = all(re.match(rf"\s*\(?{re.escape(a)}[).:]", text) for a, text in pairs)
        lines = (text if has_labels else f"{label}. {text}" for label, text in pairs)
        return "".join(f"\n{line}" for line in lines) + "\nAnswer:"

    def labelled(self, record: Any) -> list[tuple[str, str]]:
        """Each choice after its letter, which is what a model is asked for."""
        name = f'field "{",".join(path.text for path in self.paths)}"'
        labels: Any = None
        if len(self.paths) == 1:
            texts, labels = _texts_and_labels(self.paths[0].get(record), name)
        else:
            values = [path.get(record) for path in self.paths]
            texts = [value for value in values if value not in (None, "")]
        if not isinstance(labels, list) or len(labels) != len(texts) or None in labels:
            labels = ascii_uppercase[: len(texts)]
        if not 2 <= len(texts) <= len(labels):
            raise UnusableError(f"{name} holds {len(texts)} choices, not 2 to 26")
        return [(_text(a, name), _text(text, name)) for a, text in zip(labels, texts, strict=True)]


def _texts_and_labels(value: Any, name: str) -> tuple[list[Any], Any]:
    """Of a list, of ARC's {text, label}, of [{text, label}] or of {A: ...}."""
    if isinstance(value, str) and value.lstrip().startswith("["):  # a list in a cell of a table
        try:
            value = orjson.loads(value)
        except ValueError:
            raise UnusableError(f"{name} is text, not a list of choices") from None
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        return value["text"], value.get("label")
    if isinstance(value, dict):
        return list(value.values()), list(value)
    if not isinstance(value, list):
        raise UnusableError(f"{name} is {json_type(value)}, not a list of choices")
    if value and all(isinstance(choice, dict) for choice in value):
        texts, labels = ([choice.get(key) for choice in value] for key in ("text", "label"))
        return texts, labels
    return value, None


def _text(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise UnusableError(f"{name} holds {json_type(value)}, not only text")


def find_choices(head: Sequence[Any]) -> tuple[str, ...]:
    """The fields that look like the choices of the question beside them; empty if there are none.

    >>> find_choices([{"question": "So?", "A": "x", "B": "y", "C": "z", "answer": "B"}])
    ('A', 'B', 'C')
    """
    objects = [record for record in head if isinstance(record, dict)]
    keys = list(dict.fromkeys(str(key) for record in objects for key in record))
    for names in _likely_choices(objects, keys):
        paths = (FieldPath.to(name) if name in keys else parse_path(name) for name in names)
        choices = ChoiceList(tuple(paths))
        if sum(_has_choices(choices, record) for record in objects) * 2 > len(head):
            return names
    return ()


def _likely_choices(
    objects: Sequence[dict[str, Any]], keys: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    yield from ((key,) for key in keys if key.lower() in _LIST_NAMES)
    for key, inner in objects[0].items() if objects else ():
        if isinstance(inner, dict):  # ARC's own files: the question is an object that has them
            yield from ((f"{quote_key(key)}.{name}",) for name in inner if name in _LIST_NAMES)
    columns: dict[str, list[str]] = {}
    for key in keys:
        if match := _COLUMN.fullmatch(key):
            columns.setdefault(match["name"] or "", []).append(key)
    for name, names in columns.items():
        if len(names) >= (2 if name.lower().rstrip("_ ") in _SURE_NAMES else _FEWEST_COLUMNS):
            yield tuple(names)
    answers = tuple(filter(_RIGHT_OR_WRONG.fullmatch, keys))
    if len(answers) >= _FEWEST_COLUMNS:
        yield answers
    # MMLU's own files have no header: a question, its choices, and the letter of the answer.
    between = tuple(keys[1:-1])
    is_bare = keys == [f"column{place}" for place in range(len(keys))]
    if is_bare and len(between) >= _FEWEST_COLUMNS:
        letters = [*ascii_uppercase[: len(between)]]
        if all(record.get(keys[-1]) in letters for record in objects):
            yield between


def _has_choices(choices: ChoiceList, record: Any) -> bool:
    try:
        return bool(choices.lines(record))
    except UnusableError:
        return False
