"""What a simulation found: one value per setting, and all of them as an artefact."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from chunkscope.artefacts import codec
from chunkscope.costs.cost_model import CostModel
from chunkscope.engine.choices import ChunkPolicy
from chunkscope.engine.settings import EngineArgs

SCHEMA = "chunkscope/simulation/1"
MADE_BY = "chunkscope simulate"
DEFAULT_PATH = Path("reports/simulation.json")


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
class Chunk:
    """Tokens `start` to `end` of a request's prompt, read in one step."""

    request: int
    start: int
    end: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    number: int
    start_s: float
    duration_s: float
    decode_requests: int
    chunks: tuple[Chunk, ...]
    waiting: int
    preempted: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """One setting, tried. Times in seconds; `itl_s` is None when nobody got a second token."""

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
    setting: str = ""
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
        plain = {"setting": self.setting, **asdict(self)}
        plain["policy"] = self.policy.value
        plain["output_tokens_per_s"] = self.output_tokens_per_s
        plain["tokens_per_s"] = self.tokens_per_s
        plain["timeline"] = [asdict(step) for step in self.timeline]
        return plain


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
class Simulation:
    """What `simulate` answers: predicted, never measured. No date: the same asked is the same."""

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

    def to_json(self) -> dict[str, Any]:
        from chunkscope._version import __version__

        return {
            "schema": SCHEMA,
            "chunkscope": self.version or __version__,
            "command": list(self.command),
            "label": "predicted",
            "vllm": self.vllm,
            "cost_model": self.cost_model.to_json(),
            "workload": asdict(self.workload),
            "runs": [run.to_json() for run in self.runs],
            "pareto": list(self.pareto),
            "knee": self.knee,
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Simulation":
        """Read back what `to_json` wrote; InputError when it is not that."""
        from chunkscope.simulation.result_file import parse

        return parse(document)

    def save(self, path: Path = DEFAULT_PATH) -> None:
        codec.write_atomically(path, codec.dump(self.to_json()))

    @classmethod
    def load(cls, path: Path = DEFAULT_PATH) -> "Simulation":
        return cls.from_json(codec.read(path, SCHEMA, made_by=MADE_BY))
