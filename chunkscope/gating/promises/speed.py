"""[gate.speed]: what was measured, against limits or against a committed verify.json."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chunkscope.artefacts.figures import BY_PROMISE, Better, Figure, Figures
from chunkscope.artefacts.units import SHARE
from chunkscope.errors import InputError
from chunkscope.gating.budget import SPEED, LatencyPromises, SpeedPromises
from chunkscope.gating.evidence import Evidence, run_of
from chunkscope.gating.verdict import Verdict, limited
from chunkscope.verification.result import Verification


def check_speed(limits: SpeedPromises, evidence: Evidence) -> Iterator[Verdict]:
    verification = evidence.verification
    run, why = run_of(verification, limits.setting)
    figures = run.figures if run else None
    why = why or "this run did not measure it"
    yield from _limits(limits, figures, limits.setting, why)
    for part in ("short", "long"):
        if (own := getattr(limits, part)) is not None:
            yield from _limits(own, figures, limits.setting, why, part=part)
    if limits.baseline is not None:
        before = _baseline_figures(limits, verification, evidence)
        for name in limits.compare:
            yield _compared(BY_PROMISE[name], limits, figures, before, why)


def _limits(
    limits: LatencyPromises,
    figures: Figures | None,
    setting: str,
    why: str,
    part: str | None = None,
) -> Iterator[Verdict]:
    for figure in SPEED:
        limit = getattr(limits, figure.promise, None)
        if limit is None:
            continue
        found = (figure.among(part) if part else figure).value(figures)
        key = f"speed.{part}.{figure.promise}" if part else f"speed.{figure.promise}"
        subject = f"{setting}, {part} prompts" if part else setting
        told: dict[str, Any] = {"subject": subject, "note": why if found is None else ""}
        yield limited(key, limit, found, figure.unit, better=figure.better, **told)


def _baseline_figures(limits: SpeedPromises, now: Verification, evidence: Evidence) -> Figures:
    file = limits.baseline or ""
    before = evidence.baseline(file, Verification.load)
    _check_comparable(now, before, file)
    run, why = run_of(before, limits.setting)
    if run is None or run.figures is None:
        raise InputError(f"the baseline {file} has no figures of {limits.setting}: {why}")
    return run.figures


def _check_comparable(now: Verification, before: Verification, baseline: str) -> None:
    here = _circumstances(now)
    for what, there in _circumstances(before).items():
        if there != here[what]:
            raise InputError(
                f"the baseline {baseline} is of another {what} ({there} there, {here[what]} now): "
                "speeds are not comparable",
                hint="verify in the same way, or commit a new baseline",
            )


def _circumstances(of: Verification) -> dict[str, object]:
    machine, workload = of.machine, of.workload
    return {
        "model": of.model.name,
        "device": machine and machine.device,
        "GPU": machine and machine.gpu,
        "number of GPUs": machine and machine.gpus,
        "task": workload.task,
        "arrivals": workload.arrivals,
        "number of requests under way": workload.concurrency,
        "number of requests": len(workload.requests),
        "shared prefix": workload.shared_prefix,
    }


def _compared(
    figure: Figure, limits: SpeedPromises, figures: Figures | None, before: Figures, why: str
) -> Verdict:
    old, new = figure.value(before), figure.value(figures)
    if old is None:
        raise InputError(
            f"the baseline {limits.baseline} has no {figure.promise} of {limits.setting}",
            hint="take it out of speed.compare, or commit a baseline that has it",
        )
    more, tolerance = figure.better is Better.MORE, limits.tolerance
    verdict = limited(
        f"speed.baseline.{figure.promise}",
        old * (1 - tolerance if more else 1 + tolerance),
        new,
        figure.unit,
        better=figure.better,
        subject=limits.setting,
        note=why if new is None else "",
        where=("speed", "baseline"),
    )
    sums = f"{figure.unit.write(old)} {'-' if more else '+'} {SHARE.write(tolerance)}"
    return replace(verdict, promised=f"{verdict.promised} ({sums})")
