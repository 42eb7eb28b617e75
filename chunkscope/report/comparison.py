"""What changed between two folders: first the data, then what that does to the answer."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts.numbers import as_written, change, duration, number, plural, share
from chunkscope.findings import Findings
from chunkscope.lengths.content import content_changes
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile, together
from chunkscope.planning.plan import Plan
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.report.plan import answer
from chunkscope.report.runs import runs_table
from chunkscope.report.section import Section, table_of
from chunkscope.report.verification import failure, measured_on
from chunkscope.verification.result import Verification

SCHEMA = "chunkscope/comparison/3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A figure of a dataset or of the plan, before and after: as it is written and as it is."""

    subject: str
    figure: str
    old: str
    new: str
    old_value: Any
    new_value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChange:
    """The rows of a dataset, before and after. None: no such dataset, or not known."""

    dataset: str
    before: int | None
    now: int | None
    added: int | None
    removed: int | None
    changed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportComparison:
    """`notes` say what could not be compared, and why.

    `data` is None where the content of one folder is not known.
    """

    old: Findings
    new: Findings
    data: tuple[DataChange, ...] | None
    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        sides = {"old": self.old, "new": self.new}
        return {
            "schema": SCHEMA,
            "chunkscope": __version__,
            **{n: {"folder": str(f.folder), "digests": f.digests} for n, f in sides.items()},
            "data": None if self.data is None else [asdict(one) for one in self.data],
            "changes": [asdict(one) for one in self.changes],
            "notes": list(self.notes),
        }


def compare(old: Findings, new: Findings) -> ReportComparison:
    return ReportComparison(
        old=old,
        new=new,
        data=data_changes(old.profile, new.profile),
        changes=tuple(_changes(old, new)),
        notes=tuple(_not_comparable(old, new)),
    )


# -- sections ------------------------------------------------------------------------------------


def sections(comparison: ReportComparison) -> list[Section]:
    heads = ("rows", "before", "now", "added", "removed", "changed")
    rows = [tuple(asdict(one).values()) for one in comparison.data or ()]
    figures = table_of(
        ("of", "figure", "before", "now", "change"),
        map(_row, comparison.changes),
        words=("figure",),
    )
    return [
        Section(
            sentences=tuple(_what_changed(comparison)),
            table=table_of(heads, rows),
            notes=comparison.notes,
        ),
        Section(title="Lengths, sharing, plan", table=figures),
        *_measured(comparison.old.verification, comparison.new.verification),
    ]


def _row(one: Change) -> tuple[str, ...]:
    numbers = all(type(v) in (int, float) for v in (one.old_value, one.new_value))
    by = change(one.old_value, one.new_value) if numbers else ""
    return one.subject, one.figure, one.old, one.new, by


def _measured(old: Verification | None, new: Verification | None) -> Iterator[Section]:
    """Each setting that was run in both, as runs stand beside each other anywhere."""
    for run in new.runs if new else ():
        if (before := old.run(run.setting) if old else None) is None:
            continue
        both = {"before": before, "now": run}
        yield Section(
            title=f"Measured: {run.setting}",
            sentences=tuple(f"{name}: {failure(r)}." for name, r in both.items() if not r.ok),
            table=runs_table([(name, r) for name, r in both.items() if r.ok]),
        )


def _what_changed(comparison: ReportComparison) -> Iterator[str]:
    """First of the data, then of the answer."""
    old, new, data = comparison.old, comparison.new, comparison.data
    folders = f"from {old.folder} to {new.folder}"
    if data:
        names = ("added", "removed", "changed")
        counts = {name: sum(getattr(one, name) or 0 for one in data) for name in names}
        parts = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        counted = f" ({parts})" if parts else ""
        yield f"Rows changed in {plural(len(data), 'dataset')}{counted}, {folders}."
    else:
        yield f"The data is {'not compared' if data is None else 'the same'} {folders}."
    if old.plan is not None and new.plan is not None:
        before, after = map(answer, (old.plan, new.plan))
        same = f"The answer is the same: {after}"
        yield same if before == after else f"The answer changed. Before: {before} Now: {after}"


