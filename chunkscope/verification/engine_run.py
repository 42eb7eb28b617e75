"""One setting in one engine -> one run, whatever becomes of the engine."""

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from chunkscope.artefacts.artefact import now
from chunkscope.artefacts.figures import Figures
from chunkscope.artefacts.note import Note, note
from chunkscope.console import Progress
from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.gpus import GIB, driver_version
from chunkscope.planning.request import PlanRequest
from chunkscope.simulation.workload import Workload
from chunkscope.verification.latencies import (
    Answer,
    distribution_of,
    figures_of,
    median_of,
)
from chunkscope.verification.outputs import TOKENS, equal_share
from chunkscope.verification.process import engine_process
from chunkscope.verification.result import Machine, Run, RunOutputs, WorkerMemory
from chunkscope.verification.settings import SettingRow
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.failures import Status, cause_in, doing_in
from chunkscope.vllm.log.reader import facts_in

NO_DEVICE = ("Failed to infer device type", "No CUDA GPUs are available", "libcuda.so")
# Phases in which the engine's program reports every answer.
REPORTING = ("measuring", "checking outputs", "calibrating")
LOG_TAIL = 1 << 16
# What a worker's probe tells in bytes.
MEMORY_SIZES = [
    f.name.removesuffix("_gib") for f in fields(WorkerMemory) if f.name != "rank"
]
# What changes a measurement, where it is known. The number of GPUs is the setting's.
MACHINE_FACTS = ("device", "gpu", "driver", "vllm", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """What every setting of one verification has in common."""

    python: str
    engine: dict[str, Any]  # keywords of the engine besides the row's settings
    entry: Entry
    workload: Workload
    warm_up: Sequence[tuple[int, int, float, int | None]]  # as the workload's in `task`
    repeats: int
    timeout_s: float
    prompts: Sequence[Sequence[int]] | None = None
    output_places: Sequence[int] = ()  # requests whose answers are compared
    bursts: Sequence[tuple[int, int, int]] = ()  # requests, prompt and output of each
    request: PlanRequest = field(default_factory=PlanRequest)
    machine: Machine | None = (
        None  # where the rows before were measured: no other will do
    )

    def task(self, row: SettingRow) -> dict[str, Any]:
        w = self.workload
        return {
            "engine": {**self.engine, **row.settings.given()},
            "entry": self.entry,
            "scored": sorted(w.likelihoods),
            "seed": w.seed,
            "stretches": [(stretch.parent, stretch.tokens) for stretch in w.stretches],
            "ends": [r.stretch for r in w.requests],
            "repeats": self.repeats,
            "concurrency": w.concurrency,
            "warm_up": self.warm_up,
            "requests": [
                (r.prompt_tokens, r.output_tokens, r.arrival_s, place)
                for place, r in enumerate(w.requests)
            ],
            "prompts": self.prompts,
            "outputs": {"places": self.output_places, "tokens": TOKENS},
            "bursts": self.bursts,
        }


@dataclass(slots=True, kw_only=True)
class EngineRecord:
    """What one engine has told so far."""

    started: str = field(default_factory=now)
    began: float = field(default_factory=time.monotonic)
    phase: str = "loading"
    machine: Machine | None = None  # known when it has started
    engine: dict[str, Any] = field(default_factory=dict)
    workers: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    start_s: float | None = None
    repeats: list[Figures] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    bursts: list[dict[str, Any]] = field(default_factory=list)  # steps, as above
    outputs: list[list[list[int]]] = field(
        default_factory=list
    )  # the sample, and again
    notes: dict[str, None] = field(default_factory=dict)  # codes, each once
    measured: bool = False  # all repeats: what comes then only helps to calibrate
    done: bool = False
    error: str = ""  # what its program raised
    log: str | None = None
    log_text: str = ""


def measure(
    row: SettingRow, job: EngineJob, log: Path, listener: Progress
) -> tuple[Run, EngineRecord]:
    """Run one engine to its end. While it does not report progress, a growing log is enough."""
    record = EngineRecord()
    if row.refused:
        return _run(row, record, Status.REFUSED, row.refused), record
    heard, log_size, timed_out = time.monotonic(), 0, False
    with engine_process(job.python, job.task(row), log) as process:
        for event in process.events():
            if event is not None:
                heard = time.monotonic()
                _follow(event, record, job, listener)
            elif (
                record.phase not in REPORTING
                and (size := log.stat().st_size) != log_size
            ):
                heard, log_size = time.monotonic(), size
                doing = doing_in(log.read_text("utf-8", "replace")[-LOG_TAIL:])
                if record.start_s is None and doing not in (None, record.phase):
                    record.phase = doing or record.phase
                    listener.phase(record.phase)
            timed_out = time.monotonic() - heard > job.timeout_s
            if record.done or timed_out:
                break
        code = 0 if timed_out or record.measured else process.exit_code()
    record.log, record.log_text = log.name, log.read_text("utf-8", "replace")
    if record.measured:
        return _run(row, record, Status.OK), record
    if timed_out:
        silent = note("engine_silent", seconds=job.timeout_s, phase=record.phase)
        return _run(row, record, Status.TIMEOUT, silent), record
    return _run(row, record, *_failure(record, job, code)), record


def _follow(
    event: dict[str, Any], record: EngineRecord, job: EngineJob, listener: Progress
) -> None:
    match event["event"]:
        case "phase":
            record.phase = event["phase"]
            repeat = event.get("repeat")
            detail = (
                f"repeat {repeat + 1} of {job.repeats}" if repeat is not None else ""
            )
            listener.phase(record.phase, detail)
        case "progress":
            listener.progress(event["done"], event["of"])
        case "accepted":
            record.engine = event["engine"]
        case "ready":
            record.start_s, record.engine = event["start_s"], event["engine"]
            record.workers = event["workers"]
            record.machine = machine_of(record.workers)
            for name in MACHINE_FACTS if job.machine else ():
                then, today = getattr(job.machine, name), getattr(record.machine, name)
                if None not in (then, today) and then != today:
                    raise InputError(
                        f"cannot resume: earlier rows ran with {name} {then}, not {today}",
                        hint="continue on that machine, or name another file with --output",
                    )
        case "repeat":
            answers, workload = (
                [Answer(**answer) for answer in event["answers"]],
                job.workload,
            )
            at_once = not workload.concurrency and not any(
                r.arrival_s for r in workload.requests
            )
            if at_once and not event["held"]:
                record.notes["requests_trickled_in"] = None
            if not event["emptied"]:
                record.notes["prefix_cache_not_emptied"] = None
            record.repeats.append(
                figures_of(answers, workload, event["steps"], job.request.slo)
            )
            record.answers += answers
            record.steps.append(event["steps"])
            record.memory = event["memory"]
        case "outputs":
            record.outputs.append(event["answers"])
        case "measured":
            record.measured = True
        case "burst":
            record.bursts.append(event["steps"])
        case "failed":
            record.error = f"{event['kind']}: {event['message']}"
        case "done":
            record.done = True


def machine_of(workers: Sequence[Mapping[str, Any]]) -> Machine:
    first = workers[0]
    return Machine(
        device=first["device"],
        gpu=first.get("gpu"),
        gpus=len(workers) if first["device"] != "cpu" else 0,
        driver=driver_version() if first["device"] == "cuda" else None,
        vllm=first.get("vllm"),  # a demo has none
        torch=first["torch"],
    )


# -- what became of it ---------------------------------------------------------------------------


def _failure(record: EngineRecord, job: EngineJob, code: int) -> tuple[Status, Note]:
    text = f"{record.log_text}\n{record.error}"
    if not record.workers and any(sign in text for sign in NO_DEVICE):
        raise MissingError(
            "vLLM finds no GPU on this machine",
            hint="run it where the GPU is, or use a CPU build of vLLM (`chunkscope help verify`)",
        )
    cause = cause_in(text, started=bool(record.workers))
    if cause is not None:
        status, detail = cause
        if status is Status.DIED and not (record.engine or job.machine):
            raise MissingError(  # it did not come as far as the settings, nor would it with others
                f"vLLM does not start with the model {job.engine['model']}: {detail}",
                hint=f"see {record.log}; are its weights here (`hf download`)? "
                "--load-format dummy needs none",
            )
        return status, note(
            f"engine_{status}", phase=record.phase, detail=detail.rstrip(".")
        )
    if code < 0:
        name = signal.Signals(-code).name
        return Status.DIED, note("engine_killed", phase=record.phase, signal=name)
    return Status.DIED, Note(
        code="engine_ended", values={"phase": record.phase, "code": code}
    )


def _run(
    row: SettingRow, record: EngineRecord, status: Status, failure: Note | None = None
) -> Run:
    facts = facts_in(record.log_text)
    blocks, size = record.engine.get("num_gpu_blocks"), record.engine.get("block_size")
    outputs = None
    if len(record.outputs) == 2:
        answers, again = record.outputs
        outputs = RunOutputs(
            answers=tuple(map(tuple, answers)), again=equal_share(answers, again)
        )
    return Run(
        setting=row.name,
        same_as=row.same_as,
        settings=row.settings,
        status=status,
        failure=failure,
        started=record.started,
        took_s=round(time.monotonic() - record.began, 3),
        start_s=record.start_s,
        engine=record.engine,
        workers=_workers(record, facts),
        kv_cache_tokens=facts.kv_cache_tokens
        or (blocks * size if blocks and size else None),
        kv_concurrency=facts.kv_concurrency,
        compiled_before=facts.found_compiled is not None,
        repeats=tuple(record.repeats),
        figures=median_of(record.repeats),
        distribution=distribution_of(record.answers),
        outputs=outputs,
        log=record.log,
        notes=tuple(map(note, record.notes)),
    )


def _workers(record: EngineRecord, logged: EngineFacts) -> tuple[WorkerMemory, ...]:
    """What each worker says of itself, else what the log says of the first."""
    peaks = {memory["rank"]: memory for memory in record.memory}
    workers = []
    for worker in record.workers:
        reported = {**worker, **peaks.get(worker["rank"], {})}
        sizes = {name: reported.get(f"{name}_bytes") for name in MEMORY_SIZES}
        gib = {
            f"{name}_gib": size / GIB if size else None for name, size in sizes.items()
        }
        gib["weights_gib"] = gib["weights_gib"] or logged.weights_gib
        gib["kv_cache_gib"] = gib["kv_cache_gib"] or logged.kv_cache_gib
        gib["cuda_graphs_gib"] = logged.graphs_gib or gib["cuda_graphs_gib"]
        workers.append(WorkerMemory(rank=worker["rank"], **gib))
    return tuple(workers)
