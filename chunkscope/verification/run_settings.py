"""The rows of a verification: which are taken from an earlier try, and each saved as it comes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.models.shape import ModelShape
from chunkscope.verification.calibrate import calibration_of, calibration_path
from chunkscope.verification.engine_run import EngineJob, EngineRecord, machine_of, measure
from chunkscope.verification.outputs import with_outputs_compared
from chunkscope.verification.predicting import with_prediction
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.settings import SettingRow
from chunkscope.verification.verdict import judged
from chunkscope.vllm.enums import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where the artefact is written, after every row, and who hears of progress and failures."""

    output: Path = Verification.default_path
    listener: Progress = field(default_factory=Progress)
    on_failure: Callable[[Run, str], None] = lambda _, __: None  # and the engine's log


def resumed(fresh: Verification, old: Verification, rows: Sequence[SettingRow]) -> Verification:
    """With the finished rows of an earlier try at the same thing. The machine is compared later,
    when an engine has started."""
    differs = {
        "model": fresh.model != old.model,
        "workload": fresh.workload != old.workload or fresh.source != old.source,
        "number of repeats": fresh.repeats != old.repeats,
        "engine options": fresh.options != old.options,
    }
    if what := next((name for name, is_so in differs.items() if is_so), None):
        raise InputError(
            f"cannot resume: the {what} differs from the earlier run's",
            hint="repeat its options, or leave --resume out to measure everything anew",
        )
    # Without a machine no engine ever started: where it was tried is not known.
    final = {r.setting: r for r in old.runs if r.status.is_final and old.machine is not None}
    runs = [
        replace(run, same_as=row.same_as)
        for row in rows
        if (run := final.get(row.name)) and run.settings == row.settings
    ]
    return replace(fresh, runs=tuple(runs), machine=old.machine if runs else None)


def measure_rows(
    verification: Verification,
    rows: Sequence[SettingRow],
    job: EngineJob,
    shape: ModelShape,
    report: Report,
) -> Verification:
    """One row after the other, each saved as soon as it is measured."""
    measured: list[tuple[Run, EngineRecord]] = []
    folder, order = report.output.parent, [row.name for row in rows]
    for number, row in enumerate(rows, start=1):
        run = verification.run(row.name)
        if run is None or (job.output_places and run.ok and run.outputs is None):
            report.listener.setting(row.name, number, len(rows))
            # One row with bursts is enough: all of them share the model and the GPU.
            bursts = () if any(record.bursts for _, record in measured) else job.bursts
            next_job = replace(job, machine=verification.machine, bursts=bursts)
            name = "".join(c if c.isalnum() else "-" for c in row.name).strip("-")
            run, record = measure(row, next_job, folder / f"verify-{name}.log", report.listener)
            machine = verification.machine or machine_of(record.workers, record.versions)
            run = with_prediction(run, shape, machine, job.workload, job.request, Entry(job.entry))
            measured.append((run, record))
            verification = replace(verification.with_run(run), machine=machine)
            if not run.ok:
                report.on_failure(run, record.log_text)
        runs = sorted(verification.runs, key=lambda run: order.index(run.setting))
        verification = with_outputs_compared(replace(verification, runs=tuple(runs)))
        verification = judged(verification, job.request.slo)
        verification.save(report.output)
        calibration = calibration_of(measured, shape, job.workload)
        if calibration is not None:
            calibration.save(calibration_path(folder, calibration))
    return verification
