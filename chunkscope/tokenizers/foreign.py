"""The one guard around libraries that read a tokenizer's files.

Tokenizer files come from the model's folder and are trusted as vLLM trusts them. A damaged one
makes these libraries raise whatever comes: a Rust panic is a BaseException that no `except
Exception` catches, and Python would end with 1, the exit code of a broken gate.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.sources.base import DataError, first_line


class TemplateRefused(DataError):  # noqa: N818  (it is what the template did)
    """A chat template or mistral-common does not take a conversation: its order of roles, ids."""


class TokenizerError(InputError):
    """The tokenizer cannot be used: that is not about one dataset."""


@contextmanager
def foreign_errors(what: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into a TokenizerError about `what`."""
    try:
        yield
    except (ChunkscopeError, KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        if isinstance(error, InputError):
            raise TokenizerError(error.message, hint=error.hint) from error
        raise
    except BaseException as error:
        raise TokenizerError(
            f"{what} cannot be used: {first_line(error)}",
            hint="its files may be damaged, or some missing: fetch them again, or use another one",
        ) from error
