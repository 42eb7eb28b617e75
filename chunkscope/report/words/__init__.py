"""The words: a note's code and numbers become one sentence here, and nowhere else.

Each module below has SENTENCES: a code's template for `str.format`, or a function of its values
where a plural or a list needs one.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module

from chunkscope.artefacts.note import Note

Template = str | Callable[..., str]
MODULES = (
    "data",
    "plan",
    "hardware",
    "measured",
    "doctor",
    "gate",
)  # answer and simulation have functions only


def sentence(note: Note) -> str:
    """What people read; a code without words is a bug that the tests find."""
    template = _template(note.code)
    return template.format(**note.values) if isinstance(template, str) else template(**note.values)


@cache
def _template(code: str) -> Template:
    """Of the first module that has it: others, which know more of the package, are not loaded."""
    for name in MODULES:
        sentences: dict[str, Template] = import_module(f"{__name__}.{name}").SENTENCES
        if code in sentences:
            return sentences[code]
    raise KeyError(code)
