"""The one way from a plan's request and a setting to a simulated run.

`recommend`, `simulate`, the prediction in `verify` and the gate's comparison all come here, so the
same plan gives the same figures everywhere.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.hardware.step_time import StepModel, step_model
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.planning.request import Aim, PlanRequest
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.workload import Workload, draw_workload, served_prompts
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import KvPool, Settings

MOST_REQUESTS = 20_000  # a profile may hold millions of prompts; so many show what a setting does
OPEN_REQUESTS = 1_000  # at a rate, more would only come later
NEAR = 0.01  # of two settings that differ by less, the first is as good
NEVER = float("inf")
BROKEN_S = 1e9  # longer than any run that keeps its limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What is assumed may turn out otherwise: another draw, longer prompts, longer outputs where
    nobody knows them."""

    code: str
    seed: int = 0
    prompts: float = 1.0
    outputs: float = 1.0


AS_DRAWN = Variation(code="as_drawn")
VARIATIONS = (
    Variation(code="second_draw", seed=1),
    Variation(code="third_draw", seed=2),
    Variation(code="longer_prompts", prompts=1.1),
    Variation(code="shorter_prompts", prompts=0.9),
)
OTHER_OUTPUTS = (
    Variation(code="shorter_outputs", outputs=0.5),
    Variation(code="longer_outputs", outputs=2.0),
)


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
    outputs = request.outputs(datasets)
    most = OPEN_REQUESTS if request.is_open else served_prompts(datasets, outputs, room)
    wanted = request.requests or min(most, MOST_REQUESTS)
    drawn = draw_workload(
        datasets,
        outputs,
        room=room,
        count=max(1, min(count or wanted, wanted)),
        seed=request.seed + variation.seed,
        arrivals=request.arrivals,
        shared_prefix=request.shared_prefix,
        order=request.order,
        assumed_times=variation.outputs,
    )
    drawn = replace(drawn, concurrency=request.concurrency)
    if (times := variation.prompts) == 1.0:
        return drawn
    requests = []
    for one in drawn.requests:
        prompt = max(1, min(round(one.prompt_tokens * times), room - 1))
        output = min(one.output_tokens, room - prompt)
        requests.append(replace(one, prompt_tokens=prompt, output_tokens=output))
    stretches = tuple(replace(one, tokens=round(one.tokens * times)) for one in drawn.stretches)
    return replace(drawn, requests=tuple(requests), stretches=stretches)


def limits_used(run: SimulatedRun) -> float:
    """Of the tightest: over 1 it is broken, and where the queue grows it will be."""
    used = run.slo.use if run.slo else 0.0
    return used + (run.backlog is not None and run.backlog.grows)


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """One deployment and one workload, for any setting; and which of two settings is better.

    `step` None: the roofline's. `kv_cache_tokens` None: what the memory model leaves. `kv_pool` and
    `rules` are those of an engine that was measured. `tick` is called for each run that is asked
    for.
    """

    request: PlanRequest
    deployment: Deployment
    workload: Workload
    step: StepModel | None = None
    kv_cache_tokens: int | None = None
    kv_pool: KvPool | None = None
    rules: Rules | None = None
    policy: ChunkPolicy = ChunkPolicy.VLLM
    tick: Callable[[], None] = lambda: None
    runs: dict[Settings, SimulatedRun | None] = field(default_factory=dict)  # by `attempt`

    def run(self, settings: Settings, *, timeline: int = 0) -> SimulatedRun:
        """What happens with a setting; the first `timeline` steps are kept to be shown.

        InputError where it could not serve a request."""
        full = self.complete(settings)
        return run_setting(self.scenario(settings), full, self.pool(full), watch=timeline)

    def attempt(self, settings: Settings) -> SimulatedRun | None:
        """None where vLLM would not start with it, or the memory model rules it out."""
        self.tick()
        full = self.deployment.effective(settings)
        if full not in self.runs:
            memory, run = self.deployment.memory(full, longest=self.workload.longest), None
            fits = memory is not None and memory.holds(full.max_model_len or 0)
            if fits and not self.deployment.refusals(full):
                with suppress(InputError):  # the longest request is as large as the cache
                    run = self.run(full)
            self.runs[full] = run
        return self.runs[full]

    def complete(self, settings: Settings) -> Settings:
        """What the scheduler obeys: nothing left open."""
        full = self.deployment.effective(settings)
        if not full.has_sizes:
            raise MissingError(
                "the plan names no GPU, so vLLM's defaults are not known",
                hint="plan for one: `chunkscope recommend --model llama-3.1-8b --gpu h200`",
            )
        return full

    def pool(self, full: Settings) -> KvPool:
        if self.kv_pool is not None:
            return self.kv_pool
        tokens, memory = self.kv_cache_tokens, self.deployment.memory(full)
        if tokens is not None and tokens < 1:
            raise UsageError(f"kv_cache_tokens must be at least 1, not {tokens}")
        if tokens is None and memory is None:
            raise MissingError(
                "the plan does not say how large the KV cache is",
                hint="plan for a model and a GPU, or set kv_cache_tokens in chunkscope.toml",
            )
        return self.deployment.kv_pool(
            full, tokens or max(1, memory.kv_cache_tokens if memory else 1)
        )

    def scenario(self, settings: Settings) -> Scenario:
        """All but the setting."""
        return Scenario(
            requests=self.workload.requests,
            rules=self.rules or self.deployment.release.rules,
            step=self.step or self._roofline(settings),
            stretches=self.workload.stretches,
            scored=self.workload.likelihoods,
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
                "how long a step takes is not known without a model and a known GPU",
                hint="plan for them: `chunkscope recommend --model llama-3.1-8b --gpu h200`",
            )
        return step

    # -- which setting is better -----------------------------------------------------------------

    def cost(self, settings: Settings) -> float:
        """What the aim wants small: the use of the tightest limit, or the time that all take."""
        run = self.attempt(settings)
        if run is None:
            return NEVER
        if self.request.aim is Aim.ROOM_TO_LIMITS:
            return limits_used(run)
        return run.figures.makespan_s if limits_used(run) <= 1 else BROKEN_S * limits_used(run)

    def against(self, settings: Settings, other: Settings) -> float:
        """How many times the cost of the other.

        How fast the host is, is assumed: without limits it counts as what it is at its worst, with
        that host or with one that takes no time, when all take as long as the GPU computes.
        """
        ours, theirs = self.attempt(settings), self.attempt(other)
        if ours is None or theirs is None:
            return NEVER if ours is None else 0.0
        times = self.cost(settings) / self.cost(other)
        return times if self.request.slo else max(times, ours.gpu_s / theirs.gpu_s)

    def keeps_limits(self, settings: Settings) -> bool:
        """True without limits, where it runs."""
        run = self.attempt(settings)
        return run is not None and limits_used(run) <= 1

    def best(self, settings: Iterable[Settings], unless: Settings) -> Settings:
        """The cheapest, or the first that is as good, and rather `unless`."""
        running = [one for one in (unless, *settings) if self.attempt(one) is not None]
        costs = {one: self.against(one, running[0]) for one in running}
        least = min(costs.values(), default=1.0)
        return next((one for one in running if costs[one] <= least * (1 + NEAR)), unless)
