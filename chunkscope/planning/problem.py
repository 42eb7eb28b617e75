"""All that is known before choosing: the lengths, where they are served, and the aim."""

from dataclasses import dataclass
from functools import cached_property

from chunkscope.hardware.memory import Memory
from chunkscope.hardware.parallel import Parallel
from chunkscope.hardware.step_time import StepModel, step_model
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.planning.requests import RequestSource
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import BATCH
from chunkscope.vllm.choices import Objective, Task
from chunkscope.vllm.deployment import OWN, Deployment
from chunkscope.vllm.settings import Settings

LADDER = (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
FEWEST_SEQS = 8
WORTH = 0.03  # an argument that gains less of the objective is not set
WORTH_ROOM = 0.1  # of a limit: settings with less between them keep it about as well
NEAR = 0.01  # of two settings that differ by less, the first is as good


@dataclass(frozen=True, kw_only=True)
class Problem:
    """`base` is what all settings have in common: the number of GPUs; then, once vLLM's own do not
    do, the context, requests at once and the share of memory."""

    lengths: LengthHistogram
    output_tokens: int
    deployment: Deployment
    base: Settings
    task: Task = Task.GENERATE
    objective: Objective = Objective.THROUGHPUT
    max_itl_ms: float | None = None
    requests: RequestSource | None = None  # to try settings on
    asked_context: bool = False  # max_model_len is the user's own
    slo: Slo = ()
    concurrency: int | None = None  # requests that the client keeps under way; None: all

    @property
    def is_open(self) -> bool:
        """Requests come by themselves: then a setting cannot make the run any shorter."""
        return self.requests is not None and self.requests.arrivals != BATCH

    @property
    def need(self) -> int:
        """The longest request: its prompt and the output, as far as the model takes them."""
        limit = self.deployment.shape.limit if self.deployment.shape else None
        need = (self.lengths.max or 0) + self.output_tokens
        return min(need, limit) if limit else need

    @property
    def context(self) -> int:
        """The longest that is taken; where no model is known, what is needed."""
        return self.deployment.effective(self.base).max_model_len or round_up(self.need)

    @property
    def parallel(self) -> Parallel:
        return self.base.parallel

    @property
    def tp(self) -> int:
        return self.parallel.tensor

    @cached_property
    def own(self) -> Settings:
        """What vLLM takes by itself, at the context that is set."""
        shared = Settings(
            max_model_len=self.base.max_model_len,
            tensor_parallel_size=self.tp,
            data_parallel_size=self.base.data_parallel_size,
            enable_expert_parallel=self.base.enable_expert_parallel,
            kv_cache_dtype=self.base.kv_cache_dtype,
        )
        return self.deployment.effective(shared)

    @cached_property
    def step(self) -> StepModel | None:
        """None without a model, or where the GPU's speed is not known."""
        shape, gpu = self.deployment.shape, self.deployment.gpu
        return (
            step_model(shape, gpu, self.parallel, self.base.kv_element_bytes)
            if shape and gpu
            else None
        )

    @property
    def knows_memory(self) -> bool:
        return self.deployment.shape is not None and self.deployment.gpu is not None

    @property
    def longest(self) -> int:
        """The longest prompt that is served: longer ones are refused."""
        return min(self.lengths.max or 0, self.context - self.output_tokens)

    @property
    def typical_tokens(self) -> int:
        """A median request at its end."""
        return round(self.lengths.percentile(50) or 0) + self.output_tokens

    def memory(self, settings: Settings = OWN) -> Memory | None:
        return self.deployment.memory(settings.over(self.base), longest=max(1, self.longest))

    def fits(self, settings: Settings = OWN) -> bool:
        """Would vLLM start, and survive its prompt_logprobs? Unknown counts as yes."""
        memory, fit = self.memory(settings), self.deployment.measured
        if fit and fit.failed_as(self.deployment.effective(settings.over(self.base))):
            return False
        return memory is None or memory.holds(self.context)


def round_up(tokens: int) -> int:
    """A length that leaves a little room and reads well.

    >>> round_up(3_001), round_up(9_000)
    (3072, 9216)
    """
    step = 256 if tokens <= 8_192 else 1_024 if tokens <= 65_536 else 4_096
    return -(-tokens // step) * step
