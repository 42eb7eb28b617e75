"""Threads: a pool that nobody waits for, and work that comes back in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Sized(Protocol):
    @property
    def size(self) -> int:
        """Bytes that it holds in memory."""


B = TypeVar("B", bound=Sized)
R = TypeVar("R")


@contextmanager
def threads(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """A pool that ends at once, also after Ctrl-C: one of its threads may be reading
    from a pipe in which nothing comes."""
    pool = ThreadPoolExecutor(count, name)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def bounded_map(
    pool: ThreadPoolExecutor,
    function: Callable[[B], R],
    batches: Iterable[B],
    in_flight: int,
) -> Iterator[R]:
    """What the function makes of each batch, in order; at most so many bytes are under
    way.
    """
    waiting: deque[tuple[B, Future[R]]] = deque()
    size = 0
    for batch in batches:
        waiting.append((batch, pool.submit(function, batch)))
        size += batch.size
        while waiting and (size > in_flight or waiting[0][1].done()):
            first, future = waiting.popleft()
            size -= first.size
            yield future.result()
    for _, future in waiting:
        yield future.result()
