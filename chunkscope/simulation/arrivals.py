"""When requests are sent: at their time, and no more of them at once than the client allows."""

from collections import deque
from collections.abc import Iterable, Iterator

from chunkscope.simulation.request_state import RequestState


class Arrivals:
    """Those still to come, in their order.

    With `concurrency`, as clients of harnesses have one, the next is sent when one ends: a closed
    loop. Its time counts from there.
    """

    def __init__(self, requests: Iterable[RequestState], concurrency: int | None = None) -> None:
        self._coming = deque(requests)
        places = min(concurrency or 0, len(self._coming))
        self._free = deque([self._coming[0].arrival_s] * places) if concurrency else None

    def __bool__(self) -> bool:
        return bool(self._coming)

    @property
    def next_s(self) -> float:
        """When the next is sent, as far as that is known: while all are under way it is not."""
        return self._coming[0].arrival_s

    def is_due(self, now: float) -> bool:
        free = self._free is None or bool(self._free)
        return bool(self._coming) and free and self.next_s <= now

    def due(self, now: float) -> Iterator[RequestState]:
        while self.is_due(now):
            request = self._coming.popleft()
            if self._free is not None:
                request.arrival_s = max(request.arrival_s, self._free.popleft())
            yield request

    def ended(self, requests: int, now: float) -> None:
        if self._free is not None:
            self._free.extend([now] * requests)
