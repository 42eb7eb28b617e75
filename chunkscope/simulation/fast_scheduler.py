"""The scheduler's steps, sooner: requests that go on decoding are counted together.

A step with a thousand of them costs what a step with one of them does. Where one of them must wait
or give way, each is asked in its turn again, as the plain scheduler does it in every step;
tests/simulation/test_fast_scheduler.py holds the two side by side.
"""

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count, islice, takewhile
from operator import attrgetter
from typing import Any

from chunkscope.hardware.step_time import AttentionWindow
from chunkscope.simulation.kv_cache import GroupBlocks
from chunkscope.simulation.policies import Policy
from chunkscope.simulation.requests import RequestState, Step
from chunkscope.simulation.scheduler import Scheduler


class FastScheduler(Scheduler):
    """`running` is split in two: the `decoding` group, and those that must be asked."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.decoding = DecodingGroup(
            self.kv_cache.block_size, self.kv_cache.groups, self.window
        )
        self.in_turn = {}
        self.read_in_step = 0  # tokens of a prompt that is read in steps that are alike
        self.has_windows = bool(self.kv_cache.groups.window or self.window.tokens)
        # Chunks do not change, and who finds no room needs as many blocks later on, or more.
        is_fixed = type(self.policy) is Policy and bool(
            self.settings.enable_chunked_prefill
        )
        self._is_steady = is_fixed and (
            self.rules.reserves_full_prompt or not self.has_windows
        )
        adapts = self.settings.long_prefill_token_threshold_adaptive
        self.is_queue = not (
            self.policy.by_priority or adapts
        )  # one more that waits is only that

    @property
    def _can_come(self) -> bool:
        return bool(self.waiting) and len(self.running) < self.most_running

    def schedule_alike(self) -> Step:
        """All decode on, and one prompt at the most is read on."""
        step, size = Step(self.num_steps), self.read_in_step
        self._take_turns()
        for request in self.in_turn:
            self.kv_cache.allocate_slots(request, size)
            step.count(request, size, self.window)
            request.num_computed_tokens += size
        self._decode(step)
        self.num_steps += bool(step)
        return step

    def steps_alike(self) -> int:
        """Until one ends, or before one is preempted or may come; with windows at the most."""
        others = len(self.running) - len(
            self.decoding
        )  # are read, or have ended and make room
        is_read_on = self._is_steady and not self.has_windows and len(self.in_turn) == 1
        goes_on = is_read_on if self.in_turn else self.decoding and self._goes_on()
        if not goes_on:
            return 0
        makes_room = others and self.waiting and not self.in_turn
        steps = 1 if makes_room else self.decoding.steps_to_end
        for (
            request
        ) in self.in_turn:  # one that is read on, if all that is left of a step is its
            left = self.settings.step_tokens - len(self.decoding)
            self.policy.start_step(len(self.running) + len(self.waiting))
            size = self.read_in_step = min(self._num_new_tokens(request), left)
            steps = min(
                steps, (request.num_tokens - request.num_computed_tokens - 1) // size
            )
            if size < left and (others > 1 or self._can_come):
                return 0
        if self.has_windows or self._new_blocks(steps) <= self.kv_cache.num_free:
            return steps
        return (
            bisect_right(range(steps + 1), self.kv_cache.num_free, key=self._new_blocks)
            - 1
        )

    def _new_blocks(self, steps: int) -> int:
        """That all begin in the next steps."""
        to_read, tokens = self.kv_cache.groups.to_read, steps * self.read_in_step
        read = sum(
            to_read(request.num_computed_tokens, tokens) for request in self.in_turn
        )
        return read + self.decoding.new_blocks(steps)

    def _goes_on(self) -> bool:
        """Do all that decode find room for their next token, and surely none that waits?"""
        free = self.kv_cache.num_free - self.decoding.blocks_to_come
        return 0 <= free < self._wanted() - self.decoding.blocks_to_leave

    def _wanted(self) -> int:
        is_known = self._is_steady and self.is_queue  # the same one is still the first
        return is_known * self.kv_cache.wanted if self._can_come else sys.maxsize

    def contexts(self, steps: int) -> Iterator[float]:
        """Of the group in each of the next steps. Where there are windows, which only move forward,
        a step is taken when it is asked for, as long as they are alike."""
        cache, group, wanted = self.kv_cache, self.decoding, self._wanted()
        if not self.has_windows:
            each, last = len(group), int(group.context)
            yield from islice(count(last + each, each), steps)
        for _ in range(steps if self.has_windows else 0):
            blocks, left = group.blocks_to_come, group.blocks_to_leave
            if not 0 <= cache.num_free - blocks < wanted - left:
                break
            cache.get_new_blocks(blocks)
            if left:
                cache.give_back(left)
            group.clock += 1
            yield group.context

    def skip_ahead(self, steps: int) -> list[RequestState]:
        """So many of them are over; who has ended in the last."""
        self.num_steps += steps
        if not self.has_windows:
            self.kv_cache.get_new_blocks(self._new_blocks(steps))
            self.decoding.clock += steps
            for request in self.in_turn:
                request.num_computed_tokens += steps * self.read_in_step
                request.chunks += 0 if request.num_output_tokens else steps
                self.kv_cache.cache_full_blocks(request, request.num_computed_tokens)
        return self.decoding.end(self.num_steps - 1)

    def _take_turns(self, taken: int = 0) -> None:
        """Blocks for the next token of all that go on; what left their windows is given back."""
        self.kv_cache.get_new_blocks(self.decoding.blocks_to_come - taken)
        if left := self.decoding.blocks_to_leave:
            self.kv_cache.give_back(left)

    def _schedule_running(self, step: Step, token_budget: int) -> int:
        taken, each = 0, self.kv_cache.groups.per_row
        if not self._all_can_go_on(token_budget):
            self._ask_each()
            # The first have taken the free blocks when the last of all give way.
            while self.decoding.blocks_to_come - taken > (
                free := self.kv_cache.num_free
            ):
                self.kv_cache.get_new_blocks(free - free % each)
                taken += free - free % each
                self._preempt(self._victim(), step)
        self._take_turns(taken)
        left = super()._schedule_running(step, token_budget - len(self.decoding))
        self._decode(step)
        return left

    def _all_can_go_on(self, token_budget: int) -> bool:
        """Does every running request get what it asks for, in whatever order they are asked?"""
        left = token_budget - len(self.decoding)
        blocks = self.decoding.blocks_to_come
        last = next(reversed(self.running), None)
        for request in self.in_turn:
            tokens = self._num_new_tokens(request)
            if tokens > left and request is not last:
                return False
            tokens = min(tokens, left)  # nobody is behind it
            left -= tokens
            blocks += self.kv_cache.groups.to_read(request.num_computed_tokens, tokens)
        return left >= 0 and blocks <= self.kv_cache.num_free

    def _ask_each(self) -> None:
        """By priority all; else those behind the first that reads and, where blocks leave windows,
        those that take or give back some: the others get a token, whoever is asked when."""
        by_priority, asked = self.policy.by_priority, [*self.in_turn]
        first = None if by_priority else next(iter(self.in_turn), None)
        some = reversed(self.running if by_priority or first else ())
        for request in (
            *takewhile(lambda one: one is not first, some),
            *self.decoding.moving(),
        ):
            if request in self.decoding:
                self.decoding.leave(request, self.num_steps - 1)
                asked.append(request)
        self.in_turn = dict.fromkeys(sorted(asked, key=attrgetter("admission")))

    def _decode(self, step: Step) -> None:
        """One token for each request that goes on decoding."""
        step.decode_requests = step.decoding_on = len(self.decoding)
        self.decoding.clock += 1
        step.decode_context_tokens = self.decoding.context
        step.ended = self.decoding.end(step.number)

    def _preempt(self, victim: RequestState, step: Step) -> int:
        if victim in self.decoding:
            self.decoding.leave(victim, self.num_steps - 1)
        self.in_turn.pop(victim, None)
        return super()._preempt(victim, step)

    def _update_after_schedule(self, step: Step) -> None:
        super()._update_after_schedule(step)
        for request in step.num_scheduled_tokens:
            if request.last_step != step.number:
                self.in_turn[request] = None  # in its old place
                continue
            self.in_turn.pop(request, None)
            if not request.has_ended:
                self.decoding.join(request)


class DecodingGroup(dict[RequestState, None]):
    """All advance at once: the tokens computed of each are its `offset` plus the group's clock."""

    def __init__(
        self, block_size: int, groups: GroupBlocks, window: AttentionWindow
    ) -> None:
        super().__init__()
        self._block_size, self._groups, self._window = block_size, groups, window
        size = groups.window + groups.keeps_running
        self._context = PastWindow(window.tokens, block_size) if window.tokens else None
        self._rows = PastWindow(size, block_size) if groups.window else None
        self._windows = [window for window in (self._context, self._rows) if window]
        self._moving = {
            0,
            (size - 1) % block_size,
        }  # tokens past a row at which blocks move
        self.clock = 0  # goes on by one for each token
        self._offset = 0  # the sum over all members
        self._phases = [0] * block_size  # members by `offset`, modulo the block size
        self._late = defaultdict[int, int](
            int
        )  # rows that are given back besides, by the clock
        self._ends: dict[
            int, dict[RequestState, None]
        ] = {}  # by the clock of their last token
        self._next_ends: list[int] = []  # a heap of them, and of some that are over

    @property
    def blocks_to_come(self) -> int:
        """How many of them begin a new row of blocks with their next token."""
        return self._groups.per_row * self._phases[-self.clock % self._block_size]

    @property
    def blocks_to_leave(self) -> int:
        """Blocks that leave their windows when their next token is scheduled."""
        rows = self._rows.past(self.clock) + self._late[self.clock] if self._rows else 0
        return self._groups.sliding * rows

    def moving(self) -> list[RequestState]:
        """Where there are windows: those that may take or give back blocks for their next token."""
        size, clock, moving = self._block_size, self.clock, self._moving
        some = self if self._rows else ()
        return [
            one
            for one in some
            if (one.offset + clock) % size in moving or self._kept(one)
        ]

    def _skipped(self, tokens: int) -> int:
        """Rows that one gives back which has decoded on until so many tokens were computed."""
        return self._groups.skipped(tokens - 1 - self._groups.keeps_running)

    def _kept(self, request: RequestState, turns: int = 0) -> int:
        """Rows that it will give back later than that, as far as it still does so many turns from
        now: the step in which all of its prompt was read may still run."""
        given, joined_at = request.num_skipped_blocks, request.num_computed_tokens
        turns += request.offset + self.clock - joined_at
        if turns > self._groups.keeps_running:
            return 0
        if turns:
            given = max(given, self._groups.skipped(joined_at - request.num_scheduled))
        return self._skipped(joined_at + turns) - given

    @property
    def context(self) -> float:
        """What they look back on, each at itself too, in the step that was scheduled last."""
        every = self._offset + len(self) * self.clock
        context, mixed = self._context, self._window.mixed
        return mixed(every, every - context.tokens(self.clock)) if context else every

    def join(self, request: RequestState) -> None:
        request.offset = request.num_computed_tokens - self.clock
        self[request] = None
        self._count(request, 1)
        end = request.most_computed - request.offset
        self._ends.setdefault(end, {})[request] = None
        heappush(self._next_ends, end)

    def _count(self, request: RequestState, by: int) -> None:
        offset, clock = request.offset, self.clock
        self._offset += by * offset
        self._phases[offset % self._block_size] += by
        for window in self._windows:
            window.count(offset, clock, by)
        if self._rows:
            kept, later = self._kept(request), self._kept(request, 1)
            self._late[clock] += by * (kept - later)
            self._late[clock + 1] += by * later

    def end(self, last_step: int) -> list[RequestState]:
        """Those whose last token it was leave."""
        ended = list(self._ends.get(self.clock, ()))
        for request in ended:
            self.leave(request, last_step)
        return ended

    @property
    def steps_to_end(self) -> int:
        """That all of them take until the first ends."""
        next_ends = self._next_ends
        while next_ends and next_ends[0] not in self._ends:
            heappop(next_ends)
        return (next_ends[0] if next_ends else sys.maxsize) - self.clock

    def new_blocks(self, steps: int) -> int:
        """That they begin in the next steps."""
        whole, rest = divmod(steps, self._block_size)
        start, phases = -(self.clock + rest - 1) % self._block_size, self._phases
        rows = sum((phases * 2)[start : start + rest])
        return self._groups.per_row * (whole * len(self) + rows)

    def leave(self, request: RequestState, last_step: int) -> None:
        """`last_step` is the one in which it got its latest token."""
        del self[request]
        self._count(request, -1)
        end = request.most_computed - request.offset
        del self._ends[end][request]
        if not self._ends[end]:
            del self._ends[end]
        computed = request.offset + self.clock
        if self._rows:
            request.num_skipped_blocks = self._skipped(computed) - self._kept(request)
        if request.num_computed_tokens < computed:
            request.num_scheduled = 1
        request.num_computed_tokens, request.num_tokens = computed, computed + 1
        request.last_step = request.scheduled_at = last_step


