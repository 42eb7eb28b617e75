"""Send requests to a server, each at its time, and take the times of what comes back."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from chunkscope.verification.endpoint.request_body import RequestForm
from chunkscope.verification.endpoint.server import Connection, RequestFailed
from chunkscope.verification.endpoint.stream import Events, Received, ServerError
from chunkscope.verification.latencies import Answer

_EVERY_S = 0.01


@dataclass(slots=True)
class Exchange:
    """`late_s`: how long, at most, this process was kept from looking at the clock."""

    connection: Connection
    form: RequestForm
    late_s: float = 0.0
    keeps: bool = False  # whole answers, to be read

    async def send(
        self,
        bodies: Sequence[bytes],
        at: Sequence[float],
        answered: Callable[[], None],
        *,
        concurrency: int | None = None,
    ) -> list[Answer]:
        """All at their times, at most so many under way; the answers in the same order.

        The first failure ends it.
        """
        begin = time.perf_counter()
        places = asyncio.Semaphore(concurrency or len(bodies))

        async def one(body: bytes, when: float) -> Answer:
            if (wait := begin + when - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            async with places:
                answer = await self._exchange(body, begin)
            answered()
            return answer

        watch = asyncio.create_task(self._watch())
        try:
            return await _together(one(*pair) for pair in zip(bodies, at, strict=True))
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self) -> None:
        """Wake up all the time. What comes late here, came late everywhere else too."""
        while True:
            asleep = time.perf_counter()
            try:
                await asyncio.sleep(_EVERY_S)
            finally:  # also when the last answer is in
                self.late_s = max(self.late_s, time.perf_counter() - asleep - _EVERY_S)

    async def _exchange(self, body: bytes, begin: float) -> Answer:
        """One request and its answer; seconds count from `begin`."""
        received = Received()
        sent = time.perf_counter() - begin
        try:
            if self.form.streams:
                await self._read_stream(body, received, begin)
            else:
                whole = await self.connection.post(self.form.path, body)
                received.take_whole(whole, time.perf_counter() - begin)
                received.whole = whole if self.keeps else b""
            return received.answer(sent, time.perf_counter() - begin)
        except ServerError as error:
            said = self.connection.safe(error.message)
            raise RequestFailed(f"said in its stream: {said}", error.code) from None

    async def _read_stream(self, body: bytes, received: Received, begin: float) -> None:
        events, came = Events(), False
        async with self.connection.stream(self.form.path, body) as parts:
            async for part in parts:
                now = time.perf_counter() - begin
                for event in events.feed(part):
                    received.take(event, now)
                    came = True
        for event in events.end():
            received.take(event, time.perf_counter() - begin)
            came = True
        if not came:
            raise RequestFailed("does not stream its answers")


async def _together(jobs: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """All of them at once. The first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
