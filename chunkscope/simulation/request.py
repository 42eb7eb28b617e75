"""A request on its way through the scheduler, and the queue it waits in."""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chunkscope.simulation.workload import Request

if TYPE_CHECKING:
    from chunkscope.simulation.blocks import Block, Run


class RequestState:
    """What vLLM knows of a request. `num_tokens`: the prompt and the outputs so far.

    While it decodes, `computed` is not counted up: it is `born` plus the scheduler's clock.
    """

    __slots__ = (
        "arrival_s", "born", "caught_up", "chunks", "computed", "first_step", "id", "last_step",
        "num_tokens", "output", "preemptions", "priority", "prompt", "run", "shared_blocks",
        "skips_cache", "tracked",
    )  # fmt: skip

    def __init__(
        self,
        place: int,
        request: Request,
        *,
        shared_blocks: int = 0,
        skips_cache: bool = False,
        priority: int = 0,
    ) -> None:
        self.id = place
        self.prompt = request.prompt_tokens
        self.output = request.output_tokens
        self.arrival_s = request.arrival_s
        self.priority = priority
        self.skips_cache = skips_cache  # prompt_logprobs: reads nothing from the prefix cache
        self.shared_blocks = shared_blocks  # leading blocks that other requests have too
        self.num_tokens = self.prompt
        self.computed = 0
        self.born = 0
        self.caught_up = 0  # tokens computed when nothing was left to read
        self.tracked: list[Block] = []  # its cached blocks among the shared ones
        self.run: Run | None = None  # its own cached blocks, while it is preempted
        self.chunks = 0  # steps that it took to read the prompt
        self.preemptions = 0
        self.first_step = -1
        self.last_step = -1  # of its latest token

    @property
    def outputs(self) -> int:
        return self.num_tokens - self.prompt

    @property
    def last_token(self) -> int:
        """So many tokens are computed at the end: the last output is never read back."""
        return self.prompt + self.output - 1

    def __lt__(self, other: "RequestState") -> bool:
        """vLLM's order of priority: the smaller first, then the earlier."""
        return (self.priority, self.id) < (other.priority, other.id)


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

    def put_back(self, requests: Iterable[RequestState]) -> None:
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

    def put_back(self, requests: Iterable[RequestState]) -> None:
        for request in requests:
            heappush(self._heap, request)
