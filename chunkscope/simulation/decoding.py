"""Requests that go on decoding, one token a step: counted together, not one by one.

A step with a thousand of them costs what a step with one of them does.
"""

from collections.abc import Iterator

from chunkscope.simulation.request import RequestState


class Decoding:
    """All of them advance at once: the tokens computed of each are `born` plus the clock."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._members: dict[RequestState, None] = {}
        self._clock = 0
        self._born = 0  # the sum over all members
        self._phases = [0] * block_size  # members by `born`, modulo the block size
        self._ends: dict[int, dict[RequestState, None]] = {}  # by the clock of their last token

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, request: RequestState) -> bool:
        return request in self._members

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self._members)

    @property
    def blocks_to_come(self) -> int:
        """How many of them begin a new block with their next token."""
        return self._phases[-self._clock % self._block_size]

    @property
    def context_tokens(self) -> int:
        """What they look back on, each at itself too, in the step that was just scheduled."""
        return self._born + len(self._members) * self._clock

    def join(self, request: RequestState) -> None:
        request.born = request.computed - self._clock
        self._members[request] = None
        self._born += request.born
        self._phases[request.born % self._block_size] += 1
        self._ends.setdefault(self._end_of(request), {})[request] = None

    def advance(self) -> list[RequestState]:
        """One token more for all; those whose last it was are still members."""
        self._clock += 1
        return list(self._ends.get(self._clock, ()))

    @property
    def steps_before_an_end(self) -> int:
        return min(self._ends) - self._clock - 1 if self._ends else 0

    def go_on(self) -> int:
        """`advance` where nobody ends; the context tokens of that step."""
        self._clock += 1
        return self._born + len(self._members) * self._clock

    def leave(self, request: RequestState) -> None:
        del self._members[request]
        self._born -= request.born
        self._phases[request.born % self._block_size] -= 1
        end = self._end_of(request)
        del self._ends[end][request]
        if not self._ends[end]:
            del self._ends[end]
        request.computed = request.born + self._clock
        request.num_tokens = request.computed + 1

    def part(self, last_step: int) -> None:
        """Everybody leaves; `last_step` is the one in which they got their latest token."""
        for request in tuple(self._members):
            self.leave(request)
            request.last_step = last_step

    def _end_of(self, request: RequestState) -> int:
        return request.last_token - request.born
