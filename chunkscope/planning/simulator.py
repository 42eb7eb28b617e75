"""The one way from a plan's request and a setting to a simulated run.

`recommend`, `simulate`, the prediction in `verify` and the gate's comparison all come here, so the
same plan gives the same figures everywhere.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.hardware.step_time import Host, StepModel, step_model
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile, together
from chunkscope.planning.request import Output, PlanRequest
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.workload import Drawing, Request, Workload, draw_workload
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import ChunkPolicy, Task
from chunkscope.vllm.rules import rules_of
from chunkscope.vllm.settings import KvPool, Settings

MOST_REQUESTS = 20_000  # a profile may hold millions of prompts; so many show what a setting does
OPEN_REQUESTS = 1_000  # at a rate, more would only come later


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What is assumed may turn out otherwise: another draw, longer prompts, longer outputs where
    nobody knows them."""

    code: str
    seed: int = 0
    prompts: float = 1.0
    outputs: float = 1.0


AS_DRAWN = Variation(code="as_drawn")
NO_CPU_TIME = Variation(code="no_cpu_time")  # every variation tries both hosts
VARIATIONS = (
    NO_CPU_TIME,
    Variation(code="second_draw", seed=1),
    Variation(code="third_draw", seed=2),
    Variation(code="longer_prompts", prompts=1.1),
    Variation(code="shorter_prompts", prompts=0.9),
)
OTHER_OUTPUTS = (
    Variation(code="shorter_outputs", outputs=0.5),
    Variation(code="longer_outputs", outputs=2.0),
)


def variations(output: Output) -> tuple[Variation, ...]:
    """An output length that was given or is in the data is not varied."""
    return (*VARIATIONS, *(OTHER_OUTPUTS if output.assumed else ()))


def served(datasets: Sequence[DatasetProfile], request: PlanRequest, room: int) -> int:
    """How many prompts leave room for an output: as long as asked for, or one token."""
    least = 1 if request.task is Task.LOGLIKELIHOOD else request.max_output or 1
    lengths = together(datasets)
    return lengths.count - lengths.over(room - min(least, room))


def draw(
    request: PlanRequest,
    datasets: Sequence[DatasetProfile],
    room: int,
    *,
    count: int | None = None,
    variation: Variation = AS_DRAWN,
) -> Workload:
    """The requests that are sent: all prompts that fit `room` tokens with their output, up to a
    limit; or `count` of them. A `variation` of them has other lengths or is another draw."""
    most = OPEN_REQUESTS if request.is_open else served(datasets, request, room)
    wanted = request.requests or min(most, MOST_REQUESTS)
    drawing = Drawing(
        count=max(1, min(count or wanted, wanted)),
        room=room,
        output=request.max_output,
        output_if_unknown=round(DEFAULT_OUTPUT * variation.outputs),
        seed=request.seed + variation.seed,
        task=request.task,
        shared_prefix=request.shared_prefix,
        order=request.order,
        arrivals=request.arrivals,
    )
    drawn = replace(draw_workload(datasets, drawing), concurrency=request.concurrency)
    if variation.prompts == 1.0:
        return drawn
    return replace(
        drawn,
        requests=tuple(_varied(one, room, variation) for one in drawn.requests),
        stretches=tuple(
            replace(one, tokens=round(one.tokens * variation.prompts)) for one in drawn.stretches
        ),
    )


def _varied(request: Request, room: int, how: Variation) -> Request:
    prompt = max(1, min(round(request.prompt_tokens * how.prompts), room - 1))
    return replace(
        request, prompt_tokens=prompt, output_tokens=min(request.output_tokens, room - prompt)
    )


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """One deployment and one workload, for any setting; each is simulated once.

    `step` None: the roofline's. `kv_cache_tokens` None: what the memory model leaves.
    """

    request: PlanRequest
    deployment: Deployment
    workload: Workload
    step: StepModel | None = None
    kv_cache_tokens: int | None = None
    policy: ChunkPolicy = ChunkPolicy.VLLM
    _runs: dict[tuple[Settings, Host | None], SimulatedRun] = field(default_factory=dict)
    _attempts: dict[tuple[Settings, Host | None], SimulatedRun | None] = field(default_factory=dict)

    def run(
        self, settings: Settings, *, host: Host | None = None, timeline: int = 0
    ) -> SimulatedRun:
        """What happens with a setting, on another host if given; the first `timeline` steps are
        kept to be shown. InputError where it could not serve a request."""
        full = self.complete(settings)
        if timeline:
            return run_setting(self.scenario(settings, host), full, self.pool(full), watch=timeline)
        run = self._runs.get((full, host))
        if run is None:
            run = run_setting(self.scenario(settings, host), full, self.pool(full))
            self._runs[full, host] = run
        return run

    def attempt(self, settings: Settings, *, host: Host | None = None) -> SimulatedRun | None:
        """None where vLLM would not start with it, or the memory model rules it out."""
        full = self.deployment.effective(settings)
        if (full, host) not in self._attempts:
            memory, run = self.deployment.memory(full, longest=self.workload.longest), None
            fits = memory is not None and memory.holds(full.max_model_len or 0)
            if fits and not self.deployment.refusals(full):
                with suppress(InputError):  # the longest request is as large as the cache
                    run = self.run(full, host=host)
            self._attempts[full, host] = run
        return self._attempts[full, host]

    def tried(self) -> dict[Settings, SimulatedRun]:
        """What ran so far, on the model's own host."""
        return {one: run for (one, host), run in self._attempts.items() if run and host is None}

    def complete(self, settings: Settings) -> Settings:
        """What the scheduler obeys: nothing left open."""
        full = self.deployment.effective(settings)
        if full.max_num_batched_tokens is None or full.max_num_seqs is None:
            raise MissingError(
                "the plan names no GPU, so vLLM's own budget and number of requests are not known",
                hint="plan for one: `chunkscope recommend --model llama-3.1-8b --gpu h200`",
            )
        return full

    def pool(self, full: Settings) -> KvPool:
        return self.deployment.kv_pool(full, self._kv_tokens(full))

    def _kv_tokens(self, full: Settings) -> int:
        if self.kv_cache_tokens is not None:
            if self.kv_cache_tokens < 1:
                raise UsageError(
                    f"--kv-cache-tokens must be at least 1, not {self.kv_cache_tokens}"
                )
            return self.kv_cache_tokens
        memory = self.deployment.memory(full)
        if memory is None:
            raise MissingError(
                "the plan does not say how large the KV cache is",
                hint="plan for a model and a GPU, or pass --kv-cache-tokens",
            )
        return max(1, memory.kv_cache_tokens)

    def scenario(self, settings: Settings, host: Host | None = None) -> Scenario:
        """All but the setting."""
        step = self.step or self._roofline(settings)
        return Scenario(
            requests=self.workload.requests,
            rules=rules_of(self.deployment.release),
            step=step if host is None else replace(step, host=host),
            stretches=self.workload.stretches,
            prompt_logprobs=self.workload.task is Task.LOGLIKELIHOOD,
            policy=self.policy,
            concurrency=self.workload.concurrency,
            slo=self.request.slo,
        )

    def _roofline(self, settings: Settings) -> StepModel:
        there, s = self.deployment, settings
        shape, gpu = there.shape, there.gpu
        step = step_model(shape, gpu, s.parallel, s.kv_element_bytes) if shape and gpu else None
        if step is None:
            raise MissingError(
                "without a model and a GPU of the table nobody knows how long a step takes",
                hint="plan for them: `chunkscope recommend --model llama-3.1-8b --gpu h200`",
            )
        return step
