"""[gate.speed]: what was measured, against limits or against a committed verify.json."""

from collections.abc import Iterator

from chunkscope.artefacts.figures import BY_PROMISE, Better, Figure
from chunkscope.artefacts.units import SHARE, exceeds
from chunkscope.errors import InputError
from chunkscope.gating.budget import SPEED, LatencyPromises, SpeedPromises
from chunkscope.gating.evidence import Evidence, run_of
from chunkscope.gating.verdict import Verdict, at_least, at_most
from chunkscope.verification.result import Figures, Verification


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
        found = (figure.among(part) if part else figure).of(figures)
        relation = at_least if figure.better is Better.MORE else at_most
        key = f"speed.{part}.{figure.promise}" if part else f"speed.{figure.promise}"
        subject = f"{setting}, {part} prompts" if part else setting
        note = why if found is None else ""
        yield relation(key, limit, found, figure.unit, subject=subject, note=note)


def _baseline_figures(limits: SpeedPromises, now: Verification, evidence: Evidence) -> Figures:
    file = limits.baseline or ""
    before = evidence.baseline(file, Verification.load)
    _check_comparable(now, before, file)
    run, why = run_of(before, limits.setting)
    if run is None or run.figures is None:
        raise InputError(f"the baseline {file} has no figures of {limits.setting}: {why}")
    return run.figures


def _check_comparable(now: Verification, before: Verification, baseline: str) -> None:
    for what, there, here in (
        ("model", before.model.name, now.model.name),
        ("device", before.machine and before.machine.device, now.machine and now.machine.device),
        ("GPU", before.machine and before.machine.gpu, now.machine and now.machine.gpu),
        (
            "number of GPUs",
            before.machine and before.machine.gpus,
            now.machine and now.machine.gpus,
        ),
        ("task", before.workload.task, now.workload.task),
        ("arrivals", before.workload.arrivals, now.workload.arrivals),
        ("number of requests", len(before.workload.requests), len(now.workload.requests)),
        ("shared prefix", before.workload.shared_prefix, now.workload.shared_prefix),
    ):
        if there != here:
            raise InputError(
                f"the baseline {baseline} is of another {what} ({there} there, {here} now): "
                "speeds are not comparable",
                hint="verify in the same way, or commit a new baseline",
            )


def _compared(
    figure: Figure, limits: SpeedPromises, figures: Figures | None, before: Figures, why: str
) -> Verdict:
    old, new = figure.of(before), figure.of(figures)
    if old is None:
        raise InputError(
            f"the baseline {limits.baseline} has no {figure.promise} of {limits.setting}",
            hint="take it out of speed.compare, or commit a baseline that has it",
        )
    unit, tolerance = figure.unit, limits.tolerance
    more = figure.better is Better.MORE
    loss = _loss(old, new, more_is_better=more)
    limit = old * (1 - tolerance if more else 1 + tolerance)
    promised, found = unit.write_both(limit, new)
    relation, sign = ("at least", "-") if more else ("at most", "+")
    return Verdict(
        promise=f"speed.baseline.{figure.promise}",
        subject=limits.setting,
        kept=loss is not None and not exceeds(loss, tolerance),
        promised=f"{relation} {promised} ({unit.write(old)} {sign} {SHARE.write(tolerance)})",
        found=found,
        promised_value=limit,
        found_value=new,
        note=why if new is None else "",
        where=("speed", "baseline"),
    )


def _loss(old: float, new: float | None, *, more_is_better: bool) -> float | None:
    """How much worse, as a share of the baseline: slower, or fewer tokens a second."""
    if new is None:
        return None
    worse = old - new if more_is_better else new - old
    return worse / old if old else (0.0 if worse <= 0 else None)
