"""All results of a folder: the answer on top, then a chapter for each artefact."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.numbers import duration, gib, number, plural, share
from chunkscope.errors import ChunkscopeError
from chunkscope.findings import Findings
from chunkscope.planning.emit import emit
from chunkscope.planning.plan import AdviceKind, Plan
from chunkscope.report import breakdown
from chunkscope.report import comparison as compared
from chunkscope.report.comparison import ReportComparison
from chunkscope.report.profile import lengths_chart
from chunkscope.report.reuse import measured_in, prefixes
from chunkscope.report.section import Chart, Column, Section, Table, fact_table
from chunkscope.report.section import sections as all_sections
from chunkscope.report.words import answer as words
from chunkscope.verification.result import EngineKind
from chunkscope.vllm.enums import Target

FOLDED = ("reuse", "memory", "timeline")
MARKS = {
    "long_prefill_token_threshold": "tokens of one prompt per step",
    "max_num_batched_tokens": "tokens per step",
    "max_model_len": "context",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure to remember, and what it means."""

    title: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hero:
    """The first screen. `forms` are the settings to copy, by form; empty without any."""

    title: str
    headline: str
    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    forms: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    id: str
    nav: str
    title: str
    sections: tuple[Section, ...]


def hero(findings: Findings) -> Hero:
    return Hero(
        title=words.title(findings),
        headline=words.headline(findings),
        sentences=tuple(words.lead(findings)),
        warnings=tuple(words.mixed(findings)),
        tiles=tuple(_tiles(findings)),
        forms=tuple(_forms(findings)),
        notes=tuple(words.cautions(findings)),
    )


def _tiles(findings: Findings) -> Iterator[Tile]:
    profile, plan, verification = findings.profile, findings.plan, words.measurements(findings)
    if profile is not None:
        lengths = profile.overall
        yield Tile(
            title="prompts",
            value=number(lengths.count),
            meaning=f"in {plural(len(profile.datasets), 'dataset')}",
        )
        p95 = number(lengths.percentile(95))
        yield Tile(
            title="longest prompt",
            value=f"{number(lengths.max)}",
            meaning=f"tokens; 19 of 20 have at most {p95}",
        )
    if plan is not None and plan.cost is not None:
        yield Tile(
            title="time",
            value=duration(plan.cost.hours),
            meaning="predicted, without loading the model",
        )
    if plan is not None and plan.chunks.size:
        yield Tile(
            title="split prompts",
            value=share(plan.chunks.share),
            meaning=f"longer than one step of {number(plan.chunks.size)} tokens",
        )
    run = verification.run("plan") if verification else None
    memory = plan.memory if plan else None
    label, tokens = "measured", run.kv_cache_tokens if run else None
    if tokens is None and memory is not None:
        label, tokens = "predicted", memory.kv_cache_tokens
    if tokens is not None:
        yield Tile(
            title="KV cache",
            value=number(tokens),
            meaning=f"tokens that fit at the same time ({label})",
        )
    peak = run.activation_peak_gib if run else None
    if peak is None and memory is not None:
        peak = memory.line("activation").gib
        label = "predicted"
    if peak is not None:
        yield Tile(
            title="activations", value=gib(peak), meaning=f"working memory of one step ({label})"
        )


def _forms(findings: Findings) -> Iterator[tuple[str, str]]:
    """The settings to use, in every form; none where nothing is set or the limits are broken."""
    plan = words.plan_to_use(findings)
    if plan is None or plan.advice.kind is AdviceKind.NO_SETTING or not plan.settings.given():
        return
    for target in Target:
        try:
            text = emit(plan, target).text.rstrip("\n")
        except ChunkscopeError:
            continue
        if text:
            yield target.value, text


# -- chapters ------------------------------------------------------------------------------------


def chapters(findings: Findings, changes: ReportComparison | None = None) -> list[Chapter]:
    """In the order of the page; those of what is not there are left out."""
    before = changes.comparable_profile if changes else None
    parts = (
        ("changes", "changes", "What changed", compared.sections(changes) if changes else []),
        ("plan", "why", "Why these settings", all_sections(findings.plan) if findings.plan else []),
        ("lengths", "lengths", "How long the prompts are", _lengths(findings, before)),
        ("shared", "shared", "What prompts share", _shared(findings)),
        ("memory", "memory", "Where the memory goes", _memory(findings)),
        ("measured", "measured", *_measured(findings)),
        ("simulated", "simulated", "Simulated settings", _of(findings.simulation)),
        ("engine", "engine", "What limited the engine", _of(findings.diagnosis)),
        ("provenance", "sources", "Where the numbers come from", list(_origins(findings))),
    )
    top = hero(findings)
    seen = {top.headline, *top.sentences, *top.notes}  # on the first screen
    made = []
    for name, nav, title, shown in parts:
        fresh = [
            replace(
                section,
                sentences=tuple(text for text in section.sentences if text not in seen),
                notes=tuple(note for note in section.notes if note not in seen),
            )
            for section in _folded(shown)
        ]
        seen |= {note for section in shown for note in section.notes}
        kept = tuple(section for section in fresh if not section.is_empty)
        if kept:
            made.append(Chapter(id=name, nav=nav, title=title, sections=kept))
    return made


