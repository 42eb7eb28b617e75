"""The rows of a verification: which are kept of an earlier try, and each saved as it comes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from chunkscope.artefacts.codec import write_atomically
from chunkscope.artefacts.schema import validated
from chunkscope.console import VerifyProgress
from chunkscope.errors import InputError
from chunkscope.hardware.calibration import Calibration
from chunkscope.models.shape import ModelShape
from chunkscope.planning.plan import Plan
from chunkscope.verification.calibration_steps import calibration_of, calibration_path, joined
from chunkscope.verification.engine_run import EngineJob, Measured, measure
from chunkscope.verification.machine import machine_of, refuse_what_shows_before
from chunkscope.verification.outputs import SpokenOutputs
from chunkscope.verification.predicting import with_prediction
from chunkscope.verification.references import with_references
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.settings import ComparedSetting
from chunkscope.verification.verdict import judged
from chunkscope.vllm.flags import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where things are told and kept: after every row, so that none is lost."""

    output: Path = Verification.default_path
    listener: VerifyProgress = field(default_factory=VerifyProgress)
    on_failure: Callable[[Measured], None] = lambda _: None


def resumed(
    fresh: Verification,
    old: Verification,
    settings: Sequence[ComparedSetting],
    installed: Release,
    is_whole: Callable[[Run], bool] = lambda _: True,
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
    kept = [
        replace(run, same_as=setting.same_as)
        for setting in settings
        if (run := final.get(setting.name)) and run.args == setting.settings.given()
        if not run.ok or is_whole(run)
    ]
    if not kept:
        return fresh
    refuse_what_shows_before(old.machine, installed)
    return replace(fresh, runs=tuple(kept), machine=old.machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenFile:
    """What an engine answered, beside its log: rows that come later are compared with it."""

    started: str  # by the run of the artefact
    said: SpokenOutputs

    @classmethod
    def of(cls, run: Run, folder: Path) -> SpokenOutputs | None:
        """None where it is not there, or is of another run."""
        with suppress(OSError, ValueError):
            found = validated(
                cls, orjson.loads(_beside(folder, run.setting, "outputs.json").read_bytes())
            )
            return found.said if found.started == run.started else None
        return None

    def save(self, folder: Path, setting: str) -> None:
        write_atomically(_beside(folder, setting, "outputs.json"), orjson.dumps(self))


def _beside(folder: Path, setting: str, kind: str) -> Path:
    name = "".join(c if c.isalnum() else "-" for c in setting).strip("-")
    return folder / f"verify-{name}.{kind}"


@dataclass(slots=True)
class Rows:
    """One row after the other, each kept as soon as it is there."""

    _made: Verification
    _plan: Plan
    _shape: ModelShape
    _job: EngineJob
    _report: Report
    _measured: list[Measured] = field(default_factory=list)
    _spoken: dict[str, SpokenOutputs] = field(default_factory=dict)  # by setting
    _earlier: dict[Path, Calibration | None] = field(default_factory=dict)

    def measure(self, settings: Sequence[ComparedSetting]) -> Verification:
        kept = {run.setting: SpokenFile.of(run, self._folder) for run in self._made.runs}
        self._spoken = {setting: said for setting, said in kept.items() if said}
        for number, setting in enumerate(settings, start=1):
            if self._made.run(setting.name) is None:
                listener = self._report.listener
                listener.setting(setting.name, number, len(settings))
                found = measure(setting, self._next_job(), self._log(setting), listener)
                self._keep(found)
                if found.interrupted:
                    raise KeyboardInterrupt
        order = [setting.name for setting in settings]
        runs = sorted(self._made.runs, key=lambda run: order.index(run.setting))
        self._made = replace(self._made, runs=tuple(runs))
        self._save()
        return self._made

    def _next_job(self) -> EngineJob:
        """One row with bursts is enough: all of them share the model and the GPU."""
        has_bursts = any(measured.record.bursts for measured in self._measured)
        job = replace(self._job, machine=self._made.machine)
        return replace(job, bursts=()) if has_bursts else job

    def _keep(self, measured: Measured) -> None:
        record = measured.record
        machine = self._made.machine or machine_of(record.workers, record.versions)
        run = with_prediction(measured.run, self._shape, machine, self._job.workload)
        self._made = replace(self._made.with_run(run), machine=machine)
        self._measured.append(replace(measured, run=run))
        if run.outputs is not None:
            self._spoken[run.setting] = said = record.outputs[0]
            SpokenFile(started=run.started, said=said).save(self._folder, run.setting)
        self._save()
        if not run.ok:
            self._report.on_failure(measured)

    def _save(self) -> None:
        self._made = with_references(self._made, self._spoken)
        self._made = judged(self._made, self._job.slo)
        self._made.save(self._report.output)
        calibration = calibration_of(
            self._measured, self._shape, self._plan.effective.parallel.tensor, self._job.workload
        )
        if calibration is not None:
            path = calibration_path(self._folder, calibration)
            earlier = self._calibration_before(path)
            (joined(earlier, calibration) if earlier else calibration).save(path)

    def _calibration_before(self, path: Path) -> Calibration | None:
        """What an earlier try wrote, if its rows are kept; read before it is written over."""
        if path not in self._earlier:
            fresh = {measured.run.setting for measured in self._measured}
            is_resumed = any(run.setting not in fresh for run in self._made.runs)
            with suppress(InputError):
                self._earlier[path] = Calibration.load(path) if is_resumed else None
        return self._earlier.setdefault(path, None)

    def _log(self, setting: ComparedSetting) -> Path:
        return _beside(self._folder, setting.name, "log")

    @property
    def _folder(self) -> Path:
        return self._report.output.parent
