"""The checks, table by table: limits x evidence -> passed or failed."""

import os
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict, dataclass, fields, replace
from glob import has_magic
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.figures import BY_KEY, BY_PROMISE
from chunkscope.artefacts.note import Note, note
from chunkscope.artefacts.numbers import exceeds
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.findings import Findings
from chunkscope.gating.budget import (
    DATASETS,
    LENGTHS,
    LOG,
    MEMORY,
    MOVES,
    OUTPUTS,
    SPEED,
    Limit,
)
from chunkscope.gating.check import UNITS, Check, Key, Relation
from chunkscope.lengths.content import content_changes
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile, together
from chunkscope.planning.plan import Plan
from chunkscope.planning.request import PlanRequest
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.workload import DatasetOutput, dataset_output, served_prompts
from chunkscope.sources.discovery import discover
from chunkscope.tokenizers.cache import file_digest
from chunkscope.verification.result import Run, Verification

A = TypeVar("A", bound=Artefact)
Values = dict[str, float | None]  # today's figures, by their keys in a budget
Datasets = Sequence[DatasetProfile]
# Options of `analyze` that move no length; what `fields` chose is beside each dataset.
NOT_COUNTED = {"fields", "tokenizer", "prefixes", "keep_longest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The artefacts, and the committed files that a budget names."""

    findings: Findings
    folder: Path  # of the budget file

    def need(self, kind: type[A]) -> A:
        """An artefact that a check needs and that is not there is an error, never a pass."""
        for field in fields(self.findings):
            if isinstance(artefact := getattr(self.findings, field.name), kind):
                return artefact
        path = self.findings.folder / kind.default_path.name
        hint = f"run `{kind.made_by}` first, or take the check out"
        raise InputError(f"a check needs {path}, which does not exist", hint=hint)

    def outputs(self, datasets: Datasets) -> list[DatasetOutput]:
        """Answers of each dataset: as long as in the plan, else in the data, else as usual."""
        asked = self.findings.plan.request if self.findings.plan else PlanRequest()
        most = {
            one.name: asked.max_outputs.get(one.name, asked.max_output)
            for one in datasets
        }
        return [dataset_output(one, asked.task, most[one.name]) for one in datasets]

    def path(self, name: str) -> Path:
        """A file that the budget names, as seen from the budget file."""
        return Path(os.path.normpath(self.folder / name))


def _limit_checks(
    table: str,
    limits: Iterable[Limit],
    budget: Any,
    values: Values,
    *,
    unknown: Note | None = None,
    reasons: Mapping[str, Note] | None = None,
    key: Key = (),
    subject: str = ALL,
) -> Iterator[Check]:
    """A check for each limit that is set. A value that is not known fails; `unknown` is why."""
    for spec in limits:
        limit, value = getattr(budget, spec.key), values.get(spec.key)
        if limit is None:
            continue
        name, at_least = f"{table}.{spec.key}", spec.relation is Relation.AT_LEAST
        if at_least and limit <= 0:
            raise InputError(
                f"{name}: at least {spec.unit.brief(limit)} is always true"
            )
        passed = value is not None and not (
            exceeds(limit, value) if at_least else exceeds(abs(value), limit)
        )
        yield Check(
            name=name,
            passed=passed,
            subject=subject,
            relation=spec.relation,
            limit=limit,
            value=value,
            unit=next(name for name, unit in UNITS.items() if unit is spec.unit),
            key=(*key, spec.key) if key else (),
            reason=(reasons or {}).get(spec.key, unknown if value is None else None),
        )


# -- [gate.data] -----------------------------------------------------------------------------------


def check_data(budget: Any, evidence: Evidence) -> Iterator[Check]:
    """How long the prompts are, how many, and whether all of them can be served."""
    datasets, samples = evidence.need(Profile).datasets, budget.allow_sample
    yield from _length_checks(budget, datasets, samples)
    if (context := budget.max_model_len) is not None:
        served = refused_prompts_check(
            "data.max_model_len", context, evidence, datasets
        )
        yield _of_all_data(served, datasets, samples)
    for name in budget.datasets:
        yield _has_rows(name, datasets)
    for name, own_limits in budget.of.items():
        key, named = ("data", "of", name), [d for d in datasets if d.name == name]
        own = _length_checks(own_limits, named, samples, subject=name, key=key)
        yield from own if named else [_has_rows(name, datasets, key)]


def _length_checks(
    budget: Any, datasets: Datasets, allow_sample: bool, **options: Any
) -> Iterator[Check]:
    for check in _limit_checks(
        "data", LENGTHS, budget, length_values(datasets), **options
    ):
        # How many rows there are is known of a sample, too.
        is_sure = check.name == "data.min_rows"
        yield check if is_sure else _of_all_data(check, datasets, allow_sample)


def length_values(datasets: Datasets) -> Values:
    lengths = together(datasets)
    filled = [dataset.prefixes for dataset in datasets if dataset.rows]
    reuses = [reuse for reuse in filled if reuse is not None]
    # Of all of them, or not at all.
    reuse = reuse_together(reuses) if reuses and len(reuses) == len(filled) else None
    return {
        **dict.fromkeys(
            ("longest_prompt", "max"), lengths.max
        ),  # `max`: of how far it moved
        **{f"p{percent}": lengths.percentile(percent) for percent in (50, 95, 99)},
        "min_rows": sum(d.sample.out_of if d.sample else d.rows for d in datasets),
        "bad_rows": sum(dataset.skipped for dataset in datasets),
        "prefix_hit_rate": reuse.hit_rate if reuse else None,
        "shared_prefix_tokens": reuse.common_tokens if reuse else None,
    }


def _of_all_data(
    check: Check, datasets: Iterable[DatasetProfile], allow_sample: bool
) -> Check:
    """The same check; failed if the profile has only a part of a dataset."""
    for dataset in datasets:
        if dataset.failure:
            reason = note("gate_unread_dataset", dataset=dataset.name)
        elif dataset.sample and not allow_sample:
            rows, out_of = dataset.sample.rows, dataset.sample.out_of
            reason = note(
                "gate_sample_only", dataset=dataset.name, rows=rows, out_of=out_of
            )
        else:
            continue
        return replace(check, passed=False, reason=reason, of_a_part=True)
    return check


def refused_prompts_check(
    name: str,
    context: int,
    evidence: Evidence,
    datasets: Datasets,
    limit: int = 0,
    **options: Any,
) -> Check:
    """How many prompts a server with this context refuses."""
    lengths, outputs = together(datasets), evidence.outputs(datasets)
    most = max((out.tokens for out in outputs), default=0)
    refused = lengths.count - served_prompts(datasets, outputs, context)
    values = {"context": context, "output": most, "of": lengths.count}
    return Check(
        name=name,
        passed=refused <= limit and lengths.count > 0,
        relation=Relation.AT_MOST,
        limit=limit,
        value=refused,
        unit="count",
        reason=note("gate_refused_prompts", longest=lengths.max, **values),
        **options,
    )


def _has_rows(name: str, datasets: Datasets, key: Key = ()) -> Check:
    rows = {dataset.name: dataset.rows for dataset in datasets}.get(name)
    limit: Any = {
        "relation": Relation.AT_LEAST,
        "limit": 1,
        "unit": "count",
        "key": key,
    }
    limit["reason"] = note("gate_no_such_dataset") if rows is None else None
    return Check(
        name="data.datasets", subject=name, passed=bool(rows), value=rows or 0, **limit
    )


# -- [gate.drift] ----------------------------------------------------------------------------------


def check_drift(budget: Any, evidence: Evidence) -> Iterator[Check]:
    """How far lengths and rows have moved from those of a committed profile."""
    now, before = evidence.need(Profile), _baseline(budget.baseline, evidence)
    cause = _changed_options(before, now)
    yield from (replace(check, cause=cause) for check in drift(budget, now, before))


def drift(budget: Any, now: Profile, before: Profile) -> Iterator[Check]:
    # A dataset without rows is as good as gone.
    new, old = ({d.name: d for d in p.datasets if d.rows} for p in (now, before))
    both = [name for name in new if name in old]
    compared = {ALL: (before.datasets, now.datasets)}
    if not len(new) == len(old) == 1:
        compared |= {name: ((old[name],), (new[name],)) for name in both}
    for subject, pair in compared.items():
        was, is_now = map(length_values, pair)
        moves = {spec.key: _relative(was[spec.key], is_now[spec.key]) for spec in MOVES}
        reasons = {
            key: note("gate_moved", before=was[key], now=is_now[key]) for key in moves
        }
        options: Any = {"reasons": reasons, "subject": subject}
        for check in _limit_checks("drift", MOVES, budget, moves, **options):
            yield _of_all_data(check, chain(*pair), budget.allow_sample)
    if budget.content == "same":
        yield from (_same_rows(old[name], new[name]) for name in both)
    names = {
        "new_datasets": [name for name in new if name not in old],
        "vanished_datasets": [name for name in old if name not in new],
    }
    for spec in DATASETS:
        subject = ", ".join(names[spec.key]) or ALL
        count: Values = {spec.key: len(names[spec.key])}
        yield from _limit_checks("drift", (spec,), budget, count, subject=subject)


def _same_rows(before: DatasetProfile, now: DatasetProfile) -> Check:
    """Whole rows, answers included, whatever their order or file format."""
    old, new = before.content, now.content
    value, reason = None, note("gate_rows_unknown")
    if old is not None and new is not None:
        changes = content_changes(old, new)
        added, removed = changes or (None, None)
        value = "same" if changes == (0, 0) else "changed"
        reason = note(
            "gate_rows", added=added, removed=removed, before=old.rows, now=new.rows
        )
    return _unchanged("drift.content", now.name, value, reason)


def _changed_options(before: Profile, now: Profile) -> Note | None:
    """What was taken for the prompt, and the options, where they are not as for the baseline."""
    old, new = _options_of(before), _options_of(now)
    names = [name for name in new if old.get(name, new[name]) != new[name]]
    then, today = (
        [*dict.fromkeys(f"{n[0]} {of[n]}" for n in names)] for of in (old, new)
    )
    return note("gate_counted_differently", before=then, now=today) if names else None


def _options_of(profile: Profile) -> dict[tuple[str, str], str]:
    """As text, by name and (of the field of the prompt) dataset."""
    values = asdict(profile.options)
    options = values.pop("select") | values.pop("read") | values.pop("render") | values
    texts = {(n, ""): str(v or "none").strip("(,)") for n, v in options.items()}
    fields = {("field", dataset.name): dataset.field for dataset in profile.datasets}
    return fields | {
        name: text for name, text in texts.items() if name[0] not in NOT_COUNTED
    }


def _baseline(name: str, evidence: Evidence) -> Profile:
    """The committed profile; lengths of another tokenizer cannot be compared with."""
    path, profile = evidence.path(name), evidence.findings.folder / "profile.json"
    if path.resolve() == profile.resolve():
        what = f"the baseline {name} is today's profile: nothing drifts from itself"
        raise InputError(
            what, hint="let it name a copy; `chunkscope gate --init` makes one"
        )
    try:
        before = Profile.load(path)
    except InputError as error:
        folder, *files = (
            shlex.quote(str(file)) for file in (path.parent, profile, path)
        )
        hint = f"commit one: `mkdir -p {folder} && cp {' '.join(files)}`"
        hint = (
            "let it name a profile of `chunkscope analyze`" if path.exists() else hint
        )
        raise InputError(f"the baseline: {error.message}", hint=hint) from None
    now, then = evidence.need(Profile).tokenizer, before.tokenizer
    for part in (
        "digest",
        "kind",
        "chat_template",
        "special_tokens_added",
    ):  # the kind may be none
        if getattr(now, part) != getattr(then, part):
            what = f"the baseline {name} was counted with another tokenizer (the {part} differs)"
            hint = "analyze with the baseline's --tokenizer, or commit a new baseline"
            raise InputError(f"{what}: {then.name} there, {now.name} now", hint=hint)
    return before


def _relative(before: float | None, now: float | None) -> float | None:
    """The change, as a share of what it was."""
    return (
        0.0
        if before == now
        else (now - before) / before
        if before and now is not None
        else None
    )


# -- [gate.memory], [gate.slo], [gate.speed], [gate.outputs] ---------------------------------------


def check_memory(budget: Any, evidence: Evidence) -> Iterator[Check]:
    """What is predicted and what was measured, each against its own limits."""
    if (limits := budget.predicted) is not None:
        plan, unknown = evidence.need(Plan), note("gate_no_memory_model")
        options: Any = {"unknown": unknown, "subject": _predicted_for(plan)}
        values = predicted_memory(plan)
        yield from _limit_checks("memory.predicted", MEMORY, limits, values, **options)
    if (limits := budget.measured) is not None:
        run, options = _measured_run(evidence.need(Verification), budget.setting)
        values = figure_values(MEMORY, run)
        yield from _limit_checks("memory.measured", MEMORY, limits, values, **options)


def _predicted_for(plan: Plan) -> str:
    """The plan's model and GPU; its figures may be of one dataset of several."""
    where = " on ".join(one.name for one in (plan.model, plan.gpu) if one) or "plan"
    return f"{where}, {plan.request.dataset} alone" if plan.request.dataset else where


def predicted_memory(plan: Plan) -> Values:
    """A step needs activations, the sampler and logits of prompt_logprobs beside the weights. vLLM
    fills what it may use with KV cache; what it does not profile comes on top."""
    memory = plan.memory
    if memory is None:
        return {}
    outside = sum(
        x.gib for x in memory.lines if not x.profiled and x.name != "logprobs"
    )
    step = memory.line("activation").gib + memory.line("sampler").gib
    return {
        "activation_peak": step + memory.unprofiled_gib,
        "device_peak": memory.requested_gib + outside + memory.unprofiled_gib,
        "kv_requests_of_p95": plan.requests_of(plan.decision.p95),
    }


def figure_values(limits: Iterable[Limit], run: Run | SimulatedRun | None) -> Values:
    """Of a run, simulated or measured: those of these limits that a run has figures of."""
    figures = {one.key: BY_PROMISE[one.key] for one in limits if one.key in BY_PROMISE}
    whole = getattr(run, "figures", None)
    return {key: one.value(run if one.once else whole) for key, one in figures.items()}


def check_slo(budget: Any, evidence: Evidence) -> Iterator[Check]:
    """What is predicted of the plan."""
    plan = evidence.need(Plan)
    values, unknown = figure_values(SPEED, plan.run), note("gate_not_simulated")
    subject = f"{_predicted_for(plan)}, predicted"
    yield from _limit_checks(
        "slo", SPEED, budget, values, unknown=unknown, subject=subject
    )


def check_speed(budget: Any, evidence: Evidence) -> Iterator[Check]:
    """What was measured."""
    run, options = _measured_run(evidence.need(Verification), budget.setting)
    yield from _limit_checks(
        "speed", SPEED, budget, figure_values(SPEED, run), **options
    )


def check_outputs(budget: Any, evidence: Evidence) -> Iterator[Check]:
    """Are answers the same? `verify --check-outputs` compares them."""
    verification = evidence.need(Verification)
    run, options = _measured_run(verification, budget.setting)
    if run is not None:
        dummy = run.outputs and verification.model.dummy
        options["unknown"] = note(
            "gate_random_weights" if dummy else "gate_outputs_not_compared"
        )
    values = output_values(verification, run)
    yield from _limit_checks("outputs", OUTPUTS, budget, values, **options)


def output_values(verification: Verification, run: Run | None) -> Values:
    """Answers of random weights, where ties decide, are no evidence."""
    return {
        "equal": None
        if verification.model.dummy
        else BY_KEY["outputs.equal"].value(run)
    }


def _measured_run(v: Verification, setting: str) -> tuple[Run | None, dict[str, Any]]:
    """The run of that setting if it was measured; and why else its figures are not known."""
    runs = [run for run in v.runs if run.is_called(setting)]
    if len(runs) != 1:
        names = ", ".join(run.setting for run in v.runs)
        unknown = note(
            "gate_no_such_run", count=len(runs), setting=setting, names=names
        )
    elif runs[0].ok:
        return runs[0], {"unknown": note("gate_not_measured"), "subject": setting}
    else:
        unknown = runs[0].failure or note("gate_run_failed", status=str(runs[0].status))
    return None, {"unknown": unknown, "subject": setting}


# -- [gate.doctor] ---------------------------------------------------------------------------------


def check_doctor(budget: Any, evidence: Evidence) -> Iterator[Check]:
    """What an engine's log says of its run."""
    diagnosis = evidence.need(Diagnosis)
    uses = [e.peak_kv_use for e in diagnosis.engines if e.peak_kv_use is not None]
    rates = [e.hit_rate for e in diagnosis.engines if e.hit_rate is not None]
    rules = ", ".join(dict.fromkeys(symptom.rule for symptom in diagnosis.symptoms))
    values: Values = {
        "findings": len(diagnosis.symptoms),
        "refused_prompts": diagnosis.refused_prompts,
        "kv_use": max(uses, default=None),
        "prefix_hit_rate": min(rates, default=None),
    }
    reasons = {"findings": note("gate_rules", rules=rules)} if rules else {}
    options: Any = {
        "unknown": note("gate_log_silent"),
        "reasons": reasons,
        "subject": "the log",
    }
    yield from _limit_checks("doctor", LOG, budget, values, **options)


# -- [gate.freshness] ------------------------------------------------------------------------------


def check_freshness(budget: Any, evidence: Evidence) -> Iterator[Check]:
    """Do the artefacts belong to the data, and to each other?"""
    if budget.data:
        with chdir(_folder_of_data(evidence)):
            checks = list(_file_checks(evidence.need(Profile), budget.not_checked))
        yield from checks
    findings = evidence.findings
    if budget.plan and evidence.need(Plan) and evidence.need(Profile):
        yield _made_from("profile.json", "plan", findings.plan_is_of_this_profile)
    if budget.verification and evidence.need(Verification) and evidence.need(Plan):
        yield _made_from(
            "plan.json", "verification", findings.verification_is_of_this_plan
        )


def _folder_of_data(evidence: Evidence) -> Path:
    """The first folder in which one of the profile's paths exists."""
    folders = (
        evidence.findings.folder.resolve().parent,
        evidence.folder.resolve(),
        Path.cwd(),
    )
    paths = evidence.need(Profile).paths
    having = (
        folder for folder in folders for path in paths if os.path.lexists(folder / path)
    )
    return next(having, folders[0])


def _file_checks(profile: Profile, not_checked: Container[str]) -> Iterator[Check]:
    """The files at the profile's paths today against those that were counted."""
    options, problem = profile.options, None
    paths = [path for path in profile.paths if os.path.lexists(path) or has_magic(path)]
    chosen: Any = {"include": options.include, "exclude": options.exclude}
    try:
        sources = discover(paths, options=options.read, **chosen)[0] if paths else []
    except ChunkscopeError as error:
        sources, problem = [], note("gate_cannot_look", why=error.message)
    files = {source.path: source.file for source in sources}
    for dataset in profile.datasets:
        if dataset.name not in not_checked:
            value, reason = _file_state(dataset, files.get(dataset.path))
            reason = problem if value is None and problem else reason
            yield _unchanged("freshness.data", dataset.name, value, reason)
    counted = {dataset.path for dataset in profile.datasets}
    for source in sources:
        if source.path not in counted and source.name not in not_checked:
            yield _unchanged(
                "freshness.data", source.path, "new"
            )  # `analyze` would count it


def _file_state(
    dataset: DatasetProfile, file: Path | None
) -> tuple[str | None, Note | None]:
    """Is its file the one that was counted? None where that is not known, and why."""
    if dataset.digest is None:
        return None, note("gate_no_file")
    if file is None:
        return None, note("gate_not_led_to", path=dataset.path)
    try:
        same = file_digest(file) == dataset.digest
    except OSError as error:
        return None, note("gate_cannot_look", why=f"{file}: {error.strerror}")
    return ("same", None) if same else ("changed", note("gate_file", path=dataset.path))


def _unchanged(
    name: str, subject: str, value: str | None, reason: Note | None = None
) -> Check:
    result: dict[str, Any] = {
        "passed": value == "same",
        "value": value,
        "reason": reason,
    }
    return Check(name=name, subject=subject, relation=Relation.UNCHANGED, **result)


def _made_from(source: str, artefact: str, is_so: bool | None) -> Check:
    """Was the artefact made from this file, as it is today? None: not known."""
    value = None if is_so is None else "this" if is_so else "another"
    result: dict[str, Any] = {"passed": is_so is True, "limit": source, "value": value}
    return Check(name=f"freshness.{artefact}", relation=Relation.MADE_FROM, **result)
