"""All that is known before choosing: the lengths, where they are served, and the aim."""

from dataclasses import dataclass
from functools import cached_property

from chunkscope.costs.memory import Memory
from chunkscope.costs.models.shape import ModelShape
from chunkscope.costs.step_time import StepModel, step_model
from chunkscope.engine.choices import Objective, Task
from chunkscope.engine.deployment import OWN, Deployment
from chunkscope.engine.settings import Settings
from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.planning.plan import Argument
from chunkscope.simulation.workload import Request

LADDER = (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
FEWEST_SEQS = 8
WORTH = 0.02  # a smaller gain keeps what vLLM does by itself


@dataclass(frozen=True, kw_only=True)
class Problem:
    """`base` is what all settings have in common: first the context and the number of GPUs; then,
    once vLLM's own do not do, requests at once and the share of memory."""

    lengths: LengthHistogram
    output_tokens: int
    deployment: Deployment
    max_model_len: Argument
    base: Settings
    task: Task = Task.GENERATE
    objective: Objective = Objective.THROUGHPUT
    max_itl_ms: float | None = None
    requests: tuple[Request, ...] = ()  # to try settings on

    @property
    def context(self) -> int:
        return self.base.max_model_len or 0

    @property
    def tp(self) -> int:
        return self.base.tensor_parallel_size or 1

    @cached_property
    def own(self) -> Settings:
        """What vLLM takes by itself at this context."""
        shared = Settings(max_model_len=self.context, tensor_parallel_size=self.tp)
        return self.deployment.effective(shared)

    @cached_property
    def step(self) -> StepModel | None:
        """None without a model, or where the GPU's speed is not known."""
        shape, gpu = self.deployment.shape, self.deployment.gpu
        return step_model(shape, gpu, self.tp) if shape and gpu else None

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
        memory = self.memory(settings)
        return memory is None or memory.holds(self.context)


def round_up(tokens: int) -> int:
    """A length that leaves a little room and reads well.

    >>> round_up(3_001), round_up(9_000)
    (3072, 9216)
    """
    step = 256 if tokens <= 8_192 else 1_024 if tokens <= 65_536 else 4_096
    return -(-tokens // step) * step


def choose_max_model_len(longest: int, output_tokens: int, shape: ModelShape | None) -> Argument:
    limit = shape.limit if shape else None
    need = longest + output_tokens
    said = f"the longest prompt has {longest:,} tokens, plus {output_tokens:,} for the output"
    value = round_up(need)
    if limit is None or value < limit:
        return Argument.chosen("max_model_len", value, limit, f"{said}, rounded up")
    if output_tokens >= limit:
        raise UsageError(
            f"an output of {output_tokens:,} tokens leaves no room for a prompt: "
            f"the model takes {limit:,}",
            hint="lower --max-output",
        )
    over = "" if need <= limit else f", over the model's limit of {limit:,}"
    return Argument.chosen("max_model_len", limit, limit, f"{said}{over}; the model's own limit")
