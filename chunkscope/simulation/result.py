"""What a simulation found: one value per setting, and all of them as an artefact."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from chunkscope.artefacts.artefact import Artefact, frame
from chunkscope.artefacts.figures import Figures, figures_row
from chunkscope.artefacts.note import Note
from chunkscope.hardware.cost_model import CostModel
from chunkscope.lengths.histogram import Ranked
from chunkscope.simulation.requests import RequestState
from chunkscope.simulation.slo import (
    GROWING,
    Backlog,
    RequestTimes,
    Slo,
    SloResult,
    backlog,
    slo_result,
)
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.enums import ChunkPolicy, SendOrder
from chunkscope.vllm.settings import KvPool, Settings

if TYPE_CHECKING:
    import pandas as pd

# How many times as long as simulated gaps were on one H200, all at once and at a rate
# (tests).
GAPS = ({"p99": 2.0, "longest": 10.5}, {"p99": 1.1, "longest": 1.7})


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """Tokens `start` to `end` of a request's prompt, read in one step."""

    request: int
    start: int
    end: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    number: int
    start_s: float = 0.0
    duration_s: float = 0.0
    decode_requests: int
    chunks: tuple[PromptChunk, ...]
    waiting: int
    preempted: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedRate:
    """The highest rate at which every limit is kept (None: not even the lowest that was
    tried).

    `breaks`: what is broken first above it; None: nothing was.
    """

    rate_per_s: float | None
    breaks: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """One setting, tried."""

    setting: str = ""
    same_as: tuple[str, ...] = ()  # other names for the same arguments
    settings: Settings  # complete
    pool: KvPool
    policy: ChunkPolicy
    figures: Figures
    requests: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    timeline: tuple[TimelineStep, ...] = ()
    slo: SloResult | None = None  # None without limits
    backlog: Backlog | None = None  # None unless requests come at their own times
    # Where the highest was looked for: this run is at it.
    rate: SustainedRate | None = None
    most_running: int  # requests at once
    gpu_s: float  # what the GPU computed, without waiting for the host

    @property
    def queue_grows(self) -> bool:
        return self.backlog is not None and self.backlog.grows

    @property
    def breaks(self) -> str | None:
        """The tightest limit, where it is broken; or the queue, where it grows."""
        if self.slo is not None and not self.slo.is_met:
            return self.slo.tightest.name
        return GROWING if self.queue_grows else None

    @property
    def name(self) -> str:
        """Of a setting without a name, the arguments that tell those of a sweep
        apart."""
        if self.setting:
            return self.setting
        name = f"max_num_batched_tokens={self.settings.step_tokens}"
        threshold = self.settings.long_prefill_token_threshold
        if threshold:
            name += f",long_prefill_token_threshold={threshold}"
        return name


# -- the figures of a run ------------------------------------------------------


