"""Libraries that read a tokenizer's files: their versions, and the one guard around
them.

A damaged file makes them raise whatever comes: a Rust panic is a BaseException that no
`except Exception` catches, and Python would end with 1, the exit code of a broken gate.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata

from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.sources.base import DataError, first_line


@lru_cache
def engine_name(package: str) -> str:
    """A package with its version, "" if it is not installed."""
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return ""


class TemplateRefused(DataError):  # noqa: N818  (it is what the template did)
    """A chat template or mistral-common does not take a conversation: its order of
    roles, ids."""


class TokenizerError(InputError):
    """The tokenizer cannot be used: that is not about one dataset."""


@contextmanager
def foreign_errors(what: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into a TokenizerError about `what`."""
    try:
        yield
    except InputError as error:
        raise TokenizerError(error.message, hint=error.hint) from error
    except (ChunkscopeError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise TokenizerError(
            f"{what} cannot be used: {first_line(error)}",
            hint="its files may be damaged, or some missing: fetch them again, or use "
            "another one",
        ) from error
