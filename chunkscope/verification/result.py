"""What was measured: one run per setting, and the artefact that holds them."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from chunkscope.artefacts.artefact import Artefact, now
from chunkscope.artefacts.figures import QUANTILES, Group, in_group
from chunkscope.artefacts.notebook import html_table
from chunkscope.artefacts.numbers import gib, seconds, spaced
from chunkscope.artefacts.schema import plain
from chunkscope.simulation.workload import VERIFY_SCHEMA, Workload
from chunkscope.verification.outputs import RunOutputs
from chunkscope.vllm.log.fate import Status
from chunkscope.vllm.settings import Value


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
    goodput_per_s: float | None = None  # requests that met every limit; None without limits
    slo_use: float | None = None  # a limit's figure as a share of it, of the tightest: kept up to 1


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
    predicted_prefix_hit_rate: float | None = None  # by the simulator, of the same requests
    repeats: tuple[Figures, ...] = ()
    figures: Figures | None = None  # the median over repeats
    distribution: Distribution | None = None
    outputs: RunOutputs | None = None  # of `--check-outputs`
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verification(Artefact):
    """All settings that were measured with one workload; the first run is the yardstick.

    >>> measured = Verification.load("reports/h200/llama-3.1-8b-mixed/verify.json")
    >>> measured.run("default").ok
    True
    """

    title: ClassVar = "verify file"
    schema: ClassVar = VERIFY_SCHEMA
    made_by: ClassVar = "chunkscope verify --model MODEL"
    default_path: ClassVar = Path("reports/verify.json")

    model: Subject
    workload: Workload
    source: str  # what the prompts were made of
    repeats: int
    runs: tuple[Run, ...]
    options: dict[str, Any] = field(default_factory=dict)  # what was asked of every engine
    machine: Machine | None = None
    verdict: str | None = None
    better: str | None = None  # the setting that beats the plan, if one does
    can_go: tuple[str, ...] = ()  # arguments of the plan that tie with vLLM's default
    plan_digest: str | None = None
    profile_digest: str | None = None
    command: tuple[str, ...] = ()
    created: str = field(default_factory=now)
    version: str = ""

    @property
    def headline(self) -> str:
        where = self.machine and (self.machine.gpu or self.machine.device)
        times = [
            f"{run.setting} {seconds(run.figures.makespan_s) if run.figures else run.status.value}"
            for run in self.runs
        ]
        return f"of {self.model.name}{f' on {where}' if where else ''}: {', '.join(times)}"

    def _repr_html_(self) -> str:
        headings = ("setting", "", "all done", "TTFT p95", "longest gap", "activation peak")
        rows = [[run.setting, run.status.value, *_measured(run)] for run in self.runs]
        verdict = f": {spaced(self.verdict)}" if self.verdict else ""
        return html_table(f"measured, {self.model.name}{verdict}", headings, rows)

    def run(self, setting: str) -> Run | None:
        return next((r for r in self.runs if setting in (r.setting, *r.same_as)), None)

    def with_run(self, run: Run) -> "Verification":
        """One more row, or the row of that name made anew."""
        kept = [r for r in self.runs if r.setting != run.setting]
        return replace(self, runs=(*kept, run))

    def _document(self) -> dict[str, Any]:
        asked = {"source": self.source, "repeats": self.repeats}
        document = {
            "created": self.created,
            "command": self.command,
            "machine": self.machine,
            "model": {**plain(self.model), "dummy_weights": self.model.dummy},
            "options": self.options,
            "plan_digest": self.plan_digest,
            "profile_digest": self.profile_digest,
            "workload": {**self.workload.to_json(), **asked},
            "verdict": self.verdict,
            "better": self.better,
            "can_go": self.can_go,
            "runs": [_run_json(run) for run in self.runs],
        }
        return _said(document)

    @classmethod
    def _upgraded(cls, document: dict[str, Any]) -> dict[str, Any]:
        return _said(document | {"runs": [_said(run) for run in document["runs"]]})

    @classmethod
    def _fields(cls, document: dict[str, Any]) -> dict[str, Any]:
        model, workload = dict(document["model"]), document["workload"]
        model.pop("dummy_weights", None)
        return {
            **document,
            "model": model,
            "workload": Workload.fields_of(workload),
            "source": workload["source"],
            "repeats": workload["repeats"],
            "runs": [_run_fields(run) for run in document["runs"]],
        }


# -- on disk: the figures of a run stand beside its name, where people and jq look for them --------

_FIGURES = tuple(f.name for f in fields(Figures))
_LATENCIES = ("ttft_s", "itl_s", "e2e_s")
_COMPARED = in_group(Group.THROUGHPUT, Group.TTFT, Group.ITL, Group.E2E)
_RUN = (
    *("setting", "same_as", "args", "status", "message", "phase", "started", "took_s", "start_s"),
    *("activation_peak_gib", "device_peak_gib", "weights_gib", "kv_cache_tokens", "kv_concurrency"),
    *(
        "predicted",
        "predicted_prefix_hit_rate",
        *_FIGURES,
        "spread",
        "distribution",
        "repeats",
        "workers",
        "engine",
        "outputs",
        "log",
    ),
    "notes",
)


def _said(written: dict[str, Any]) -> dict[str, Any]:
    """Without what came later and says nothing: files of old are written as they were."""
    nothing: dict[str, tuple[Any, ...]] = {
        "can_go": ((), []),
        "predicted_prefix_hit_rate": (None,),
        "goodput_per_s": (None,),
        "slo_use": (None,),
        "outputs": (None,),
    }
    return {name: value for name, value in written.items() if value not in nothing.get(name, ())}


def _run_json(run: Run) -> dict[str, Any]:
    figures = dict.fromkeys(_FIGURES) | (_figures_json(run.figures) if run.figures else {})
    repeats = [_figures_json(repeat) for repeat in run.repeats]
    made = {**figures, "spread": _spread(run.repeats), "repeats": repeats}
    return _said({name: made[name] if name in made else getattr(run, name) for name in _RUN})


def _figures_json(figures: Figures) -> dict[str, Any]:
    made: dict[str, Any] = plain(figures)
    for name in _LATENCIES:
        if made[name]:
            made[name] = {**made[name].pop("all"), **made[name]}
    return _said(made)


def _spread(repeats: tuple[Figures, ...]) -> dict[str, Any]:
    """Least and most over the repeats, for the figures that are compared."""
    spread = {}
    for figure in _COMPARED:
        values = [found for r in repeats if (found := figure.value(r)) is not None]
        if values and len(values) == len(repeats):
            spread[figure.key] = {"min": min(values), "max": max(values), "median": median(values)}
    return spread


def _run_fields(run: dict[str, Any]) -> dict[str, Any]:
    figures = {name: run[name] for name in _FIGURES if name in run}
    kept = {f.name: run[f.name] for f in fields(Run) if f.name in run}
    return {
        **kept,
        "figures": None if figures["makespan_s"] is None else _figures_fields(figures),
        "repeats": [_figures_fields(repeat) for repeat in run["repeats"]],
    }


def _figures_fields(figures: dict[str, Any]) -> dict[str, Any]:
    latencies = {name: _latency_fields(figures[name]) for name in _LATENCIES}
    return {**figures, **latencies}


def _latency_fields(latency: dict[str, Any] | None) -> dict[str, Any] | None:
    if latency is None:
        return None
    parts = {name: value for name, value in latency.items() if name not in QUANTILES}
    return {**parts, "all": {name: latency[name] for name in QUANTILES}}


def _measured(run: Run) -> list[str]:
    """The figures that a notebook shows of a run."""
    figures = run.figures
    longest = figures.itl_s.all.max if figures and figures.itl_s else None
    return [
        seconds(figures.makespan_s if figures else None),
        seconds(figures.ttft_s.all.p95 if figures else None),
        seconds(longest),
        gib(run.activation_peak_gib),
    ]
