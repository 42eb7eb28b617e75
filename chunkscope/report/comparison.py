"""What changed between two folders: first the data, then what that does to the answer."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts.numbers import number, plural, share
from chunkscope.findings import Findings
from chunkscope.lengths.content import content_changes
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.report.plan import answer, facts, listed, setup
from chunkscope.report.runs import runs_table
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.verification import failure, measured_on
from chunkscope.verification.result import Verification

SCHEMA = "chunkscope/comparison/3"
FIGURES = ("rows", "p50", "p95", "longest", "served")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChange:
    """A dataset that is not the same: its figures before and now, None where it was not there.

    How many rows differ is None where that is not known; lengths and what a prefix cache can serve
    are None where the tokenizers differ.
    """

    dataset: str
    before: dict[str, float | None] | None
    now: dict[str, float | None] | None
    added: int | None = None
    removed: int | None = None
    changed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportComparison:
    """`notes` say what could not be compared, and why.

    `data` is None where the content of one folder is not known.
    """

    old: Findings
    new: Findings
    data: tuple[DataChange, ...] | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "chunkscope": __version__,
            "old": _side(self.old),
            "new": _side(self.new),
            "data": None if self.data is None else [asdict(one) for one in self.data],
            "notes": list(self.notes),
        }


def _side(findings: Findings) -> dict[str, Any]:
    plan = findings.plan
    return {
        "folder": str(findings.folder),
        "digests": findings.digests,
        "settings": plan.settings.given() if plan else None,
        "hours": plan.cost.hours if plan and plan.cost else None,
    }


def compare(old: Findings, new: Findings) -> ReportComparison:
    data = data_changes(old.profile, new.profile)
    return ReportComparison(old=old, new=new, data=data, notes=tuple(_not_comparable(old, new)))


def data_changes(old: Profile | None, new: Profile | None) -> tuple[DataChange, ...] | None:
    """The datasets that are not the same, by the digests of their records; None: nobody knows."""
    if old is None or new is None:
        return None
    before, now = ({d.name: d for d in profile.datasets} for profile in (old, new))
    same_tokens = old.tokenizer.digest == new.tokenizer.digest
    names = dict.fromkeys((*before, *now))
    pairs = ((name, before.get(name), now.get(name), same_tokens) for name in names)
    changes = tuple(filter(None, (_data_change(*pair) for pair in pairs)))
    is_known = all(d.content for d in (*before.values(), *now.values()))
    return changes if changes or is_known else None


def _data_change(
    name: str, old: DatasetProfile | None, new: DatasetProfile | None, same_tokens: bool
) -> DataChange | None:
    rows: dict[str, int] = {}
    if old is None or new is None:
        rows = {"added": new.rows if new else 0, "removed": old.rows if old else 0, "changed": 0}
    elif old.content is not None and new.content is not None:
        counts = content_changes(old.content, new.content)
        if counts is not None:  # a row that changed is one added and one removed
            both = min(counts)
            rows = {"added": counts[0] - both, "removed": counts[1] - both, "changed": both}
    before, now = (_figures(one, same_tokens) for one in (old, new))
    lengths = [one.lengths for one in (old, new) if one and same_tokens and not rows]
    if not any(rows.values()) and before == now and lengths[:1] == lengths[1:]:
        return None
    return DataChange(dataset=name, before=before, now=now, **rows)


def _figures(dataset: DatasetProfile | None, has_lengths: bool) -> dict[str, float | None] | None:
    if dataset is None:
        return None
    p50, p95 = (dataset.lengths.percentile(percent) for percent in (50, 95))
    served = dataset.prefixes.hit_rate if dataset.prefixes else None
    values = (dataset.rows, p50, p95, dataset.lengths.max, served)
    return dict(zip(FIGURES, values if has_lengths else (dataset.rows, *[None] * 4), strict=True))


# -- sections ------------------------------------------------------------------------------------


def sections(comparison: ReportComparison) -> list[Section]:
    old, new = comparison.old, comparison.new
    return [
        Section(
            sentences=tuple(_what_changed(comparison)),
            table=_data_table(comparison),
            notes=comparison.notes,
        ),
        Section(title="The plan", table=_plan_table(old, new)),
        *_measured(old.verification, new.verification),
    ]


def _what_changed(comparison: ReportComparison) -> Iterator[str]:
    """First of the data, then of the answer."""
    old, new, data = comparison.old, comparison.new, comparison.data
    folders = f"from {old.folder} to {new.folder}"
    if data:
        names = ("added", "removed", "changed")
        counts = {name: sum(getattr(one, name) or 0 for one in data) for name in names}
        parts = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        counted = f" (rows: {parts})" if parts else ""
        yield f"{plural(len(data), 'dataset')} changed{counted}, {folders}."
    else:
        yield f"The data is {'not compared' if data is None else 'the same'} {folders}."
    if old.plan is not None and new.plan is not None:
        before, after = map(answer, (old.plan, new.plan))
        same = f"The answer is the same: {after}"
        yield same if before == after else f"The answer changed. Before: {before} Now: {after}"


def _data_table(comparison: ReportComparison) -> Table | None:
    """What is the same before and now is written once."""

    def cell(one: DataChange, name: str) -> str:
        write = share if name == "served" else number
        both = [write(side[name]) if side else "none" for side in (one.before, one.now)]
        return " to ".join(dict.fromkeys(both))

    data = comparison.data or ()
    sides = [side for one in data for side in (one.before, one.now) if side]
    names = [name for name in FIGURES if any(side[name] is not None for side in sides)]
    counts = [(one.dataset, one.added, one.removed, one.changed) for one in data]
    rows = [(*c, *(cell(one, n) for n in names)) for c, one in zip(counts, data, strict=True)]
    return table_of(("rows and tokens", "added", "removed", "changed", *names), rows)


def _plan_table(old: Findings, new: Findings) -> Table | None:
    """What the plans take, where they differ."""
    if old.plan is None or new.plan is None:
        return None
    before, now = (
        {"planned for": setup(p), "sets": listed(p.settings) or "vLLM's defaults", **facts(p)}
        for p in (old.plan, new.plan)
    )
    rows = [(name, before.get(name), now.get(name)) for name in dict.fromkeys((*before, *now))]
    rows = [row for row in rows if row[1] != row[2]]
    return table_of(("", "before", "now"), rows, words=("before", "now"))


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


def _not_comparable(old: Findings, new: Findings) -> Iterator[str]:
    for name in ("profile", "plan", "verification", "simulation"):
        before, after = getattr(old, name), getattr(new, name)
        if (before is None) != (after is None):
            yield f"only {new.folder if before is None else old.folder} has a {name}"
    tokenizers = [one.profile.tokenizer for one in (old, new) if one.profile]
    if len({tokenizer.digest for tokenizer in tokenizers}) > 1:
        names = " and ".join(tokenizer.name for tokenizer in tokenizers)
        yield f"lengths of different tokenizers ({names}) are not compared"
    if old.verification and new.verification:
        before, after = measured_on(old.verification), measured_on(new.verification)
        if before != after:
            yield f"measured differently. Before: {before} Now: {after}"
