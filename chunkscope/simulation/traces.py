"""Requests out of files: Mooncake's traces, and the workload of a `verify` run.

Mooncake's jsonl has `timestamp` in milliseconds, `input_length`, `output_length` and
`hash_ids`, which name the blocks of a prompt: those of the same name are shared.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from chunkscope.artefacts.artefact import built, read
from chunkscope.artefacts.files import read_text
from chunkscope.errors import InputError
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prefixes.tree import tree_of_trace
from chunkscope.prompts.traces import are_blocks
from chunkscope.simulation.workload import AS_IN_TRACE, VERIFY_SCHEMA, Workload, single
from chunkscope.vllm.enums import Task

_HINT = (
    "a trace is Mooncake's jsonl (timestamp, input_length, output_length), or what "
    "`chunkscope verify` wrote; `chunkscope guide simulate` shows how to convert others"
)
_LONGEST = 10**9  # tokens


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request as a trace has it."""

    where: str  # path and line
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: list[int]


def read_trace(path: Path) -> Workload:
    """The requests of a file; arrivals count from the first."""
    if path.suffix == ".json":
        document = read(path, VERIFY_SCHEMA, "chunkscope verify")
        verified: Workload = built(Workload, document["workload"])
        return replace(verified, arrivals=AS_IN_TRACE)
    rows = list(_rows(path))
    if not rows:
        raise InputError(f"{path} has no requests", hint=_HINT)
    _check_order(rows)
    ends = [-1] * len(rows)
    sharing = None
    if any(row.blocks for row in rows):
        sharing = _sharing(path, rows)
        ends = list(sharing.ends)
    sessions = []
    for row, stretch in zip(rows, ends, strict=True):
        # A request without a prompt or an answer still takes a token of each.
        prompt_tokens, output_tokens = (
            max(1, row.prompt_tokens),
            max(1, row.output_tokens),
        )
        arrival_s = row.arrival_s - rows[0].arrival_s
        sessions.append(single(prompt_tokens, output_tokens, arrival_s, stretch))
    return Workload(
        sessions=tuple(sessions),
        stretches=sharing.stretches if sharing else (),
        seed=0,
        arrivals=AS_IN_TRACE,
        task=Task.GENERATE,
    )


def _rows(path: Path) -> Iterator[TraceRow]:
    """Every row is a request: one that cannot be read is an error."""
    for number, line in enumerate(read_text(path, hint=_HINT).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InputError(f"{where}: it is not JSON: {error}", hint=_HINT) from None
        if not isinstance(row, dict):
            raise InputError(f"{where}: it is not an object", hint=_HINT)
        blocks = row.get("hash_ids") or []
        if not are_blocks(blocks):
            raise InputError(
                f"{where}: hash_ids is not a list of whole numbers", hint=_HINT
            )
        yield TraceRow(
            where=where,
            arrival_s=_number(row, "timestamp", where) / 1_000,
            prompt_tokens=_length(row, "input_length", where),
            output_tokens=_length(row, "output_length", where),
            blocks=blocks,
        )


def _number(row: Mapping[str, object], name: str, where: str) -> float:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {name} is not a number: {value!r}", hint=_HINT)
    if not math.isfinite(value):
        raise InputError(f"{where}: {name} is not finite", hint=_HINT)
    return value


def _length(row: Mapping[str, object], name: str, where: str) -> int:
    value = _number(row, name, where)
    if not 0 <= value <= _LONGEST or value != int(value):
        raise InputError(f"{where}: {name} is not a length: {value!r}", hint=_HINT)
    return int(value)


def _check_order(rows: list[TraceRow]) -> None:
    before_s = rows[0].arrival_s
    for row in rows:
        if row.arrival_s < before_s:
            raise InputError(
                f"{row.where}: it arrives {before_s - row.arrival_s:g} s before the "
                "request above it",
                hint="sort the trace by its times",
            )
        before_s = row.arrival_s


def _sharing(path: Path, rows: list[TraceRow]) -> Sharing:
    """What prompts share by the blocks that they name."""
    tree = tree_of_trace(
        [max(1, row.prompt_tokens) for row in rows], [row.blocks for row in rows]
    )
    if tree is None:
        raise InputError(
            f"{path}: its hash_ids do not match its input_length", hint=_HINT
        )
    return tree.sharing(range(len(rows)))
