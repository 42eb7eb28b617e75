"""What was measured: one run per setting, and the artefact that holds them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from chunkscope.artefacts.artefact import Artefact, frame, now
from chunkscope.artefacts.figures import Figures, figures_row
from chunkscope.artefacts.note import Note
from chunkscope.hardware.memory import Memory
from chunkscope.simulation.result import RequestRows
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import VERIFY_SCHEMA, Workload
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

PLAN, DEFAULT, OFF = "plan", "default", "off"


class EngineKind(StrEnum):
    """What was measured: vLLM in our process, a running server, `chunkscope demo`."""

    VLLM = "vllm"
    SERVER = "server"
    DEMO = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Percentiles 0 to 100 over all repeats, in seconds; None where nothing came."""

    ttft_s: tuple[float, ...]
    itl_s: tuple[float, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMemory:
    """One GPU.

    `profiled` figures are vLLM's own at start-up, peaks are torch's while running.
    """

    rank: int
    activation_peak_gib: float | None
    device_peak_gib: float | None
    weights_gib: float | None = None
    profiled_activation_gib: float | None = None
    non_torch_gib: float | None = None
    cuda_graphs_gib: float | None = None
    kv_cache_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutputs:
    """Greedy answers to a sample of the prompts, by prompt and token.

    Shares of equal answers: `again` when the same requests are sent to the same engine
    once more in other batches, `equal` beside the run called `reference` (None: this is
    the reference).
    """

    answers: tuple[tuple[int, ...], ...]
    again: float
    reference: str | None = None
    equal: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One setting.

    Unless its status is ok, `failure` says what happened and in which phase.
    """

    setting: str
    settings: Settings
    status: Status
    started: str
    took_s: float
    failure: Note | None = None
    same_as: tuple[str, ...] = ()  # other names for the same settings
    start_s: float | None = None
    engine: dict[str, Any] = field(default_factory=dict)  # what vLLM says it runs with
    workers: tuple[WorkerMemory, ...] = ()
    kv_cache_tokens: int | None = None
    kv_concurrency: float | None = None  # requests of max_model_len at once, says vLLM
    compiled_before: bool = False  # and found by vLLM: else a start takes more memory
    predicted: Memory | None = None
    predicted_activation_gib: float | None = None  # in earlier files; made no more
    predicted_figures: Figures | None = None  # by the simulator, of the same requests
    predicted_prefix_hit_rate: float | None = None  # with the KV cache that it had
    repeats: tuple[Figures, ...] = ()
    figures: Figures | None = None  # the median over repeats
    distribution: Distribution | None = None
    requests: tuple[RequestRows, ...] = ()  # that ended, by repeat
    outputs: RunOutputs | None = None
    log: str | None = None
    notes: tuple[Note, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def activation_peak_gib(self) -> float | None:
        """Of the GPU where it was largest."""
        return largest([worker.activation_peak_gib for worker in self.workers])

    @property
    def device_peak_gib(self) -> float | None:
        """Of the GPU where it was largest."""
        return largest([worker.device_peak_gib for worker in self.workers])

    def to_frame(self) -> "pd.DataFrame":
        """One row per request that ended: tokens, those cached, and times."""
        rows = []
        for repeat, requests in enumerate(self.requests):
            for row in requests.frame_rows():
                rows.append({"repeat": repeat, **row})
        return frame(rows)

    def is_called(self, name: str) -> bool:
        return name in (self.setting, *self.same_as)


def largest(sizes: Sequence[float | None]) -> float | None:
    """None where no size is known."""
    return max((size for size in sizes if size), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it ran. A CPU build of vLLM has no GPU; an endpoint may not tell."""

    device: str  # cuda, cpu, endpoint
    gpu: str | None = None
    gpus: int = 0
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
class PromptSource:
    """Datasets whose prompts were sent; without any, random token ids were.

    `repeated`: how many prompts were sent more than once.
    """

    datasets: tuple[str, ...] = ()
    repeated: int = 0


class Conclusion(StrEnum):
    KEEP_PLAN = "keep_plan"
    KEEP_DEFAULT = "keep_default"  # the plan is vLLM's default, and nothing beats it
    DROP_FLAGS = "drop_flags"  # the plan does no better than vLLM's default
    USE_ANOTHER = "use_another"  # another run beats the plan
    PLAN_FAILED = "plan_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredVerdict:
    """What to do after measuring.

    `goal` is the key of the figure that decides, `use` the run whose settings to use
    (None: none ran), `drop` the plan's arguments that bring nothing.
    """

    conclusion: Conclusion
    goal: str
    use: str | None
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verification(Artefact):
    """All settings measured with one workload; others are compared with the first.

    >>> measured = Verification.load("reports/h200/llama-3.1-8b-mixed/verify.json")
    >>> measured.run("default").ok
    True
    """

    schema: ClassVar = VERIFY_SCHEMA
    made_by: ClassVar = "chunkscope verify --model MODEL"

    model: Subject
    workload: Workload
    source: PromptSource = PromptSource()
    repeats: int
    runs: tuple[Run, ...]
    slo: Slo = ()  # the limits that figures and verdict are about
    measured: EngineKind = EngineKind.VLLM
    time_limit_s: float | None = None  # after which a repeat was cut off
    options: dict[str, Any] = field(default_factory=dict)  # arguments of every engine
    machine: Machine | None = None
    verdict: MeasuredVerdict | None = None
    plan_digest: str | None = None
    command: tuple[str, ...] = ()
    created: str = field(default_factory=now)
    version: str = ""

    def to_frame(self) -> "pd.DataFrame":
        """One row per setting: what it sets and every figure."""
        rows = []
        for run in self.runs:
            about = {"setting": run.setting, "status": run.status.value}
            rows.append({**about, **run.settings.given(), **figures_row(run)})
        return frame(rows)

    def run(self, name: str | None) -> Run | None:
        """The run of that name, or of the same settings under another."""
        if name is None:
            return None
        for run in self.runs:
            if run.is_called(name):
                return run
        return None
