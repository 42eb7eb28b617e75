"""Windows of decoding requests, all of them together: what they see, and what leaves them."""

from heapq import heappop, heappush

from chunkscope.simulation.group_blocks import GroupBlocks


class WindowedContext:
    """Each request's context is its `born` plus a clock that only goes forward."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._full_at: dict[int, int] = {}  # by clock, how many requests fill the window then
        self._times: list[int] = []
        self._full = self._growing = self._born = 0  # the last of those that still grow

    def join(self, born: int, clock: int) -> None:
        time = self._window - born
        if time <= clock:
            self._full += 1
            return
        if time not in self._full_at:
            heappush(self._times, time)
        self._full_at[time] = self._full_at.get(time, 0) + 1
        self._growing += 1
        self._born += born

    def leave(self, born: int, clock: int) -> None:
        self._advance(clock)
        time = self._window - born
        if time <= clock:
            self._full -= 1
            return
        self._full_at[time] -= 1
        self._growing -= 1
        self._born -= born

    def tokens(self, clock: int) -> int:
        self._advance(clock)
        return self._full * self._window + self._born + self._growing * clock

    def _advance(self, clock: int) -> None:
        while self._times and self._times[0] <= clock:
            time = heappop(self._times)
            count = self._full_at.pop(time)
            self._full += count
            self._growing -= count
            self._born -= count * (self._window - time)


class WindowedBlocks:
    """Members whose oldest rows leave the window, by when: the same turn in every row.

    A member is `past` once it has more tokens than the window holds.
    """

    def __init__(self, groups: GroupBlocks, block_size: int) -> None:
        self._sliding, self._block_size = groups.sliding, block_size
        self._size = groups.window - 1 + groups.lags
        self._past = [0] * block_size
        self._coming: dict[int, dict[int, int]] = {}  # by the clock at which they are, by turn

    def leaving(self, clock: int) -> int:
        return self._sliding * self._past[-clock % self._block_size]

    def join(self, born: int, clock: int) -> None:
        self._count(born, clock, 1)

    def leave(self, born: int, clock: int) -> None:
        self._count(born, clock, -1)

    def _count(self, born: int, clock: int, by: int) -> None:
        turn, at = (born - self._size) % self._block_size, self._size - born
        if at < clock:
            self._past[turn] += by
        else:
            turns = self._coming.setdefault(at, {})
            turns[turn] = turns.get(turn, 0) + by

    def pass_by(self, clock: int) -> None:
        """Those whose time was a moment ago."""
        for turn, count in self._coming.pop(clock - 1, {}).items():
            self._past[turn] += count
