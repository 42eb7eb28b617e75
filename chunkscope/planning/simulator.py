"""The one way from a plan's request and a setting to a simulated run.

`recommend`, `simulate`, the prediction in `verify` and the gate's comparison all come here, so the
same plan gives the same figures everywhere.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from chunkscope.errors import InputError
from chunkscope.hardware.step_time import StepModel
from chunkscope.lengths.profile import DatasetProfile, together
from chunkscope.planning.request import PlanRequest, client_concurrency
from chunkscope.simulation.rate import highest_rate, one_by_one
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.run import simulate, usual_step_model
from chunkscope.simulation.workload import Workload, draw_workload, served_prompts
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.settings import KvPool, Settings

MOST_REQUESTS = (
    20_000  # a profile may hold millions of prompts; so many show what a setting does
)
# At a rate: so many times as many as may run at once; with no more nobody would ever wait.
TURNS, OPEN_REQUESTS = 4, (2_048, 4_096)
NEAR = 0.01  # of two settings that differ by less, the first is as good
NEVER = float("inf")
BROKEN_S = 1e9  # longer than any run that keeps its limits

# What is assumed may turn out otherwise. By code, what of `draw` is another.
VARIATIONS: dict[str, dict[str, Any]] = {
    "second_draw": {"draw_number": 1},
    "longer_prompts": {"prompt_times": 1.1},
    "shorter_prompts": {"prompt_times": 0.9},
    "shorter_outputs": {"assumed_times": 0.5},
    "longer_outputs": {"assumed_times": 2.0},
}

# Hosts differ: on two H200 machines the same steps took up to 1.4 times as long, and a
# client in another process hides some of it. By code, how many times as long it takes.
HOSTS = {"faster_cpu": 0.5, "slower_cpu": 1.5}


def draw(
    request: PlanRequest,
    there: Engine,
    datasets: Sequence[DatasetProfile],
    room: int,
    *,
    count: int | None = None,
    draw_number: int = 0,
    **times: float,
) -> Workload:
    """The requests that are sent: all prompts that fit `room` tokens with their output, up to a
    limit, or `count` of them. `times` makes prompts and assumed outputs longer or shorter."""
    outputs = request.outputs(datasets)
    most = min(MOST_REQUESTS, served_prompts(datasets, outputs, room))
    if request.rate:
        settings = there.effective(request.settings)
        held, memory = settings.most_running, there.memory(settings)
        if memory is not None:
            mean = round(together(datasets).mean or 0) + max(
                output.tokens for output in outputs
            )
            held = min(held, there.requests_of(mean, memory, settings))
        most = sorted((*OPEN_REQUESTS, TURNS * held * settings.parallel.data))[1]
    wanted = request.requests or most
    drawn = draw_workload(
        datasets,
        outputs,
        room=room,
        count=max(1, min(count or wanted, wanted)),
        seed=request.seed + draw_number,
        arrivals=request.arrivals,
        shared_prefix=request.shared_prefix,
        order=request.order,
        **times,
    )
    return replace(drawn, concurrency=client_concurrency(request, datasets))


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """One deployment and one workload, for any setting; and which of two settings is better.

    `step` None: the roofline's. `kv_cache_tokens` None: what the memory model leaves. `kv_pool` and
    `async_scheduling` are those of an engine that was measured. `tick` is called for each run.
    """

    request: PlanRequest
    deployment: Engine
    workload: Workload
    step: StepModel | None = None
    host_times: float = 1.0
    kv_cache_tokens: int | None = None
    kv_pool: KvPool | None = None
    async_scheduling: bool | None = None
    policy: ChunkPolicy = ChunkPolicy.VLLM
    tick: Callable[[], None] = lambda: None
    runs: dict[Settings, SimulatedRun | None] = field(
        default_factory=dict
    )  # by `attempt`

    def run(self, settings: Settings, *, timeline: int = 0) -> SimulatedRun:
        """A run with its first `timeline` steps; InputError if a request could never be served."""
        return self._simulated(self.workload, settings, timeline=timeline)

    def alone(self, settings: Settings) -> SimulatedRun:
        """Some of the requests one by one: if even they break a limit, no rate keeps it."""
        return self._simulated(one_by_one(self.workload), settings)

    def _simulated(
        self, workload: Workload, settings: Settings, *, timeline: int = 0
    ) -> SimulatedRun:
        self.tick()
        return simulate(
            workload,
            settings,
            self.deployment,
            self.step_model(settings),
            limits=self.request.slo,
            policy=self.policy,
            timeline=timeline,
            kv_pool=self.pool(settings),
            async_scheduling=self.async_scheduling,
        )

    def highest_rate(self, settings: Settings) -> SimulatedRun:
        """The run at it, which keeps the limits; the workload's requests come one a second."""
        return highest_rate(
            self.workload,
            settings,
            self.deployment,
            self.step_model(settings),
            limits=self.request.slo,
            kv_pool=self.pool(settings),
            tick=self.tick,
        )

    def pool(self, settings: Settings) -> KvPool | None:
        """The KV cache that is given; None: what the memory model leaves."""
        if self.kv_pool is None and self.kv_cache_tokens is not None:
            full = self.deployment.effective(settings)
            return self.deployment.kv_pool(full, self.kv_cache_tokens)
        return self.kv_pool

    def attempt(self, settings: Settings) -> SimulatedRun | None:
        """None where vLLM would not start with it."""
        full = self.deployment.effective(settings)
        if full not in self.runs:
            memory, run = (
                self.deployment.memory(full, longest=self.workload.longest),
                None,
            )
            fits = memory is not None and memory.holds(full.max_model_len or 0)
            if fits and not self.deployment.refusals(full):
                with suppress(
                    InputError
                ):  # the longest request is as large as the cache
                    run = self.run(full)
            self.runs[full] = run
        return self.runs[full]

    def step_model(self, settings: Settings) -> StepModel:
        full = self.deployment.effective(settings)
        step = self.step or usual_step_model(full, self.deployment)
        if self.host_times != 1.0:
            step = replace(step, host=step.host.times(self.host_times))
        return step

    # -- which setting is better -----------------------------------------------------------------

    def running(self) -> dict[Settings, SimulatedRun]:
        """What was tried and runs."""
        return {settings: run for settings, run in self.runs.items() if run}

    def used(self, settings: Settings) -> float:
        """The share of the tightest limit that is used. Over 1 it is broken, also where the queue
        grows (then by how many times more come than are served) or nothing runs."""
        run = self.attempt(settings)
        if run is None:
            return NEVER
        used = run.slo.use if run.slo else 0.0
        times = (self.request.rate or 0.0) * run.figures.makespan_s / run.requests
        return max(used, times, 1 + NEAR) if run.queue_grows else used

    def keeps_limits(self, settings: Settings) -> bool:
        """True without limits, where it runs."""
        return self.attempt(settings) is not None and self.used(settings) <= 1

    def cost(self, settings: Settings) -> float:
        """What the aim wants small: the use of the tightest limit, or the time that all take."""
        run, used = self.attempt(settings), self.used(settings)
        if run is None or (self.request.slo and self.request.is_open):
            return used
        return run.figures.makespan_s if used <= 1 else BROKEN_S * used

    def against(self, settings: Settings, other: Settings) -> float:
        """The cost of `settings` divided by that of `other`; one more than the cost if that is 0."""
        ours, theirs = self.attempt(settings), self.attempt(other)
        if ours is None or theirs is None:
            return NEVER if ours is None else 0.0
        cost, base = self.cost(settings), self.cost(other)
        return cost / base if base else 1 + cost

    def best(self, settings: Iterable[Settings], unless: Settings) -> Settings:
        """The cheapest, or the first that is as good, and rather `unless`."""
        running = [
            one for one in chain((unless,), settings) if self.attempt(one) is not None
        ]
        costs = {one: self.against(one, running[0]) for one in running}
        least = min(costs.values(), default=1.0)
        return next(
            (one for one in running if costs[one] <= least * (1 + NEAR)), unless
        )
