"""The queue that requests wait in: in the order of arrival, or of priority."""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from chunkscope.simulation.request_state import RequestState


class FcfsQueue:
    """First come, first served; a preempted request goes back to the front."""

    def __init__(self) -> None:
        self._queue: deque[RequestState] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: RequestState) -> None:
        self._queue.append(request)

    def peek(self) -> RequestState:
        return self._queue[0]

    def pop(self) -> RequestState:
        return self._queue.popleft()

    def prepend(self, requests: Iterable[RequestState]) -> None:
        """The first of them to the very front."""
        self._queue.extendleft(reversed([*requests]))


class PriorityQueue:
    """The smallest priority first; a preempted request takes its place again."""

    def __init__(self) -> None:
        self._heap: list[RequestState] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, request: RequestState) -> None:
        heappush(self._heap, request)

    def peek(self) -> RequestState:
        return self._heap[0]

    def pop(self) -> RequestState:
        return heappop(self._heap)

    def prepend(self, requests: Iterable[RequestState]) -> None:
        for request in requests:
            heappush(self._heap, request)
