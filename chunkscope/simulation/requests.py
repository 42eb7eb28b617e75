"""A request on its way through the scheduler, the queue it waits in, and one step of the engine."""

from dataclasses import dataclass, field
from heapq import heappush

from chunkscope.hardware.step_time import AttentionWindow
from chunkscope.prefixes.sharing import Path


@dataclass(slots=True, eq=False)
class BlockRun:
    """Free blocks `start` to `end` of one request, still cached; the last is reused first."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(slots=True, eq=False)
class SharedRun(BlockRun):
    """Cached blocks of a stretch, held by the same requests.

    Of each holder, by its number, the list of all runs that it holds: runs can be split.
    """

    stretch: int
    holders: dict[int, list["SharedRun"]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class RequestState:
    """What vLLM knows of a request. `num_tokens`: the prompt and the outputs so far."""

    id: int
    num_prompt_tokens: int
    max_tokens: int
    arrival_s: float
    path: Path = ()  # leading blocks that other requests have too
    skips_cache: bool = False  # prompt_logprobs: reads nothing from the prefix cache
    priority: int = 0
    num_tokens: int = field(init=False)
    most_computed: int = field(init=False)
    num_computed_tokens: int = 0
    admission: int = 0  # its place in the order of admissions
    offset: int = 0  # the fast scheduler's: see DecodingGroup
    caught_up: int = 0  # tokens computed when all were known, not still being sampled
    tracked: list[SharedRun] = field(
        default_factory=list
    )  # its cached blocks among shared ones
    run: BlockRun | None = None  # its own cached blocks, while it is preempted
    chunks: int = 0  # steps that it took to read the prompt
    num_cached_tokens: int = 0  # hit when it was first admitted
    num_preemptions: int = 0
    first_step: int = -1
    last_step: int = -1  # of its latest token
    scheduled_at: int = -1  # the latest step with tokens of it, and how many it had
    num_scheduled: int = 0
    num_skipped_blocks: int = 0  # outside the window: given back

    def __post_init__(self) -> None:
        self.num_tokens = self.num_prompt_tokens
        # At the end: the last output is never read back.
        self.most_computed = self.num_prompt_tokens + self.max_tokens - 1

    @property
    def num_tracked(self) -> int:
        """Of its leading blocks, how many it holds."""
        return self.tracked[-1].end if self.tracked else 0

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def has_ended(self) -> bool:
        """With async scheduling its last token may still be on its way."""
        return self.num_computed_tokens == self.most_computed

    def __lt__(self, other: "RequestState") -> bool:
        """vLLM's order of priority: the smaller first, then the earlier."""
        return (self.priority, self.id) < (other.priority, other.id)


class WaitingQueue(list[tuple[int, RequestState]]):
    """A heap: first come, first served, or the least priority first."""

    def __init__(self, *, by_priority: bool) -> None:
        super().__init__()
        self._by_priority, self._added = by_priority, 0

    def add(self, request: RequestState, *, in_front: bool = False) -> None:
        """Behind all others; `in_front` of them, where it was preempted or left out."""
        self._added += 1
        place = -self._added if in_front else self._added
        heappush(self, (request.priority if self._by_priority else place, request))


@dataclass(slots=True, eq=False)
class Step:
    """What one step computes: vLLM's SchedulerOutput, and what the step's time depends on.

    `num_scheduled_tokens` is by request; the fast scheduler leaves out those that only decode on.
    `ended`: their last token is in this step's result. `resumed`: of requests that decode again,
    the step of their last token. `decoding_on`: requests with a token in this step and the one
    before.
    """

    number: int
    num_scheduled_tokens: dict[RequestState, int] = field(default_factory=dict)
    preempted: list[RequestState] = field(default_factory=list)
    ended: list[RequestState] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    decoding_on: int = 0
    decode_requests: int = 0
    decode_context_tokens: float = 0
    prefill_requests: int = 0
    prefill_tokens: int = 0
    prefill_pairs: float = 0

    def __bool__(self) -> bool:
        return bool(self.decode_requests or self.prefill_requests)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return self.decode_requests + self.prefill_tokens

    def count(
        self, request: RequestState, tokens: int, window: AttentionWindow
    ) -> None:
        """Add these tokens of a request, before they count as computed."""
        computed = request.num_computed_tokens
        if request.num_output_tokens and request.num_tokens - computed == 1:
            self.decode_requests += 1
            self.decode_context_tokens += window.context(request.num_tokens)
            return
        if not request.num_output_tokens:
            request.chunks += 1
        self.prefill_requests += 1
        self.prefill_tokens += tokens
        self.prefill_pairs += window.pairs(tokens, computed)