class PastWindow:
    """Members whose context, their `offset` plus a clock that only goes forward, fills a window of
    `size` tokens: how many there are, and how many by `offset` modulo the block size."""

    def __init__(self, size: int, block_size: int) -> None:
        self._size, self._block_size, self._clock = size, block_size, 0
        self._coming: dict[
            int, int
        ] = {}  # how many fill it, by the clock at which they do
        self._offset = self._past = 0  # the first is the sum of all that are past it
        self._phases = [0] * block_size

    def count(self, offset: int, clock: int, by: int) -> None:
        """One member more (`by` 1) or fewer (-1)."""
        self._advance(clock)
        if offset + clock >= self._size:
            self._past += by
            self._offset += by * offset
            self._phases[offset % self._block_size] += by
        else:
            time = self._size - offset
            self._coming[time] = self._coming.get(time, 0) + by

    def tokens(self, clock: int) -> int:
        """The context of all members, as far as it is past the window."""
        self._advance(clock)
        return self._offset + self._past * (clock - self._size)

    def past(self, clock: int) -> int:
        """Members past the window by a number of whole blocks and one token."""
        self._advance(clock)
        return self._phases[(self._size - 1 - clock) % self._block_size]

    def _advance(self, clock: int) -> None:
        while self._clock < clock:
            self._clock += 1
            if count := self._coming.pop(self._clock, 0):
                offset = self._size - self._clock
                self._past += count
                self._offset += count * offset
                self._phases[offset % self._block_size] += count
