"""Sentences: the only place where a note (a code and values) becomes text.

Each module has SENTENCES: by code a template, or a function of the values that returns the text
(those about bad data are in `sources/problems.py`). In a template `{rows:row}` is "3 rows", `{part:%}` a share, `{gain:+%}` a change, `{names}` a list or a
number, `{names:and}` the first names of a list, `{how:words}` the sentence of another code, and
`[more? and {more} more|alone]` the first text if the value `more` is there, else the second.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from string import Formatter
from typing import Any

from chunkscope.artefacts.note import Note
from chunkscope.artefacts.numbers import as_written, by, plural, share
from chunkscope.sources import problems

Template = str | Callable[..., str]
_CHOICE = re.compile(r"\[(\w+)\?([^]|]*)\|?([^]]*)\]")
MODULES = (
    "talk",
    "data",
    "plan",
    "runs",
    "doctor",
    "gate",
)  # light ones first


class _Words(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Note):
            return sentence(value)
        if format_spec in ("words", "and"):
            return (
                sentence(Note(code=value))
                if format_spec == "words"
                else named(value, 3)
            )
        if value is None or not format_spec:
            several = ", ".join(map(str, value)) if isinstance(value, list) else value
            return "-" if value is None else as_written(several)
        if format_spec in ("%", "+%"):
            return share(value) if format_spec == "%" else by(value)
        if len(format_spec) > 2 and format_spec.replace(" ", "").isalpha():
            return plural(value, format_spec)
        return str(super().format_field(value, format_spec))


def sentence(note: Note) -> str:
    """The note as text. KeyError for a code without a template, which is a bug."""
    if note.code in problems.SENTENCES:
        return problems.message_of(note)
    from chunkscope.report import notes

    if note.code in notes.catalogue():
        return notes.sentence(note)
    template = _template(note.code)
    if isinstance(template, str):
        chosen = _CHOICE.sub(
            lambda part: part[2 if note.values.get(part[1]) else 3], template
        )
        return _Words().vformat(chosen, (), note.values)
    return template(**note.values)


def capital(text: str) -> str:
    """The text with a capital first letter, unless it starts with a name.

    >>> capital("the engine died"), capital("max_num_seqs was reached"), capital("vLLM died")
    ('The engine died', 'max_num_seqs was reached', 'vLLM died')
    """
    word = text.partition(" ")[0]
    return f"{text[0].upper()}{text[1:]}" if word.isalpha() and word.islower() else text


def named(names: Sequence[str], most: int = 2) -> str:
    """
    >>> named(["a", "b"]), named(["a", "b", "c"])
    ('a and b', 'a, b and 1 more')
    """
    if len(names) <= most:
        return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"


@cache
def _template(code: str) -> Template:
    """The template from the first module that has the code; later modules are not imported."""
    for name in MODULES:
        sentences: dict[str, Template] = import_module(f"{__name__}.{name}").SENTENCES
        if code in sentences:
            return sentences[code]
    raise KeyError(code)
