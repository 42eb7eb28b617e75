"""Strangers' tokenizers in libraries that raise whatever a file provokes.

Rust's panics come as a BaseException of their own: nobody catches them by accident, and Python
would end with 1, which is what a broken gate ends with.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from chunkscope.errors import ChunkscopeError, InputError


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Whatever goes wrong inside is a sentence about `what`."""
    try:
        yield
    except (ChunkscopeError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise InputError(
            f"{what} cannot be used: {first}",
            hint="are its files as they were published? Download them again, or take another one",
        ) from error