def _not_comparable(old: Findings, new: Findings) -> Iterator[str]:
    for name in ("profile", "plan", "verification", "simulation"):
        before, after = getattr(old, name), getattr(new, name)
        if (before is None) != (after is None):
            yield f"only {new.folder if before is None else old.folder} has a {name}"
    if old.profile and new.profile and not _same_tokens(old.profile, new.profile):
        names = f"{old.profile.tokenizer.name}, {new.profile.tokenizer.name}"
        yield f"lengths of different tokenizers ({names}): not compared"
    if old.verification and new.verification:
        before, after = measured_on(old.verification), measured_on(new.verification)
        if before != after:
            yield f"measured differently. Before: {before} Now: {after}"


# -- rows of the data ----------------------------------------------------------------------------


def data_changes(old: Profile | None, new: Profile | None) -> tuple[DataChange, ...] | None:
    """The datasets that are not the same, by the digests of their records; None: nobody knows."""
    if old is None or new is None:
        return None
    before, now = ({d.name: d for d in profile.datasets} for profile in (old, new))
    pairs = [(name, before.get(name), now.get(name)) for name in dict.fromkeys((*before, *now))]
    changes = tuple(filter(None, (_data_change(*pair) for pair in pairs)))
    is_known = all(d.content for d in (*before.values(), *now.values()))
    return changes if changes or is_known else None


def _data_change(
    name: str, old: DatasetProfile | None, new: DatasetProfile | None
) -> DataChange | None:
    counts: tuple[int | None, ...] = (None, None, None)  # added, removed, changed
    if old is None or new is None:
        counts = (new.rows if new else 0, old.rows if old else 0, 0)
    elif old.content is not None and new.content is not None:
        rows = content_changes(old.content, new.content)
        if rows == (0, 0):
            return None
        if rows is not None:  # a row that changed is one added and one removed
            both = min(rows)
            counts = (rows[0] - both, rows[1] - both, both)
    elif old.lengths == new.lengths:
        return None
    before, now = (one.rows if one else None for one in (old, new))
    added, removed, changed = counts
    return DataChange(
        dataset=name, before=before, now=now, added=added, removed=removed, changed=changed
    )


# -- figures -------------------------------------------------------------------------------------

Figures = dict[tuple[str, str], tuple[Any, str]]  # by subject and name: a value, and as written
NONE = (None, "none")
PLAN = "the plan"


def _changes(old: Findings, new: Findings) -> Iterator[Change]:
    before: Figures = {}
    after: Figures = {}
    if old.profile and new.profile and _same_tokens(old.profile, new.profile):
        before, after = _lengths(old.profile), _lengths(new.profile)
    if old.plan and new.plan:
        before, after = before | _plan(old.plan), after | _plan(new.plan)
    for key in dict.fromkeys((*after, *before)):
        (was, old_text), (now, new_text) = before.get(key, NONE), after.get(key, NONE)
        if was != now:
            texts = {"old": old_text, "new": new_text, "old_value": was, "new_value": now}
            yield Change(subject=key[0], figure=key[1], **texts)


def _same_tokens(old: Profile, new: Profile) -> bool:
    return old.tokenizer.digest == new.tokenizer.digest


def _lengths(profile: Profile) -> Figures:
    figures: Figures = {}
    for name, datasets in (*((d.name, [d]) for d in profile.datasets), (ALL, profile.datasets)):
        lengths = together(datasets)
        values = {"prompts": lengths.count, "p50": lengths.percentile(50)}
        values |= {"p95": lengths.percentile(95), "longest": lengths.max}
        figures |= {(name, key): (value, number(value)) for key, value in values.items()}
        if measured := [d.prefixes for d in datasets if d.prefixes]:
            rate = reuse_together(measured).hit_rate
            figures[name, "served by a prefix cache"] = (rate, share(rate))
    return figures


def _plan(plan: Plan) -> Figures:
    values: dict[str, Any] = {
        "vLLM": plan.release.text,
        "model": plan.model.name if plan.model else None,
        "GPU": plan.gpu.title if plan.gpu else None,
        "prompts refused": plan.refused.prompts,
        **plan.settings.given(),
        "KV cache tokens": plan.memory.kv_cache_tokens if plan.memory else None,
    }
    figures = {(PLAN, n): (v, as_written(v)) for n, v in values.items() if v is not None}
    if plan.cost is not None:
        figures[PLAN, "time, predicted"] = (plan.cost.hours, duration(plan.cost.hours))
    return figures
