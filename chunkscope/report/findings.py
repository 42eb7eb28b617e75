"""All results of a folder: the answer on top, then a chapter for each artefact."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from chunkscope.artefacts.numbers import gib, number, plural, seconds
from chunkscope.findings import Findings
from chunkscope.gating.gate import stale
from chunkscope.planning.emit import emit
from chunkscope.planning.plan import Plan
from chunkscope.report import plan
from chunkscope.report import verification as measured
from chunkscope.report.comparison import ReportComparison
from chunkscope.report.section import Section, table_of
from chunkscope.report.section import sections as sections_of
from chunkscope.report.words import capital, sentence
from chunkscope.verification.result import EngineKind, Verification
from chunkscope.vllm.enums import Entry, Target

MARKS = {
    "long_prefill_token_threshold": "tokens of one prompt per step",
    "max_num_batched_tokens": "tokens per step",
    "max_model_len": "context",
}
GLOSSARY = (
    ("token", "about four characters of text"),
    ("step", "one pass of the model, for many requests"),
    ("chunk", "the part of a long prompt read in one step"),
    ("KV cache", "GPU memory for the tokens of running requests"),
    ("preemption", "the KV cache is full: a request is stopped and computed again"),
    ("gap", "the time between two tokens of an answer"),
    ("p95", "19 of 20 are at most this long"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    id: str
    title: str
    sections: tuple[Section, ...]


# -- the first screen ----------------------------------------------------------------------------


def first_screen(findings: Findings) -> Section:
    """The answer in one sentence, what it rests on, and figures to remember: tiles on the page."""
    return Section(
        sentences=(_headline(findings), *_lead(findings)),
        table=table_of(("", "", ""), _tiles(findings), words=("",)),
        notes=tuple(_notes(findings)),
    )


def _measurements(findings: Findings) -> Verification | None:
    """Those of this plan: what was measured of another says nothing about it."""
    of_another = findings.verification_is_of_this_plan is False
    return None if of_another else findings.verification


def plan_to_use(findings: Findings) -> Plan | None:
    """The plan; with the settings of another run where that did better on an engine."""
    planned, v = findings.plan, _measurements(findings)
    run = v.run(v.verdict.use) if v and v.verdict else None
    return planned if planned is None or run is None else replace(planned, settings=run.settings)


def _headline(findings: Findings) -> str:
    """The answer in one sentence, for somebody who has never seen this tool."""
    planned, v = findings.plan, _measurements(findings)
    if planned is not None and not (v and v.measured is EngineKind.DEMO):
        text = measured.verdict(v, v.verdict)[0] if v and v.verdict else plan.advice(planned)
        prompts = plural(planned.refused.of, "prompt")
        machine = f"{plan.place(planned)}, vLLM {planned.release.text}"
        return f"{prompts} for {machine}: {text[0].lower()}{text[1:]}."
    artefacts = filter(None, (v, findings.profile, findings.simulation, findings.diagnosis))
    return next((sections_of(one)[0].sentences[0] for one in artefacts), "Nothing to show.")


def _lead(findings: Findings) -> Iterator[str]:
    """How long it takes, how sure that is, and what would save most."""
    planned, v = findings.plan, _measurements(findings)
    if planned is not None and v is not None and v.verdict is not None:
        yield f"{capital(measured.verdict(v, v.verdict)[1])}."
    elif planned is not None:
        yield capital(plan.because(planned))
    if planned is not None and planned.cost is not None and not planned.request.is_open:
        cost = planned.cost
        hours = (cost.hours, cost.least_hours, cost.most_hours)
        usual, least, most = (seconds(each * 3_600) for each in hours)
        untried = "" if v is not None else ", not measured"
        yield f"The run takes about {usual} ({least} to {most}): simulated{untried}."
    if v is not None:
        yield measured.measured_on(v)
    yield from map(plan.saving, planned.savings if planned else ())


def _notes(findings: Findings) -> Iterator[str]:
    """Results that do not belong together, what was not read, and the plan's own."""
    for command, cause in stale(findings).items():
        yield f"{sentence(cause)}: run `chunkscope {command}`"
    if findings.profile is not None:
        if findings.profile.skipped:
            yield f"{plural(findings.profile.skipped, 'bad row')} skipped"
        for dataset in findings.profile.failures:
            yield f"{dataset.name} was not read to its end: {dataset.failed_because}"
    if findings.plan is not None:
        yield from map(sentence, findings.plan.notes)


