"""What changed between two folders: first the data, then what that does to the answer."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts.numbers import plural
from chunkscope.findings import Findings
from chunkscope.gating.budget import DATASETS, MOVES, TABLES
from chunkscope.gating.check import Check
from chunkscope.gating.checks import drift
from chunkscope.lengths.profile import ALL
from chunkscope.report.gate import value_text
from chunkscope.report.plan import answer, facts, listed, setup
from chunkscope.report.runs import runs_table
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.verification import failure, measured_on
from chunkscope.verification.result import Verification

SCHEMA = "chunkscope/comparison/4"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportComparison:
    """`data`: the gate's checks of drift that fail; None where a profile is missing.

    `notes` say what could not be compared, and why.
    """

    old: Findings
    new: Findings
    data: tuple[Check, ...] | None
    notes: tuple[str, ...]

    @property
    def moved(self) -> list[Check]:
        """Those that nobody can judge left out."""
        return [check for check in self.data or () if check.value is not None]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "chunkscope": __version__,
            **{side: str(getattr(self, side).folder) for side in ("old", "new")},
            "data": None if self.data is None else [asdict(check) for check in self.data],
            "notes": list(self.notes),
        }


def compare(old: Findings, new: Findings) -> ReportComparison:
    """Data that is the same passes every check of drift, with no room at all."""
    data, notes = None, tuple(_not_comparable(old, new))
    if old.profile is not None and new.profile is not None:
        limits: dict[str, Any] = {"baseline": "old", "content": "same", "allow_sample": True}
        limits |= {spec.key: 0 for spec in DATASETS}
        if old.profile.tokenizer.digest == new.profile.tokenizer.digest:
            limits |= {move.key: "0%" for move in MOVES}
        checks = drift(TABLES["drift"](**limits), new.profile, old.profile)
        data = tuple(check for check in checks if not check.passed)
    return ReportComparison(old=old, new=new, data=data, notes=notes)


# -- sections ------------------------------------------------------------------------------------


def sections(comparison: ReportComparison) -> list[Section]:
    old, new = comparison.old, comparison.new
    rows = [
        (check.subject, check.name.removeprefix("drift."), value_text(check))
        for check in comparison.moved
    ]
    return [
        Section(
            sentences=tuple(_what_changed(comparison)),
            table=table_of(("dataset", "what", "change"), rows, words=("what", "change")),
            notes=comparison.notes,
        ),
        Section(title="The plan", table=_plan_table(old, new)),
        *_measured(old.verification, new.verification),
    ]


def _what_changed(comparison: ReportComparison) -> Iterator[str]:
    """First of the data, then of the answer."""
    old, new = comparison.old, comparison.new
    state = "not compared" if comparison.data is None else "the same"
    if comparison.data:
        state = "the same by its lengths; the rows could not be compared"
    if names := {check.subject for check in comparison.moved} - {ALL}:
        state = f"not the same: {plural(len(names), 'dataset')} changed"
    yield f"From {old.folder} to {new.folder} the data is {state}."
    if old.plan is not None and new.plan is not None:
        before, after = map(answer, (old.plan, new.plan))
        same = f"The answer is the same: {after}"
        yield same if before == after else f"The answer changed. Before: {before} Now: {after}"


def _plan_table(old: Findings, new: Findings) -> Table | None:
    """What the plans take, where they differ."""
    if old.plan is None or new.plan is None:
        return None
    before, now = (
        {
            "planned for": setup(p),
            "sets": listed(p.settings) or "vLLM's defaults",
            **{label: f"{value} ({meaning})" for label, value, meaning in facts(p)},
        }
        for p in (old.plan, new.plan)
    )
    rows = [(name, before.get(name), now.get(name)) for name in dict.fromkeys((*before, *now))]
    rows = [row for row in rows if row[1] != row[2]]
    return table_of(("what", "before", "now"), rows, words=("before", "now"))


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
