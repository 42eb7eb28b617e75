"""A request on its way through the scheduler, in vLLM's words."""

from chunkscope.prefixes.sharing import Path
from chunkscope.simulation.blocks import BlockRun, SharedRun
from chunkscope.simulation.workload import Request


class RequestState:
    """What vLLM knows of a request. `num_tokens`: the prompt and the outputs so far."""

    __slots__ = (
        "admission", "arrival_s", "born", "caught_up", "chunks", "first_step", "id", "last_step",
        "max_tokens", "most_computed", "num_cached_tokens", "num_computed_tokens",
        "num_preemptions", "num_prompt_tokens", "num_scheduled", "num_skipped_blocks",
        "num_tokens", "path", "priority", "replica", "run", "scheduled_at", "skips_cache",
        "tracked",
    )  # fmt: skip

    def __init__(
        self,
        place: int,
        request: Request,
        *,
        path: Path = (),
        skips_cache: bool = False,
        priority: int = 0,
    ) -> None:
        self.id = place
        self.num_prompt_tokens = request.prompt_tokens
        self.max_tokens = request.output_tokens
        self.arrival_s = request.arrival_s
        self.priority = priority
        self.replica = 0  # that it was sent to
        self.skips_cache = skips_cache  # prompt_logprobs: reads nothing from the prefix cache
        self.path = path  # leading blocks that other requests have too
        self.num_tokens = self.num_prompt_tokens
        self.num_computed_tokens = 0
        # At the end: the last output is never read back.
        self.most_computed = self.num_prompt_tokens + self.max_tokens - 1
        self.admission = 0  # its place in the order of admissions
        self.born = 0  # the fast scheduler's: see DecodingGroup
        self.caught_up = 0  # tokens computed when all were known, not still being sampled
        self.tracked: list[SharedRun] = []  # its cached blocks among the shared ones
        self.run: BlockRun | None = None  # its own cached blocks, while it is preempted
        self.chunks = 0  # steps that it took to read the prompt
        self.num_cached_tokens = 0  # found when it was first admitted
        self.num_preemptions = 0
        self.first_step = -1
        self.last_step = -1  # of its latest token
        self.scheduled_at = -1  # the latest step with tokens of it, and how many it had
        self.num_scheduled = 0
        self.num_skipped_blocks = 0  # outside the window: given back

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
