"""The scheduler's steps, sooner: requests that go on decoding are counted together.

A step with a thousand of them costs what a step with one of them does. Where one of them must wait
or give way, each is asked in its turn again, as the plain scheduler does it in every step;
tests/simulation/test_fast_scheduler.py holds the two side by side.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import takewhile
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
        self.decoding = DecodingGroup(self.kv_cache.block_size, self.kv_cache.groups, self.window)
        self.in_turn = {}
        self.read_in_step = 0  # tokens of a prompt that is read in steps that are alike
        # Neither do rows that leave a window make room for others, nor do chunks change.
        self._is_steady = type(self.policy) is Policy and not self.kv_cache.groups.window
        self._turned_away = False  # the first that waits finds no room, and nothing has changed

    @property
    def _can_come(self) -> bool:
        return bool(self.waiting) and len(self.running) < self.most_running

    def schedule(self) -> Step:
        """Where nobody must be asked and nobody can come, the step only decodes."""
        if self.in_turn or self._can_come or self.decoding.blocks_to_come > self.kv_cache.num_free:
            step = super().schedule()
            unread = self._is_steady and not (step.num_scheduled_tokens or step.preempted)
            self._turned_away = unread and bool(self.settings.enable_chunked_prefill)
            return step
        step = Step(self.num_steps)
        self._take_turns()
        self._decode(step)
        self.num_steps += bool(step)
        return step

    def steps_alike(self) -> int:
        """Until somebody ends, is preempted, or may come: free blocks only get fewer till then."""
        steps, others = self.decoding.steps_to_end, len(self.running) - len(self.decoding)
        left = self.settings.step_tokens - len(self.decoding)
        may_come = self._can_come and not self._turned_away
        for request in self.in_turn:  # one that is read on, if all that is left of a step is its
            self.policy.start_step(len(self.running) + len(self.waiting))
            size = self.read_in_step = min(self._num_new_tokens(request), left)
            steps = min(steps, (request.num_tokens - request.num_computed_tokens - 1) // size)
            may_come = others > 1 or not self._is_steady or (self._can_come and size < left)
        makes_room = others > len(self.in_turn)  # one that has ended
        if may_come or (self.waiting and makes_room):
            return 0
        if self._new_blocks(steps) <= self.kv_cache.num_free:
            return steps
        return bisect_right(range(steps + 1), self.kv_cache.num_free, key=self._new_blocks) - 1

    def _new_blocks(self, steps: int) -> int:
        """That all begin in the next steps."""
        to_read, tokens = self.kv_cache.groups.to_read, steps * self.read_in_step
        read = sum(to_read(request.num_computed_tokens, tokens) for request in self.in_turn)
        return read + self.decoding.new_blocks(steps)

    def skip_ahead(self, steps: int) -> None:
        """So many of them are over."""
        self.num_steps += steps
        if self.kv_cache.groups.window:
            for _ in range(steps):
                self._take_turns()
                self.decoding.advance()
        else:
            self.kv_cache.get_new_blocks(self._new_blocks(steps))
            self.decoding.advance(steps)
            for request in self.in_turn:
                request.num_computed_tokens += steps * self.read_in_step
                request.chunks += 0 if request.num_output_tokens else steps
                request.scheduled_at = self.num_steps - 1
                self.kv_cache.cache_full_blocks(request, request.num_computed_tokens)

    def _take_turns(self, taken: int = 0) -> None:
        """Blocks for the next token of all that go on; what left their windows is given back."""
        self.kv_cache.get_new_blocks(self.decoding.blocks_to_come - taken)
        if left := self.decoding.blocks_to_leave:
            self.kv_cache.give_back(left)

    def update_from_output(self, step: Step) -> None:
        self._turned_away = False
        super().update_from_output(step)

    def _schedule_running(self, step: Step, token_budget: int) -> int:
        taken = 0
        if not self._all_can_go_on(token_budget):
            self._ask_each()
            taken = self._make_room(step)
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
            if tokens > left:
                if request is not last:
                    return False
                tokens = left  # nobody is behind it
            left -= tokens
            blocks += self.kv_cache.groups.to_read(request.num_computed_tokens, tokens)
        return left >= 0 and blocks <= self.kv_cache.num_free

    def _ask_each(self) -> None:
        """By priority all; else those behind the first that reads and, where blocks leave windows,
        those that take or give back some: the others get a token, whoever is asked when."""
        by_priority, asked = self.policy.by_priority, [*self.in_turn]
        first = None if by_priority else next(iter(self.in_turn), None)
        some = reversed(self.running if by_priority or first else ())
        for request in (*takewhile(lambda one: one is not first, some), *self.decoding.moving()):
            if request in self.decoding:
                self.decoding.leave(request, self.num_steps - 1)
                asked.append(request)
        self.in_turn = dict.fromkeys(sorted(asked, key=attrgetter("admission")))

    def _make_room(self, step: Step) -> int:
        """The first have taken the free blocks when the last of all give way."""
        taken, each = 0, self.kv_cache.groups.per_row
        while self.decoding.blocks_to_come - taken > (free := self.kv_cache.num_free):
            self.kv_cache.get_new_blocks(free - free % each)
            taken += free - free % each
            self._preempt(self._victim(), step)
        return taken

    def _decode(self, step: Step) -> None:
        """One token for each request that goes on decoding."""
        step.decode_requests = step.decoding_on = len(self.decoding)
        step.ended = self.decoding.advance()
        step.decode_context_tokens = self.decoding.context_after(0)
        for request in step.ended:
            self.decoding.leave(request, step.number)

    def _preempt(self, victim: RequestState, step: Step) -> int:
        if victim in self.decoding:
            self.decoding.leave(victim, self.num_steps - 1)
        self.in_turn.pop(victim, None)
        return super()._preempt(victim, step)

    def _update_after_schedule(self, step: Step) -> None:
        super()._update_after_schedule(step)
        for request in step.num_scheduled_tokens:
            if request.last_step != step.number or not self.decoding.can_join(request):
                self.in_turn[request] = None  # in its old place
                continue
            self.in_turn.pop(request, None)
            if not request.has_ended:
                self.decoding.join(request)


class DecodingGroup(dict[RequestState, None]):
    """All advance at once: the tokens computed of each are its `offset` plus the group's clock."""

    def __init__(self, block_size: int, groups: GroupBlocks, window: AttentionWindow) -> None:
        super().__init__()
        self._block_size = block_size
        self._groups = groups
        self._window = window
        size = groups.window + groups.keeps_running
        self._context = PastWindow(window.tokens, block_size) if window.tokens else None
        self._rows = PastWindow(size, block_size) if groups.window else None
        self._windows = [window for window in (self._context, self._rows) if window]
        self._moving = {0, (size - 1) % block_size}  # tokens past a row at which blocks move
        self._clock = 0
        self._offset = 0  # the sum over all members
        self._phases = [0] * block_size  # members by `offset`, modulo the block size
        self._ends: dict[int, dict[RequestState, None]] = {}  # by the clock of their last token

    @property
    def blocks_to_come(self) -> int:
        """How many of them begin a new row of blocks with their next token."""
        return self._groups.per_row * self._phases[-self._clock % self._block_size]

    @property
    def blocks_to_leave(self) -> int:
        """Blocks that leave their windows when their next token is scheduled."""
        return self._groups.sliding * self._rows.past(self._clock) if self._rows else 0

    def can_join(self, request: RequestState) -> bool:
        """Has it given back, and will it next, what a request that was decoding before would?"""
        groups, computed = self._groups, request.num_computed_tokens
        if not groups.window or request.has_ended:
            return True
        flying = request.num_scheduled if groups.keeps_running else 1
        alike = groups.skipped(computed - flying) == groups.skipped(computed - 1)
        return alike and request.num_skipped_blocks == self._skipped(request)

    def moving(self) -> list[RequestState]:
        """Where there are windows: those that may take or give back blocks for their next token."""
        size, clock, moving = self._block_size, self._clock, self._moving
        return [one for one in self if (one.offset + clock) % size in moving] if self._rows else []

    def _skipped(self, request: RequestState) -> int:
        return self._groups.skipped(request.num_computed_tokens - 1 - self._groups.keeps_running)

    def context_after(self, steps: int) -> float:
        """What they look back on, each at itself too, so many steps after the last scheduled."""
        clock = self._clock + steps
        every = self._offset + len(self) * clock
        context, mixed = self._context, self._window.mixed
        return mixed(every, every - context.tokens(clock)) if context else every

    def contexts(self, steps: int) -> Iterator[float]:
        """That of each of so many steps from now on."""
        if self._context:
            return map(self.context_after, range(1, steps + 1))
        first = self._offset + len(self) * (self._clock + 1)
        return iter(range(first, first + steps * len(self), len(self)))

    def join(self, request: RequestState) -> None:
        request.offset = request.num_computed_tokens - self._clock
        self[request] = None
        self._count(request.offset, 1)
        self._ends.setdefault(request.most_computed - request.offset, {})[request] = None

    def _count(self, offset: int, by: int) -> None:
        self._offset += by * offset
        self._phases[offset % self._block_size] += by
        for window in self._windows:
            window.count(offset, self._clock, by)

    def advance(self, steps: int = 1) -> list[RequestState]:
        """So many tokens more for all; those whose last it was are still members."""
        self._clock += steps
        return list(self._ends.get(self._clock, ()))

    @property
    def steps_to_end(self) -> int:
        """That all of them take before the first ends."""
        return min(self._ends, default=self._clock + 1) - self._clock - 1

    def new_blocks(self, steps: int) -> int:
        """That they begin in the next steps."""
        whole, rest = divmod(steps, self._block_size)
        start, phases = -(self._clock + rest - 1) % self._block_size, self._phases
        rows = sum((phases * 2)[start : start + rest])
        return self._groups.per_row * (whole * len(self) + rows)

    def leave(self, request: RequestState, last_step: int) -> None:
        """`last_step` is the one in which it got its latest token."""
        del self[request]
        self._count(request.offset, -1)
        end = request.most_computed - request.offset
        del self._ends[end][request]
        if not self._ends[end]:
            del self._ends[end]
        request.num_computed_tokens = request.offset + self._clock
        request.num_tokens = request.num_computed_tokens + 1
        request.last_step = request.scheduled_at = last_step
        request.num_scheduled = 1
        if self._groups.window:
            request.num_skipped_blocks = self._skipped(request)


class PastWindow:
    """Members whose context, their `offset` plus a clock that only goes forward, fills a window of
    `size` tokens: how many there are, and how many by `offset` modulo the block size."""

    def __init__(self, size: int, block_size: int) -> None:
        self._size, self._block_size, self._clock = size, block_size, 0
        self._coming: dict[int, int] = {}  # how many fill it, by the clock at which they do
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
