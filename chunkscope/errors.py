"""What can go wrong, as one tree; each branch has its exit code.

ChunkscopeError
|-- GateBroken     1   a promise of the budget file is broken
|-- UsageError     2   the command line makes no sense
|-- InputError     3   the data, or an artefact, is not what it should be
|-- MissingError   4   something needed is not there: tokenizer, vLLM, GPU
`-- EngineError    5   the engine failed

Anything else that escapes is a bug and exits 70.
"""

from collections.abc import Collection
from difflib import get_close_matches
from typing import ClassVar

EXIT_BUG = 70
MOST_NAMES = 40  # in a hint


class ChunkscopeError(Exception):
    """An expected failure: one sentence, and a hint at what to do next."""

    exit_code: ClassVar[int] = EXIT_BUG

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # a traceback shows notes


class GateBroken(ChunkscopeError):  # noqa: N818  (it is a verdict, not a mishap)
    exit_code = 1


class UsageError(ChunkscopeError):
    exit_code = 2


class InputError(ChunkscopeError):
    exit_code = 3


class MissingError(ChunkscopeError):
    exit_code = 4


class EngineError(ChunkscopeError):
    exit_code = 5


def first_line(error: BaseException) -> str:
    """What an error of a library says, as part of our sentence; at least its type."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def nearest(name: str, names: Collection[str]) -> str:
    """A hint for a mistyped name: the most similar one, else some of them."""
    near = get_close_matches(name, names)
    if near:
        return f"did you mean {near[0]}?"
    shown = sorted(names)[:MOST_NAMES]
    more = ", ..." if len(names) > len(shown) else ""
    return f"there are: {', '.join(shown)}{more}"
