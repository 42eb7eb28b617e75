"""Traces: data that holds lengths in tokens, so that there is nothing to tokenize."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chunkscope.prompts.paths import UnusableError, shorten

# Prompt and output columns of the traces in use, as `_spelled` writes them: Azure's, Mooncake's
# and Vidur's.
_PAIRS = {
    "contexttokens": "generatedtokens",
    "inputlength": "outputlength",
    "numprefilltokens": "numdecodetokens",
}
_BLOCKS = "hashids"  # Mooncake's: numbers that stand for blocks of a prompt's tokens

# No prompt is longer; a number beyond is a time stamp or an id.
MOST_TOKENS = 10**12
_NUMBER = re.compile(r"\s*-?[0-9]{1,20}(\.[0-9]{0,20})?\s*")


class TraceColumns(NamedTuple):
    prompt: str
    output: str | None = None
    blocks: str | None = None


def _spelled(key: str) -> str:
    """`"Context Tokens"`, `"context_tokens"` and `"ContextTokens"` are one name."""
    return re.sub(r"[\s_-]+", "", key).lower()


def find_columns(head: Sequence[Any]) -> TraceColumns | None:
    """The length columns of a trace, when most records have them."""
    objects = [record for record in head if isinstance(record, dict)]
    keys = {_spelled(key): key for record in objects for key in record}

    def column(name: str, fits: Callable[[Any], bool]) -> str | None:
        values = [record[keys[name]] for record in objects if record.get(keys.get(name))]
        return keys[name] if sum(map(fits, values)) * 2 > len(values) else None

    for prompt, output in _PAIRS.items():
        if name := column(prompt, _is_number):
            return TraceColumns(name, column(output, _is_number), column(_BLOCKS, are_blocks))
    return None


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_blocks(value: Any) -> bool:
    """Whole numbers of 64 bits."""
    if not isinstance(value, list) or not {*map(type, value)} <= {int}:
        return False
    return not value or (min(value) >= -(1 << 63) and max(value) < 1 << 63)


def length(value: Any, name: str) -> int:
    """One value as a length. Raises UnusableError, naming the field.

    >>> length("4808", "ContextTokens")
    4808
    """
    number = (float(value) if isinstance(value, str) else value) if _is_number(value) else -1
    if not 0 <= number <= MOST_TOKENS or number != int(number):
        given = shorten(value) or "null"
        raise UnusableError(f'field "{name}" is {given}, not a number of tokens')
    return int(number)
