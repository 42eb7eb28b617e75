"""[gate.data] and [gate.drift]: lengths and rows, and how they have changed."""

import shlex
from collections.abc import Iterator
from dataclasses import replace

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.gating.budget import DataTable, DriftTable, LengthLimits
from chunkscope.gating.check import Check, Relation
from chunkscope.gating.evidence import Datasets, Evidence, TableValues, Values
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile, together
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.simulation.draw import served_prompts

# What two tokenizers have to have in common for their lengths to be compared.
TOKENIZER_PARTS = ("digest", "kind", "chat_template", "special_tokens_added")
MOVING = ("p50", "p95", "max")  # figures whose drift may be limited


# -- [gate.data] -----------------------------------------------------------------------


def check_data(table: DataTable, evidence: Evidence) -> Iterator[Check]:
    """How long the prompts are, how many, and whether all of them can be served."""
    datasets = evidence.need_profile().datasets
    yield from _length_checks(table, datasets, table.allow_sample)
    if table.max_model_len is not None:
        check = refused_prompts_check(
            "data.max_model_len", table.max_model_len, evidence, datasets
        )
        yield of_all_data(check, datasets, table.allow_sample)
    for name in table.datasets:
        yield _rows_check(name, datasets)
    for name, limits in table.of.items():
        chosen = [dataset for dataset in datasets if dataset.name == name]
        if chosen:
            yield from _length_checks(limits, chosen, table.allow_sample, name)
        else:
            yield replace(_rows_check(name, datasets), key=("data", "of", name))


def _length_checks(
    limits: LengthLimits, datasets: Datasets, allow_sample: bool, name: str = ""
) -> Iterator[Check]:
    """Of all datasets together, or of the one with that name."""
    values = TableValues(
        table="data",
        values=length_values(datasets),
        subject=name or ALL,
        key=("data", "of", name) if name else (),
    )
    for check in values.checks(limits):
        # How many rows there are is known of a sample, too.
        if check.name == "data.min_rows":
            yield check
        else:
            yield of_all_data(check, datasets, allow_sample)


def length_values(datasets: Datasets) -> Values:
    """The figures of [gate.data] and [gate.drift]."""
    lengths = together(datasets)
    rows = 0
    for dataset in datasets:
        rows += dataset.sample.out_of if dataset.sample else dataset.rows
    # What is shared is known of all of them, or not at all.
    filled = [dataset.prefixes for dataset in datasets if dataset.rows]
    reuses = [reuse for reuse in filled if reuse is not None]
    reuse = None
    if reuses and len(reuses) == len(filled):
        reuse = reuse_together(reuses)
    return {
        "longest_prompt": lengths.max,
        "max": lengths.max,  # the same, as [gate.drift] calls it
        "p50": lengths.percentile(50),
        "p95": lengths.percentile(95),
        "p99": lengths.percentile(99),
        "min_rows": rows,
        "bad_rows": sum(dataset.skipped for dataset in datasets),
        "prefix_hit_rate": reuse.hit_rate if reuse else None,
    }


def of_all_data(check: Check, datasets: Datasets, allow_sample: bool) -> Check:
    """The same check; failed if the profile has only a part of a dataset."""
    for dataset in datasets:
        if dataset.failure:
            reason = note("gate_unread_dataset", dataset=dataset.name)
        elif dataset.sample and not allow_sample:
            reason = note(
                "gate_sample_only",
                dataset=dataset.name,
                rows=dataset.sample.rows,
                out_of=dataset.sample.out_of,
            )
        else:
            continue
        return replace(check, passed=False, reason=reason)
    return check


def refused_prompts_check(
    name: str, context: int, evidence: Evidence, datasets: Datasets, limit: int = 0
) -> Check:
    """How many prompts a server with this context refuses."""
    lengths = together(datasets)
    outputs = evidence.outputs(datasets)
    refused = lengths.count - served_prompts(datasets, outputs, context)
    reason = note(
        "gate_refused_prompts",
        context=context,
        output=max((output.tokens for output in outputs), default=0),
        longest=lengths.max,
        of=lengths.count,
    )
    return Check(
        name=name,
        passed=refused <= limit and lengths.count > 0,
        relation=Relation.AT_MOST,
        limit=limit,
        value=refused,
        unit="count",
        reason=reason,
    )


def _rows_check(name: str, datasets: Datasets) -> Check:
    """Is a dataset there, with rows?"""
    rows = 0
    reason: Note | None = note("gate_no_such_dataset")
    for dataset in datasets:
        if dataset.name == name:
            rows = dataset.rows
            reason = None
    return Check(
        name="data.datasets",
        passed=rows > 0,
        subject=name,
        relation=Relation.AT_LEAST,
        limit=1,
        value=rows,
        unit="count",
        reason=reason,
    )


