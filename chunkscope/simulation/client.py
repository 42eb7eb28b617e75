"""Who sends the requests: sessions at their times or in a closed loop, dataset after
dataset, to one replica or several."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from chunkscope.simulation.requests import RequestState
from chunkscope.simulation.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Sessions that are sent together, and how many of them, and of their requests, are
    under way at a time."""

    sessions: Sequence[RequestState]  # the first request of each
    samples_at_once: int | None
    concurrency: int | None


def sent_parts(workload: Workload, sessions: Sequence[RequestState]) -> list[Part]:
    """What is sent one after the other: a part for each phase, or just one."""
    if not workload.phases:
        part = Part(
            sessions=sessions,
            samples_at_once=workload.samples_at_once,
            concurrency=workload.concurrency,
        )
        return [part]
    parts = []
    start = 0
    for phase in workload.phases:
        part = Part(
            sessions=sessions[start : start + phase.sessions],
            samples_at_once=phase.samples_at_once,
            concurrency=phase.concurrency,
        )
        parts.append(part)
        start += phase.sessions
    return parts


class Client:
    """Sends each session when it is time and there is a place for it, and each turn
    when the one before was answered and thought about."""

    def __init__(self, parts: Sequence[Part], start_s: float) -> None:
        self._parts = deque(parts)
        self._coming: deque[RequestState] = deque()
        # Since when places are free, for sessions and for requests.
        self._places: deque[float] = deque()
        self._connections: deque[float] = deque()
        # Turns that are to be sent at a time, a heap.
        self._thinking: list[tuple[float, int, RequestState]] = []
        self._sessions_under_way = 0
        self.part_ends_s: list[float] = []
        self._begin_part(start_s)

    def __bool__(self) -> bool:
        """Is anything still to be sent?"""
        return bool(self._coming or self._thinking or self._parts)

    def _begin_part(self, now: float) -> None:
        part = self._parts.popleft()
        count = len(part.sessions)
        self._coming = deque(part.sessions)
        self._places = deque([now] * min(count, part.samples_at_once or count))
        connections = min(count, part.concurrency or count)
        self._connections = deque([now] * connections)

    @property
    def next_s(self) -> float:
        """When the next is sent: never, as far as is known, while all wait."""
        if not self._connections:
            return inf
        next_s = inf
        if self._coming and self._places:
            next_s = max(self._coming[0].arrival_s, self._places[0])
        if self._thinking:
            next_s = min(next_s, self._thinking[0][0])
        return max(next_s, self._connections[0])

    def due(self, now: float) -> Iterator[RequestState]:
        """Requests that are sent by now."""
        while self.next_s <= now:
            connection_s = self._connections.popleft()
            request = self._next()
            request.arrival_s = max(request.arrival_s, connection_s)
            yield request

    def _next(self) -> RequestState:
        """The turn whose time came first, or the next session if that is earlier."""
        session_s = inf
        if self._coming and self._places:
            session_s = max(self._coming[0].arrival_s, self._places[0])
        if self._thinking and self._thinking[0][0] <= session_s:
            return heappop(self._thinking)[2]
        request = self._coming.popleft()
        request.arrival_s = session_s
        self._places.popleft()
        self._sessions_under_way += 1
        return request

    def ended(self, request: RequestState, now: float) -> None:
        """The answer to a request is there."""
        self._connections.append(now)
        following = request.next_turn
        if following is not None:
            following.arrival_s = now + following.think_s
            heappush(self._thinking, (following.arrival_s, following.id, following))
            return
        self._places.append(now)
        self._sessions_under_way -= 1
        if not self._coming and self._sessions_under_way == 0:
            self.part_ends_s.append(now)
            if self._parts:
                self._begin_part(now)


# -- several replicas ----------------------------------------------------------

WAITING_WEIGHT = 4  # of a waiting request beside a running one, as vLLM counts them


class Loaded(Protocol):
    """A replica, as far as its load goes."""

    @property
    def waiting(self) -> int: ...
    @property
    def running(self) -> int: ...


class Router:
    """Sends requests to the replica with the least to do, as vLLM does it.

    Where it is sticky, the later turns of a session go where its first one went.
    """

    def __init__(self, replicas: Sequence[Loaded], *, sticky: bool) -> None:
        self._replicas = replicas
        self._sticky = sticky
        self._by_session: dict[int, int] = {}

    def replica_for(self, request: RequestState) -> int:
        if len(self._replicas) == 1:
            return 0
        if self._sticky and request.session in self._by_session:
            return self._by_session[request.session]
        loads = []
        for number, replica in enumerate(self._replicas):
            loads.append((WAITING_WEIGHT * replica.waiting + replica.running, number))
        number = min(loads)[1]
        self._by_session[request.session] = number
        return number
