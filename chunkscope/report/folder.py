"""All results of a folder: the answer on top, a chapter for each artefact; what changed in one."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from chunkscope._version import __version__
from chunkscope.findings import Findings
from chunkscope.gating.budget import DriftTable
from chunkscope.gating.check import Check
from chunkscope.gating.lengths import MOVING, drift
from chunkscope.planning.plan import Plan
from chunkscope.report.runs import runs_table
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.section import sections as sections_of
from chunkscope.report.words import folder as words
from chunkscope.report.words import gate, plan
from chunkscope.report.words.runs import failure
from chunkscope.verification.result import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    id: str
    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportComparison:
    """`data`: the gate's checks of drift that fail; None where a profile is missing."""

    old: Findings
    new: Findings
    data: tuple[Check, ...] | None

    @property
    def moved(self) -> list[Check]:
        """Changes with a value: a check without one could not be judged."""
        return [check for check in self.data or () if check.value is not None]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "chunkscope/comparison/4",
            "chunkscope": __version__,
            **{side: str(getattr(self, side).folder) for side in ("old", "new")},
            "data": None
            if self.data is None
            else [asdict(check) for check in self.data],
            "notes": list(words.not_comparable(self.old, self.new)),
        }


# -- the first screen ----------------------------------------------------------------------------


def first_screen(findings: Findings) -> Section:
    """The answer in one sentence, what it rests on, and figures to remember: tiles on the page."""
    v = _measurements(findings)
    tiles = words.tiles(replace(findings, plan=_in_use(findings)), v)
    return Section(
        sentences=tuple(words.opening(findings, v)),
        table=table_of(("", "", ""), tiles, words=("",)),
        notes=tuple(words.notes(findings)),
    )


def _measurements(findings: Findings) -> Verification | None:
    """None if they are of another plan: they say nothing about this one."""
    return (
        None
        if findings.verification_is_of_this_plan is False
        else findings.verification
    )


def _in_use(findings: Findings) -> Plan | None:
    """The plan with the settings that measured best, without figures of its own settings then."""
    planned, v = findings.plan, _measurements(findings)
    if not (planned and v and v.verdict and (run := v.run(v.verdict.use))):
        return planned
    if v.verdict.use != "plan":
        planned = replace(planned, cost=None, chunks=replace(planned.chunks, prompts=0))
    return replace(planned, settings=run.settings)


def arguments(findings: Findings) -> str:
    """The settings to use; empty where nothing is set or the limits are broken."""
    return plan.flags(planned) if (planned := _in_use(findings)) else ""


# -- chapters ------------------------------------------------------------------------------------


def chapters(
    findings: Findings, comparison: ReportComparison | None = None
) -> list[Chapter]:
    """In the order of the page; a result that is missing has no chapter."""
    v, of_another = (
        findings.verification,
        findings.verification_is_of_this_plan is False,
    )
    title = "What was measured" + ", of another plan" * of_another
    engines = findings.diagnosis.engines if findings.diagnosis else ()
    models = ", ".join(
        dict.fromkeys(one.facts.model or "unknown model" for one in engines)
    )
    parts: tuple[tuple[str, str, Sequence[Section]], ...] = (
        ("changes", "What changed", _of(comparison)),
        ("plan", "Predicted times", _of(findings.plan, details=False)),
        ("lengths", "Prompt lengths", _lengths(findings)),
        ("measured" + "-before" * of_another, title, _of(v, top=of_another)),
        ("simulated", "Simulated settings", _simulated(findings)),
        ("engine", f"What limited the engine: {models}", _of(findings.diagnosis)),
        ("sources", "Sources", [_origins(findings)]),
    )
    top = first_screen(findings)
    shown = []
    for name, heading, sections in parts:
        rest = []
        for section in sections:
            texts = tuple(
                text for text in section.sentences if text not in top.sentences
            )
            notes = tuple(note for note in section.notes if note not in top.notes)
            rest.append(replace(section, sentences=texts, notes=notes))
        if rest := [section for section in rest if not section.is_empty]:
            shown.append(Chapter(id=name, title=heading, sections=tuple(rest)))
    return shown


def _of(
    artefact: object | None, *, top: bool = False, details: bool = True
) -> list[Section]:
    every = sections_of(artefact) if artefact is not None else []
    return [s for s in every if (top or not s.top) and (details or not s.details)]


def _simulated(findings: Findings) -> list[Section]:
    """Empty if the plan shows the same runs."""
    tried = [run.figures for run in findings.plan.tried] if findings.plan else []
    runs = findings.simulation.runs if findings.simulation else ()
    same = all(run.figures in tried and not run.timeline for run in runs)
    return [] if same else _of(findings.simulation)