# -- [gate.drift] ----------------------------------------------------------------------


def check_drift(table: DriftTable, evidence: Evidence) -> Iterator[Check]:
    """How far lengths and rows have moved from those of a committed profile."""
    profile = evidence.need_profile()
    baseline = _baseline(table.baseline, evidence)
    file = evidence.findings.folder / "profile.json"
    accept = shlex.join(["cp", str(file), str(evidence.path(table.baseline))])
    for check in drift(table, profile, baseline):
        yield replace(check, remedy=accept)


def drift(table: DriftTable, profile: Profile, baseline: Profile) -> Iterator[Check]:
    """The moves of a profile away from an earlier one, overall and by dataset."""
    new = _filled(profile)
    old = _filled(baseline)
    common = [name for name in new if name in old]
    yield from _moves(table, ALL, baseline.datasets, profile.datasets)
    if len(new) != 1 or len(old) != 1:
        for name in common:
            yield from _moves(table, name, (old[name],), (new[name],))
    if table.content == "same":
        for name in common:
            yield _same_rows(old[name], new[name])
    added = [name for name in new if name not in old]
    gone = [name for name in old if name not in new]
    yield from _dataset_count("new_datasets", added, table)
    yield from _dataset_count("vanished_datasets", gone, table)


def _filled(profile: Profile) -> dict[str, DatasetProfile]:
    """By name; a dataset without rows is as good as gone."""
    return {dataset.name: dataset for dataset in profile.datasets if dataset.rows}


def _dataset_count(key: str, names: list[str], table: DriftTable) -> Iterator[Check]:
    """How many datasets are in one of the profiles only."""
    values = TableValues(
        table="drift",
        values={key: len(names)},
        subject=", ".join(names) or ALL,
    )
    yield from values.checks(table, [key])


def _moves(
    table: DriftTable, subject: str, before: Datasets, now: Datasets
) -> Iterator[Check]:
    """How far each figure has moved."""
    old = length_values(before)
    new = length_values(now)
    moves = {key: _relative_change(old[key], new[key]) for key in MOVING}
    values = TableValues(table="drift", values=moves, subject=subject)
    for check in values.checks(table, MOVING):
        key = check.place[-1]
        reason = note("gate_moved", before=old[key], now=new[key])
        moved = replace(check, reason=reason)
        yield of_all_data(moved, (*before, *now), table.allow_sample)


def _relative_change(before: float | None, now: float | None) -> float | None:
    """The change, as a share of what it was."""
    if before == now:
        return 0.0
    if not before or now is None:
        return None
    return (now - before) / before


def _same_rows(before: DatasetProfile, now: DatasetProfile) -> Check:
    """Whole rows, answers included, whatever their order or file format."""
    value = None
    reason = note("gate_rows_unknown")
    old = before.content
    new = now.content
    if old is not None and new is not None:
        same = (old.rows, old.digest) == (new.rows, new.digest)
        value = "same" if same else "changed"
        reason = note("gate_rows", before=old.rows, now=new.rows)
    return Check(
        name="drift.content",
        passed=value == "same",
        subject=now.name,
        relation=Relation.UNCHANGED,
        value=value,
        reason=reason,
    )


def _baseline(name: str, evidence: Evidence) -> Profile:
    """The committed profile; lengths of another tokenizer cannot be compared with."""
    path = evidence.path(name)
    file = evidence.findings.folder / "profile.json"
    if path.resolve() == file.resolve():
        what = f"the baseline {name} is today's profile: nothing drifts from itself"
        hint = "let it name a copy; `chunkscope gate --init` makes one"
        raise InputError(what, hint=hint)
    try:
        baseline = Profile.load(path)
    except InputError as error:
        hint = "let it name a profile of `chunkscope analyze`"
        if not path.exists():
            folder = shlex.quote(str(path.parent))
            copy = shlex.join(["cp", str(file), str(path)])
            hint = f"commit one: `mkdir -p {folder} && {copy}`"
        raise InputError(f"the baseline: {error.message}", hint=hint) from None
    now = evidence.need_profile().tokenizer
    then = baseline.tokenizer
    for part in TOKENIZER_PARTS:
        if getattr(now, part) != getattr(then, part):
            raise InputError(
                f"the baseline {name} was counted with another tokenizer "
                f"(the {part} differs): {then.name} there, {now.name} now",
                hint="analyze with its --tokenizer, or commit a new baseline",
            )
    return baseline
