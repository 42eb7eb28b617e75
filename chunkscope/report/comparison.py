"""What changed between two runs: lengths, mode, arguments, memory, measured figures."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from chunkscope.artefacts.figures import FIGURES, KV_TOKENS
from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.numbers import NOT_MEASURED, as_written, change, gib, number
from chunkscope.findings import Findings
from chunkscope.hardware.memory import Memory
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import ALL, Profile
from chunkscope.planning.plan import Plan
from chunkscope.report.summary import measured_on
from chunkscope.report.words.verdicts import STATUS
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.verdict import Outcome, judge, value

SCHEMA = "chunkscope/comparison/1"
ABSENT = "not there"
DEFAULT = "default"


class Part(StrEnum):
    LENGTHS = "lengths"
    MODE = "mode"
    ARGUMENTS = "arguments"
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
class Comparison:
    """`notes` say what could not be compared, and why. `ties` are figures within the spread."""

    old_name: str
    new_name: str
    old: Findings
    new: Findings
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    ties: int
    compared: tuple[Part, ...]

    @property
    def comparable_profile(self) -> Profile | None:
        """The old lengths, where they can be drawn beside the new ones."""
        return self.old.profile if Part.LENGTHS in self.compared else None

    def of(self, part: Part) -> tuple[Change, ...]:
        return tuple(found for found in self.changes if found.part is part)

    def to_json(self) -> dict[str, Any]:
        from chunkscope._version import __version__

        return {
            "schema": SCHEMA,
            "chunkscope": __version__,
            "old": {"folder": self.old_name, "digests": self.old.digests},
            "new": {"folder": self.new_name, "digests": self.new.digests},
            "compared": list(self.compared),
            "changes": [asdict(found) for found in self.changes],
            "ties": self.ties,
            "notes": list(self.notes),
        }


def compare(old: Findings, new: Findings) -> Comparison:
    parts = {part: list(changes) for part, changes in _parts(old, new)}
    found = [change for changes in parts.values() for change in changes]
    return Comparison(
        old_name=str(old.folder),
        new_name=str(new.folder),
        old=old,
        new=new,
        changes=tuple(f for f in found if f.outcome is not Outcome.TIE),
        notes=tuple(_notes(old, new)),
        ties=sum(f.outcome is Outcome.TIE for f in found),
        compared=tuple(parts),
    )


# -- what can be compared ------------------------------------------------------------------------


def _parts(old: Findings, new: Findings) -> Iterator[tuple[Part, Iterator[Change]]]:
    if old.profile and new.profile and _same_tokens(old.profile, new.profile):
        yield Part.LENGTHS, _lengths(old.profile, new.profile)
    if old.plan and new.plan:
        yield Part.MODE, _mode(old.plan, new.plan)
        yield Part.ARGUMENTS, _arguments(old.plan, new.plan)
        if old.plan.memory and new.plan.memory:
            yield Part.MEMORY, _memory(old.plan.memory, new.plan.memory)
    if old.verification and new.verification:
        yield Part.MEASURED, _measured(old.verification, new.verification)


def _same_tokens(old: Profile, new: Profile) -> bool:
    """Traces brought their lengths along: they go with any tokenizer."""
    counted = {p.tokenizer.digest for p in (old, new) if p.tokenizer.kind != "none"}
    return len(counted) <= 1


def _notes(old: Findings, new: Findings) -> Iterator[str]:
    for name, before, after in (
        ("profile.json", old.profile, new.profile),
        ("plan.json", old.plan, new.plan),
        ("verify.json", old.verification, new.verification),
    ):
        if (before is None) is not (after is None):
            yield f"{name} is only in {new.folder if before is None else old.folder}."
    if old.profile and new.profile and not _same_tokens(old.profile, new.profile):
        names = f"{old.profile.tokenizer.name} and {new.profile.tokenizer.name}"
        yield f"Counted with different tokenizers ({names}): lengths are not comparable."
    if old.verification and new.verification:
        yield from _measured_otherwise(old.verification, new.verification)


def _measured_otherwise(old: Verification, new: Verification) -> Iterator[str]:
    before, after = measured_on(old), measured_on(new)
    if before != after or old.model != new.model:
        yield (
            f"Measured {before} ({old.model.name}) before and {after} ({new.model.name}) now: "
            "differences may come from that."
        )
    if old.workload.requests != new.workload.requests:
        yield "The requests that were sent differ: differences may come from that."


# -- the parts -----------------------------------------------------------------------------------


def _lengths(old: Profile, new: Profile) -> Iterator[Change]:
    before = {dataset.name: dataset.lengths for dataset in old.datasets}
    after = {dataset.name: dataset.lengths for dataset in new.datasets}
    for name in dict.fromkeys((*after, *before)):
        if name in before and name in after:
            yield from _length_figures(name, before[name], after[name])
        else:
            counts = (found[name].count if name in found else None for found in (before, after))
            write = _or(ABSENT, number)
            yield from _changed(Part.LENGTHS, name, "prompts", *counts, write=write)
    yield from _length_figures(ALL, old.overall, new.overall)


def _length_figures(name: str, old: LengthHistogram, new: LengthHistogram) -> Iterator[Change]:
    if old == new:
        return
    for figure, before, after in (
        ("prompts", old.count, new.count),
        ("p50", old.percentile(50), new.percentile(50)),
        ("p95", old.percentile(95), new.percentile(95)),
        ("longest", old.max, new.max),
    ):
        yield from _changed(Part.LENGTHS, name, figure, before, after, write=number)


def _changed(
    part: Part, subject: str, figure: str, before: Any, after: Any, *, write: Callable[[Any], str]
) -> Iterator[Change]:
    if before != after:
        yield Change(
            part=part,
            subject=subject,
            figure=figure,
            old=write(before),
            new=write(after),
            old_value=before,
            new_value=after,
        )


def _or(absent: str, write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: absent if value is None else write(value)


def _mode(old: Plan, new: Plan) -> Iterator[Change]:
    for figure, before, after in (
        ("mode", old.decision.mode.value, new.decision.mode.value),
        ("threshold", old.decision.threshold, new.decision.threshold),
        ("prompts refused", old.refused.prompts, new.refused.prompts),
        ("vLLM", old.release.text, new.release.text),
        ("model", old.model.name if old.model else None, new.model.name if new.model else None),
        ("GPU", old.gpu.title if old.gpu else None, new.gpu.title if new.gpu else None),
    ):
        yield from _changed(Part.MODE, "plan", figure, before, after, write=_or("none", as_written))


def _arguments(old: Plan, new: Plan) -> Iterator[Change]:
    before, after = old.settings.given(), new.settings.given()
    for name in dict.fromkeys((*after, *before)):
        values = before.get(name), after.get(name)
        yield from _changed(Part.ARGUMENTS, "plan", name, *values, write=_or(DEFAULT, as_written))


def _memory(old: Memory, new: Memory) -> Iterator[Change]:
    subject = Label.PREDICTED.value
    peaks = (memory.line("activation").gib for memory in (old, new))
    yield from _changed(Part.MEMORY, subject, "activation", *peaks, write=gib)
    tokens = old.kv_cache_tokens, new.kv_cache_tokens
    yield from _changed(Part.MEMORY, subject, KV_TOKENS.title, *tokens, write=number)


def _measured(old: Verification, new: Verification) -> Iterator[Change]:
    pairs = [(run.setting, old.run(run.setting), run) for run in new.runs]
    gone = [run for run in old.runs if new.run(run.setting) is None]
    for setting, before, after in (*pairs, *((run.setting, run, None) for run in gone)):
        statuses = (run.status if run else None for run in (before, after))
        write = _or(NOT_MEASURED, STATUS.__getitem__)
        yield from _changed(Part.MEASURED, setting, "status", *statuses, write=write)
        if before and after and before.ok and after.ok:
            yield from _figures(before, after)


def _figures(before: Run, after: Run) -> Iterator[Change]:
    for figure in FIGURES:
        values = value(before, figure), value(after, figure)
        write = _or(NOT_MEASURED, figure.unit.brief)
        for found in _changed(Part.MEASURED, after.setting, figure.title, *values, write=write):
            yield replace(found, outcome=judge(figure, after, before))
