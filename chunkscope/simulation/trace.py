"""Requests out of files: traces with lengths and times, and the workload of a `verify` run.

Mooncake's jsonl has `timestamp` in milliseconds, `input_length`, `output_length` and `hash_ids`,
which name the blocks of a prompt: those of the same name are shared. Azure's csv has `TIMESTAMP`
(a date and time, or seconds), `ContextTokens` and `GeneratedTokens`.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from chunkscope.artefacts import codec
from chunkscope.artefacts.schema import validated
from chunkscope.errors import InputError
from chunkscope.prefixes.sharing import Stretch
from chunkscope.prompts.traces import are_blocks
from chunkscope.simulation.workload import VERIFY_SCHEMA, Request, Workload
from chunkscope.vllm.choices import Task

UNSHARED = (
    "the hash_ids of the trace do not fit its lengths in blocks of any size: its prompts are taken "
    "to share nothing"
)
_MILLISECONDS = 1e-3
_HINT = (
    "a trace is Mooncake's jsonl (timestamp, input_length, output_length), Azure's csv "
    "(TIMESTAMP, ContextTokens, GeneratedTokens), or what `chunkscope verify` wrote"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in their order, and what their prompts share; of a `verify` run how it sent them."""

    requests: tuple[Request, ...]
    stretches: tuple[Stretch, ...] = ()
    shared_prefix: int = 0  # where they are one that was asked for
    task: Task | None = None
    concurrency: int | None = None
    notes: tuple[str, ...] = ()


def read_trace(path: Path) -> Trace:
    """The requests of a file; arrivals count from the first."""
    if path.suffix == ".json":
        return _of_verify(path)
    text = codec.read_text(path, hint=_HINT)
    rows = _of_csv(path, text) if path.suffix == ".csv" else _of_lines(path, text)
    requests, blocks = _requests(path, rows)
    return _sharing(requests, blocks) if any(blocks) else Trace(requests=requests)


def _sharing(requests: tuple[Request, ...], blocks: list[list[int]]) -> Trace:
    """With the stretches that prompts share by the blocks that they name."""
    import numpy as np  # not for traces that name none

    from chunkscope.prefixes.stretches import sharing_of
    from chunkscope.prefixes.trace_blocks import blocks_of_trace

    prompts = blocks_of_trace(
        np.array([request.prompt_tokens for request in requests]),
        np.array([len(ids) for ids in blocks]),
        np.fromiter(chain.from_iterable(blocks), np.int64),
    )
    if prompts is None:
        return Trace(requests=requests, notes=(UNSHARED,))
    sharing = sharing_of(prompts, whole=True)
    ends = zip(requests, sharing.ends, strict=True)
    return Trace(
        requests=tuple(replace(request, stretch=end) for request, end in ends),
        stretches=sharing.stretches,
    )


Row = tuple[str, Any, Any, Any, Any]  # where it stands; prompt, output, seconds, blocks


def _of_lines(path: Path, text: str) -> Iterator[Row]:
    for place, line in enumerate(io.StringIO(text, newline=None), start=1):
        if not line.strip():
            continue
        where = f"{path}:{place}"
        try:
            row = orjson.loads(line)
        except ValueError as error:
            raise InputError(f"{where} is not JSON: {error}", hint=_HINT) from None
        names = ("input_length", "output_length", "timestamp")
        if not isinstance(row, dict) or not all(name in row for name in names):
            raise InputError(f"{where} lacks one of {', '.join(names)}", hint=_HINT)
        prompt, output, stamp = (row[name] for name in names)
        seconds = stamp * _MILLISECONDS if isinstance(stamp, int | float) else stamp
        yield where, prompt, output, seconds, row.get("hash_ids")


def _of_csv(path: Path, text: str) -> Iterator[Row]:
    try:
        table = csv.DictReader(io.StringIO(text))
        names = ("ContextTokens", "GeneratedTokens", "TIMESTAMP")
        if not set(names) <= set(table.fieldnames or ()):
            raise InputError(f"{path} lacks one of the columns {', '.join(names)}", hint=_HINT)
        for row in table:
            where = f"{path}:{table.line_num}"
            prompt, output = (_whole(row[name]) for name in names[:2])
            yield where, prompt, output, _time(row["TIMESTAMP"]), None
    except csv.Error as error:
        raise InputError(f"{path} is not a csv file: {error}", hint=_HINT) from None


def _whole(text: str | None) -> int | str | None:
    try:
        return int(text or "")
    except ValueError:
        return text


def _time(text: str | None) -> float | str | None:
    """Seconds, or a date: `2023-11-16 18:17:03.9799600`."""
    try:
        return float(text or "")
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return text


def _of_verify(path: Path) -> Trace:
    made_by = "chunkscope verify"
    try:
        found = codec.read(path, VERIFY_SCHEMA, made_by=made_by)
    except InputError as error:
        raise InputError(error.message, hint=_HINT) from None
    with codec.reading(path, made_by):
        workload = validated(Workload, Workload.fields_of(found["workload"]))
    return Trace(
        requests=workload.requests,
        stretches=workload.stretches,
        shared_prefix=workload.shared_prefix,
        task=workload.task,
        concurrency=workload.concurrency,
    )


def _requests(path: Path, rows: Iterable[Row]) -> tuple[tuple[Request, ...], list[list[int]]]:
    """And the blocks that each names."""
    made: list[Request] = []
    blocks: list[list[int]] = []
    first: float | None = None
    for where, prompt, output, seconds, ids in rows:
        if not _is_number(seconds):
            raise InputError(f"{where}: the time {seconds!r} is no number and no date", hint=_HINT)
        first = seconds if first is None else first
        arrival = float(seconds - first)
        if made and arrival < made[-1].arrival_s:
            raise InputError(
                f"{where}: it arrives {made[-1].arrival_s - arrival:g} s before the one above it",
                hint="sort the trace by its times",
            )
        lengths = [_length(where, name, n) for name, n in (("prompt", prompt), ("output", output))]
        # A request without a prompt or an answer still takes a token of each.
        prompt_tokens, output_tokens = (max(1, length) for length in lengths)
        made.append(
            Request(prompt_tokens=prompt_tokens, output_tokens=output_tokens, arrival_s=arrival)
        )
        if not are_blocks(ids or []):
            raise InputError(f"{where}: hash_ids is no list of whole numbers", hint=_HINT)
        blocks.append(ids or [])
    if not made:
        raise InputError(f"{path} has no requests", hint=_HINT)
    return tuple(made), blocks


def _length(where: str, name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{where}: the {name} length {value!r} is not a whole number", hint=_HINT)
    if value < 0:
        raise InputError(f"{where}: the {name} length is negative ({value:,})")
    return value


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
