"""The one way from a plan's requests and a setting to a simulated run.

`recommend`, `simulate`, the prediction in `verify` and the gate's comparison all come
here, so the same plan gives the same figures everywhere.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from chunkscope.errors import InputError
from chunkscope.hardware.step_time import StepModel
from chunkscope.planning.request import PlanRequest
from chunkscope.simulation.rate import highest_rate, one_by_one
from chunkscope.simulation.result import Judged, SimulatedRun
from chunkscope.simulation.run import (
    simulate,
    usual_pool,
    usual_step_model,
    with_host_memory,
)
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.settings import KvPool, Settings

NEAR = 0.01  # settings whose costs differ by less are as good as each other
NEVER = float("inf")
BROKEN_S = 1e9  # longer than any run that keeps its limits


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """One workload on one engine: simulates each setting once, and compares them.

    `step_model` None: the roofline's, with `host_times` its time on the CPU.
    `kv_cache_tokens` None: what the memory model leaves. `tick` is called for each run.
    """

    request: PlanRequest
    engine: Engine
    workload: Workload
    step_model: StepModel | None = None
    host_times: float = 1.0
    kv_cache_tokens: int | None = None
    host_gib: float = 0.0  # of the host's memory, behind the KV cache
    keeps_rows: bool = False  # of every request
    tick: Callable[[], None] = lambda: None
    # By complete settings; None where vLLM would not start with them.
    runs: dict[Settings, SimulatedRun | None] = field(default_factory=dict)

    def run(
        self,
        settings: Settings,
        *,
        policy: ChunkPolicy = ChunkPolicy.VLLM,
        timeline: int = 0,
    ) -> SimulatedRun:
        """A run with its first `timeline` steps; InputError if one is never served."""
        self.tick()
        return simulate(
            self.workload,
            settings,
            self.engine,
            self.step_times(settings),
            judged=self.judged,
            policy=policy,
            timeline=timeline,
            kv_pool=self._pool(settings),
        )

    def run_one_by_one(self, settings: Settings) -> SimulatedRun:
        """Some of the requests alone: if even they break a limit, no rate keeps it."""
        return replace(self, workload=one_by_one(self.workload)).run(settings)

    def run_at_highest_rate(self, settings: Settings) -> SimulatedRun:
        """The run at the highest rate that keeps the limits."""
        return highest_rate(
            self.workload,
            settings,
            self.engine,
            self.step_times(settings),
            limits=self.request.slo,
            kv_pool=self._pool(settings),
            tick=self.tick,
        )

    def attempt(self, settings: Settings) -> SimulatedRun | None:
        """The run; None where vLLM would not start with these settings."""
        settings = self.engine.complete(settings)
        if settings not in self.runs:
            self.runs[settings] = self._attempt(settings)
        return self.runs[settings]

    def _attempt(self, settings: Settings) -> SimulatedRun | None:
        memory = self.engine.memory(settings, longest=self.longest)
        if memory is None or not memory.holds(settings.max_model_len or 0):
            return None
        if self.engine.refusals(settings):
            return None
        try:
            return self.run(settings)
        except InputError:  # the longest request is as large as the KV cache
            return None

    @property
    def judged(self) -> Judged:
        """What runs are held against."""
        return Judged(
            limits=self.request.slo,
            e2e_timeout_s=self.request.e2e_timeout_s,
            keeps_rows=self.keeps_rows,
        )

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return self.workload.longest

    def _pool(self, settings: Settings) -> KvPool | None:
        if self.kv_cache_tokens is None and not self.host_gib:
            return None
        complete = self.engine.complete(settings)
        if self.kv_cache_tokens is None:
            pool = usual_pool(complete, self.engine)
        else:
            pool = self.engine.kv_pool(complete, self.kv_cache_tokens)
        return with_host_memory(pool, complete, self.engine, self.host_gib)

    def step_times(self, settings: Settings) -> StepModel:
        """How long steps take with these settings."""
        model = self.step_model
        if model is None:
            model = usual_step_model(self.engine.complete(settings), self.engine)
        if self.host_times == 1.0:
            return model
        return replace(model, host=model.host.times(self.host_times))

    # -- which setting is better -------------------------------------------------------

    def use(self, settings: Settings) -> float:
        """The share of the tightest limit that is used; over 1 it is broken.

        It is broken, too, where the queue grows: by how many times more requests come
        than are served.
        """
        run = self.attempt(settings)
        if run is None:
            return NEVER
        use = run.slo.use if run.slo else 0.0
        if run.queue_grows:
            come = (self.request.rate or 0.0) * run.figures.makespan_s
            use = max(use, come / run.requests, 1 + NEAR)
        return use

    def keeps_limits(self, settings: Settings) -> bool:
        """Without limits: does it run?"""
        return self.use(settings) <= 1

    def cost(self, settings: Settings) -> float:
        """What is wanted small: the time, or at a rate the tightest limit's use."""
        run = self.attempt(settings)
        if run is None:
            return NEVER
        use = self.use(settings)
        if self.request.slo and self.request.is_open:
            return use
        return run.figures.makespan_s if use <= 1 else BROKEN_S * use

    def is_as_good(self, settings: Settings, other: Settings) -> bool:
        """At most a per cent more costly than the other, which runs."""
        return self.cost(settings) <= self.cost(other) * (1 + NEAR)

    def best(self, candidates: Iterable[Settings], start: Settings) -> Settings:
        """The cheapest; `start`, or who comes first, where none is clearly cheaper."""
        contenders = [start]
        for settings in candidates:
            if self.attempt(settings) is not None:
                contenders.append(settings)
        least = min(self.cost(settings) for settings in contenders)
        for settings in contenders:
            if self.cost(settings) <= least * (1 + NEAR):
                return settings
        return start
