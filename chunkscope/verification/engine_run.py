"""One setting in one engine -> one run, whatever becomes of the engine."""

import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chunkscope.artefacts.artefact import now
from chunkscope.artefacts.schema import validated
from chunkscope.console import VerifyProgress
from chunkscope.errors import MissingError
from chunkscope.hardware.gpus import GIB
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import Workload
from chunkscope.verification.latencies import Answer, distribution_of, figures_of, median_of
from chunkscope.verification.machine import machine_of, refuse_another_machine
from chunkscope.verification.outputs import (
    TOPS,
    OutputSample,
    RunOutputs,
    SpokenOutputs,
    compared,
)
from chunkscope.verification.process import EngineProcess
from chunkscope.verification.result import Figures, Machine, Run, WorkerMemory
from chunkscope.verification.settings import ComparedSetting
from chunkscope.verification.signs_of_life import LOOK_EVERY_S, SignsOfLife, workers_of
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.fate import (
    Cause,
    Status,
    cause_in,
    last_lines,
)
from chunkscope.vllm.log.reader import facts_in

NO_DEVICE = ("Failed to infer device type", "No CUDA GPUs are available", "libcuda.so")
NO_VLLM = ("No module named 'vllm'", "No module named 'torch'")
# It says of every answer that it is there.
TELLING = ("measuring", "checking outputs", "calibrating")
MEASURED = Cause(status=Status.OK, text="")
NOT_EMPTIED = (
    "vLLM did not empty its prefix cache before a repeat: some hits may be of earlier ones"
)
BATCHED_ALIKE = (
    "sent again, the prompts were batched as before: that their outputs are equal says nothing of "
    "the noise of batching"
)
TRICKLED = (
    "this vLLM cannot hold requests back: the first steps ran while others were still being sent"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """What every setting of one verification has in common."""

    python: str
    engine: dict[str, Any]  # keywords of the engine besides the setting's own
    entry: str
    workload: Workload
    warm_up: Sequence[tuple[int, int]]
    repeats: int
    timeout_s: float
    prompts: Sequence[Sequence[int]] | None = None
    outputs: OutputSample | None = None  # to be compared
    bursts: Sequence[tuple[int, int, int]] = ()  # requests, prompt and output of each
    slo: Slo = ()
    machine: Machine | None = None  # where the rows before were measured: no other will do

    def task(self, setting: ComparedSetting) -> dict[str, Any]:
        w = self.workload
        return {
            "engine": {**self.engine, **setting.settings.given()},
            "entry": self.entry,
            "task": w.task.value,
            "seed": w.seed,
            "stretches": [(stretch.parent, stretch.tokens) for stretch in w.stretches],
            "ends": [r.stretch for r in w.requests],
            "repeats": self.repeats,
            "concurrency": w.concurrency,
            "warm_up": [(prompt, output, 0.0) for prompt, output in self.warm_up],
            "requests": [(r.prompt_tokens, r.output_tokens, r.arrival_s) for r in w.requests],
            "prompts": self.prompts,
            "outputs": {**asdict(self.outputs), "tops": TOPS} if self.outputs else None,
            "bursts": self.bursts,
        }


@dataclass(slots=True, kw_only=True)
class EngineRecord:
    """What is known so far of one engine."""

    started: str = field(default_factory=now)
    begun: float = field(default_factory=time.monotonic)
    phase: str = "loading"
    versions: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    workers: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    start_s: float | None = None
    repeats: list[Figures] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    bursts: list[dict[str, Any]] = field(default_factory=list)  # steps, as above
    outputs: list[SpokenOutputs] = field(default_factory=list)  # the sample, and again
    batches: list[Any] = field(default_factory=list)  # what the steps of each held
    notes: tuple[str, ...] = ()
    measured: bool = False  # all repeats: what comes then only helps to calibrate
    done: bool = False
    failed: str = ""  # what its program raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run, and what only calibration and the machine's description need."""

    run: Run
    record: EngineRecord
    last_lines: tuple[str, ...] = ()
    interrupted: bool = False  # when all was measured and only calibrating was left


def measure(
    setting: ComparedSetting, job: EngineJob, log: Path, listener: VerifyProgress
) -> Measured:
    """Run one engine to its end. Ctrl-C passes through, unless there is a row to keep first."""
    record = EngineRecord()
    if setting.impossible:
        refused = Cause(status=Status.REFUSED, text=setting.impossible)
        return Measured(run=_run(setting, record, refused, job.outputs), record=record)
    timed_out = interrupted = False
    with EngineProcess(job.python, job.task(setting), log) as process:
        signs = SignsOfLife(log, lambda: workers_of(process.group))
        try:
            for event in process.events():
                if event is None:
                    _watch(signs, record, job, listener)
                else:
                    signs.hear()
                    _follow(event, record, job, listener)
                timed_out = signs.silent_s > job.timeout_s
                if record.done or timed_out:
                    break
        except KeyboardInterrupt:
            if not record.measured:
                raise
            interrupted = True
        code = 0 if timed_out or record.measured else process.exit_code()
    text = process.log_text()
    if record.measured:
        run = _run(setting, record, MEASURED, job.outputs, text, log)
        return Measured(run=run, record=record, interrupted=interrupted)
    cause = _cause(record, text, code, job.timeout_s if timed_out else None)
    run = _run(setting, record, cause, job.outputs, text, log)
    return Measured(run=run, record=record, last_lines=tuple(last_lines(text)))


def _watch(
    signs: SignsOfLife, record: EngineRecord, job: EngineJob, listener: VerifyProgress
) -> None:
    """Until requests are measured an engine has a lot to do that it tells nobody."""
    if record.phase in TELLING:
        return
    signs.look(every_s=min(LOOK_EVERY_S, job.timeout_s / 4))
    if record.start_s is None and signs.doing not in (None, record.phase):
        record.phase = signs.doing or record.phase
        listener.phase(record.phase)


def _follow(
    event: dict[str, Any], record: EngineRecord, job: EngineJob, listener: VerifyProgress
) -> None:
    match event["event"]:
        case "phase":
            record.phase = event["phase"]
            repeat = event.get("repeat")
            detail = f"repeat {repeat + 1} of {job.repeats}" if repeat is not None else ""
            listener.phase(record.phase, detail)
        case "progress":
            listener.progress(event["done"], event["of"])
        case "versions":
            record.versions = {"vllm": event["vllm"], "torch": event["torch"]}
        case "accepted":
            record.engine = event["engine"]
        case "ready":
            record.start_s, record.engine = event["start_s"], event["engine"]
            record.workers = event["workers"]
            here = machine_of(record.workers, record.versions)
            if job.machine and here:
                refuse_another_machine(job.machine, here)
        case "repeat":
            _keep_repeat(event, record, job)
        case "outputs":
            _keep_outputs(event, record)
        case "measured":
            record.measured = True
        case "burst":
            record.bursts.append(event["steps"])
        case "failed":
            record.failed = f"{event['kind']}: {event['message']}"
        case "done":
            record.done = True


def _keep_repeat(event: dict[str, Any], record: EngineRecord, job: EngineJob) -> None:
    answers = [Answer(**answer) for answer in event["answers"]]
    workload = job.workload
    at_once = not workload.concurrency and not any(r.arrival_s for r in workload.requests)
    found = {TRICKLED: at_once and not event["held"], NOT_EMPTIED: not event["emptied"]}
    noted = (note for note, is_so in found.items() if is_so)
    record.notes = tuple(dict.fromkeys((*record.notes, *noted)))
    record.repeats.append(figures_of(answers, job.workload, event["steps"], job.slo))
    record.answers += answers
    record.steps.append(event["steps"])
    record.memory = event["memory"]


def _keep_outputs(event: dict[str, Any], record: EngineRecord) -> None:
    told = {name: event.get(name, ()) for name in ("answers", "scores")}
    record.outputs.append(validated(SpokenOutputs, told))
    if event["batches"] in record.batches:
        record.notes = (*record.notes, BATCHED_ALIKE)
    record.batches.append(event["batches"])


# -- what became of it ---------------------------------------------------------------------------


def _cause(record: EngineRecord, log: str, code: int, timeout_s: float | None) -> Cause:
    said = f"{log}\n{record.failed}"
    if any(sign in said for sign in NO_VLLM):
        raise MissingError(
            "the interpreter for the engine has no vLLM",
            hint="pip install 'chunkscope[verify]', or name the Python that has it in "
            "CHUNKSCOPE_VLLM_PYTHON",
        )
    if not record.workers and any(sign in said for sign in NO_DEVICE):
        raise MissingError(
            "vLLM finds no GPU on this machine",
            hint="run it where the GPU is, or install a CPU build of vLLM (see the README)",
        )
    where = f"while {record.phase}"
    if timeout_s is not None:
        text = f"no sign of life for {timeout_s:,.0f} s: it was {record.phase}"
        return Cause(status=Status.TIMEOUT, text=text)
    found = cause_in(said, started=bool(record.workers))
    if found is not None:
        budget = record.engine.get("max_num_batched_tokens")
        if found.status is Status.OUT_OF_MEMORY and budget:
            where = f"at {budget:,} tokens per step, {where}"
        lead = {Status.OUT_OF_MEMORY: "out of memory", Status.REFUSED: "refused"}
        return Cause(
            status=found.status, text=f"{lead.get(found.status, 'died')} {where}: {found.text}"
        )
    return Cause(status=Status.DIED, text=f"died {where}: {_ending(code)}")


def _ending(code: int) -> str:
    if code >= 0:
        return f"its process ended with code {code} and said nothing"
    name = signal.Signals(-code).name
    also = "; the machine may have run out of memory" if name == "SIGKILL" else ""
    return f"killed by {name}{also}"


def _run(
    setting: ComparedSetting,
    record: EngineRecord,
    cause: Cause,
    asked: OutputSample | None,
    log_text: str = "",
    log: Path | None = None,
) -> Run:
    facts = facts_in(log_text)
    blocks, size = record.engine.get("num_gpu_blocks"), record.engine.get("block_size")
    return Run(
        setting=setting.name,
        same_as=setting.same_as,
        args=dict(setting.settings.given()),
        status=cause.status,
        message=cause.text,
        phase=None if cause is MEASURED else record.phase,
        started=record.started,
        took_s=round(time.monotonic() - record.begun, 3),
        start_s=record.start_s,
        engine=record.engine,
        workers=_workers(record, facts),
        kv_cache_tokens=facts.kv_cache_tokens or (blocks * size if blocks and size else None),
        kv_concurrency=facts.kv_concurrency,
        repeats=tuple(record.repeats),
        figures=median_of(record.repeats) if record.repeats else None,
        distribution=distribution_of(record.answers),
        outputs=_outputs(record, asked),
        log=log.name if log else None,
        notes=record.notes,
    )


def _outputs(record: EngineRecord, asked: OutputSample | None) -> RunOutputs | None:
    if asked is None or len(record.outputs) < 2:
        return None
    return RunOutputs(tokens=asked.tokens, again=compared(*record.outputs))


def _workers(record: EngineRecord, logged: EngineFacts) -> tuple[WorkerMemory, ...]:
    """What each worker says of itself, else what the log says of the first."""
    peaks = {memory["rank"]: memory for memory in record.memory}
    return tuple(
        WorkerMemory(
            rank=worker["rank"],
            activation_peak_gib=_gib(peaks.get(worker["rank"], {}).get("activation_peak_bytes")),
            device_peak_gib=_gib(peaks.get(worker["rank"], {}).get("device_peak_bytes")),
            weights_gib=_gib(worker.get("weights_bytes")) or logged.weights_gib,
            profiled_activation_gib=_gib(worker.get("profiled_activation_bytes")),
            non_torch_gib=_gib(worker.get("non_torch_bytes")),
            cuda_graphs_gib=logged.graphs_gib or _gib(worker.get("cuda_graphs_bytes")),
            kv_cache_gib=_gib(worker.get("kv_cache_bytes")) or logged.kv_cache_gib,
        )
        for worker in record.workers
    )


def _gib(size: int | None) -> float | None:
    return size / GIB if size else None
