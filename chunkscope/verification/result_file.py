"""verify.json: flat figures per run as people look for them, checked when read back."""

from dataclasses import asdict, fields
from statistics import median
from typing import Any

import orjson
from pydantic import Field, ValidationError

from chunkscope.artefacts.checked import Checked, first_fault
from chunkscope.engine.choices import Task
from chunkscope.engine.flags import Value
from chunkscope.engine.logs import Status
from chunkscope.errors import InputError
from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.result import (
    MADE_BY,
    SCHEMA,
    Distribution,
    Figures,
    Latency,
    Machine,
    Predicted,
    Run,
    Subject,
    Verification,
    WorkerMemory,
)

SPREAD = ("makespan_s", "input_tokens_per_s", "output_tokens_per_s")
LATENCIES = ("ttft_s", "itl_s", "e2e_s")


def document(v: Verification) -> dict[str, Any]:
    from chunkscope._version import __version__

    return {
        "schema": SCHEMA,
        "chunkscope": v.version or __version__,
        "created": v.created,
        "command": list(v.command),
        "machine": asdict(v.machine) if v.machine else None,
        "model": {**asdict(v.model), "dummy_weights": v.model.dummy},
        "options": v.options,
        "plan_digest": v.plan_digest,
        "profile_digest": v.profile_digest,
        "workload": {**_workload_json(v.workload), "source": v.source, "repeats": v.repeats},
        "verdict": v.verdict,
        "better": v.better,
        "runs": [_run_json(run) for run in v.runs],
    }


def _workload_json(w: Workload) -> dict[str, Any]:
    return {
        "seed": w.seed,
        "arrivals": w.arrivals,
        "task": w.task.value,
        "requests": len(w.requests),
        "input_tokens": w.input_tokens,
        "output_tokens_in_all": w.output_tokens,
        "shared_prefix": w.shared_prefix,
        "long_over": w.long_over,
        "left_out": w.left_out,
        "prompt_tokens": [r.prompt_tokens for r in w.requests],
        "output_tokens": [r.output_tokens for r in w.requests],
        "arrival_s": [round(r.arrival_s, 6) for r in w.requests],
    }


def _run_json(run: Run) -> dict[str, Any]:
    return {
        "setting": run.setting,
        "same_as": list(run.same_as),
        "args": run.args,
        "status": run.status.value,
        "message": run.message,
        "phase": run.phase,
        "started": run.started,
        "took_s": run.took_s,
        "start_s": run.start_s,
        "activation_peak_gib": run.activation_peak_gib,
        "device_peak_gib": run.device_peak_gib,
        "weights_gib": run.weights_gib,
        "kv_cache_tokens": run.kv_cache_tokens,
        "kv_concurrency": run.kv_concurrency,
        "predicted": asdict(run.predicted) if run.predicted else None,
        **_figures_json(run.figures),
        "spread": spread(run.repeats),
        "distribution": asdict(run.distribution) if run.distribution else None,
        "repeats": [_figures_json(figures) for figures in run.repeats],
        "workers": [asdict(worker) for worker in run.workers],
        "engine": run.engine,
        "log": run.log,
        "notes": list(run.notes),
    }


def _figures_json(figures: Figures | None) -> dict[str, Any]:
    if figures is None:
        return {f.name: None for f in fields(Figures)}
    made = {f.name: getattr(figures, f.name) for f in fields(Figures)}
    for name in LATENCIES:
        made[name] = _latency_json(made[name]) if made[name] else None
    return made


def _latency_json(latency: Latency) -> dict[str, Any]:
    return {
        **asdict(latency.all),
        "short": asdict(latency.short) if latency.short else None,
        "long": asdict(latency.long) if latency.long else None,
    }


def spread(repeats: tuple[Figures, ...]) -> dict[str, Any]:
    """Least and most over the repeats, for the figures that are compared."""
    if not repeats:
        return {}
    found = {name: [getattr(r, name) for r in repeats] for name in SPREAD}
    for name in LATENCIES:
        latencies = [getattr(r, name) for r in repeats]
        if all(latencies):
            for at in ("p50", "p95", "p99", "max"):
                found[f"{name}.{at}"] = [getattr(latency.all, at) for latency in latencies]
    return {
        name: {"min": min(values), "max": max(values), "median": median(values)}
        for name, values in found.items()
    }


# -- reading back --------------------------------------------------------------------------------


class _Latency(Checked):
    p50: float
    p95: float
    p99: float
    max: float
    short: "_Quantiles | None"
    long: "_Quantiles | None"

    def value(self) -> Latency:
        from chunkscope.verification.result import Quantiles

        def made(q: "_Quantiles | _Latency") -> Quantiles:
            return Quantiles(p50=q.p50, p95=q.p95, p99=q.p99, max=q.max)

        return Latency(
            all=made(self),
            short=made(self.short) if self.short else None,
            long=made(self.long) if self.long else None,
        )


