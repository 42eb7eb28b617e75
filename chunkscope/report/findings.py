"""All results of a folder: the answer on top, then a chapter for each artefact."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.numbers import duration, gib, number, plural, share
from chunkscope.errors import ChunkscopeError
from chunkscope.findings import Findings
from chunkscope.lengths.profile import Profile
from chunkscope.planning.emit import emit
from chunkscope.planning.plan import AdviceKind, Plan
from chunkscope.report import memory
from chunkscope.report.comparison import ReportComparison
from chunkscope.report.plan import savings
from chunkscope.report.profile import lengths_chart
from chunkscope.report.reuse import prefixes
from chunkscope.report.section import Chart, Section, fact_table, table_of
from chunkscope.report.section import sections as sections_of
from chunkscope.report.words import answer as words
from chunkscope.verification.result import EngineKind
from chunkscope.vllm.enums import Target

FOLDED = ("lengths", "reuse", "memory")  # charts whose tables say the same
MARKS = {
    "long_prefill_token_threshold": "tokens of one prompt per step",
    "max_num_batched_tokens": "tokens per step",
    "max_model_len": "context",
}


Tile = tuple[str, str, str]  # one figure to remember: its title, its value, what it means


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
    saved = savings(findings.plan) if findings.plan else ()
    return Hero(
        title=words.title(findings),
        headline=words.headline(findings),
        sentences=(*words.lead(findings), *saved),
        warnings=tuple(words.mixed(findings)),
        tiles=tuple(_tiles(findings)),
        forms=tuple(_forms(findings)),
        notes=tuple(words.cautions(findings)),
    )


def _tiles(findings: Findings) -> Iterator[Tile]:
    profile, plan, verification = findings.profile, findings.plan, words.measurements(findings)
    if profile is not None:
        lengths = profile.overall
        yield "prompts", number(lengths.count), f"in {plural(len(profile.datasets), 'dataset')}"
        p95 = number(lengths.percentile(95))
        yield "longest prompt", number(lengths.max), f"tokens; 19 of 20 have at most {p95}"
    if plan is not None and plan.cost is not None:
        yield "time", duration(plan.cost.hours), "predicted, without loading the model"
    if plan is not None and plan.chunks.size:
        size = number(plan.chunks.size)
        yield "split prompts", share(plan.chunks.share), f"longer than one step of {size} tokens"
    run = verification.run("plan") if verification else None
    predicted = plan.memory if plan else None
    tokens, peak = (run.kv_cache_tokens, run.activation_peak_gib) if run else (None, None)
    if tokens is not None or predicted is not None:
        label = "measured" if tokens is not None else "predicted"
        tokens = tokens if tokens is not None or predicted is None else predicted.kv_cache_tokens
        yield "KV cache", number(tokens), f"tokens that fit at the same time ({label})"
    if peak is not None or predicted is not None:
        label = "measured" if peak is not None else "predicted"
        peak = peak if peak is not None or predicted is None else predicted.line("activation").gib
        yield "activations", gib(peak), f"working memory of one step ({label})"


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
    v, before = findings.verification, changes.comparable_profile if changes else None
    is_demo = v is not None and v.measured is EngineKind.DEMO
    measured = "What the demo measured" if is_demo else "What was measured"
    parts: tuple[tuple[str, str, str, Sequence[Section]], ...] = (
        ("changes", "changes", "What changed", _of(changes)),
        ("plan", "why", "Why these settings", _of(findings.plan)),
        ("lengths", "lengths", "How long the prompts are", _lengths(findings, before)),
        ("shared", "shared", "What prompts share", _shared(findings)),
        ("memory", "memory", "Where the memory goes", [memory.section(findings)]),
        ("measured", "measured", measured, _of(v)),
        ("simulated", "simulated", "Simulated settings", _simulated(findings)),
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
        if kept := tuple(section for section in fresh if not section.is_empty):
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
    return sections_of(artefact) if artefact is not None else []


def _simulated(findings: Findings) -> list[Section]:
    """Unless it is what the plan says already."""
    simulation, plan = findings.simulation, findings.plan
    if simulation is None or plan is None or simulation.pareto or simulation.runs[0].rate:
        return _of(simulation)
    tried = [row.run.figures for row in plan.tried]
    same = all(run.figures in tried and not run.timeline for run in simulation.runs)
    return [] if same else _of(simulation)


def _lengths(findings: Findings, before: Profile | None) -> list[Section]:
    """The chart takes the place of the bars."""
    profile = findings.profile
    if profile is None:
        return []
    first, *rest = sections_of(profile)
    data = lengths_chart(profile, before)
    if data is None:
        return [first, *rest]
    data["marks"] = list(_marks(findings.plan)) if findings.plan else []
    bars = next((s.chart.bars for s in rest if s.chart), ())
    chart = Chart(name="lengths", data=data, bars=bars)
    return [replace(first, chart=chart), *(s for s in rest if not s.chart)]


def _marks(plan: Plan) -> Iterator[dict[str, Any]]:
    """The lengths that matter to the engine, drawn into the distribution."""
    known = plan.effective.given()
    for name, label in MARKS.items():
        value = known.get(name)
        if type(value) is int and value > 0:
            yield {"label": label, "tokens": value, "kind": name}


def _shared(findings: Findings) -> list[Section]:
    profile = findings.profile
    if profile is None or not any(dataset.prefixes for dataset in profile.datasets):
        return []
    plan = findings.plan if findings.plan_is_of_this_profile else None
    return sections_of(prefixes(profile, plan))


def _origins(findings: Findings) -> Iterator[Section]:
    """Digests, versions and commands, artefact by artefact."""
    artefacts: tuple[Artefact | None, ...] = (
        *(findings.profile, findings.plan, findings.simulation),
        *(findings.verification, findings.diagnosis),
    )
    for artefact in filter(None, artefacts):
        name = artefact.default_path.name
        asked = artefact.source if isinstance(artefact, Plan) else artefact
        facts = {
            "content": findings.digests.get(name),
            "made": f"{getattr(artefact, 'created', '')} by chunkscope {artefact.version}",
            "command": shlex.join(getattr(asked, "command", ())) or None,
        }
        yield Section(title=name, table=fact_table(facts), details=True)
    if findings.profile is not None:
        datasets = findings.profile.datasets
        rows = [(d.path, d.bytes, d.sha256 or "not recorded") for d in datasets]
        table = table_of(("file", "bytes", "sha256"), rows, words=("sha256",))
        yield Section(title="Data files", table=table, details=True)


# -- on a terminal and as Markdown ---------------------------------------------------------------


def sections(findings: Findings) -> list[Section]:
    """The first screen, with tiles as a table; what was measured or tried; the rest as details."""
    top = hero(findings)
    flags = [text for name, text in top.forms if name == Target.VLLM_ARGS.value]
    first = Section(
        sentences=(top.headline, *top.sentences, *top.warnings, *flags),
        table=fact_table({title: f"{value} {meaning}" for title, value, meaning in top.tiles}),
        notes=top.notes,
    )
    tried = [
        Section(table=section.table)
        for artefact in (findings.verification, findings.plan)
        for section in _of(artefact)
        if section.table is not None and section.table.has_headings and not section.details
    ]
    rest = [
        replace(section, details=True, title=section.title or ("" if place else chapter.title))
        for chapter in chapters(findings)
        for place, section in enumerate(chapter.sections)
    ]
    return [first, *tried[:1], *rest]
