"""One setting in one engine -> one run, whatever becomes of the engine."""

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chunkscope.artefacts.artefact import now
from chunkscope.artefacts.figures import Figures
from chunkscope.artefacts.note import Note, note
from chunkscope.console import Progress
from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.hardware.gpus import GIB, driver_version
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import Workload
from chunkscope.verification.inside.chunkscope_sessions import (
    Answer,
    SentSession,
    SentTurn,
)
from chunkscope.verification.latencies import (
    EngineSteps,
    distribution_of,
    figures_of,
    median_of,
    rows_of,
)
from chunkscope.verification.process import EngineProcess, engine_process
from chunkscope.verification.result import Machine, Run, RunOutputs, WorkerMemory
from chunkscope.verification.settings import SettingRow
from chunkscope.verification.task import sessions_of, sharing_of
from chunkscope.verification.verdict import equal_share
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.failures import Status, cause_in, doing_in
from chunkscope.vllm.log.reader import facts_in

NO_DEVICE = ("Failed to infer device type", "No CUDA GPUs are available", "libcuda.so")
# Phases in which the engine's program reports every answer: a growing log is not
# enough.
REPORTING = ("measuring", "checking outputs", "calibrating")
LOG_TAIL = 1 << 16  # bytes
# What changes a measurement, where it is known. The number of GPUs is the setting's.
MACHINE_FACTS = ("device", "gpu", "driver", "vllm", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """So many requests of one kind, all at once."""

    count: int
    turn: SentTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """What every setting of one verification has in common."""

    python: str
    engine: dict[str, Any]  # keywords of the engine besides the row's settings
    entry: Entry
    workload: Workload
    warm_up: Sequence[SentSession]
    repeats: int
    timeout_s: float
    time_limit_s: float | None = None  # of a repeat
    prompts: Sequence[Sequence[int]] | None = None  # token ids, where they are real
    output_sample: Sequence[SentSession] = ()  # sessions whose answers are compared
    bursts: Sequence[Burst] = ()
    slo: Slo = ()
    machine: Machine | None = None  # where the rows before were measured

    def task(self, row: SettingRow) -> dict[str, Any]:
        """All that inside/chunkscope_engine.py is told, as JSON."""
        stretches, ends = sharing_of(self.workload)
        client = {
            "samples_at_once": self.workload.samples_at_once,
            "concurrency": self.workload.concurrency,
            "limit_s": self.time_limit_s,
        }
        return {
            "engine": {**self.engine, **row.settings.given()},
            "entry": self.entry,
            "seed": self.workload.seed,
            "stretches": stretches,
            "ends": ends,
            "prompts": self.prompts,
            "warm_up": [asdict(session) for session in self.warm_up],
            "sessions": [asdict(session) for session in sessions_of(self.workload)],
            "repeats": self.repeats,
            "client": client,
            "output_sample": [asdict(session) for session in self.output_sample],
            "bursts": [asdict(burst) for burst in self.bursts],
        }

    @property
    def sends_all_at_once(self) -> bool:
        workload = self.workload
        if workload.concurrency or workload.samples_at_once:
            return False
        return not any(session.arrival_s for session in workload.sessions)


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
    answers: list[list[Answer]] = field(default_factory=list)  # by repeat
    steps: list[EngineSteps] = field(default_factory=list)  # by repeat
    bursts: list[EngineSteps] = field(default_factory=list)
    outputs: list[list[list[int]]] = field(default_factory=list)  # and sent again
    notes: dict[str, Note] = field(default_factory=dict)  # by code
    measured: bool = False  # all repeats: what comes then only helps to calibrate
    done: bool = False
    error: str = ""  # what its program raised
    log: str | None = None
    log_text: str = ""

    def follow(
        self, event: Mapping[str, Any], job: EngineJob, listener: Progress
    ) -> None:
        """Take in one event of the engine's program."""
        match event["event"]:
            case "phase":
                self.phase = event["phase"]
                listener.phase(self.phase, _detail(event, job))
            case "progress":
                listener.progress(event["done"], event["of"])
            case "measured":
                self.measured = True
            case "failed":
                self.error = f"{event['kind']}: {event['message']}"
            case "done":
                self.done = True
            case _:
                self._take_results(event, job)

    def _take_results(self, event: Mapping[str, Any], job: EngineJob) -> None:
        match event["event"]:
            case "accepted":
                self.engine = event["engine"]
            case "ready":
                self.start_s = event["start_s"]
                self.engine = event["engine"]
                self.workers = event["workers"]
                self.machine = machine_of(self.workers)
                check_machine(self.machine, job.machine)
            case "repeat":
                self._add_repeat(event, job)
            case "outputs":
                self.outputs.append(event["answers"])
            case "burst":
                self.bursts.append(EngineSteps(**event["steps"]))

    def _add_repeat(self, event: Mapping[str, Any], job: EngineJob) -> None:
        answers = [Answer(**answer) for answer in event["answers"]]
        steps = EngineSteps(**event["steps"])
        if not answers:
            raise UsageError(
                f"no request ended within {job.time_limit_s:g} s",
                hint="allow more with --time-limit",
            )
        figures = figures_of(answers, job.workload.long_over, steps, job.slo)
        self.repeats.append(figures)
        self.answers.append(answers)
        self.steps.append(steps)
        self.memory = event["memory"]
        if job.sends_all_at_once and not event["held"]:
            self._note("requests_trickled_in")
        if not event["emptied"]:
            self._note("prefix_cache_not_emptied")

    def _note(self, code: str) -> None:
        self.notes[code] = note(code)


def _detail(event: Mapping[str, Any], job: EngineJob) -> str:
    if event.get("repeat") is None:
        return ""
    return f"repeat {event['repeat'] + 1} of {job.repeats}"


def measure(
    row: SettingRow, job: EngineJob, log: Path, listener: Progress
) -> tuple[Run, EngineRecord]:
    """Run one engine to its end, or until it says nothing for too long."""
    record = EngineRecord()
    with engine_process(job.python, job.task(row), log) as process:
        timed_out = _listen(process, record, job, log, listener)
        code = 0 if timed_out or record.measured else process.exit_code()
    record.log = log.name
    record.log_text = log.read_text("utf-8", "replace")
    if record.measured:
        return _run(row, record, Status.OK), record
    if timed_out:
        silent = note("engine_silent", seconds=job.timeout_s, phase=record.phase)
        return _run(row, record, Status.TIMEOUT, silent), record
    failure = _failure(record, job, code)
    return _run(row, record, failure.status, failure.note), record


def _listen(
    process: EngineProcess,
    record: EngineRecord,
    job: EngineJob,
    log: Path,
    listener: Progress,
) -> bool:
    """Follow the engine to its end; True if it was silent for too long instead.

    While its program does not report progress, a growing log is enough.
    """
    heard = time.monotonic()
    log_size = 0
    for event in process.events():
        if event is not None:
            heard = time.monotonic()
            record.follow(event, job, listener)
        elif record.phase not in REPORTING and log.stat().st_size != log_size:
            heard = time.monotonic()
            log_size = log.stat().st_size
            doing = doing_in(end_of(log)) if record.start_s is None else None
            if doing is not None and doing != record.phase:
                record.phase = doing
                listener.phase(doing)
        if record.done:
            return False
        if time.monotonic() - heard > job.timeout_s:
            return True
    return False


def end_of(log: Path) -> str:
    """The last lines of a log, however long it is."""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LOG_TAIL))
        return file.read(LOG_TAIL).decode("utf-8", "replace")


