"""What a simulation found: one value per setting, and all of them as an artefact."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from chunkscope.artefacts.artefact import Artefact, frame
from chunkscope.artefacts.figures import Figures, figures_row
from chunkscope.artefacts.note import Note
from chunkscope.hardware.cost_model import CostModel
from chunkscope.simulation.slo import GROWING, Backlog, SloResult
from chunkscope.vllm.enums import ChunkPolicy, SendOrder
from chunkscope.vllm.settings import KvPool, Settings

if TYPE_CHECKING:
    import pandas as pd

# How many times as long as simulated gaps were on one H200, all at once and at a rate (tests).
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
    """The highest rate at which every limit is kept (None: not even the lowest that was tried).

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
    rate: SustainedRate | None = (
        None  # where the highest was looked for: this run is at it
    )
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
        """Of a setting without a name, the arguments that tell those of a sweep apart."""
        threshold = self.settings.long_prefill_token_threshold
        capped = f",long_prefill_token_threshold={threshold}" if threshold else ""
        return (
            self.setting
            or f"max_num_batched_tokens={self.settings.step_tokens}{capped}"
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
    concurrency: int | None = (
        None  # requests that the client keeps under way; None: all
    )
    profile_digest: str | None = None  # None: not of a profile


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Simulation(Artefact):
    """What `simulate` predicts. It has no date: the same question has the same answer."""

    schema: ClassVar = "chunkscope/simulation/9"
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
