"""The checks, table by table: limits x evidence -> passed or failed."""

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import chdir
from difflib import get_close_matches
from glob import has_magic
from math import ceil
from pathlib import Path
from typing import Any

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.artefacts.figures import BY_PROMISE, EQUAL_OUTPUTS, Better, Figure, Figures
from chunkscope.artefacts.note import Note, note
from chunkscope.artefacts.units import COUNT, SHARE, TOKENS, Unit, exceeds
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.gating.budget import (
    PEAKS,
    SPEED,
    DataLimits,
    DoctorLimits,
    DriftLimits,
    FreshnessLimits,
    LengthLimits,
    MemoryLimits,
    OutputLimits,
    PeakLimits,
    SpeedLimits,
)
from chunkscope.gating.check import Check, Relation, doubted, limited, unit_name
from chunkscope.gating.evidence import Evidence, doubt_of, run_of
from chunkscope.hardware.memory import Memory
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile, TokenizerInfo, together
from chunkscope.models.shape import BLOCK_TOKENS
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.sources.discovery import discover
from chunkscope.verification.result import Run, Verification

AT_LEAST = {"min_rows", "prefix_hit_rate", "shared_prefix_tokens"}  # the others: at most
PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}
Values = dict[str, float | None]  # by their keys in a budget


# -- [gate.data] -----------------------------------------------------------------------------------


def check_data(limits: DataLimits, evidence: Evidence) -> Iterator[Check]:
    """How long the prompts are, how many, and whether all of them can be served."""
    datasets = evidence.profile.datasets
    doubt = doubt_of(datasets, allow_sample=limits.allow_sample)
    yield from _lengths(limits, datasets, doubt)
    if limits.max_model_len is not None:
        yield doubted(_served(limits.max_model_len, evidence.output_tokens, datasets), doubt)
    for name in limits.datasets or ():
        yield _present(name, datasets, ("data", "datasets"))
    for name, own in limits.of.items():
        key, some = ("data", "of", name), [d for d in datasets if d.name == name]
        if some:
            doubt = doubt_of(some, allow_sample=limits.allow_sample)
            yield from _lengths(own, some, doubt, subject=name, key=key)
        else:
            yield _present(name, datasets, key)


def _lengths(
    limits: LengthLimits,
    datasets: Sequence[DatasetProfile],
    doubt: Note | None,
    *,
    subject: str = ALL,
    key: tuple[str, ...] = ("data",),
) -> Iterator[Check]:
    lengths, reuse = together(datasets), reuse_of(datasets)
    values: dict[str, tuple[float | None, Unit]] = {
        "longest_prompt": (lengths.max, TOKENS),
        **{name: (lengths.percentile(percent), TOKENS) for name, percent in PERCENTILES.items()},
        "min_rows": (all_rows(datasets), COUNT),
        "bad_rows": (sum(dataset.skipped for dataset in datasets), COUNT),
        "prefix_hit_rate": (reuse.hit_rate if reuse else None, SHARE),
        "shared_prefix_tokens": (reuse.common_tokens if reuse else None, TOKENS),
    }
    for name, (value, unit) in values.items():
        if (limit := getattr(limits, name)) is not None:
            better = Better.MORE if name in AT_LEAST else Better.LESS
            about: dict[str, Any] = {"better": better, "subject": subject, "key": (*key, name)}
            check = limited(f"data.{name}", limit, value, unit, **about)
            yield check if name == "min_rows" else doubted(check, doubt)


def reuse_of(datasets: Sequence[DatasetProfile]) -> PrefixReuse | None:
    """None where it was not measured of every dataset that has prompts."""
    measured = [dataset.prefixes for dataset in datasets if dataset.rows]
    reuses = [reuse for reuse in measured if reuse is not None]
    return reuse_together(reuses) if reuses and len(reuses) == len(measured) else None


def all_rows(datasets: Iterable[DatasetProfile]) -> int:
    """What the data holds, though only a part of it may have been counted."""
    return sum(d.sample.out_of if d.sample else d.rows for d in datasets)