class _Quantiles(Checked):
    p50: float
    p95: float
    p99: float
    max: float


class _Figures(Checked):
    makespan_s: float | None
    ttft_s: _Latency | None
    itl_s: _Latency | None
    e2e_s: _Latency | None
    input_tokens_per_s: float | None
    output_tokens_per_s: float | None
    steps: int | None
    tokens_per_step: float | None
    chunked_prompts: int | None
    chunks_max: int | None
    preemptions: int | None
    prefix_hit_rate: float | None

    def figures(self) -> Figures | None:
        if self.makespan_s is None or self.ttft_s is None or self.e2e_s is None:
            return None
        plain = {f.name: getattr(self, f.name) for f in fields(Figures) if f.name not in LATENCIES}
        return Figures(
            **plain,
            ttft_s=self.ttft_s.value(),
            itl_s=self.itl_s.value() if self.itl_s else None,
            e2e_s=self.e2e_s.value(),
        )


class _Run(_Figures):
    setting: str
    same_as: list[str]
    args: dict[str, Value | str]
    status: Status
    message: str
    phase: str | None
    started: str
    took_s: float
    start_s: float | None
    activation_peak_gib: float | None
    device_peak_gib: float | None
    weights_gib: float | None
    kv_cache_tokens: int | None
    kv_concurrency: float | None
    predicted: Predicted | None
    spread: dict[str, Any]
    distribution: Distribution | None
    repeats: list[_Figures]
    workers: list[WorkerMemory]
    engine: dict[str, Any]
    log: str | None
    notes: list[str]

    def run(self) -> Run:
        repeats = tuple(figures for r in self.repeats if (figures := r.figures()))
        return Run(
            setting=self.setting,
            same_as=tuple(self.same_as),
            args=self.args,
            status=self.status,
            message=self.message,
            phase=self.phase,
            started=self.started,
            took_s=self.took_s,
            start_s=self.start_s,
            engine=self.engine,
            workers=tuple(self.workers),
            kv_cache_tokens=self.kv_cache_tokens,
            kv_concurrency=self.kv_concurrency,
            predicted=self.predicted,
            repeats=repeats,
            figures=self.figures(),
            distribution=self.distribution,
            log=self.log,
            notes=tuple(self.notes),
        )


class _Workload(Checked):
    seed: int
    arrivals: str
    task: Task
    requests: int
    input_tokens: int
    output_tokens_in_all: int
    shared_prefix: int
    long_over: int
    left_out: int
    prompt_tokens: list[int]
    output_tokens: list[int]
    arrival_s: list[float]
    source: str
    repeats: int

    def workload(self) -> Workload:
        columns = (self.prompt_tokens, self.output_tokens, self.arrival_s)
        if {len(column) for column in columns} != {self.requests}:
            raise _damaged("its workload's columns differ in length")
        requests = tuple(
            Request(prompt_tokens=p, output_tokens=o, arrival_s=a)
            for p, o, a in zip(*columns, strict=True)
        )
        return Workload(
            requests=requests,
            seed=self.seed,
            arrivals=self.arrivals,
            task=self.task,
            long_over=self.long_over,
            shared_prefix=self.shared_prefix,
            left_out=self.left_out,
        )


class _Subject(Checked):
    name: str
    load_format: str
    parameters: int | None
    dummy_weights: bool


class _File(Checked):
    schema_name: str = Field(alias="schema")
    chunkscope: str
    created: str
    command: list[str]
    machine: Machine | None
    model: _Subject
    options: dict[str, Any]
    plan_digest: str | None
    profile_digest: str | None
    workload: _Workload
    verdict: str | None
    better: str | None
    runs: list[_Run]


def parse(found: dict[str, Any]) -> Verification:
    try:
        file = _File.model_validate_json(orjson.dumps(found))
    except (ValidationError, TypeError) as error:
        raise _damaged(first_fault(error)) from None
    if file.schema_name != SCHEMA:
        raise _damaged(f"its schema is {file.schema_name!r}, not {SCHEMA!r}")
    return Verification(
        model=Subject(
            name=file.model.name,
            load_format=file.model.load_format,
            parameters=file.model.parameters,
        ),
        workload=file.workload.workload(),
        source=file.workload.source,
        repeats=file.workload.repeats,
        runs=tuple(run.run() for run in file.runs),
        options=file.options,
        machine=file.machine,
        verdict=file.verdict,
        better=file.better,
        plan_digest=file.plan_digest,
        profile_digest=file.profile_digest,
        command=tuple(file.command),
        created=file.created,
        version=file.chunkscope,
    )


def _damaged(why: str) -> InputError:
    return InputError(f"the verify file is damaged: {why}", hint=f"make it again: `{MADE_BY}`")
