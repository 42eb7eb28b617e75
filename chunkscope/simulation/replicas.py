"""Replicas in data parallel: each has its own scheduler, KV cache and clock. Who gets a request?

The one that vLLM's own client would choose, which knows at once what every replica has. Read in
0.24 and 0.32 (`DPLBAsyncMPClient`); those of a mixture of experts step together there, not here.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf

from chunkscope.simulation.clock import Clock
from chunkscope.simulation.request_state import RequestState
from chunkscope.simulation.scheduler import Scheduler
from chunkscope.simulation.step import Step
from chunkscope.vllm.rules import Rules


class Sent:
    """Requests that were sent to one replica; nothing is known beyond `horizon`."""

    def __init__(self) -> None:
        self._coming: deque[RequestState] = deque()
        self.horizon = inf
        self.under_way = 0
        self.ends: deque[float] = deque()  # when requests ended that nobody has followed yet

    def __bool__(self) -> bool:
        return bool(self._coming)

    def __len__(self) -> int:
        return len(self._coming)

    @property
    def next_s(self) -> float:
        return self._coming[0].arrival_s

    def add(self, request: RequestState) -> None:
        self._coming.append(request)
        self.under_way += 1

    def is_due(self, now: float) -> bool:
        return now >= self.horizon or (bool(self._coming) and self.next_s <= now)

    def due(self, now: float) -> Iterator[RequestState]:
        while self._coming and self.next_s <= now:
            yield self._coming.popleft()

    def ended(self, requests: int, now: float) -> None:
        self.under_way -= requests
        self.ends.extend([now] * requests)


class Replica:
    """One engine of several. `steps` (the loop's) goes on where it was left."""

    def __init__(self, number: int, scheduler: Scheduler, clock: Clock) -> None:
        self.number, self.scheduler, self.clock = number, scheduler, clock
        self.sent = Sent()
        self.flying: deque[Step] = deque()

    def steps(self) -> Iterator[None]:
        raise NotImplementedError

    def add(self, request: RequestState) -> None:
        request.replica = self.number
        self.sent.add(request)

    def advance(self, until: float) -> None:
        """Until its clock is there, or it has nothing to do."""
        self.sent.horizon = until
        if self.clock.now < until:
            for _ in self.steps():
                if self.clock.now >= until:
                    break

    def score(self, rules: Rules) -> float:
        """How busy it looks to the client."""
        waiting = len(self.scheduler.waiting) + len(self.sent)
        if not rules.counts_requests_of_replicas:
            return 4 * waiting + len(self.scheduler.running)
        cache = self.scheduler.kv_cache
        pressure = max(0.0, cache.num_used / cache.num_blocks - 0.5)
        return self.sent.under_way + waiting * 6.0 * pressure


def distribute(
    requests: Sequence[RequestState],
    replicas: Sequence[Replica],
    rules: Rules,
    concurrency: int | None,
) -> None:
    """Each at its time; with a `concurrency`, when one of those before it ends."""
    first = 0
    for request in requests:
        if concurrency and sum(replica.sent.under_way for replica in replicas) >= concurrency:
            _run_until_an_end(replicas)
        if concurrency and (ends := [r.sent.ends for r in replicas if r.sent.ends]):
            earliest = min(ends, key=lambda times: times[0])
            request.arrival_s = max(request.arrival_s, earliest.popleft())
        for replica in replicas:
            replica.advance(request.arrival_s)
        turn = [*replicas[first:], *replicas[:first]]
        min(turn, key=lambda replica: replica.score(rules)).add(request)
        first = (first + 1) % len(replicas) if rules.counts_requests_of_replicas else 0
    for replica in replicas:
        replica.advance(inf)


def _run_until_an_end(replicas: Sequence[Replica]) -> None:
    """All go on side by side, the last first, until the next end is sure to be the first."""
    while True:
        working = sorted((r for r in replicas if r.sent.under_way), key=lambda r: r.clock.now)
        ends = [replica.sent.ends[0] for replica in replicas if replica.sent.ends]
        if ends and (not working or working[0].clock.now >= min(ends)):
            return
        others = [replica.clock.now for replica in working[1:]]
        working[0].sent.horizon = min([*others, *ends, inf])
        next(iter(working[0].steps()), None)