def _served(max_model_len: int, output: int, datasets: Sequence[DatasetProfile]) -> Check:
    lengths = together(datasets)
    refused = lengths.over(max_model_len - output)
    return Check(
        name="data.max_model_len",
        passed=refused == 0 and lengths.count > 0,
        relation=Relation.AT_MOST,
        limit=0,
        value=refused,
        unit="count",
        reason=note(
            "gate_refused_prompts",
            context=max_model_len,
            output=output,
            of=lengths.count,
            longest=lengths.max,
        ),
    )


def _present(name: str, datasets: Sequence[DatasetProfile], key: tuple[str, ...]) -> Check:
    rows = {dataset.name: dataset.rows for dataset in datasets}
    near = [] if name in rows else get_close_matches(name, rows, n=1)
    return Check(
        name="data.datasets",
        subject=name,
        passed=rows.get(name, 0) > 0,
        relation=Relation.PRESENT,
        value=rows.get(name),
        reason=note("gate_did_you_mean", name=near[0]) if near else None,
        key=key,
    )


# -- [gate.drift] ----------------------------------------------------------------------------------


def check_drift(limits: DriftLimits, evidence: Evidence) -> Iterator[Check]:
    """How far lengths and rows have moved from those of a committed profile."""
    now, before = evidence.profile, evidence.baseline(limits.baseline, Profile.load)
    _check_same_tokenizer(now.tokenizer, before.tokenizer, limits.baseline)
    today, then = _filled(now), _filled(before)
    both = [name for name in today if name in then]
    pairs = {ALL: (now.overall, before.overall, now.datasets, before.datasets)}
    if limits.each_dataset and not len(today) == len(then) == 1:
        for name in both:
            one, other = today[name], then[name]
            pairs[name] = (one.lengths, other.lengths, (one,), (other,))
    for subject, (new, old, some, others) in pairs.items():
        doubt = doubt_of((*some, *others), allow_sample=limits.allow_sample)
        for check in _moved(limits, subject, new, old):
            yield doubted(check, doubt)
    if limits.content == "same":
        for name in both:
            yield _same_rows(today[name], then[name])
    for key, names in (
        ("new_datasets", [name for name in today if name not in then]),
        ("vanished_datasets", [name for name in then if name not in today]),
    ):
        if (limit := getattr(limits, key)) is not None:
            subject = ", ".join(names) or "none"
            yield limited(f"drift.{key}", limit, len(names), COUNT, subject=subject)


def _filled(profile: Profile) -> dict[str, DatasetProfile]:
    """By name; one without rows is as good as gone."""
    return {dataset.name: dataset for dataset in profile.datasets if dataset.rows}


def _same_rows(now: DatasetProfile, before: DatasetProfile) -> Check:
    """Whole rows, answers included, whatever their order or file format."""
    new, old = (getattr(dataset, "content", None) for dataset in (now, before))
    known = new is not None and old is not None
    return Check(
        name="drift.content",
        subject=now.name,
        passed=known and new == old,
        relation=Relation.UNCHANGED,
        value=None if not known else "same" if new == old else "changed",
        reason=note("gate_rows", before=before.rows, now=now.rows),
        key=("drift", "content"),
    )


def _check_same_tokenizer(now: TokenizerInfo, before: TokenizerInfo, baseline: str) -> None:
    # Traces brought their lengths along: no tokenizer of ours made them.
    if "none" in (now.kind, before.kind) and now.kind != before.kind:
        differ = "one of them was counted with a tokenizer, the other brought its lengths along"
    elif now.digest != before.digest:
        differ = f"{before.name} there, {now.name} now"
        if now.name == before.name:
            differ = f"both are called {now.name}, but their files differ"
    elif now.chat_template != before.chat_template:
        differ = "other chat templates"
    elif now.special_tokens_added != before.special_tokens_added:
        differ = "with and without special tokens"
    else:
        return
    raise InputError(
        f"the baseline {baseline} was counted with another tokenizer: lengths are not comparable "
        f"({differ})",
        hint="analyze with the baseline's --tokenizer, or commit a new baseline",
    )


