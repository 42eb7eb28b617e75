"""What was measured: one run per setting, and the artefact that holds them."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chunkscope.artefacts import codec
from chunkscope.engine.flags import Value
from chunkscope.engine.logs import Status
from chunkscope.simulation.workload import Workload

SCHEMA = "chunkscope/verify/1"
MADE_BY = "chunkscope verify --model MODEL"
DEFAULT_PATH = Path("reports/verify.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds: of all requests, and of short and long prompts. None where there were none."""

    all: Quantiles
    short: Quantiles | None
    long: Quantiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one repeat showed, or the median over repeats. Not measured is None."""

    makespan_s: float
    ttft_s: Latency
    itl_s: Latency | None
    e2e_s: Latency
    input_tokens_per_s: float
    output_tokens_per_s: float
    steps: int | None = None
    tokens_per_step: float | None = None
    chunked_prompts: int | None = None
    chunks_max: int | None = None
    preemptions: int | None = None
    prefix_hit_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Percentiles 0, 1, ... 100 over all repeats, in seconds; None where there was nothing."""

    ttft_s: tuple[float, ...]
    itl_s: tuple[float, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMemory:
    """One GPU. `profiled` figures are vLLM's own at start-up, peaks are torch's while running."""

    rank: int
    activation_peak_gib: float | None
    device_peak_gib: float | None
    weights_gib: float | None = None
    profiled_activation_gib: float | None = None
    non_torch_gib: float | None = None
    cuda_graphs_gib: float | None = None
    kv_cache_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What the memory model of `recommend` says of this setting, per GPU."""

    weights_gib: float
    activation_gib: float
    kv_cache_tokens: int
    note: str
    overhead_gib: float | None = None
    cuda_graphs_gib: float | None = None
    kv_cache_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One setting. Unless its status is ok, `message` says in a sentence what happened."""

    setting: str
    args: dict[str, Value | str]
    status: Status
    started: str
    took_s: float
    message: str = ""
    same_as: tuple[str, ...] = ()  # other names for the same arguments
    phase: str | None = None  # where it ended, unless it is ok
    start_s: float | None = None
    engine: dict[str, Any] = field(default_factory=dict)
    workers: tuple[WorkerMemory, ...] = ()
    kv_cache_tokens: int | None = None
    kv_concurrency: float | None = None  # requests of max_model_len at once, by vLLM's own count
    predicted: Predicted | None = None
    repeats: tuple[Figures, ...] = ()
    figures: Figures | None = None  # the median over repeats
    distribution: Distribution | None = None
    log: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def activation_peak_gib(self) -> float | None:
        return _most(worker.activation_peak_gib for worker in self.workers)

    @property
    def device_peak_gib(self) -> float | None:
        return _most(worker.device_peak_gib for worker in self.workers)

    @property
    def weights_gib(self) -> float | None:
        return _most(worker.weights_gib for worker in self.workers)


def _most(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it ran. A CPU build of vLLM has no GPU; an endpoint may not tell."""

    device: str  # cuda, cpu, endpoint
    gpu: str | None = None
    gpus: int = 0
    gpu_memory_gib: float | None = None
    driver: str | None = None
    vllm: str | None = None
    torch: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model that was measured."""

    name: str
    load_format: str
    parameters: int | None = None

    @property
    def dummy(self) -> bool:
        """Random weights: memory and speed are real, answers are not."""
        return self.load_format == "dummy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """All settings that were measured with one workload; the first run is the yardstick."""

    model: Subject
    workload: Workload
    source: str  # what the prompts were made of
    repeats: int
    runs: tuple[Run, ...]
    options: dict[str, Any] = field(default_factory=dict)  # what was asked of every engine
    machine: Machine | None = None
    verdict: str | None = None
    better: str | None = None  # the setting that beats the plan, if one does
    plan_digest: str | None = None
    profile_digest: str | None = None
    command: tuple[str, ...] = ()
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = ""

    def run(self, setting: str) -> Run | None:
        return next((r for r in self.runs if setting in (r.setting, *r.same_as)), None)

    def with_run(self, run: Run) -> "Verification":
        """One more row, or the row of that name made anew."""
        kept = [r for r in self.runs if r.setting != run.setting]
        return replace(self, runs=(*kept, run))

    def to_json(self) -> dict[str, Any]:
        from chunkscope.verification.result_file import document

        return document(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Verification":
        """Read back what `to_json` wrote; InputError when it is not that."""
        from chunkscope.verification.result_file import parse

        return parse(document)

    def save(self, path: Path = DEFAULT_PATH) -> None:
        codec.write_atomically(path, codec.dump(self.to_json()))

    @classmethod
    def load(cls, path: Path = DEFAULT_PATH) -> "Verification":
        return cls.from_json(codec.read(path, SCHEMA, made_by=MADE_BY))
