"""The rows of a verification: which are taken from an earlier try, and each saved as it comes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.gpus import local_gpu_names
from chunkscope.models.shape import ModelShape
from chunkscope.planning.plan import Plan
from chunkscope.verification.calibrate import calibration_of, calibration_path, joined
from chunkscope.verification.engine_run import (
    EngineJob,
    MeasuredRun,
    another_machine,
    machine_of,
    measure,
)
from chunkscope.verification.outputs import with_outputs_compared
from chunkscope.verification.predicting import with_prediction
from chunkscope.verification.result import Machine, Verification
from chunkscope.verification.settings import SettingRow
from chunkscope.verification.verdict import judged
from chunkscope.vllm.flags import Release, release


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where the artefact is written, after every row, and who hears of progress and failures."""

    output: Path = Verification.default_path
    listener: Progress = field(default_factory=Progress)
    on_failure: Callable[[MeasuredRun], None] = lambda _: None


def resumed(
    fresh: Verification, old: Verification, rows: Sequence[SettingRow], installed: Release
) -> Verification:
    """With the finished rows of an earlier try at the same thing on the same machine."""
    differs = {
        "model": fresh.model != old.model,
        "workload": fresh.workload != old.workload or fresh.source != old.source,
        "number of repeats": fresh.repeats != old.repeats,
        "engine options": fresh.options != old.options,
    }
    for what, is_so in differs.items():
        if is_so:
            raise InputError(
                f"cannot resume: the {what} differs from the earlier run's",
                hint="repeat its options, or leave --resume out to measure everything anew",
            )
    if old.machine is None:
        return fresh  # no engine ever started: where it was tried is not known
    final = {run.setting: run for run in old.runs if run.status.is_final}
    runs = [
        replace(run, same_as=row.same_as)
        for row in rows
        if (run := final.get(row.name)) and run.settings == row.settings
    ]
    if not runs:
        return fresh
    _refuse_before_starting(old.machine, installed)
    return replace(fresh, runs=tuple(runs), machine=old.machine)


def _refuse_before_starting(earlier: Machine, installed: Release) -> None:
    """Another machine, as far as it shows before an engine was started: loading takes minutes."""
    if earlier.vllm and release(earlier.vllm).version != installed.version:
        raise another_machine(f"vLLM {earlier.vllm}", f"this is vLLM {installed.text}")
    names = local_gpu_names()
    # torch adds to the name when it is given a part of a GPU.
    if earlier.gpu and names and not any(earlier.gpu.startswith(name) for name in names):
        raise another_machine(earlier.gpu, f"this machine has {', '.join(dict.fromkeys(names))}")


@dataclass(slots=True)
class SettingRuns:
    """One row after the other, each saved as soon as it is measured."""

    _verification: Verification
    _plan: Plan
    _shape: ModelShape
    _job: EngineJob
    _report: Report
    _measured: list[MeasuredRun] = field(default_factory=list)
    _earlier: dict[Path, Calibration | None] = field(default_factory=dict)

    def measure(self, rows: Sequence[SettingRow]) -> Verification:
        for number, row in enumerate(rows, start=1):
            run = self._verification.run(row.name)
            if run is None or (self._job.output_places and run.ok and run.outputs is None):
                listener = self._report.listener
                listener.setting(row.name, number, len(rows))
                measured = measure(row, self._next_job(), self._log(row), listener)
                self._add(measured)
                if measured.interrupted:
                    raise KeyboardInterrupt
        order = [row.name for row in rows]
        runs = sorted(self._verification.runs, key=lambda run: order.index(run.setting))
        self._verification = replace(self._verification, runs=tuple(runs))
        self._save()
        return self._verification

    def _next_job(self) -> EngineJob:
        """One row with bursts is enough: all of them share the model and the GPU."""
        has_bursts = any(measured.record.bursts for measured in self._measured)
        job = replace(self._job, machine=self._verification.machine)
        return replace(job, bursts=()) if has_bursts else job

    def _add(self, measured: MeasuredRun) -> None:
        record = measured.record
        machine = self._verification.machine or machine_of(record.workers, record.versions)
        run = with_prediction(measured.run, self._shape, machine, self._job.workload)
        self._verification = replace(self._verification.with_run(run), machine=machine)
        self._measured.append(replace(measured, run=run))
        self._save()
        if not run.ok:
            self._report.on_failure(measured)

    def _save(self) -> None:
        compared = with_outputs_compared(self._verification)
        self._verification = judged(compared, self._job.slo)
        self._verification.save(self._report.output)
        tp, workload = self._plan.effective.parallel.tensor, self._job.workload
        calibration = calibration_of(self._measured, self._shape, tp, workload)
        if calibration is not None:
            path = calibration_path(self._report.output.parent, calibration)
            earlier = self._calibration_before(path)
            (joined(earlier, calibration) if earlier else calibration).save(path)

    def _calibration_before(self, path: Path) -> Calibration | None:
        """What an earlier try wrote, if its rows are used; read before it is written over."""
        if path not in self._earlier:
            fresh = {measured.run.setting for measured in self._measured}
            is_resumed = any(run.setting not in fresh for run in self._verification.runs)
            with suppress(InputError):
                self._earlier[path] = Calibration.load(path) if is_resumed else None
        return self._earlier.setdefault(path, None)

    def _log(self, row: SettingRow) -> Path:
        name = "".join(c if c.isalnum() else "-" for c in row.name).strip("-")
        return self._report.output.parent / f"verify-{name}.log"