def _moved(
    limits: DriftLimits, subject: str, now: LengthHistogram, before: LengthHistogram
) -> Iterator[Check]:
    for key, old, new in (
        ("p50", before.percentile(50), now.percentile(50)),
        ("p95", before.percentile(95), now.percentile(95)),
        ("max", before.max, now.max),
    ):
        if (limit := getattr(limits, key)) is not None:
            change = 0.0 if old == new else (new - old) / old if old and new is not None else None
            yield Check(
                name=f"drift.{key}",
                subject=subject,
                passed=change is not None and not exceeds(abs(change), limit),
                relation=Relation.WITHIN,
                limit=limit,
                value=change,
                unit="share",
                reason=note("gate_moved", before=old, now=new),
            )


# -- [gate.memory] ---------------------------------------------------------------------------------


def check_memory(limits: MemoryLimits, evidence: Evidence) -> Iterator[Check]:
    """What is predicted and what was measured, each against its own limits."""
    if limits.predicted:
        plan = evidence.plan
        values: Values = {}
        if plan.memory is not None:
            values = {**predicted_peaks(plan.memory)}
            values["kv_requests_of_p95"] = plan.capacity.p95 if plan.capacity else None
        why = note("gate_no_memory_model" if plan.memory is None else "gate_plan_silent")
        yield from _peaks(limits.predicted, values, "predicted", "plan", why)
    if limits.measured:
        run, why_not = run_of(evidence.verification, limits.setting)
        values = measured_peaks(run) if run else {}
        if run and limits.measured.kv_requests_of_p95 is not None:
            values["kv_requests_of_p95"] = _requests_of_p95(run.kv_cache_tokens, evidence)
        why = why_not or note("gate_not_measured")
        yield from _peaks(limits.measured, values, "measured", limits.setting, why)


def _peaks(
    limits: PeakLimits, values: Values, kind: str, setting: str, why: Note
) -> Iterator[Check]:
    figures = [(figure.promise, figure.unit, figure.better) for figure in PEAKS]
    for key, unit, better in (*figures, ("kv_requests_of_p95", COUNT, Better.MORE)):
        if (limit := getattr(limits, key)) is not None:
            value = values.get(key)
            about: dict[str, Any] = {"subject": setting, "reason": why if value is None else None}
            yield limited(f"memory.{kind}.{key}", limit, value, unit, better=better, **about)


def predicted_peaks(memory: Memory) -> dict[str, float]:
    """A step needs activations, the sampler and logits of prompt_logprobs beside the weights. vLLM
    fills what it may use with KV cache; what it does not profile comes on top.
    """
    outside = sum(x.gib for x in memory.lines if not x.profiled and x.name != "logprobs")
    step = memory.line("activation").gib + memory.line("sampler").gib
    return {
        "activation_peak": step + memory.unprofiled_gib,
        "device_peak": memory.requested_gib + outside + memory.unprofiled_gib,
    }


def measured_peaks(run: Run) -> Values:
    return {figure.promise: figure.value(run) for figure in PEAKS}


def _requests_of_p95(kv_cache_tokens: int | None, evidence: Evidence) -> int | None:
    """How many requests of p95 length fit, in whole blocks as vLLM hands them out."""
    p95 = evidence.profile.overall.percentile(95)
    if kv_cache_tokens is None or p95 is None:
        return None
    blocks = ceil((p95 + evidence.output_tokens) / BLOCK_TOKENS)
    return kv_cache_tokens // BLOCK_TOKENS // max(1, blocks)


# -- [gate.slo] and [gate.speed] -------------------------------------------------------------------


def check_slo(limits: Any, evidence: Evidence) -> Iterator[Check]:
    """What is predicted of the plan, against limits."""
    run = evidence.plan.run
    figures = run.figures if run else None
    yield from _speeds(limits, figures, "slo", "plan, predicted", note("gate_not_simulated"))


def check_speed(limits: SpeedLimits, evidence: Evidence) -> Iterator[Check]:
    """What was measured, against limits or against a committed verify.json."""
    verification, setting = evidence.verification, limits.setting
    run, why_not = run_of(verification, setting)
    figures, why = run.figures if run else None, why_not or note("gate_not_measured")
    yield from _speeds(limits, figures, "speed", setting, why)
    if limits.baseline is not None:
        before = _baseline_figures(limits, verification, evidence)
        for name in limits.compare:
            yield _compared(BY_PROMISE[name], limits, figures, before, why)


