"""The fast part of the scheduler: requests that only decode, side by side in arrays.

In most steps each of them gets its token and its block, and then a step of all is a few
vector operations. `python -m tests.benchmarks.simulate_speed` measures it.
"""

from collections.abc import Iterator

import numpy as np

from chunkscope.hardware.step_time import AttentionWindow
from chunkscope.simulation.kv_cache import GroupBlocks
from chunkscope.simulation.requests import NO_END, RequestState, Step


class Decodes:
    """Each of them had a token in the step before, and gets the next one in this step.

    While a request is here the arrays say what is computed of it; `_leave` writes it
    down.
    """

    def __init__(
        self, places: int, groups: GroupBlocks, window: AttentionWindow
    ) -> None:
        self.requests: list[RequestState] = []
        self._groups, self._window = groups, window
        self._computed = np.zeros(places, np.int64)
        self._end = np.zeros(places, np.int64)  # tokens that are computed at the end
        self._context = 0  # the sum of all that are computed
        self._steps_to_end = NO_END  # until the next of them ends
        # How many begin a block with their next token, by the step in which they do.
        self._steps = 0
        self._beginning = [0] * groups.block_size
        # Of the step that may still run, where it keeps the window from moving.
        self._in_flight = np.zeros(places, np.int64)
        self._skipped = np.zeros(places, np.int64)  # rows that have left the window

    def __len__(self) -> int:
        return len(self.requests)

    def join(self, request: RequestState) -> None:
        place = len(self.requests)
        computed, end = request.num_computed_tokens, request.most_computed
        self.requests.append(request)
        self._computed[place] = computed
        self._end[place] = end
        self._context += computed
        self._beginning[(self._steps - computed) % self._groups.block_size] += 1
        self._steps_to_end = min(self._steps_to_end, end - computed)
        if self._groups.window:
            self._skipped[place] = request.num_skipped_blocks
            if self._groups.keeps_running:
                self._in_flight[place] = request.num_scheduled

    def new_blocks(self) -> int:
        """Blocks that begin with the next token of all."""
        groups = self._groups
        return self._beginning[self._steps % groups.block_size] * groups.per_row

    def leaving(self) -> Iterator[tuple[RequestState, int]]:
        """Whose rows leave their window before the next token, and how many have left
        then."""
        groups, count = self._groups, len(self.requests)
        if not groups.window or not count:
            return
        processed = self._computed[:count] - self._in_flight[:count]
        skipped = (processed - groups.window + 1) // groups.block_size
        places = np.flatnonzero(skipped > self._skipped[:count])
        self._skipped[places] = skipped[places]
        for place in places.tolist():
            yield self.requests[place], int(skipped[place])

    def take_step(self, step: Step) -> None:
        """One token for each; those that end with it leave."""
        count = len(self.requests)
        if not count:
            return
        step.decoding = self.requests.copy()
        step.decode_requests = step.decoding_on = count
        self._computed[:count] += 1
        self._steps += 1
        if self._groups.keeps_running:
            self._in_flight[:count] = 1
        self._context += count
        step.decode_context_tokens = self._contexts(count)
        self._steps_to_end -= 1
        if self._steps_to_end == 0:
            self._end_some(step)

    def uneventful_steps(self, free_blocks: int) -> int:
        """Steps in which each gets its next token and nothing else happens: none ends,
        and blocks suffice. Where blocks leave windows, none."""
        count = len(self.requests)
        if not count or self._groups.window:
            return 0
        # In as many steps as a block has tokens each of them begins one.
        rounds, rest = divmod(free_blocks // self._groups.per_row, count)
        steps = rounds * self._groups.block_size
        for step in range(self._steps, self._steps + self._groups.block_size):
            rest -= self._beginning[step % self._groups.block_size]
            if rest < 0:
                break
            steps += 1
        return min(self._steps_to_end - 1, steps)

    def take_steps(self, steps: int) -> int:
        """So many of these; the blocks that they begin."""
        count = len(self.requests)
        rounds, rest = divmod(steps, self._groups.block_size)
        blocks = rounds * count
        for step in range(self._steps, self._steps + rest):
            blocks += self._beginning[step % self._groups.block_size]
        self._computed[:count] += steps
        self._steps += steps
        self._context += steps * count
        self._steps_to_end -= steps
        return blocks * self._groups.per_row

    @property
    def context(self) -> int:
        """What all of them have computed."""
        return self._context

    def _contexts(self, count: int) -> float:
        """What all look back on, each at itself, too."""
        window = self._window.tokens
        if not window:
            return self._context
        within = int(np.minimum(self._computed[:count], window).sum())
        return self._window.mixed(self._context, within)

    def _end_some(self, step: Step) -> None:
        count = len(self.requests)
        places = np.flatnonzero(self._computed[:count] == self._end[:count])
        for place in reversed(places.tolist()):
            step.ended.append(self.requests[place])
            self._leave(place, step.number)
        self._count_steps_to_end()

    def _count_steps_to_end(self) -> None:
        count = len(self.requests)
        if count:
            left = self._end[:count] - self._computed[:count]
            self._steps_to_end = int(left.min())
        else:
            self._steps_to_end = NO_END

    def leave(self, request: RequestState, last_step: int) -> None:
        self._leave(self.requests.index(request), last_step)
        self._count_steps_to_end()

    def leave_all(self, last_step: int) -> None:
        """They are asked one by one again."""
        for place in reversed(range(len(self.requests))):
            self._leave(place, last_step)
        self._steps_to_end = NO_END

    def _leave(self, place: int, last_step: int) -> None:
        """The last takes its place."""
        request = self.requests[place]
        computed = int(self._computed[place])
        self._context -= computed
        self._beginning[(self._steps - computed) % self._groups.block_size] -= 1
        if computed > request.num_computed_tokens:
            request.num_scheduled = 1
        request.num_computed_tokens = computed
        request.num_tokens = computed + 1
        request.last_step = request.scheduled_at = last_step
        last = len(self.requests) - 1
        self.requests[place] = self.requests[last]
        for column in (self._computed, self._end, self._in_flight, self._skipped):
            column[place] = column[last]
        self.requests.pop()
