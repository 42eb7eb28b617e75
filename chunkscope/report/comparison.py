"""What changed between two folders of results: lengths, settings, memory, measured figures."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts.figures import FIGURES, KV_TOKENS
from chunkscope.artefacts.numbers import NOT_MEASURED, as_written, change, gib, number
from chunkscope.findings import Findings
from chunkscope.lengths.profile import ALL, Profile, together
from chunkscope.planning.plan import Plan
from chunkscope.report.section import Cell, Column, Section, Table
from chunkscope.report.words import verdicts as words
from chunkscope.verification.result import Verification
from chunkscope.verification.verdict import Outcome, judge, value

SCHEMA = "chunkscope/comparison/1"
Figures = dict[str, tuple[Any, Callable[[Any], str]]]  # by name: a value, and how it is written


class Part(StrEnum):
    LENGTHS = "lengths"
    PLAN = "plan"
    MEMORY = "memory"
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

    @property
    def by(self) -> str:
        numbers = all(type(v) in (int, float) for v in (self.old_value, self.new_value))
        return change(self.old_value, self.new_value) if numbers else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportComparison:
    """`notes` say what could not be compared, and why. `ties` are figures within the spread."""

    old: Findings
    new: Findings
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
            "changes": [asdict(one) for one in self.changes],
            "ties": self.ties,
            "notes": list(self.notes),
        }


def compare(old: Findings, new: Findings) -> ReportComparison:
    changes = list(_changes(old, new))
    return ReportComparison(
        old=old,
        new=new,
        changes=tuple(one for one in changes if one.outcome is not Outcome.TIE),
        notes=tuple(words.not_comparable(old, new)),
        ties=sum(one.outcome is Outcome.TIE for one in changes),
    )


def sections(comparison: ReportComparison) -> list[Section]:
    changes, ties = len(comparison.changes), comparison.ties
    answer = words.changed(comparison.old, comparison.new, changes, ties)
    return [
        Section(sentences=(answer,), notes=comparison.notes),
        *(
            Section(title=part.value.capitalize(), table=_table(part, comparison.changes))
            for part in Part
        ),
    ]


def _table(part: Part, changes: tuple[Change, ...]) -> Table | None:
    columns = (
        *(Column(heading=heading, right=False) for heading in ("of", "figure")),
        *(Column(heading=heading) for heading in ("before", "now", "change")),
    )
    looks = {Outcome.BETTER: "good", Outcome.WORSE: "worse"}
    rows = tuple(
        (
            *(one.subject, one.figure, one.old, one.new),
            Cell(text=one.by, look=looks.get(one.outcome, "")),
        )
        for one in changes
        if one.part is part
    )
    return Table(columns=columns, rows=rows) if rows else None


# -- figures of each part, by subject ------------------------------------------------------------


def _changes(old: Findings, new: Findings) -> Iterator[Change]:
    if old.profile and new.profile and _same_tokens(old.profile, new.profile):
        before, after = _lengths(old.profile), _lengths(new.profile)
        for subject in dict.fromkeys((*after, *before)):
            yield from _differing(Part.LENGTHS, subject, before.get(subject), after.get(subject))
    if old.plan and new.plan:
        yield from _differing(Part.PLAN, "plan", _plan(old.plan), _plan(new.plan))
        yield from _differing(Part.MEMORY, "predicted", _memory(old.plan), _memory(new.plan))
    if old.verification and new.verification:
        yield from _measured(old.verification, new.verification)


def _differing(
    part: Part, subject: str, old: Figures | None, new: Figures | None
) -> Iterator[Change]:
    for name in dict.fromkeys((*(new or {}), *(old or {}))):
        known = [figures[name] for figures in (old, new) if figures and name in figures]
        before, after = (
            figures[name][0] if figures and name in figures else None for figures in (old, new)
        )
        write = known[0][1]
        if before != after:
            yield Change(
                part=part,
                subject=subject,
                figure=name,
                old="none" if before is None else write(before),
                new="none" if after is None else write(after),
                old_value=before,
                new_value=after,
            )


def _same_tokens(old: Profile, new: Profile) -> bool:
    return old.tokenizer.digest == new.tokenizer.digest


def _lengths(profile: Profile) -> dict[str, Figures]:
    sets = {dataset.name: dataset.lengths for dataset in profile.datasets}
    return {
        name: {
            "prompts": (lengths.count, number),
            "p50": (lengths.percentile(50), number),
            "p95": (lengths.percentile(95), number),
            "longest": (lengths.max, number),
        }
        for name, lengths in {**sets, ALL: together(profile.datasets)}.items()
    }


def _plan(plan: Plan) -> Figures:
    known: dict[str, Any] = {
        "vLLM": plan.release.text,
        "model": plan.model.name if plan.model else None,
        "GPU": plan.gpu.title if plan.gpu else None,
        "prompts refused": plan.refused.prompts,
        **plan.settings.given(),
    }
    return {name: (value, as_written) for name, value in known.items() if value is not None}


def _memory(plan: Plan) -> Figures:
    memory = plan.memory
    if memory is None:
        return {}
    return {
        "activations": (memory.line("activation").gib, gib),
        KV_TOKENS.title: (memory.kv_cache_tokens, number),
    }


def _measured(old: Verification, new: Verification) -> Iterator[Change]:
    settings = dict.fromkeys(run.setting for run in (*new.runs, *old.runs))
    for setting in settings:
        before, after = old.run(setting), new.run(setting)
        statuses = [words.STATUS[run.status] if run else NOT_MEASURED for run in (before, after)]
        if statuses[0] != statuses[1]:
            yield Change(
                part=Part.MEASURED,
                subject=setting,
                figure="status",
                old=statuses[0],
                new=statuses[1],
            )
        if not (before and after and before.ok and after.ok):
            continue
        for figure in FIGURES:
            values = value(before, figure), value(after, figure)
            if values[0] != values[1]:
                yield Change(
                    part=Part.MEASURED,
                    subject=setting,
                    figure=figure.title,
                    old=words.shown(figure, before),
                    new=words.shown(figure, after),
                    old_value=values[0],
                    new_value=values[1],
                    outcome=judge(figure, after, before),
                )
