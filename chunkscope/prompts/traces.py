"""Traces: data that holds lengths in tokens, so that there is nothing to tokenize."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from chunkscope.prompts.paths import UnusableError, json_type

# Prompt and output columns of the traces in use, as `_spelled` writes them: Azure's, Mooncake's
# and Vidur's.
_PAIRS = (
    ("contexttokens", "generatedtokens"),
    ("inputlength", "outputlength"),
    ("numprefilltokens", "numdecodetokens"),
)
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
    keys = {_spelled(key): key for record in head if isinstance(record, dict) for key in record}
    for prompt, output in _PAIRS:
        if prompt in keys and _most_are_lengths(head, keys[prompt]):
            has_output = output in keys and _most_are_lengths(head, keys[output])
            blocks = keys.get(_BLOCKS)
            lists = [r[blocks] for r in head if isinstance(r, dict) and blocks and r.get(blocks)]
            has_blocks = bool(lists) and sum(map(are_blocks, lists)) * 2 > len(lists)
            return TraceColumns(
                keys[prompt], keys[output] if has_output else None, blocks if has_blocks else None
            )
    return None


def columns_of(head: Sequence[Any], key: str) -> TraceColumns | None:
    """Those that go with a column that was named on the command line, if it holds lengths."""
    names = {name for pair in _PAIRS for name in pair}
    if _spelled(key) not in names or not _most_are_lengths(head, key):
        return None
    columns = find_columns(head)
    return columns if columns and columns.prompt == key else TraceColumns(key)


def _most_are_lengths(head: Sequence[Any], key: str) -> bool:
    values = [record[key] for record in head if isinstance(record, dict) and key in record]
    return sum(map(_is_number, values)) * 2 > len(values)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_blocks(value: Any) -> bool:
    """Whole numbers of 64 bits."""
    if not isinstance(value, list) or not {*map(type, value)} <= {int}:
        return False
    return not value or (min(value) >= -(1 << 63) and max(value) < 1 << 63)


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
    if value == "":
        raise UnusableError(f'field "{name}" is empty')
    if not _is_number(value):
        not_number = "" if value is None else ", not a number"
        raise UnusableError(f'field "{name}" is {json_type(value)}{not_number}')
    number = float(value) if isinstance(value, str) and "." in value else value
    number = int(number) if isinstance(number, str) else number
    if number != number:  # NaN
        raise UnusableError(f'field "{name}" is not a number (NaN)')
    if abs(number) > MOST_TOKENS:
        raise UnusableError(f'field "{name}" is too large to be a length')
    if number != int(number):
        raise UnusableError(f'field "{name}" is {number}, not a whole number')
    if number < 0:
        raise UnusableError(f'field "{name}" is negative ({number})')
    return int(number)
