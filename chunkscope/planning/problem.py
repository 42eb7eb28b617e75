"""All that is known before choosing, and what a choice looks like."""

from dataclasses import dataclass
from functools import cached_property

from chunkscope.artefacts.labels import Label
from chunkscope.costs.gpus import Gpu
from chunkscope.costs.memory import Engine, Memory
from chunkscope.costs.models.shape import ModelShape
from chunkscope.costs.step_time import StepModel, step_model
from chunkscope.engine.choices import Entry, Objective, Task
from chunkscope.engine.flags import Release, Value
from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.simulation.workload import Request

SEQS_IF_UNKNOWN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A value, what vLLM would take by itself (None: not known), and the reason."""

    value: Value | None
    default: Value | None
    reason: str
    label: Label | None = None
    pinned: bool = False

    @property
    def is_set(self) -> bool:
        return self.value is not None and (self.pinned or self.value != self.default)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Lengths, engine and aim. Without model or GPU there is no memory and no step model.

    `seqs` and `utilization` are set while choosing, once vLLM's own do not do.
    """

    lengths: LengthHistogram
    output_tokens: int
    release: Release
    entry: Entry = Entry.SERVE
    task: Task = Task.GENERATE
    objective: Objective = Objective.THROUGHPUT
    max_itl_ms: float | None = None
    shape: ModelShape | None = None
    gpu: Gpu | None = None
    tp: int = 1
    seqs: int | None = None
    utilization: float | None = None
    requests: tuple[Request, ...] = ()  # to try settings on

    @cached_property
    def engine(self) -> Engine | None:
        if self.shape is None or self.gpu is None:
            return None
        logprobs = self.task is Task.LOGLIKELIHOOD
        return Engine(
            shape=self.shape, gpu=self.gpu, release=self.release, tp=self.tp, logprobs=logprobs
        )

    @cached_property
    def step(self) -> StepModel | None:
        return step_model(self.shape, self.gpu, self.tp) if self.shape and self.gpu else None

    @cached_property
    def max_model_len(self) -> Choice:
        return choose_max_model_len(self)

    @property
    def context(self) -> int:
        return int(self.max_model_len.value or 0)

    @property
    def longest(self) -> int:
        """The longest prompt that is served: longer ones are refused."""
        return min(self.lengths.max or 0, self.context - self.output_tokens)

    @property
    def typical_tokens(self) -> int:
        """A median request at its end."""
        return round(self.lengths.percentile(50) or 0) + self.output_tokens

    @property
    def default_seqs(self) -> int | None:
        if self.gpu is None:
            return None
        return self.release.batch_defaults(self.gpu, self.entry).max_num_seqs

    @property
    def default_budget(self) -> int | None:
        if self.gpu is None or self.default_seqs is None:
            return None
        stated = self.release.batch_defaults(self.gpu, self.entry).max_num_batched_tokens
        return min(stated, self.default_seqs * self.context)

    def memory(
        self, budget: int, *, chunk: int | None = None, seqs: int | None = None
    ) -> Memory | None:
        if self.engine is None:
            return None
        running = seqs or self.seqs or self.default_seqs or SEQS_IF_UNKNOWN
        return self.engine.memory(
            budget=budget,
            seqs=min(running, budget),
            utilization=self.utilization or self.release.gpu_memory_utilization,
            chunk=min(chunk or budget, budget, max(1, self.longest)),
        )

    def fits(self, budget: int, *, chunk: int | None = None) -> bool:
        """Would vLLM start, and survive its prompt_logprobs? Unknown counts as yes."""
        memory = self.memory(budget, chunk=chunk)
        return memory is None or memory.holds(self.context)


def round_up(tokens: int) -> int:
    """A length that leaves a little room and reads well.

    >>> round_up(3_001), round_up(9_000)
    (3072, 9216)
    """
    step = 256 if tokens <= 8_192 else 1_024 if tokens <= 65_536 else 4_096
    return -(-tokens // step) * step


def choose_max_model_len(s: Situation) -> Choice:
    longest, limit = s.lengths.max or 0, s.shape.limit if s.shape else None
    need = longest + s.output_tokens
    said = f"the longest prompt has {longest:,} tokens, plus {s.output_tokens:,} for the output"
    value = round_up(need)
    if limit is None or value < limit:
        return Choice(value=value, default=limit, reason=f"{said}, rounded up")
    if s.output_tokens >= limit:
        raise UsageError(
            f"an output of {s.output_tokens:,} tokens leaves no room for a prompt: "
            f"the model takes {limit:,}",
            hint="lower --max-output",
        )
    over = "" if need <= limit else f", over the model's limit of {limit:,}"
    return Choice(value=limit, default=limit, reason=f"{said}{over}; the model's own limit")
