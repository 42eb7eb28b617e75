"""What a simulation found: one value per setting, and all of them as an artefact."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from chunkscope.artefacts.artefact import Artefact, Numbers, frame
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


MICROSECONDS = 1e6  # in a second: as times of requests are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRows:
    """Every request of a run, in the order in which they were sent.

    Times are microseconds since the run began: sent, first token, end. A server that
    does not tell of cached tokens leaves their column empty.
    """

    session: Numbers
    turn: Numbers
    prompt_tokens: Numbers
    cached_tokens: Numbers
    output_tokens: Numbers
    start_us: Numbers
    first_token_us: Numbers
    end_us: Numbers

    def frame_rows(self) -> Iterator[dict[str, float | None]]:
        """With times in seconds."""
        columns = []
        for name in self.__slots__:
            column = getattr(self, name)
            columns.append(column or [None] * len(self.session))
        for row in zip(*columns, strict=True):
            values: dict[str, float | None] = {}
            for name, value in zip(self.__slots__, row, strict=True):
                if name.endswith("_us"):
                    values[name.removesuffix("_us") + "_s"] = value / MICROSECONDS
                else:
                    values[name] = value
            yield values


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRun:
    """One dataset of a run, from the end of the one before it until its own."""

    name: str
    requests: int
    input_tokens: int
    output_tokens: int
    seconds: float


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
    # Requests that take longer than the client waits; None where it waits forever.
    timeouts: int | None = None
    phases: tuple[PhaseRun, ...] = ()  # where datasets are sent one after the other
    rows: RequestRows | None = None  # where they are asked for
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a run is held against, and whether its requests are kept one by one."""

    limits: Slo = ()
    e2e_timeout_s: float | None = None
    keeps_rows: bool = False


UNJUDGED = Judged()


class Timed(NamedTuple):
    """A request, and what it saw."""

    request: RequestState
    times: RequestTimes