def _folded(shown: Sequence[Section]) -> Iterator[Section]:
    """Tables on demand where a chart says the same."""
    for section in shown:
        if section.table is None or section.chart is None or section.chart.name not in FOLDED:
            yield section
        else:
            yield replace(section, table=None)
            yield Section(title="In numbers", table=section.table, details=True)


def _of(artefact: object | None) -> list[Section]:
    return all_sections(artefact) if artefact is not None else []


def _lengths(findings: Findings, before: Any) -> list[Section]:
    """The chart takes the place of the bars; the table of all datasets that of the short one."""
    profile = findings.profile
    if profile is None:
        return []
    first, bars, *rest = all_sections(profile)
    data = lengths_chart(profile, before)
    if data is None:
        return [first, *rest]
    data["marks"] = list(_marks(findings.plan)) if findings.plan else []
    chart = Chart(name="lengths", data=data, bars=bars.chart.bars if bars.chart else ())
    return [Section(sentences=first.sentences, chart=chart, table=first.table), *rest]


def _marks(plan: Plan) -> Iterator[dict[str, Any]]:
    """The lengths that matter to the engine, drawn into the distribution."""
    known = plan.effective.given()
    for name, label in MARKS.items():
        value = known.get(name)
        if type(value) is int and value > 0:
            yield {"label": label, "tokens": value, "kind": name}


def _shared(findings: Findings) -> list[Section]:
    profile = findings.profile
    if profile is None or not measured_in(profile):
        return []
    plan = findings.plan if findings.plan_is_of_this_profile else None
    return all_sections(prefixes(profile, plan))


def _memory(findings: Findings) -> list[Section]:
    section = breakdown.section(findings)
    return [section] if section is not None else []


def _measured(findings: Findings) -> tuple[str, list[Section]]:
    verification = findings.verification
    if verification is None:
        return "", []
    is_demo = verification.measured is EngineKind.DEMO
    title = "What the demo measured" if is_demo else "What was measured"
    return title, all_sections(verification)


def _origins(findings: Findings) -> Iterator[Section]:
    """Digests, versions and commands, artefact by artefact."""
    artefacts: tuple[Artefact | None, ...] = (
        *(findings.profile, findings.plan, findings.simulation),
        *(findings.verification, findings.diagnosis),
    )
    for artefact in artefacts:
        if artefact is None:
            continue
        name = artefact.default_path.name
        asked = artefact.source if isinstance(artefact, Plan) else artefact
        yield Section(
            title=name,
            table=fact_table(
                {
                    "content": findings.digests.get(name),
                    "made": f"{getattr(artefact, 'created', '')} by chunkscope {artefact.version}",
                    "command": shlex.join(getattr(asked, "command", ())) or None,
                }
            ),
            details=True,
        )
    if findings.profile is not None:
        columns = tuple(Column(heading=h, right=h == "bytes") for h in ("file", "bytes", "sha256"))
        rows = tuple(
            (dataset.path, number(dataset.bytes), dataset.sha256 or "not recorded")
            for dataset in findings.profile.datasets
        )
        yield Section(title="Data files", table=Table(columns=columns, rows=rows), details=True)


# -- on a terminal and as Markdown ---------------------------------------------------------------


def sections(findings: Findings) -> list[Section]:
    """The first screen, with tiles as a table; what was measured or tried; the rest as details."""
    top = hero(findings)
    flags = [text for name, text in top.forms if name == Target.VLLM_ARGS.value]
    tried = [
        section
        for artefact in (findings.verification, findings.plan)
        if artefact is not None
        for section in all_sections(artefact)
        if section.table is not None and section.table.has_headings and not section.details
    ]
    first = Section(
        sentences=(top.headline, *top.sentences, *top.warnings, *flags),
        table=fact_table({tile.title: f"{tile.value} {tile.meaning}" for tile in top.tiles}),
        notes=top.notes,
    )
    rest = [
        replace(section, details=True, title=section.title or chapter.title)
        for chapter in chapters(findings)
        for section in chapter.sections
    ]
    return [first, *(replace(section, sentences=(), notes=()) for section in tried[:1]), *rest]
