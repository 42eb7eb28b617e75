"""Notes as text: a code and its values -> a sentence.

The catalogue is in `notes_data.py` (files, prompts, lengths), `notes_plan.py` (models,
GPUs, plans), `notes_runs.py` (runs), `notes_engine.py` (logs and servers) and
`notes_gate.py`; sentences about bad rows and datasets are in `sources/problems.py`. An
entry is a template of `str.format`, or a function of the note's values where the
sentence depends on them. Beside Python's own format a template may name one of these:

    {rows:plural(row)}  3 rows
    {part:percent}      12 %
    {gain:change}       +12 %
    {names:first}       a, b, c and 2 more

A whole number is written as 8,192, a list as "a, b", None as "-", a note as its
sentence. To add a sentence: one entry, and one example in tests/report/examples.py.
"""

from collections.abc import Sequence
from string import Formatter
from typing import Any

from chunkscope.artefacts.note import Note
from chunkscope.artefacts.numbers import as_written, by, plural, share
from chunkscope.report.wording import NoteText, named
from chunkscope.sources import problems

MOST_NAMES = 3


def sentence(note: Note) -> str:
    """The note as text. KeyError for a code without a sentence, which is a bug."""
    if note.code in problems.SENTENCES:
        return problems.message_of(note)
    text = _text_of(note.code)
    if isinstance(text, str):
        return _NoteFormatter().vformat(text, (), note.values)
    return text(**note.values)


def catalogue() -> dict[str, NoteText]:
    """All of it, by code."""
    from chunkscope.report.notes_data import NOTES as DATA
    from chunkscope.report.notes_engine import NOTES as ENGINE
    from chunkscope.report.notes_gate import NOTES as GATE
    from chunkscope.report.notes_plan import NOTES as PLAN
    from chunkscope.report.notes_runs import NOTES as RUNS

    return {**DATA, **ENGINE, **GATE, **PLAN, **RUNS}


def _text_of(code: str) -> NoteText:
    """The entry of a code; the parts about engines are not imported for data."""
    from chunkscope.report.notes_data import NOTES

    if code in NOTES:
        return NOTES[code]
    return catalogue()[code]


class _NoteFormatter(Formatter):
    """`str.format` with the four formats above."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("plural("):
            noun = format_spec.removeprefix("plural(").removesuffix(")")
            return plural(value, noun)
        if format_spec == "percent":
            return share(value)
        if format_spec == "change":
            return by(value)
        if format_spec == "first":
            return named(value, MOST_NAMES)
        if format_spec:
            return format(value, format_spec)
        return written(value)


def written(value: object) -> str:
    """A value as it stands in a sentence.

    >>> written(8192), written(["a", 1]), written(None)
    ('8,192', 'a, 1', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, Note):
        return sentence(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return as_written(value)


def sentences(notes: Sequence[Note]) -> tuple[str, ...]:
    """Each note as text."""
    return tuple(sentence(note) for note in notes)
