"""Requests out of files: traces with lengths and times, and the workload of a `verify` run.

Mooncake's jsonl has `timestamp` in milliseconds, `input_length`, `output_length` and `hash_ids`,
which name the blocks of a prompt: those of the same name are shared. Azure's csv has `TIMESTAMP`
(a date and time, or seconds), `ContextTokens` and `GeneratedTokens`.
"""

import math
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from chunkscope.artefacts.artefact import built, read
from chunkscope.errors import InputError
from chunkscope.prompts.paths import wrong_type
from chunkscope.prompts.selection import are_blocks, trace_columns, trace_length
from chunkscope.simulation.workload import AS_IN_TRACE, VERIFY_SCHEMA, Request, Workload
from chunkscope.sources.base import DataError, Problems, ReadOptions
from chunkscope.sources.discovery import discover
from chunkscope.sources.reader import RecordReader
from chunkscope.vllm.enums import Task

_HINT = (
    "a trace is Mooncake's jsonl (timestamp, input_length, output_length), Azure's csv "
    "(TIMESTAMP, ContextTokens, GeneratedTokens), or what `chunkscope verify` wrote"
)
_HEAD = 100  # rows that show which columns hold the lengths
Row = tuple[str, dict[str, Any]]  # where it stands, and its values


def read_trace(path: Path) -> Workload:
    """The requests of a file; arrivals count from the first."""
    if path.suffix == ".json":
        document = read(path, VERIFY_SCHEMA, "chunkscope verify")
        verified: Workload = built(Workload, document["workload"])
        return replace(verified, arrivals=AS_IN_TRACE)
    requests, blocks = _requests(path, _rows(path))
    sent = Workload(requests=requests, seed=0, arrivals=AS_IN_TRACE, task=Task.GENERATE)
    return _sharing(path, sent, blocks) if any(blocks) else sent


def _rows(path: Path) -> list[Row]:
    """Every row is a request: one that cannot be read is an error."""
    problems, options = Problems(), ReadOptions()
    with RecordReader(
        discover([str(path)], options=options)[0][0], options, problems
    ) as reader:
        chunks = [
            zip(chunk.positions, chunk.records, strict=True)
            for chunk in reader.chunks()
        ]
    bad = {
        one.position: DataError(one.reason.code, **one.reason.values)
        for one in problems.rows
    }
    rows = list(chain.from_iterable(chunks))
    bad |= {
        at: wrong_type(row, "", "object")
        for at, row in rows
        if not isinstance(row, dict)
    }
    for place, reason in bad.items():
        raise InputError(f"{path}:{place}: {reason}", hint=_HINT)
    return [(f"{path}:{place}", row) for place, row in rows]


def _requests(
    path: Path, rows: list[Row]
) -> tuple[tuple[Request, ...], list[list[int]]]:
    """And the blocks that each names."""
    columns = trace_columns([row for _, row in rows[:_HEAD]])
    stamp = next(
        (key for _, row in rows[:1] for key in row if key.lower() == "timestamp"), None
    )
    if columns is None or columns.output is None or stamp is None:
        raise InputError(f"{path} lacks the columns of a trace", hint=_HINT)
    requests: list[Request] = []
    blocks: list[list[int]] = []
    first_s = _seconds(rows[0][1].get(stamp), rows[0][0])
    for where, row in rows:
        try:
            prompt, output = (
                trace_length(row.get(name), name) for name in columns[:2] if name
            )
        except DataError as error:
            raise InputError(f"{where}: {error}", hint=_HINT) from None
        arrival_s = _seconds(row.get(stamp), where) - first_s
        if requests and arrival_s < requests[-1].arrival_s:
            early = requests[-1].arrival_s - arrival_s
            raise InputError(
                f"{where}: it arrives {early:g} s before the request above it",
                hint="sort the trace by its times",
            )
        # A request without a prompt or an answer still takes a token of each.
        prompt, output = max(1, prompt), max(1, output)
        requests.append(
            Request(prompt_tokens=prompt, output_tokens=output, arrival_s=arrival_s)
        )
        names = row.get("hash_ids") or []
        if not are_blocks(names):
            raise InputError(
                f"{where}: hash_ids is not a list of whole numbers", hint=_HINT
            )
        blocks.append(names)
    return tuple(requests), blocks


def _seconds(value: Any, where: str) -> float:
    """A number in JSON is milliseconds; a text is seconds or a date: `2023-11-16 18:17:03.97`."""
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000
    elif isinstance(value, str):
        for read in (float, lambda text: datetime.fromisoformat(text).timestamp()):
            with suppress(ValueError):
                seconds = read(value)
                break
    if not math.isfinite(seconds):
        raise InputError(
            f"{where}: the time {value!r} is neither a number nor a date", hint=_HINT
        )
    return seconds


def _sharing(path: Path, sent: Workload, blocks: list[list[int]]) -> Workload:
    """With the stretches that prompts share by the blocks that they name."""
    import numpy as np  # not for traces that name none

    from chunkscope.prefixes.tree import tree_of_trace

    tree = tree_of_trace(
        np.array([request.prompt_tokens for request in sent.requests]),
        np.array([len(names) for names in blocks]),
        np.fromiter(chain.from_iterable(blocks), np.int64),
    )
    if tree is None:
        raise InputError(
            f"{path}: its hash_ids do not match its input_length", hint=_HINT
        )
    sharing = tree.sharing()
    ends = zip(sent.requests, sharing.ends, strict=True)
    requests = tuple(replace(request, stretch=end) for request, end in ends)
    return replace(sent, requests=requests, stretches=sharing.stretches)
