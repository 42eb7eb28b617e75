"""Servers that run: their metrics over a while, as the windows that a log would have.

Counters are exact; a log has rates over windows. Running, waiting and KV use are read each time.
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
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.reader import EngineStart, LogWindow
from chunkscope.vllm.settings import Settings

_READINGS = 60  # at most, over the whole time
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_KV_USE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_OUTPUT = ("vllm:generation_tokens",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading:
    address: str
    start: EngineStart
    finished: int | None
    notes: tuple[Note, ...] = ()


def watch(addresses: Sequence[str], seconds: float) -> list[ServerReading]:
    """All of them at once, for so long."""

    async def together() -> list[ServerReading]:
        return await asyncio.gather(*(_read(address, seconds) for address in addresses))

    return asyncio.run(together())


async def _read(address: str, seconds: float) -> ServerReading:
    async with Connection(address) as connection:
        server = await meet(connection, None)
        if server.metrics is None:
            raise MissingError(
                f"{connection.address} serves no vLLM metrics at /metrics",
                hint="name vLLM's port: a proxy may hide /metrics",
            )
        begun, readings = time.monotonic(), [(0.0, server.metrics)]
        pause = max(1.0, seconds / _READINGS)
        while (passed := time.monotonic() - begun) < seconds:
            await asyncio.sleep(min(pause, seconds - passed))
            read = await connection.metrics()
            if read is not None:
                readings.append((time.monotonic() - begun, read))
        server = replace(server, model=connection.safe(server.model))
    return reading_of(connection.address, server, readings)


def reading_of(
    address: str, server: Server, readings: Sequence[tuple[float, Metrics]]
) -> ServerReading:
    windows = [_window(one, other) for one, other in pairwise(readings)]
    before, after = readings[0][1], readings[-1][1]
    cache = metrics.kv_cache(after, server.max_model_len)
    settings = Settings.of({**cache.engine, "max_model_len": server.max_model_len})
    facts = EngineFacts(
        version=server.version,
        model=server.model,
        kv_cache_tokens=cache.tokens,
        kv_concurrency=cache.concurrency,
        settings=settings,
    )
    rate = metrics.prefix_hit_rate(before, after)
    if windows and rate is not None:
        windows[-1] = replace(windows[-1], hit_rate=rate)
    start = EngineStart(
        facts=facts,
        arguments={
            n: cache.engine[n] for n in metrics.FIXED_SIZES if n in cache.engine
        },
        windows=tuple(windows),
        engines=int(cache.engine.get("engines") or 1),
        preemptions=metrics.counted(before, after, metrics.PREEMPTIONS),
    )
    restarted = metrics.counted(before, after, metrics.PROMPT_TOKENS) is None
    return ServerReading(
        address=address,
        start=start,
        finished=metrics.counted(before, after, metrics.FINISHED),
        notes=(note("server_restarted", address=address),) if restarted else (),
    )


def _window(one: tuple[float, Metrics], other: tuple[float, Metrics]) -> LogWindow:
    seconds = max(1e-3, other[0] - one[0])
    counted = (
        metrics.counted(one[1], other[1], n) for n in (metrics.PROMPT_TOKENS, _OUTPUT)
    )
    prompt, output = ((tokens or 0.0) / seconds for tokens in counted)
    running, waiting = (other[1].total(names) or 0.0 for names in (_RUNNING, _WAITING))
    return LogWindow(
        end_s=other[0],
        seconds=seconds,
        prompt_tokens_per_s=prompt,
        output_tokens_per_s=output,
        running=round(running),
        waiting=round(waiting),
        kv_use=min(1.0, max(0.0, other[1].total(_KV_USE) or 0.0)),
    )