@dataclass(slots=True)
class Gaps:
    """Times between tokens, and how many requests waited so long each time."""

    seconds: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def add(self, seconds: float, count: int = 1) -> None:
        self.seconds.append(seconds)
        self.counts.append(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRun:
    """What one scheduler did, with its clock."""

    requests: list[RequestState]
    start_s: float
    ends_s: list[float]  # of its steps
    gaps: Gaps
    gpu_s: float
    tokens: int  # that its steps computed
    preemptions: int
    most_running: int
    timeline: list[TimelineStep]

    def times(self, request: RequestState) -> RequestTimes:
        sent_s = request.arrival_s
        first_s, last_s = (
            self.ends_s[request.first_step],
            self.ends_s[request.last_step],
        )
        return RequestTimes(first_s - sent_s, last_s - sent_s, request.max_tokens)

    def timed(self) -> Iterable[TimelineStep]:
        """The steps that are shown: without a pause, unless nothing was to do."""
        before_s = self.start_s
        for step, end_s in zip(self.timeline, self.ends_s, strict=False):
            start_s = before_s - self.start_s
            yield replace(step, start_s=start_s, duration_s=end_s - before_s)
            before_s = end_s


def simulated_run(  # noqa: PLR0913  (all by name)
    workload: Workload,
    settings: Settings,
    pool: KvPool,
    replicas: Sequence[ReplicaRun],
    *,
    limits: Slo,
    policy: ChunkPolicy,
) -> SimulatedRun:
    """All replicas together."""
    timed = []
    gaps = Gaps()
    for replica in replicas:
        gaps.seconds += replica.gaps.seconds
        gaps.counts += replica.gaps.counts
        for request in replica.requests:
            timed.append((request, replica.times(request)))
    timed.sort(key=lambda pair: (pair[0].arrival_s, pair[0].id))
    requests = [request for request, _ in timed]
    times = [time for _, time in timed]
    itl = Ranked(gaps.seconds, gaps.counts)
    slo = slo_result(limits, times, itl)
    waiting = None
    if workload.concurrency is None and workload.samples_at_once is None:
        sent_s = [request.arrival_s for request in requests]
        waiting = backlog(sent_s, [time.ttft_s for time in times])
    return SimulatedRun(
        settings=settings,
        pool=pool,
        policy=policy,
        figures=_figures(replicas, requests, times, itl, slo),
        requests=len(requests),
        input_tokens=sum(request.num_prompt_tokens for request in requests),
        output_tokens=sum(request.max_tokens for request in requests),
        cached_tokens=sum(request.num_cached_tokens for request in requests),
        timeline=tuple(replicas[0].timed()),
        slo=slo,
        backlog=waiting,
        most_running=sum(replica.most_running for replica in replicas),
        gpu_s=max(replica.gpu_s for replica in replicas),
    )


def _figures(
    replicas: Sequence[ReplicaRun],
    requests: Sequence[RequestState],
    times: Sequence[RequestTimes],
    itl: Ranked,
    slo: SloResult | None,
) -> Figures:
    end_s = max(replica.ends_s[-1] for replica in replicas)
    makespan_s = end_s - replicas[0].start_s
    steps = sum(len(replica.ends_s) for replica in replicas)
    input_tokens = sum(request.num_prompt_tokens for request in requests)
    output_tokens = sum(request.max_tokens for request in requests)
    cached_tokens = sum(request.num_cached_tokens for request in requests)
    chunks = [request.chunks for request in requests]
    return Figures(
        makespan_s=makespan_s,
        ttft_s=Ranked(time.ttft_s for time in times).percentiles(),
        itl_s=itl.percentiles() if itl.count else None,
        e2e_s=Ranked(time.e2e_s for time in times).percentiles(),
        input_tokens_per_s=input_tokens / makespan_s,
        output_tokens_per_s=output_tokens / makespan_s,
        steps=steps,
        tokens_per_step=sum(replica.tokens for replica in replicas) / steps,
        chunked_prompts=sum(count > 1 for count in chunks),
        chunks_max=max(chunks),
        preemptions=sum(replica.preemptions for replica in replicas),
        prefix_hit_rate=cached_tokens / input_tokens,
        goodput_per_s=slo.good_requests / makespan_s if slo else None,
        slo_use=slo.use if slo else None,
    )


def runs_frame(runs: Iterable[SimulatedRun]) -> "pd.DataFrame":
    """One row per setting: its arguments and every figure."""
    return frame(
        {
            "setting": run.name,
            **run.settings.given(),
            "kv_cache_tokens": run.pool.tokens,
            **figures_row(run),
        }
        for run in runs
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadInfo:
    """Where the requests came from."""

    source: str
    requests: int
    seed: int | None
    arrivals: str
    order: SendOrder | None = None  # None where the requests brought it along
    concurrency: int | None = None  # requests under way at a time; None: all
    samples_at_once: int | None = None  # sessions under way at a time; None: all
    profile_digest: str | None = None  # None: not of a profile


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Simulation(Artefact):
    """What `simulate` predicts. It has no date: the same question has the same
    answer."""

    schema: ClassVar = "chunkscope/simulation/10"
    made_by: ClassVar = "chunkscope simulate"

    cost_model: CostModel
    vllm: str
    workload: WorkloadInfo
    runs: tuple[SimulatedRun, ...]
    notes: tuple[Note, ...] = ()
    command: tuple[str, ...] = ()
    version: str = ""

    @property
    def is_sweep(self) -> bool:
        """Whether it is a sweep: its points have no name."""
        return not all(run.setting for run in self.runs)

    def plot(self) -> Any:
        """How long each setting takes: matplotlib's Axes."""
        runs = reversed(self.runs)  # the first bar is the lowest
        rows = (
            {"setting": run.name, "makespan_s": run.figures.makespan_s} for run in runs
        )
        return frame(rows).plot.barh(x="setting", y="makespan_s")

    def to_frame(self) -> "pd.DataFrame":
        return runs_frame(self.runs)
