"""A server that runs: its metrics over a while, as the windows that a log would have.

Counters are exact, where a log has rates over windows. Running and waiting requests and
the use of the KV cache are read each time.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import MissingError
from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.metrics import Metrics
from chunkscope.verification.endpoint.server import Connection, Server, meet
from chunkscope.vllm.log.facts import FIXED_SIZES, EngineFacts
from chunkscope.vllm.log.start import EngineStart
from chunkscope.vllm.log.windows import LogWindow
from chunkscope.vllm.settings import Settings

_MOST_READINGS = 60  # over the whole time
_SHORTEST_PAUSE_S = 1.0
_SHORTEST_WINDOW_S = 1e-3  # a clock may give two readings the same time
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_KV_USE = ("vllm:kv_cache_usage_perc",)
_OUTPUT_TOKENS = ("vllm:generation_tokens",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What /metrics said at a time, in seconds since the first reading."""

    at_s: float
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedServer:
    """`finished`: the requests that it answered meanwhile."""

    start: EngineStart
    finished: int | None
    notes: tuple[Note, ...] = ()


def watch(address: str, seconds: float) -> WatchedServer:
    """A server for so long."""
    return asyncio.run(_watch(address, seconds))


async def _watch(address: str, seconds: float) -> WatchedServer:
    async with Connection(address) as connection:
        server = await meet(connection, None)
        if server.metrics is None:
            raise MissingError(
                f"{connection.address} serves no vLLM metrics at /metrics",
                hint="name vLLM's port: a proxy may hide /metrics",
            )
        readings = [Reading(at_s=0.0, metrics=server.metrics)]
        begun = time.monotonic()
        pause_s = max(_SHORTEST_PAUSE_S, seconds / _MOST_READINGS)
        left_s = seconds
        while left_s > 0:
            await asyncio.sleep(min(pause_s, left_s))
            read = await connection.metrics()
            passed_s = time.monotonic() - begun
            if read is not None:
                readings.append(Reading(at_s=passed_s, metrics=read))
            left_s = seconds - passed_s
        server = replace(server, model=connection.safe(server.model))
    return watched(connection.address, server, readings)


def watched(address: str, server: Server, readings: Sequence[Reading]) -> WatchedServer:
    """What a server did between the first reading and the last."""
    before = readings[0].metrics
    after = readings[-1].metrics
    cache = metrics.kv_cache(after, server.max_model_len)
    said = {**cache.engine, "max_model_len": server.max_model_len}
    facts = EngineFacts(
        version=server.version,
        model=server.model,
        kv_cache_tokens=cache.tokens,
        kv_concurrency=cache.concurrency,
        settings=Settings.of(said),
    )
    windows = [_window(reading, later) for reading, later in pairwise(readings)]
    hit_rate = metrics.prefix_hit_rate(before, after)
    if windows and hit_rate is not None:
        windows[-1] = replace(windows[-1], hit_rate=hit_rate)
    start = EngineStart(
        source=address,
        facts=facts,
        arguments={
            name: value for name, value in cache.engine.items() if name in FIXED_SIZES
        },
        windows=tuple(windows),
        engines=int(cache.engine.get("engines", 1)),
        preemptions=metrics.counted(before, after, metrics.PREEMPTIONS),
    )
    notes: tuple[Note, ...] = ()
    if metrics.counted(before, after, metrics.PROMPT_TOKENS) is None:
        notes = (note("server_restarted", address=address),)
    finished = metrics.counted(before, after, metrics.FINISHED)
    return WatchedServer(start=start, finished=finished, notes=notes)


def _window(before: Reading, after: Reading) -> LogWindow:
    seconds = max(_SHORTEST_WINDOW_S, after.at_s - before.at_s)
    prompt = metrics.counted(before.metrics, after.metrics, metrics.PROMPT_TOKENS)
    output = metrics.counted(before.metrics, after.metrics, _OUTPUT_TOKENS)
    kv_use = after.metrics.total(_KV_USE) or 0.0
    return LogWindow(
        end_s=after.at_s,
        seconds=seconds,
        prompt_tokens_per_s=(prompt or 0) / seconds,
        output_tokens_per_s=(output or 0) / seconds,
        running=round(after.metrics.total(_RUNNING) or 0),
        waiting=round(after.metrics.total(_WAITING) or 0),
        kv_use=min(1.0, max(0.0, kv_use)),
    )