def simulated_run(  # noqa: PLR0913  (all by name)
    workload: Workload,
    settings: Settings,
    pool: KvPool,
    replicas: Sequence[ReplicaRun],
    *,
    part_ends_s: Sequence[float],
    judged: Judged,
    policy: ChunkPolicy,
) -> SimulatedRun:
    """All replicas together."""
    timed = []
    gaps = Gaps()
    for replica in replicas:
        gaps.seconds += replica.gaps.seconds
        gaps.counts += replica.gaps.counts
        for request in replica.requests:
            timed.append(Timed(request, replica.times(request)))
    timed.sort(key=lambda entry: (entry.request.arrival_s, entry.request.id))
    times = [entry.times for entry in timed]
    itl = Ranked(gaps.seconds, gaps.counts)
    slo = slo_result(judged.limits, times, itl)
    tokens = Tokens.of(entry.request for entry in timed)
    start_s = replicas[0].start_s
    return SimulatedRun(
        settings=settings,
        pool=pool,
        policy=policy,
        figures=_figures(replicas, timed, tokens, itl, slo),
        requests=len(timed),
        input_tokens=tokens.prompts,
        output_tokens=tokens.answers,
        cached_tokens=tokens.cached,
        timeline=tuple(replicas[0].timed()),
        slo=slo,
        backlog=_backlog(workload, timed),
        timeouts=_timeouts(times, judged.e2e_timeout_s),
        phases=_phase_runs(workload, timed, [end - start_s for end in part_ends_s]),
        rows=rows_of(workload, timed, start_s) if judged.keeps_rows else None,
        most_running=sum(replica.most_running for replica in replicas),
        gpu_s=max(replica.gpu_s for replica in replicas),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Of some requests: of their prompts, found in the cache, and of the answers."""

    prompts: int
    cached: int
    answers: int

    @classmethod
    def of(cls, requests: Iterable[RequestState]) -> "Tokens":
        prompts = cached = answers = 0
        for request in requests:
            prompts += request.num_prompt_tokens
            cached += request.num_cached_tokens
            answers += request.max_tokens
        return cls(prompts=prompts, cached=cached, answers=answers)


def _backlog(workload: Workload, timed: Sequence[Timed]) -> Backlog | None:
    """None where a client waits before it sends more."""
    if workload.concurrency or workload.samples_at_once or workload.phases:
        return None
    sent_s = [entry.request.arrival_s for entry in timed]
    return backlog(sent_s, [entry.times.ttft_s for entry in timed])


def _timeouts(times: Iterable[RequestTimes], timeout_s: float | None) -> int | None:
    """Requests that take longer than a client waits; None where it waits forever."""
    if timeout_s is None:
        return None
    return sum(time.e2e_s > timeout_s for time in times)


def _phase_runs(
    workload: Workload, timed: Sequence[Timed], ends_s: Sequence[float]
) -> tuple[PhaseRun, ...]:
    """By phase: when it ends, less when the one before did."""
    runs = []
    before_s = 0.0
    first = 0
    for phase, end_s in zip(workload.phases, ends_s, strict=bool(workload.phases)):
        sessions = range(first, first + phase.sessions)
        requests = [
            entry.request for entry in timed if entry.request.session in sessions
        ]
        tokens = Tokens.of(requests)
        run = PhaseRun(
            name=phase.name,
            requests=len(requests),
            input_tokens=tokens.prompts,
            output_tokens=tokens.answers,
            seconds=end_s - before_s,
        )
        runs.append(run)
        first += phase.sessions
        before_s = end_s
    return tuple(runs)


def _figures(
    replicas: Sequence[ReplicaRun],
    timed: Sequence[Timed],
    tokens: Tokens,
    itl: Ranked,
    slo: SloResult | None,
) -> Figures:
    end_s = max(replica.ends_s[-1] for replica in replicas if replica.ends_s)
    makespan_s = end_s - replicas[0].start_s
    steps = sum(len(replica.ends_s) for replica in replicas)
    computed = sum(replica.tokens for replica in replicas)
    chunks = [entry.request.chunks for entry in timed]
    return Figures(
        makespan_s=makespan_s,
        ttft_s=Ranked(entry.times.ttft_s for entry in timed).percentiles(),
        itl_s=itl.percentiles() if itl.count else None,
        e2e_s=Ranked(entry.times.e2e_s for entry in timed).percentiles(),
        input_tokens_per_s=tokens.prompts / makespan_s,
        output_tokens_per_s=tokens.answers / makespan_s,
        steps=steps,
        tokens_per_step=computed / steps,
        chunked_prompts=sum(count > 1 for count in chunks),
        chunks_max=max(chunks),
        preemptions=sum(replica.preemptions for replica in replicas),
        prefix_hit_rate=tokens.cached / tokens.prompts,
        goodput_per_s=slo.good_requests / makespan_s if slo else None,
        slo_use=slo.use if slo else None,
    )


# -- requests one by one -------------------------------------------------------


def rows_of(workload: Workload, timed: Sequence[Timed], start_s: float) -> RequestRows:
    """A row for each request."""
    turns: list[int] = []
    for session in workload.sessions:
        turns += range(len(session.turns))
    requests = [entry.request for entry in timed]
    starts, firsts, ends = [], [], []
    for request, times in timed:
        sent_s = request.arrival_s - start_s
        starts.append(round(sent_s * MICROSECONDS))
        firsts.append(round((sent_s + times.ttft_s) * MICROSECONDS))
        ends.append(round((sent_s + times.e2e_s) * MICROSECONDS))
    return RequestRows(
        session=Numbers(request.session for request in requests),
        turn=Numbers(turns[request.id] for request in requests),
        prompt_tokens=Numbers(request.num_prompt_tokens for request in requests),
        cached_tokens=Numbers(request.num_cached_tokens for request in requests),
        output_tokens=Numbers(request.max_tokens for request in requests),
        start_us=Numbers(starts),
        first_token_us=Numbers(firsts),
        end_us=Numbers(ends),
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
        """One row per request, of each setting whose requests were kept."""
        rows = []
        for run in self.runs:
            if run.rows is not None:
                for row in run.rows.frame_rows():
                    rows.append({"setting": run.name, **row})
        return frame(rows)

    def _repr_html_(self) -> str:
        """In a notebook: a row per setting, since requests may be thousands."""
        table = self.settings_frame().to_html(index=False)
        return f"<p>{escape(repr(self))}</p>{table}"

    def settings_frame(self) -> "pd.DataFrame":
        """One row per setting: its arguments and every figure."""
        return runs_frame(self.runs)