def _tiles(findings: Findings) -> Iterator[tuple[str, str, str]]:
    """A title, a value, what it means."""
    data, planned, v = findings.profile, findings.plan, _measurements(findings)
    if data is not None:
        p95 = number(data.overall.percentile(95))
        yield "longest prompt", number(data.overall.max), f"tokens; 19 of 20 have at most {p95}"
    run = v.run("plan") if v else None
    if run is not None and run.kv_cache_tokens is not None:
        peak = f", beside {gib(run.activation_peak_gib)} of activations (measured)"
        yield "KV cache", number(run.kv_cache_tokens), f"tokens that fit at the same time{peak}"
    said = ("time", "memory") if run else ("time",)  # in the lead, and by what was measured
    yield from (tile for tile in (plan.facts(planned) if planned else ()) if tile[0] not in said)


def arguments(findings: Findings) -> str:
    """The settings to use; empty where nothing is set or the limits are broken."""
    planned = plan_to_use(findings)
    if planned is None or plan.is_broken(planned) or not planned.settings.given():
        return ""
    is_server = planned.deployment.entry is Entry.SERVE
    return emit(planned, Target.VLLM_ARGS if is_server else Target.PYTHON).text.strip()


# -- chapters ------------------------------------------------------------------------------------


def chapters(findings: Findings, changes: ReportComparison | None = None) -> list[Chapter]:
    """In the order of the page; those of what is not there are left out."""
    v = findings.verification
    is_demo = v is not None and v.measured is EngineKind.DEMO
    measurements = _of(v, top=v is not _measurements(findings))
    parts: tuple[tuple[str, str, Sequence[Section]], ...] = (
        ("changes", "What changed", _of(changes)),
        ("plan", "The plan", _briefly(findings.plan)),
        ("lengths", "Prompt lengths", _lengths(findings)),
        ("measured", "What the demo measured" if is_demo else "What was measured", measurements),
        ("simulated", "Simulated settings", _simulated(findings)),
        ("engine", "What limited the engine", _of(findings.diagnosis)),
        ("sources", "Sources", [_origins(findings)]),
    )
    top = first_screen(findings)
    shown = []
    for name, title, sections in parts:
        fresh = [
            replace(
                section,
                sentences=tuple(text for text in section.sentences if text not in top.sentences),
                notes=tuple(note for note in section.notes if note not in top.notes),
            )
            for section in sections
        ]
        if rest := tuple(section for section in fresh if not section.is_empty):
            shown.append(Chapter(id=name, title=title, sections=rest))
    return shown


def _of(artefact: object | None, *, top: bool = False) -> list[Section]:
    every = sections_of(artefact) if artefact is not None else []
    return [section for section in every if top or not section.top]


def _briefly(artefact: object | None) -> list[Section]:
    """Without the details, but for a list to search in: a terminal has them."""
    every = _of(artefact)
    return [s for s in every if not s.details or (s.table is not None and s.table.searchable)]


def _simulated(findings: Findings) -> list[Section]:
    """Unless it is what the plan says already."""
    tried = [run.figures for run in findings.plan.tried] if findings.plan else []
    runs = findings.simulation.runs if findings.simulation else ()
    same = all(run.figures in tried and not run.timeline for run in runs)
    return [] if same else _of(findings.simulation)


def _lengths(findings: Findings) -> list[Section]:
    """Its chart also has the lengths that matter to the engine."""
    sections = _briefly(findings.profile)
    if not sections or (chart := sections[0].chart) is None or findings.plan is None:
        return sections
    marks = [
        {"label": label, "tokens": tokens, "kind": name}
        for name, label in MARKS.items()
        if (tokens := getattr(findings.plan.effective, name))
    ]
    chart = replace(chart, data={**chart.data, "marks": marks})
    return [replace(sections[0], chart=chart), *sections[1:]]


def _origins(findings: Findings) -> Section:
    """When and by which command each artefact was made."""
    rows = []
    artefacts = (findings.profile, findings.plan, findings.simulation, findings.verification)
    for artefact in filter(None, (*artefacts, findings.diagnosis)):
        asked = artefact.source if isinstance(artefact, Plan) else artefact
        made = getattr(artefact, "created", "")[:10]
        command = shlex.join(getattr(asked, "command", ()))
        rows.append((artefact.default_path.name, made or None, command or None))
    heads = ("file", "made", "command")
    return Section(table=table_of(heads, rows, words=heads))


# -- on a terminal and as Markdown ---------------------------------------------------------------


def sections(findings: Findings) -> list[Section]:
    """The first screen, with tiles as a table; the rest as details, but the runs that decide."""
    top, flags, parts = first_screen(findings), arguments(findings), chapters(findings)
    first = replace(top, sentences=(*top.sentences, *filter(None, [flags])))
    runs = [chapter.sections[0] for chapter in parts if chapter.id in ("measured", "plan")][-1:]
    rest = [
        replace(section, details=True, title=section.title or ("" if place else chapter.title))
        for chapter in parts
        for place, section in enumerate(chapter.sections)
        if section not in runs
    ]
    return [first, *runs, *rest]