def _speeds(limits: Any, figures: object, table: str, subject: str, why: Note) -> Iterator[Check]:
    for figure in SPEED:
        if (limit := getattr(limits, figure.promise, None)) is not None:
            value = figure.value(figures)
            reason = why if value is None else None
            about: dict[str, Any] = {"subject": subject, "reason": reason, "better": figure.better}
            yield limited(f"{table}.{figure.promise}", limit, value, figure.unit, **about)


def _baseline_figures(limits: SpeedLimits, now: Verification, evidence: Evidence) -> Figures:
    file = limits.baseline or ""
    before = evidence.baseline(file, Verification.load)
    here = _circumstances(now)
    for what, there in _circumstances(before).items():
        if there != here[what]:
            raise InputError(
                f"the baseline {file} is of another {what} ({there} there, {here[what]} now): "
                "speeds are not comparable",
                hint="verify in the same way, or commit a new baseline",
            )
    run, _ = run_of(before, limits.setting)
    if run is None or run.figures is None:
        raise InputError(f"the baseline {file} has no figures of {limits.setting}")
    return run.figures


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
    figure: Figure, limits: SpeedLimits, figures: Figures | None, before: Figures, why: Note
) -> Check:
    old, new = figure.value(before), figure.value(figures)
    if old is None:
        raise InputError(
            f"the baseline {limits.baseline} has no {figure.promise} of {limits.setting}",
            hint="take it out of speed.compare, or commit a baseline that has it",
        )
    room = -limits.tolerance if figure.better is Better.MORE else limits.tolerance
    values = {"value": old, "unit": unit_name(figure.unit), "tolerance": limits.tolerance}
    return limited(
        f"speed.baseline.{figure.promise}",
        old * (1 + room),
        new,
        figure.unit,
        better=figure.better,
        subject=limits.setting,
        reason=why if new is None else note("gate_baseline", **values),
        key=("speed", "baseline"),
    )


# -- [gate.outputs] and [gate.doctor] --------------------------------------------------------------


def check_outputs(limits: OutputLimits, evidence: Evidence) -> Iterator[Check]:
    """Are answers the same? `verify --check-outputs` compares them."""
    if limits.equal is None:
        return
    verification = evidence.verification
    run, why = run_of(verification, limits.setting)
    value = equal_outputs(verification, run)
    if value is None and why is None:
        outputs = run.outputs if run else None
        code = "gate_random_weights" if outputs else "gate_outputs_not_compared"
        why = note(code)
    about: dict[str, Any] = {"subject": limits.setting, "reason": why}
    yield limited("outputs.equal", limits.equal, value, SHARE, better=Better.MORE, **about)


def equal_outputs(of: Verification, run: Run | None) -> float | None:
    """None where there is no evidence, as of random weights, where ties decide."""
    return None if of.model.dummy or run is None else EQUAL_OUTPUTS.value(run)


def check_doctor(limits: DoctorLimits, evidence: Evidence) -> Iterator[Check]:
    """What an engine's log says of its run."""
    diagnosis = evidence.diagnosis
    uses = [e.peak_kv_use for e in diagnosis.engines if e.peak_kv_use is not None]
    rates = [e.hit_rate for e in diagnosis.engines if e.hit_rate is not None]
    rules = ", ".join(dict.fromkeys(symptom.rule for symptom in diagnosis.symptoms))
    for key, value, unit, better in (
        ("findings", len(diagnosis.symptoms), COUNT, Better.LESS),
        ("refused_prompts", diagnosis.refused_prompts, COUNT, Better.LESS),
        ("kv_use", max(uses, default=None), SHARE, Better.LESS),
        ("prefix_hit_rate", min(rates, default=None), SHARE, Better.MORE),
    ):
        if (limit := getattr(limits, key)) is not None:
            reason = note("gate_log_silent") if value is None else None
            if key == "findings" and rules:
                reason = note("gate_rules", rules=rules)
            about: dict[str, Any] = {"subject": "the log", "reason": reason}
            yield limited(f"doctor.{key}", limit, value, unit, better=better, **about)


