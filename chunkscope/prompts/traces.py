"""Traces: data that holds lengths in tokens, so that there is nothing to tokenize."""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from chunkscope.prompts.fields import UnusableError, describe

# Prompt and output columns of the traces in use, as `_spelled` writes them: Azure's, Mooncake's
# and Vidur's.
_PAIRS = (
    ("contexttokens", "generatedtokens"),
    ("inputlength", "outputlength"),
    ("numprefilltokens", "numdecodetokens"),
)
_BLOCKS = "hashids"  # Mooncake's: numbers that stand for blocks of a prompt's tokens
_NAMES = {name for pair in _PAIRS for name in pair}

# No prompt is longer; a number beyond is a time stamp or an id.
MOST_TOKENS = 10**12


class TraceColumns(NamedTuple):
    prompt: str
    output: str | None
    blocks: str | None = None


def is_trace_name(key: str) -> bool:
    return _spelled(key) in _NAMES


def _spelled(key: str) -> str:
    """`"Context Tokens"`, `"context_tokens"` and `"ContextTokens"` are one name."""
    return re.sub(r"[\s_-]+", "", key).lower()


def find_columns(head: Sequence[Any]) -> TraceColumns | None:
    """The length columns of a trace, when most records have them."""
    keys = {_spelled(key): key for record in head if isinstance(record, dict) for key in record}
    for prompt, output in _PAIRS:
        if prompt in keys and is_mostly_lengths(head, keys[prompt]):
            known = output in keys and is_mostly_lengths(head, keys[output])
            blocks = keys.get(_BLOCKS)
            named = blocks is not None and _is_mostly_blocks(head, blocks)
            return TraceColumns(
                keys[prompt], keys[output] if known else None, blocks if named else None
            )
    return None


def columns_beside(head: Sequence[Any], prompt: str) -> TraceColumns:
    """Those that go with a prompt column that was asked for by name."""
    columns = find_columns(head)
    return columns if columns and columns.prompt == prompt else TraceColumns(prompt, None)


def is_mostly_lengths(head: Sequence[Any], key: str) -> bool:
    values = [record[key] for record in head if isinstance(record, dict) and key in record]
    return sum(map(_is_number, values)) * 2 > len(values)


def _is_mostly_blocks(head: Sequence[Any], key: str) -> bool:
    values = [record[key] for record in head if isinstance(record, dict) and record.get(key)]
    return bool(values) and sum(map(are_blocks, values)) * 2 > len(values)


def are_blocks(value: Any) -> bool:
    """Whole numbers of 64 bits."""
    if not isinstance(value, list) or not {*map(type, value)} <= {int}:
        return False
    return not value or (min(value) >= -(1 << 63) and max(value) < 1 << 63)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"\s*-?[0-9]+(\.[0-9]*)?\s*", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def lengths(values: list[Any]) -> list[int] | None:
    """All values as lengths, or None when one of them needs a closer look."""
    types = set(map(type, values))
    if types == {str}:
        digits = "".join(values)
        if not (digits.isascii() and digits.isdigit() and all(values)):
            return None
        if max(map(len, values)) > len(str(MOST_TOKENS)):
            return None
        values = list(map(int, values))
    elif not types <= {int}:
        return None
    return values if not values or 0 <= min(values) <= max(values) <= MOST_TOKENS else None


def length(value: Any, name: str) -> int:
    """One value as a length. Raises UnusableError, naming the field.

    >>> length("4808", "ContextTokens")
    4808
    """
    number = _number(value, name)
    if isinstance(number, float) and math.isnan(number):
        raise UnusableError(f'field "{name}" is not a number (NaN)')
    if abs(number) > MOST_TOKENS:
        raise UnusableError(f'field "{name}" is too large to be a length')
    if number != int(number):
        raise UnusableError(f'field "{name}" is {number}, not a whole number')
    if number < 0:
        raise UnusableError(f'field "{name}" is negative ({number})')
    return int(number)


def _number(value: Any, name: str) -> int | float:
    if value is None or value == "":
        raise UnusableError(f'field "{name}" is ' + ("null" if value is None else "empty"))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _is_number(value) and len(value) < 40:
        return float(value) if "." in value else int(value)
    if isinstance(value, str):
        raise UnusableError(f'field "{name}" is text, not a number')
    raise UnusableError(f'field "{name}" is {describe(value)}, not a number')
