"""[gate.speed]: what was measured, against limits or against a committed verify.json."""

from collections.abc import Iterator

from chunkscope.errors import InputError
from chunkscope.gating.budget import SPEED_FIGURES, Latencies, Speed
from chunkscope.gating.evidence import Evidence, run_of
from chunkscope.gating.units import RATE, SECONDS, SHARE, Unit, exceeds
from chunkscope.gating.verdict import Verdict, at_least, at_most
from chunkscope.verification.result import Figures, Latency, Verification

RATES = ("input_tokens_per_s", "output_tokens_per_s")


def check_speed(limits: Speed, evidence: Evidence) -> Iterator[Verdict]:
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
            yield _compared(name, limits, figures, before, why)


def _limits(
    limits: Latencies, figures: Figures | None, setting: str, why: str, part: str | None = None
) -> Iterator[Verdict]:
    for name in SPEED_FIGURES:
        limit = getattr(limits, name, None)
        if limit is None:
            continue
        found = figure(figures, name, part)
        relation = at_least if name in RATES else at_most
        key = f"speed.{part}.{name}" if part else f"speed.{name}"
        subject = f"{setting}, {part} prompts" if part else setting
        note = why if found is None else ""
        yield relation(key, limit, found, _unit(name), subject=subject, note=note)


def figure(figures: Figures | None, name: str, part: str | None = None) -> float | None:
    """ "ttft_p95" of all requests, or of the short or long ones; None if never measured."""
    if figures is None:
        return None
    if name in RATES:
        return float(getattr(figures, name))
    if name == "makespan":
        return figures.makespan_s
    what, _, quantile = name.partition("_")
    latency: Latency | None = getattr(figures, f"{what}_s")
    of = getattr(latency, part or "all") if latency else None
    return float(getattr(of, quantile)) if of else None


def _unit(name: str) -> Unit:
    return RATE if name in RATES else SECONDS


def _baseline_figures(limits: Speed, now: Verification, evidence: Evidence) -> Figures:
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
    name: str, limits: Speed, figures: Figures | None, before: Figures, why: str
) -> Verdict:
    old, new = figure(before, name), figure(figures, name)
    if old is None:
        raise InputError(
            f"the baseline {limits.baseline} has no {name} of {limits.setting}",
            hint="take it out of speed.compare, or commit a baseline that has it",
        )
    unit, tolerance = _unit(name), limits.tolerance
    loss = _loss(name, old, new)
    factor = 1 - tolerance if name in RATES else 1 + tolerance
    relation = "at least" if name in RATES else "at most"
    promised, found = unit.write_both(old * factor, new)
    sign = "-" if name in RATES else "+"
    return Verdict(
        promise=f"speed.baseline.{name}",
        subject=limits.setting,
        kept=loss is not None and not exceeds(loss, tolerance),
        promised=f"{relation} {promised} ({unit.write(old)} {sign} {SHARE.write(tolerance)})",
        found=found,
        promised_value=old * factor,
        found_value=new,
        note=why if new is None else "",
        where=("speed", "baseline"),
    )


def _loss(name: str, old: float, new: float | None) -> float | None:
    """How much worse, as a share of the baseline: slower, or fewer tokens a second."""
    if new is None:
        return None
    worse = old - new if name in RATES else new - old
    return worse / old if old else (0.0 if worse <= 0 else None)
