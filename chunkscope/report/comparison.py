"""What changed between two folders: first the data, then what that does to the answer."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts.figures import FIGURES, KV_TOKENS
from chunkscope.artefacts.numbers import (
    NOT_MEASURED,
    as_written,
    change,
    duration,
    gib,
    number,
    share,
)
from chunkscope.findings import Findings
from chunkscope.lengths.content import content_changes
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile, together
from chunkscope.planning.plan import Plan
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.report.runs import LOOKS
from chunkscope.report.section import Cell, Section, table_of
from chunkscope.report.words import verdicts as words
from chunkscope.verification.result import Verification
from chunkscope.verification.verdict import Outcome, judge, value

SCHEMA = "chunkscope/comparison/2"


class Part(StrEnum):
    LENGTHS = "lengths and sharing"
    PLAN = "answer"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure of one subject, before and after, as it is written and as it is."""

    part: Part
    subject: str
    figure: str
    old: str
    new: str
    old_value: Any = None
    new_value: Any = None
    outcome: Outcome = Outcome.UNKNOWN


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
    """`notes` say what could not be compared, and why. `ties` are figures within the spread.

    `data` is None where the content of one folder is not known.
    """

    old: Findings
    new: Findings
    data: tuple[DataChange, ...] | None
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    ties: int

    @property
    def comparable_profile(self) -> Profile | None:
        """The old lengths, where they can be drawn beside the new ones."""
        old, new = self.old.profile, self.new.profile
        return old if old and new and _same_tokens(old, new) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "chunkscope": __version__,
            "old": {"folder": str(self.old.folder), "digests": self.old.digests},
            "new": {"folder": str(self.new.folder), "digests": self.new.digests},
            "data": None if self.data is None else [asdict(one) for one in self.data],
            "changes": [asdict(one) for one in self.changes],
            "ties": self.ties,
            "notes": list(self.notes),
        }


def compare(old: Findings, new: Findings) -> ReportComparison:
    changes = list(_changes(old, new))
    return ReportComparison(
        old=old,
        new=new,
        data=data_changes(old.profile, new.profile),
        changes=tuple(one for one in changes if one.outcome is not Outcome.TIE),
        notes=tuple(words.not_comparable(old, new)),
        ties=sum(one.outcome is Outcome.TIE for one in changes),
    )


def sections(comparison: ReportComparison) -> list[Section]:
    data = None if comparison.data is None else [asdict(one) for one in comparison.data]
    rows = [tuple(one.values()) for one in data or ()]
    heads = ("rows", "before", "now", "added", "removed", "changed")
    changed = words.figures_changed(len(comparison.changes), comparison.ties)
    return [
        Section(
            sentences=(*words.what_changed(comparison.old, comparison.new, data), changed),
            table=table_of(heads, rows),
            notes=comparison.notes,
        ),
        *(
            Section(
                title=part.value.capitalize(),
                table=table_of(
                    ("of", "figure", "before", "now", "change"),
                    [_row(one) for one in comparison.changes if one.part is part],
                    words=("figure",),
                ),
            )
            for part in Part
        ),
    ]


def _row(one: Change) -> tuple[str | Cell, ...]:
    numbers = all(type(v) in (int, float) for v in (one.old_value, one.new_value))
    by = change(one.old_value, one.new_value) if numbers else ""
    look = LOOKS.get(one.outcome, "")
    return one.subject, one.figure, one.old, one.new, Cell(text=by, look=look)


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
    added: int | None = None
    removed: int | None = None
    changed: int | None = None
    if old is None or new is None:
        added, removed, changed = new.rows if new else 0, old.rows if old else 0, 0
    elif old.content is not None and new.content is not None:
        if (counts := content_changes(old.content, new.content)) == (0, 0):
            return None
        if counts is not None:  # a row that changed is one added and one removed
            changed = min(counts)
            added, removed = (count - changed for count in counts)
    elif old.lengths == new.lengths:
        return None
    rows = {"before": old.rows if old else None, "now": new.rows if new else None}
    return DataChange(dataset=name, added=added, removed=removed, changed=changed, **rows)


# -- figures of each part, by subject ------------------------------------------------------------

Figures = dict[str, tuple[Any, str]]  # by name: a value, and how it is written


def _changes(old: Findings, new: Findings) -> Iterator[Change]:
    if old.profile and new.profile and _same_tokens(old.profile, new.profile):
        before, after = _lengths(old.profile), _lengths(new.profile)
        for subject in dict.fromkeys((*after, *before)):
            yield from _differing(Part.LENGTHS, subject, before.get(subject), after.get(subject))
    if old.plan and new.plan:
        yield from _differing(Part.PLAN, "plan", _plan(old.plan), _plan(new.plan))
    if old.verification and new.verification:
        yield from _measured(old.verification, new.verification)


def _differing(
    part: Part,
    subject: str,
    old: Figures | None,
    new: Figures | None,
    outcome: Outcome = Outcome.UNKNOWN,
) -> Iterator[Change]:
    for name in dict.fromkeys((*(new or {}), *(old or {}))):
        before, after = ((figures or {}).get(name, (None, "none")) for figures in (old, new))
        if before[0] != after[0]:
            texts = {"old": before[1], "new": after[1], "outcome": outcome}
            values = {"old_value": before[0], "new_value": after[0]}
            yield Change(part=part, subject=subject, figure=name, **texts, **values)  # type: ignore[arg-type]


def _same_tokens(old: Profile, new: Profile) -> bool:
    return old.tokenizer.digest == new.tokenizer.digest


def _lengths(profile: Profile) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    for name, datasets in (*((d.name, [d]) for d in profile.datasets), (ALL, profile.datasets)):
        lengths = together(datasets)
        values = {f"p{n}": lengths.percentile(n) for n in (50, 95)} | {"longest": lengths.max}
        figures[name] = {"prompts": (lengths.count, number(lengths.count))}
        figures[name] |= {key: (value, number(value)) for key, value in values.items()}
        if measured := [d.prefixes for d in datasets if d.prefixes]:
            rate = reuse_together(measured).hit_rate
            figures[name]["served by a prefix cache"] = (rate, share(rate))
    return figures


def _plan(plan: Plan) -> Figures:
    cost, memory = plan.cost, plan.memory
    values: dict[str, Any] = {
        "vLLM": plan.release.text,
        "model": plan.model.name if plan.model else None,
        "GPU": plan.gpu.title if plan.gpu else None,
        "prompts refused": plan.refused.prompts,
        **plan.settings.given(),
        KV_TOKENS.title: memory.kv_cache_tokens if memory else None,
    }
    written: Figures = {n: (v, as_written(v)) for n, v in values.items() if v is not None}
    if cost is not None:
        written["time, predicted"] = (cost.hours, duration(cost.hours))
    if memory is not None:
        activation = memory.line("activation").gib
        written["activations, predicted"] = (activation, gib(activation))
    return written


def _measured(old: Verification, new: Verification) -> Iterator[Change]:
    for setting in dict.fromkeys(run.setting for run in (*new.runs, *old.runs)):
        runs = before, after = old.run(setting), new.run(setting)
        was, now = (words.STATUS[run.status] if run else NOT_MEASURED for run in runs)
        states: tuple[Figures, Figures] = {"status": (was, was)}, {"status": (now, now)}
        yield from _differing(Part.MEASURED, setting, *states)
        if before and after and before.ok and after.ok:
            for figure in FIGURES:
                one, two = (
                    {figure.title: (value(run, figure), words.shown(figure, run))}
                    for run in (before, after)
                )
                outcome = judge(figure, after, before)
                yield from _differing(Part.MEASURED, setting, one, two, outcome)
