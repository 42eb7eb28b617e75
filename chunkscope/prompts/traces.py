"""Lengths that the data brings along: traces of requests, and logs of usage."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chunkscope.prompts.paths import FieldPath, json_in, shorten
from chunkscope.sources.base import DataError

# The length of a prompt and of its answer, as Azure, Mooncake, Vidur, BurstGPT, aiperf
# and the usage logs of servers call them; in lower case, without blanks, dashes and
# underscores.
TRACE_COLUMNS = {
    "contexttokens": "generatedtokens",
    "inputlength": "outputlength",
    "numprefilltokens": "numdecodetokens",
    "requesttokens": "responsetokens",
    "prompttokens": "completiontokens",
    "inputtokens": "outputtokens",
    "inputtokencount": "outputtokencount",
    "prompttokencount": "candidatestokencount",  # Gemini's
    "tokensprompt": "tokenscompletion",
    "promptlen": "outputlen",
    "prompttokenids": "outputtokenids",  # the tokens themselves
    "inputids": "outputids",
    "inputsequencelength": "outputsequencelength",  # aiperf's: {"value": 5}
}
BLOCKS = "hashids"  # Mooncake's: numbers that stand for blocks of a prompt's tokens
PARENTS = (None, "usage", "metrics")  # where the columns may be in a record

# No prompt is longer: a number beyond is a time stamp or an id.
MOST_TOKENS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceColumns:
    """Where a record has its lengths."""

    prompt: FieldPath
    output: FieldPath | None = None
    blocks: FieldPath | None = None


def bare(name: str) -> str:
    """One spelling of `Context Tokens`, `context_tokens` and `ContextTokens`."""
    return re.sub(r"[\s_-]+", "", name.rpartition(".")[2]).lower()


def find_trace(records: Sequence[Any]) -> TraceColumns | None:
    """The length columns that most records have; None where they are no trace."""
    for parent in PARENTS:
        steps = () if parent is None else (parent,)
        columns = trace_columns(records, steps)
        if columns is not None:
            return columns
    return None


def trace_columns(
    records: Sequence[Any], parent: tuple[Any, ...]
) -> TraceColumns | None:
    """The length columns of the objects under a path, if they have some."""
    objects = [FieldPath(parent).find(record) for record in records]
    rows = [row for row in objects if isinstance(row, dict)]
    names: dict[str, str] = {}
    for row in rows:
        for name in row:
            names.setdefault(bare(str(name)), name)
    for prompt, output in TRACE_COLUMNS.items():
        if prompt in names and _most_are_lengths(rows, names[prompt]):
            return TraceColumns(
                prompt=FieldPath((*parent, names[prompt])),
                output=_path(parent, names.get(output), rows),
                blocks=_path(parent, names.get(BLOCKS), rows),
            )
    return None


def _path(
    parent: tuple[Any, ...], name: str | None, rows: Sequence[dict[str, Any]]
) -> FieldPath | None:
    if name is None or not _most_are_lengths(rows, name):
        return None
    return FieldPath((*parent, name))


def _most_are_lengths(rows: Sequence[dict[str, Any]], name: str) -> bool:
    """Whether most values are numbers of tokens, or lists of tokens or blocks."""
    values = [row[name] for row in rows if row.get(name)]
    fitting = [value for value in values if _number(value, name) is not None]
    return len(fitting) * 2 > len(values)


def _number(value: Any, name: str) -> float | None:
    """A length as it is written: a number, text, an object with a value, or ids."""
    if bare(name).endswith("ids"):
        ids = json_in(value)
        return len(ids) if are_blocks(ids) else None
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def are_blocks(value: Any) -> bool:
    """Whether it is a list of whole numbers of 64 bits."""
    if not isinstance(value, list):
        return False
    for number in value:
        if type(number) is not int or not -(1 << 63) <= number < 1 << 63:
            return False
    return True


def trace_length(value: Any, name: str) -> int:
    """One value as a length. Raises DataError, naming the field.

    >>> trace_length("4808", "ContextTokens")
    4808
    """
    number = _number(value, name)
    if number is None or not 0 <= number <= MOST_TOKENS or number != int(number):
        raise DataError("not_a_length", field=name, given=shorten(value))
    return int(number)


def are_lengths(values: Sequence[Any]) -> bool:
    """Whether all values are numbers of tokens; a row may have none."""
    count = 0
    for value in values:
        if value in (None, ""):
            continue
        is_digits = isinstance(value, str) and value.strip().isdecimal()
        if not is_digits and type(value) is not int:
            return False
        count += 1
    return count > 0
