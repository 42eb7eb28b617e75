"""One plan to make: what is asked, on which engine, of which data.

Everything that a plan is decided on comes from here; `fit` adds what is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.memory import Memory
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Profile, together
from chunkscope.planning.drawing import AS_ASSUMED, Variation, draw, refused_prompts
from chunkscope.planning.request import PlanRequest, chosen_datasets, has_sessions
from chunkscope.simulation.draw import served_prompts
from chunkscope.simulation.outputs import DatasetOutput
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.settings import OWN, Settings


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is asked, where it runs, and its data.

    `needed` are settings without which vLLM would not start there: a context that the
    KV cache holds, fewer requests at once, smaller steps, less memory.
    """

    request: PlanRequest
    engine: Engine
    datasets: tuple[DatasetProfile, ...]
    needed: Settings = OWN
    # Sessions to keep under way where nothing is known of the client.
    advised_samples: int | None = None

    @classmethod
    def of(cls, profile: Profile, request: PlanRequest, engine: Engine) -> "Case":
        """UsageError where that cannot be, InputError where no prompt is served."""
        datasets = chosen_datasets(profile, request.dataset)
        case = cls(request=request, engine=engine, datasets=datasets)
        check_machine(case)
        check_prompts_fit(case)
        return case

    # -- the data ----------------------------------------------------------------------

    @cached_property
    def outputs(self) -> tuple[DatasetOutput, ...]:
        """What the answers of each dataset are."""
        return self.request.outputs_of(self.datasets)

    @property
    def pairs(self) -> Iterator[tuple[DatasetProfile, DatasetOutput]]:
        """Each dataset with its answers."""
        return zip(self.datasets, self.outputs, strict=True)

    @cached_property
    def lengths(self) -> LengthHistogram:
        """Of all prompts, those that are refused included."""
        return together(self.datasets)

    @property
    def output_tokens(self) -> int:
        """The longest answer that room is kept for."""
        return max(output.tokens for output in self.outputs)

    @property
    def served(self) -> int:
        """Requests that leave room for the answer of their dataset."""
        prompts = served_prompts(self.datasets, self.outputs, self.context)
        return prompts * self.request.samples

    def served_of(self, name: str) -> int:
        """The same of one dataset."""
        for dataset, output in self.pairs:
            if dataset.name == name:
                prompts = served_prompts([dataset], [output], self.context)
                return prompts * self.request.samples
        return 0

    @property
    def refused(self) -> int:
        """Prompts that do not."""
        return refused_prompts(self.datasets, self.outputs, self.context)

    @property
    def has_sessions(self) -> bool:
        """Do requests wait for the answer to the one before?"""
        return has_sessions(self.datasets)

    def draw(
        self,
        *,
        count: int | None = None,
        variation: Variation = AS_ASSUMED,
        together: bool = False,
    ) -> Workload:
        """What is sent, or about so many of it."""
        return draw(
            self.request,
            self.engine,
            self.datasets,
            self.context,
            advised_samples=self.advised_samples,
            count=count,
            variation=variation,
            together=together,
        )

    @cached_property
    def longest(self) -> int:
        """The longest prompt that is served."""
        longest = 1
        for dataset, output in self.pairs:
            room = output.longest_prompt(self.context)
            for tokens in dataset.lengths.counts:
                if longest < tokens <= room:
                    longest = tokens
        return longest

    def only(self, dataset: DatasetProfile) -> "Case":
        """The same for one dataset, sent alone."""
        return replace(
            self, datasets=(dataset,), request=self.request.only(dataset.name)
        )

    def at(self, arrivals: str) -> "Case":
        """The same for requests that come so."""
        request = replace(
            self.request, arrivals=arrivals, concurrency=None, samples_at_once=None
        )
        return replace(self, request=request)

    # -- the engine --------------------------------------------------------------------

    @property
    def base(self) -> Settings:
        """What every setting has in common: what is needed and what was asked for."""
        return self.needed.over(self.request.settings)

    @cached_property
    def default(self) -> Settings:
        """vLLM's own choice, with what it needs to start and what was asked for."""
        return self.engine.complete(self.base)

    @property
    def need(self) -> int:
        """Tokens of the longest request with its answer, or what the model takes."""
        need = 0
        for dataset, output in self.pairs:
            need = max(need, (dataset.lengths.max or 0) + output.tokens)
        limit = self.engine.shape.limit if self.engine.shape else None
        return min(need, limit) if limit else need

    @property
    def context(self) -> int:
        """The longest request that is taken; without a model, what is needed."""
        return self.default.max_model_len or round_up(self.need)

    @property
    def can_simulate(self) -> bool:
        """Are the model and the speed of its GPU known?"""
        gpu = self.engine.gpu
        return (
            self.engine.shape is not None and gpu is not None and gpu.speed is not None
        )

    def complete(self, settings: Settings) -> Settings:
        """What the engine ends up with."""
        return self.engine.complete(settings.over(self.base))

    def memory(self, settings: Settings = OWN) -> Memory | None:
        """Where every GiB goes; None where the model or the GPU is not known."""
        return self.engine.memory(settings.over(self.base), longest=self.longest)

    def fits(self, settings: Settings = OWN) -> bool:
        """Would vLLM start, and survive its prompt_logprobs? Unknown counts as yes."""
        memory = self.memory(settings)
        return memory is None or memory.holds(self.context)


def check_machine(case: Case) -> None:
    """UsageError where GPUs or a context are asked for that cannot be."""
    shape = case.engine.shape
    parallel = case.request.settings.parallel
    parallel.check(shape)
    if parallel.data > 1 and case.engine.entry is Entry.LLM:
        raise UsageError(
            "--dp is for `vllm serve`: vLLM's LLM starts one replica",
            hint="leave out --dp, or choose --entry serve and a form of it: "
            "--emit vllm-args",
        )
    limit = shape.limit if shape else None
    context = case.request.settings.max_model_len
    if limit and context and context > limit:
        raise UsageError(
            f"max_model_len {context:,} is over the model's limit of {limit:,}",
            hint="leave it out: vLLM uses the model's limit",
        )


def check_prompts_fit(case: Case) -> None:
    """InputError where every prompt would be refused."""
    if case.served:
        return
    shape = case.engine.shape
    asked = case.request.settings.max_model_len
    ways = []
    if (case.lengths.min or 0) < case.context:
        ways.append("lower --max-output")
    if asked and (shape is None or asked != shape.limit):
        ways.append("raise --max-model-len")
    ways.append("choose a model with a longer context")
    raise InputError(
        f"no prompt fits the context of {case.context:,} tokens with "
        f"{case.output_tokens:,} for the output",
        hint=", or ".join(ways),
    )


def round_up(tokens: int) -> int:
    """A length that people would choose: the next multiple of 256, 1,024 or 4,096."""
    if tokens <= 8_192:
        step = 256
    elif tokens <= 65_536:
        step = 1_024
    else:
        step = 4_096
    return -(-tokens // step) * step