def machine_of(workers: Sequence[Mapping[str, Any]]) -> Machine:
    """The machine, by what its workers tell."""
    first = workers[0]
    device = first["device"]
    return Machine(
        device=device,
        gpu=first.get("gpu"),
        gpus=0 if device == "cpu" else len(workers),
        driver=driver_version() if device == "cuda" else None,
        vllm=first.get("vllm"),  # a demo has none
        torch=first["torch"],
    )


def check_machine(machine: Machine, earlier: Machine | None) -> None:
    """Rows of one file are measured on one machine, or they cannot be compared."""
    if earlier is None:
        return
    for name in MACHINE_FACTS:
        before = getattr(earlier, name)
        today = getattr(machine, name)
        if before is not None and today is not None and before != today:
            raise InputError(
                f"cannot resume: earlier rows ran with {name} {before}, not {today}",
                hint="continue on that machine, or name another file with -o",
            )


# -- what became of it -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineFailure:
    status: Status
    note: Note


def _failure(record: EngineRecord, job: EngineJob, code: int) -> EngineFailure:
    """Why the engine ended; an error where no other setting would fare better."""
    text = f"{record.log_text}\n{record.error}"
    has_started = bool(record.workers)
    if not has_started and any(sign in text for sign in NO_DEVICE):
        raise MissingError(
            "vLLM finds no GPU on this machine",
            hint="run it where the GPU is, or use a CPU build of vLLM "
            "(`chunkscope help verify`)",
        )
    phase = record.phase
    cause = cause_in(text, started=has_started)
    if cause is not None:
        status, detail = cause
        has_seen_settings = bool(record.engine or job.machine)
        if status is Status.DIED and not has_seen_settings:
            raise MissingError(
                f"vLLM does not start with the model {job.engine['model']}: {detail}",
                hint=f"see {record.log}; are its weights here (`hf download`)? "
                "--load-format dummy needs none",
            )
        why = note(f"engine_{status}", phase=phase, detail=detail.rstrip("."))
        return EngineFailure(status, why)
    if code < 0:
        name = signal.Signals(-code).name
        return EngineFailure(
            Status.DIED, note("engine_killed", phase=phase, signal=name)
        )
    ended = Note(code="engine_ended", values={"phase": phase, "code": code})
    return EngineFailure(Status.DIED, ended)