# -- [gate.freshness] ------------------------------------------------------------------------------


def check_freshness(limits: FreshnessLimits, evidence: Evidence) -> Iterator[Check]:
    """Do the artefacts belong to the data, and to each other?"""
    if limits.data:
        with chdir(_analyzed_from(evidence)):
            checks = list(_data_files(evidence.profile, limits.not_checked))
        yield from checks
    if limits.plan:
        source = evidence.plan.source.profile_digest
        yield _belongs("plan", "profile.json", source, evidence.profile.digest())
    if limits.verification:
        source_plan = evidence.verification.plan_digest
        yield _belongs("verification", "plan.json", source_plan, evidence.plan.digest())


def _analyzed_from(evidence: Evidence) -> Path:
    """The first folder from which the profile's paths lead anywhere, wherever the gate runs.

    `analyze` writes `reports/` into its own folder; else data are looked for beside the budget.
    """
    folders = (evidence.findings.folder.resolve().parent, evidence.folder.resolve(), Path.cwd())
    paths = [dataset.path for dataset in evidence.profile.datasets]
    leading = (one for one in folders if any(file_of(one / path) for path in paths))
    return next(leading, folders[0])


def _data_files(profile: Profile, not_checked: Container[str]) -> Iterator[Check]:
    there, problem = _there_today(profile)
    memo = DigestMemo()
    for dataset in profile.datasets:
        if dataset.name not in not_checked:
            yield _unchanged(dataset, memo, there, problem)
    memo.save()
    counted = {dataset.path for dataset in profile.datasets}
    for path, name in there.items():
        if path not in counted and name not in not_checked:  # `analyze` would count it today
            yield _file_check(path, "new")


def _there_today(profile: Profile) -> tuple[dict[str, str], Note | None]:
    """The names of all datasets that the same paths lead to now, by their paths."""
    paths = profile.paths
    if not paths:
        return {}, note("gate_paths_unknown")
    on_disk = [path for path in paths if os.path.lexists(path) or has_magic(path)]
    if not on_disk:
        return {}, None
    try:
        options = profile.options
        sources, _ = discover(
            on_disk, include=options.include, exclude=options.exclude, options=options.read
        )
    except ChunkscopeError as error:
        return {}, note("gate_cannot_look", why=error.message)
    return {source.path: source.name for source in sources}, None


def _unchanged(
    dataset: DatasetProfile, memo: DigestMemo, there: Container[str], problem: Note | None
) -> Check:
    file = file_of(dataset.path)
    if dataset.sha256 is None:
        return _file_check(dataset.name, None, note("gate_no_file"))
    if file is None:
        return _file_check(dataset.name, None, note("gate_file_gone", path=dataset.path))
    try:
        digest = memo.sha256(file)
    except OSError as error:
        why = note("gate_cannot_look", why=f"{file}: {error.strerror}")
        return _file_check(dataset.name, None, why)
    if problem is None and dataset.path not in there:
        problem = note("gate_not_led_to", path=dataset.path)
    if problem is not None:
        return _file_check(dataset.name, None, problem)
    same = digest == dataset.sha256
    reason = None if same else note("gate_file", path=dataset.path)
    return _file_check(dataset.name, "same" if same else "changed", reason)


def _file_check(subject: str, value: str | None, reason: Note | None = None) -> Check:
    return Check(
        name="freshness.data",
        subject=subject,
        passed=value == "same",
        relation=Relation.UNCHANGED,
        value=value,
        reason=reason,
    )


def file_of(path: str | Path) -> Path | None:
    """The file or folder of a dataset: of a member of an archive it is the archive."""
    try:
        if Path(path).exists():
            return Path(path)
        return next((folder for folder in Path(path).parents if folder.is_file()), None)
    except (OSError, ValueError):
        return None


def _belongs(what: str, name: str, source: str | None, today: str) -> Check:
    """Was this artefact made from the file of that name, as it is today?"""
    return Check(
        name=f"freshness.{what}",
        subject=name,
        passed=source == today,
        relation=Relation.MADE_FROM,
        limit=name,
        value="this" if source == today else "another" if source else None,
    )