def _lengths(findings: Findings) -> list[Section]:
    """The lengths, with the engine's limits marked in the chart."""
    sections = _of(findings.profile, details=False)
    if sections and sections[0].chart and (planned := _in_use(findings)):
        sections[0].chart.data["marks"] = [
            {"label": label, "tokens": tokens, "kind": name}
            for name, label in words.MARKS.items()
            if (tokens := getattr(planned.effective, name))
        ]
    return sections


def _origins(findings: Findings) -> Section:
    """When and by which command each artefact was made."""
    rows = []
    artefacts = (
        findings.profile,
        findings.plan,
        findings.simulation,
        findings.verification,
    )
    for artefact in filter(None, (*artefacts, findings.diagnosis)):
        source = artefact.source if isinstance(artefact, Plan) else artefact
        date = getattr(artefact, "created", "")[:10]
        command = shlex.join(getattr(source, "command", ()))
        rows.append((artefact.default_path.name, f"{date} {command}".strip()))
    return Section(table=table_of(("", ""), rows, words=("",)))


# -- on a terminal and as Markdown ---------------------------------------------------------------


def sections(findings: Findings) -> list[Section]:
    """The first screen and the runs that decide; everything else as details."""
    top, flags, parts = first_screen(findings), arguments(findings), chapters(findings)
    first = replace(
        top, sentences=(*top.sentences, *([f"Flags: {flags}"] if flags else []))
    )
    runs = [
        chapter.sections[0] for chapter in parts if chapter.id in ("measured", "plan")
    ][-1:]
    rest = [
        replace(
            section,
            details=True,
            title=section.title or ("" if place else chapter.title),
        )
        for chapter in parts
        for place, section in enumerate(chapter.sections)
        if section not in runs
    ]
    return [first, *runs, *rest]


# -- what changed --------------------------------------------------------------------------------


def compare(old: Findings, new: Findings) -> ReportComparison:
    """Data is compared by the gate's checks of drift, each with a limit of zero."""
    data = None
    if old.profile is not None and new.profile is not None:
        limits: dict[str, Any] = {
            "baseline": "old",
            "content": "same",
            "allow_sample": True,
        }
        limits |= {"new_datasets": 0, "vanished_datasets": 0}
        if old.profile.tokenizer.digest == new.profile.tokenizer.digest:
            limits |= dict.fromkeys(MOVING, "0%")
        table = DriftTable.model_validate(limits)
        checks = drift(table, new.profile, old.profile)
        data = tuple(check for check in checks if not check.passed)
    return ReportComparison(old=old, new=new, data=data)


def changes(comparison: ReportComparison) -> list[Section]:
    old, new = comparison.old, comparison.new
    rows = [
        (
            check.subject,
            check.name[len("drift.") :].replace("_", " "),
            gate.value_text(check),
        )
        for check in comparison.moved
    ]
    return [
        Section(
            sentences=tuple(words.what_changed(old, new, comparison.data)),
            table=table_of(
                ("dataset", "what", "change"), rows, words=("what", "change")
            ),
            notes=tuple(words.not_comparable(old, new)),
        ),
        Section(title="The plan", table=_plan_table(old, new)),
        *_measured(old.verification, new.verification),
    ]


def _plan_table(old: Findings, new: Findings) -> Table | None:
    """Rows in which the two plans differ."""
    if old.plan is None or new.plan is None:
        return None
    before, now = (
        {
            "planned for": plan.setup(p),
            "sets": plan.listed(p.settings) or "vLLM's defaults",
            **{
                label: f"{value} ({meaning})" for label, value, meaning in plan.facts(p)
            },
        }
        for p in (old.plan, new.plan)
    )
    rows = [
        (name, before.get(name), now.get(name))
        for name in dict.fromkeys((*before, *now))
    ]
    rows = [row for row in rows if row[1] != row[2]]
    return table_of(("what", "before", "now"), rows, words=("before", "now"))


def _measured(old: Verification | None, new: Verification | None) -> Iterator[Section]:
    """A table for each setting that was run in both."""
    for run in new.runs if new else ():
        if (before := old.run(run.setting) if old else None) is None:
            continue
        both = {"before": before, "now": run}
        yield Section(
            title=f"Measured: {run.setting}",
            sentences=tuple(
                f"{name}: {failure(r)}." for name, r in both.items() if not r.ok
            ),
            table=runs_table([(name, r) for name, r in both.items() if r.ok]),
        )


def folder_blocks(artefact: Findings) -> "list[Block]":
    return blocks_of(sections(artefact))