def _run(
    row: SettingRow, record: EngineRecord, status: Status, failure: Note | None = None
) -> Run:
    logged = facts_in(record.log_text)
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
        workers=_workers(record, logged),
        kv_cache_tokens=logged.kv_cache_tokens or _kv_tokens(record.engine),
        kv_concurrency=logged.kv_concurrency,
        compiled_before=logged.found_compiled is not None,
        repeats=tuple(record.repeats),
        figures=median_of(record.repeats),
        distribution=distribution_of(record.answers),
        requests=tuple(rows_of(answers) for answers in record.answers),
        outputs=_outputs(record),
        log=record.log,
        notes=tuple(record.notes.values()),
    )


def _kv_tokens(engine: Mapping[str, Any]) -> int | None:
    blocks = engine.get("num_gpu_blocks")
    block_size = engine.get("block_size")
    return blocks * block_size if blocks and block_size else None


def _outputs(record: EngineRecord) -> RunOutputs | None:
    if len(record.outputs) < 2:
        return None
    answers, again = record.outputs
    return RunOutputs(
        answers=tuple(tuple(tokens) for tokens in answers),
        again=equal_share(answers, again),
    )


def _workers(record: EngineRecord, logged: EngineFacts) -> tuple[WorkerMemory, ...]:
    """What each worker says of itself, else what the log says of the first."""
    peaks = {memory["rank"]: memory for memory in record.memory}
    workers = []
    for worker in record.workers:
        peak = peaks.get(worker["rank"], {})
        memory = WorkerMemory(
            rank=worker["rank"],
            activation_peak_gib=_gib(peak, "activation_peak_bytes"),
            device_peak_gib=_gib(peak, "device_peak_bytes"),
            weights_gib=_gib(worker, "weights_bytes") or logged.weights_gib,
            profiled_activation_gib=_gib(worker, "profiled_activation_bytes"),
            non_torch_gib=_gib(worker, "non_torch_bytes"),
            cuda_graphs_gib=logged.graphs_gib or _gib(worker, "cuda_graphs_bytes"),
            kv_cache_gib=_gib(worker, "kv_cache_bytes") or logged.kv_cache_gib,
        )
        workers.append(memory)
    return tuple(workers)


def _gib(sizes: Mapping[str, Any], name: str) -> float | None:
    return sizes[name] / GIB if sizes.get(name) else None
