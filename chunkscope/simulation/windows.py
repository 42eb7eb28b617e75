"""What decoding requests look back on, no further than a window, all of them together."""

from heapq import heappop, heappush


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
