"""What a simulation found: one value per setting, and all of them as an artefact."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.schema import plain
from chunkscope.costs.cost_model import CostModel
from chunkscope.engine.choices import ChunkPolicy
from chunkscope.engine.settings import EngineArgs
from chunkscope.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a time is spread over requests or tokens, in seconds."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float


def spread(values: Iterable[tuple[float, int]]) -> Spread | None:
    """Percentiles of values that occur so often; as numpy's, linear between ranks.

    >>> spread([(1.0, 1), (3.0, 1)]).p50
    2.0
    """
    ordered = sorted(pair for pair in values if pair[1])
    count = sum(times for _, times in ordered)
    if not count:
        return None
    up_to = list(accumulate(times for _, times in ordered))
    p50, p95, p99 = (_percentile(ordered, up_to, percent) for percent in (50, 95, 99))
    mean = sum(value * times for value, times in ordered) / count
    return Spread(p50=p50, p95=p95, p99=p99, max=ordered[-1][0], mean=mean)


def _percentile(ordered: list[tuple[float, int]], up_to: list[int], percent: float) -> float:
    rank = (up_to[-1] - 1) * (percent / 100)
    below, share = int(rank), rank - int(rank)
    low = ordered[bisect_right(up_to, below)][0]
    high = ordered[bisect_right(up_to, min(below + 1, up_to[-1] - 1))][0]
    return low + (high - low) * share


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChunk:
    """Tokens `start` to `end` of a request's prompt, read in one step."""

    request: int
    start: int
    end: int
    prompt_tokens: int

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.end == self.prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    number: int
    start_s: float
    duration_s: float
    decode_requests: int
    chunks: tuple[PromptChunk, ...]
    waiting: int
    preempted: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """One setting, tried. Times in seconds; `itl_s` is None when nobody got a second token."""

    setting: str = ""
    args: EngineArgs
    policy: ChunkPolicy
    makespan_s: float
    ttft_s: Spread
    itl_s: Spread | None
    e2e_s: Spread
    requests: int
    input_tokens: int
    output_tokens: int
    steps: int
    slowest_step_s: float
    chunked_prompts: int
    most_chunks: int
    preemptions: int
    cached_tokens: int
    kv_peak_tokens: int
    timeline: tuple[TimelineStep, ...] = ()

    @property
    def output_tokens_per_s(self) -> float:
        return self.output_tokens / self.makespan_s

    @property
    def tokens_per_s(self) -> float:
        return (self.input_tokens + self.output_tokens) / self.makespan_s

    @property
    def longest_gap_s(self) -> float:
        return self.itl_s.max if self.itl_s else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**plain(self), **{name: getattr(self, name) for name in _DERIVED}}


_DERIVED = ("output_tokens_per_s", "tokens_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadInfo:
    """Where the requests came from: enough to draw them again."""

    source: str
    requests: int
    seed: int | None
    arrivals: str
    task: str
    shared_prefix: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(Artefact):
    """What `simulate` answers: predicted, never measured. No date: the same asked is the same."""

    title: ClassVar = "simulation"
    schema: ClassVar = "chunkscope/simulation/1"
    made_by: ClassVar = "chunkscope simulate"
    default_path: ClassVar = Path("reports/simulation.json")
    added_later: ClassVar = frozenset({"command", "assumed", "host", "graphed_tokens"})

    cost_model: CostModel
    vllm: str
    workload: WorkloadInfo
    runs: tuple[SimulatedRun, ...]
    pareto: tuple[int, ...] = ()  # places in `runs` that no other beats in both
    knee: int | None = None
    warnings: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    version: str = ""

    @property
    def run(self) -> SimulatedRun:
        """The first of them; the only one unless settings were swept."""
        return self.runs[0]

    def __post_init__(self) -> None:
        places = (*self.pareto, *([] if self.knee is None else [self.knee]))
        if not all(0 <= place < len(self.runs) for place in places):
            raise InputError("it marks a run that is not there")

    def _document(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "label": Label.PREDICTED,
            "vllm": self.vllm,
            "cost_model": self.cost_model.to_json(),
            "workload": self.workload,
            "runs": [run.to_json() for run in self.runs],
            "pareto": self.pareto,
            "knee": self.knee,
            "warnings": self.warnings,
        }

    @classmethod
    def _fields(cls, document: dict[str, Any]) -> dict[str, Any]:
        return {
            **{name: value for name, value in document.items() if name != "label"},
            "cost_model": CostModel.fields_of(document["cost_model"]),
            "runs": [
                {name: value for name, value in run.items() if name not in _DERIVED}
                for run in document["runs"]
            ],
        }
