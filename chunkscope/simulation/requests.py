"""A request on its way through the scheduler, and one step of the engine."""

import sys
from dataclasses import dataclass, field

from chunkscope.hardware.step_time import AttentionWindow
from chunkscope.prefixes.sharing import Path


@dataclass(slots=True, eq=False)
class BlockRun:
    """Neighbouring blocks of one group which hold the same part of a prompt, and are
    cached.

    `stretch` says which part, `start` and `end` which of a prompt's blocks. Of each
    request that holds the run, `holders` has the list of all that it holds: a run can
    be split. Of blocks that nobody will look for, ANONYMOUS ones, only the number
    counts.
    """

    group: int
    stretch: int
    start: int
    end: int
    holders: "dict[int, list[BlockRun]]" = field(default_factory=dict)

    def __len__(self) -> int:
        return self.end - self.start


ANONYMOUS = -2  # a stretch that no request has


@dataclass(slots=True, eq=False)
class RequestState:
    """What vLLM knows of a request. `num_tokens`: the prompt and the outputs so far.

    `path` says what its blocks hold: stretches that it shares with other requests, then
    the one of its session alone, which has no end.
    """

    id: int
    session: int
    num_prompt_tokens: int
    max_tokens: int
    arrival_s: float
    path: Path
    skips_cache: bool = False  # it asks for prompt_logprobs, so it reads nothing cached
    next_turn: "RequestState | None" = None
    think_s: float = 0.0  # from the answer before until it is sent

    num_tokens: int = field(init=False)
    num_computed_tokens: int = 0
    admission: int = 0  # its place in the order of admissions
    num_preemptions: int = 0
    num_cached_tokens: int = 0  # that it found when it was first admitted
    chunks: int = 0  # steps that it took to read the prompt

    first_step: int = -1  # of its first token
    last_step: int = -1  # of its latest token
    scheduled_at: int = -1  # the latest step with tokens of it
    num_scheduled: int = 0  # how many tokens that step had of it
    caught_up: int = 0  # tokens that were computed when the latest was not in flight

    held: list[list[BlockRun]] = field(default_factory=list)  # by group
    num_tracked_blocks: int = 0  # leading blocks that are in runs
    num_skipped_blocks: int = 0  # leading blocks that have left the window
    last_left: dict[int, BlockRun] = field(default_factory=dict)  # by group

    def __post_init__(self) -> None:
        self.num_tokens = self.num_prompt_tokens

    @property
    def own_stretch(self) -> int:
        return self.path[-1].stretch

    @property
    def num_shared_blocks(self) -> int:
        """Leading blocks of the prompt that other sessions may have, too."""
        return self.path[-1].start

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def most_computed(self) -> int:
        """The tokens that are computed at the end: the last output is never read
        back."""
        return self.num_prompt_tokens + self.max_tokens - 1

    @property
    def has_ended(self) -> bool:
        """With async scheduling its last token may still be on its way."""
        return self.num_computed_tokens == self.most_computed


NO_END = sys.maxsize  # of the stretch that a session has for itself


@dataclass(slots=True, eq=False)
class Step:
    """What one step computes: vLLM's SchedulerOutput, and what the step's time depends
    on.

    The requests in `decoding` get one token each, all others are in
    `num_scheduled_tokens`. `ended`: their last token is in this step's result.
    `resumed`: of requests that decode after a break, the step of their last token
    before it. `decoding_on`: requests with a token in this step and in the one before.
    """

    number: int
    num_scheduled_tokens: dict[RequestState, int] = field(default_factory=dict)
    decoding: list[RequestState] = field(default_factory=list)
    preempted: list[RequestState] = field(default_factory=list)
    ended: list[RequestState] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    decoding_on: int = 0
    decode_requests: int = 0
    decode_context_tokens: float = 0
    prefill_requests: int = 0
    prefill_tokens: int = 0
    prefill_pairs: float = 0
    loaded_tokens: int = 0  # from the host's memory into the KV cache

    def __bool__(self) -> bool:
        return self.decode_requests > 0 or self.prefill_requests > 0

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
