"""Findings -> what the page's templates say in words and tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chunkscope.artefacts.figures import Figure
from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.numbers import gib, number, plural, share
from chunkscope.errors import ChunkscopeError
from chunkscope.findings import Findings
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.planning import emit
from chunkscope.planning.plan import Plan
from chunkscope.report import sentences
from chunkscope.report.comparison import Comparison, Part
from chunkscope.report.diagnosis_words import answer as diagnosis_answer
from chunkscope.report.length_columns import length, written
from chunkscope.report.memory_bill import Bills, bills
from chunkscope.report.page.charts import curves, drawn
from chunkscope.report.page.engines import engine_views
from chunkscope.report.page.reuse import reuse_chart, reuse_view
from chunkscope.report.provenance import origins
from chunkscope.report.runs import beside, fate, measured, titled
from chunkscope.report.summary import measured_on, measurements, summarize
from chunkscope.report.tradeoff import Tradeoff
from chunkscope.report.words import sentence
from chunkscope.report.words import verdicts as words
from chunkscope.verification.result import Run
from chunkscope.verification.verdict import Outcome, spread, value
from chunkscope.vllm.enums import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is shown, and by which number or word it sorts; `kind` names its look."""

    text: str
    sort: float | str | None = None
    kind: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure to remember."""

    title: str
    value: str
    note: str = ""


def view(
    findings: Findings, tradeoff: Tradeoff | None, comparison: Comparison | None
) -> dict[str, Any]:
    from chunkscope._version import __version__

    found, verification = bills(findings), findings.verification
    datasets = findings.profile.datasets if findings.profile else ()
    runs = verification.runs if verification else ()
    running = [run for run in runs if run.ok]
    summary = summarize(findings)
    return {
        "version": __version__,
        "summary": summary,
        "tiles": list(_tiles(findings)),
        "plan": findings.plan,
        "forms": list(_forms(summary.answer.plan)) if summary.answer else [],
        "profile": findings.profile,
        "lengths": sentences.prompts(findings.profile) if findings.profile else "",
        "drawn": len(drawn(findings.profile)) if findings.profile else 0,
        "datasets": [_dataset(dataset, findings.plan) for dataset in datasets],
        "dataset_heads": DATASET_HEADS if findings.plan else DATASET_HEADS[:-3],
        "reuse": reuse_view(findings.profile, findings.plan),
        "reuse_drawn": reuse_chart(findings.profile, findings.plan) is not None,
        "bills": found,
        "has_peaks": found is not None and any(bill.peak_gib for bill in found.bills),
        "bill_rows": list(_bill_rows(found)) if found else [],
        "verification": verification,
        "measured_on": measured_on(verification) if verification else "",
        "run_rows": list(_run_rows(running)),
        "running": running,
        "failed": [run for run in runs if not run.ok],
        "outputs": list(words.outputs(verification)) if verification else [],
        "fate": fate,
        "failure": words.failure,
        "sentence": sentence,
        "titled": titled,
        "curves": curves(runs),
        "tradeoff": tradeoff,
        "engines": engine_views(findings.diagnosis),
        "diagnosed": diagnosis_answer(findings.diagnosis) if findings.diagnosis else "",
        "comparison": comparison,
        "sentences": sentences,
        "parts": list(Part),
        "origins": origins(findings),
    }


# -- the verdict ---------------------------------------------------------------------------------


def _tiles(findings: Findings) -> Iterator[Tile]:
    profile, plan = findings.profile, findings.plan
    if profile is not None:
        lengths = profile.overall
        of = f"in {plural(len(profile.datasets), 'dataset')}"
        yield Tile(title="prompts", value=number(lengths.count), note=of)
        p95 = f"p95 {number(lengths.percentile(95))}"
        yield Tile(title="longest prompt", value=number(lengths.max), note=f"tokens, {p95}")
    if plan is not None:
        chunked = plan.chunks
        size = f"over {number(chunked.size)} tokens" if chunked.size else "no prompt is split"
        yield Tile(title="read in chunks", value=share(chunked.share), note=size)
        refused = plan.refused
        room = f"room for {number(refused.room_tokens)} tokens"
        yield Tile(title="refused", value=number(refused.prompts), note=room)
    yield from _memory_tiles(findings)


def _memory_tiles(findings: Findings) -> Iterator[Tile]:
    """Measured where that was done, else predicted; each says which."""
    plan, verification = findings.plan, measurements(findings)
    run = verification.run("plan") if verification else None
    memory = plan.memory if plan else None
    if run is not None and run.activation_peak_gib is not None:
        yield Tile(title="activation peak", value=gib(run.activation_peak_gib), note="measured")
    elif memory is not None:
        line = memory.line("activation")
        yield Tile(title="activations", value=gib(line.gib), note=line.label)
    if run is not None and run.kv_cache_tokens is not None:
        yield Tile(title="KV cache tokens", value=number(run.kv_cache_tokens), note="measured")
    elif memory is not None:
        label = memory.kv_cache_label or Label.PREDICTED
        yield Tile(title="KV cache tokens", value=number(memory.kv_cache_tokens), note=label)


def _forms(plan: Plan) -> Iterator[tuple[str, str]]:
    """The arguments in every form that can say them."""
    for target in Target:
        try:
            text = emit.emit(plan, target).text.rstrip("\n")
        except ChunkscopeError:
            continue
        yield target.value, text or sentences.NOTHING_TO_COPY


# -- datasets ------------------------------------------------------------------------------------

# Title, how it sorts, and what it means.
DATASET_HEADS = (
    ("dataset", "text", "the dataset"),
    ("prompt field", "text", "which part of a row is the prompt"),
    ("prompts", "number", "rows that were counted"),
    ("p50", "number", "half of the prompts are at most this long, in tokens"),
    ("p95", "number", "19 of 20 prompts are at most this long, in tokens"),
    ("p99", "number", "99 of 100 prompts are at most this long, in tokens"),
    ("max", "number", "the longest prompt, in tokens"),
    (">2K", "number", "share of prompts over 2,048 tokens"),
    (">8K", "number", "share of prompts over 8,192 tokens"),
    ("mode", "text", "what the policy says of this dataset alone"),
    ("chunk at", "number", "the threshold for this dataset alone, in tokens"),
    ("benefit", "rank", "what chunking is worth for prompts of this size"),
)
TIERS = ("skip", "optional", "consider", "recommended", "required")


def _dataset(dataset: DatasetProfile, plan: Plan | None) -> list[Cell]:
    lengths = dataset.lengths
    cells = [
        Cell(text=dataset.name, sort=dataset.name.lower(), note=_remark(dataset)),
        Cell(text=dataset.field or "-", sort=dataset.field.lower()),
        *(
            Cell(text=written(lengths, column), sort=length(lengths, column), kind="n")
            for column in ("count", "p50", "p95", "p99", "max", ">2K", ">8K")
        ),
    ]
    return cells if plan is None else [*cells, *_decision(dataset, plan)]


def _remark(dataset: DatasetProfile) -> str:
    if dataset.failure:
        return f"not read to its end: {dataset.failed_because}"
    if dataset.skipped:
        return f"{plural(dataset.skipped, 'row')} left out"
    if dataset.sample:
        return f"a sample of {dataset.sample.out_of:,} rows"
    return ""


def _decision(dataset: DatasetProfile, plan: Plan) -> list[Cell]:
    found = next((d.decision for d in plan.decisions if d.name == dataset.name), None)
    if found is None:
        return [Cell(text="-", sort=""), Cell(text="-", kind="n"), Cell(text="-")]
    return [
        Cell(text=found.mode.value, sort=found.mode.value, kind=f"mode {found.mode.value}"),
        Cell(text=number(found.threshold), sort=found.threshold, kind="n"),
        Cell(text=found.tier.value, sort=TIERS.index(found.tier.value)),
    ]


# -- memory --------------------------------------------------------------------------------------


def _bill_rows(found: Bills) -> Iterator[list[Cell]]:
    """One row per bill: setting, label, each part, KV tokens."""
    peaks = any(bill.peak_gib is not None for bill in found.bills)
    last = ("most held", "KV tokens") if peaks else ("KV tokens",)
    yield [Cell(text=title) for title in ("setting", "known", *found.parts, *last)]
    for bill in found.bills:
        if bill.fate and not bill.parts:
            yield [Cell(text=bill.setting), Cell(text=f"{bill.fate}: not measured", kind="bad")]
            continue
        parts = [_part(bill.parts.get(part), bill.label.value) for part in found.parts]
        what = Cell(text=bill.fate, kind="bad") if bill.fate else Cell(text=bill.label.value)
        tokens = number(bill.kv_cache_tokens) if bill.kv_cache_tokens is not None else None
        held = [_part(bill.peak_gib, bill.label.value)] if peaks else []
        yield [Cell(text=bill.setting), what, *parts, *held, _known(tokens, bill.label.value)]


def _part(value: float | None, label: str) -> Cell:
    return _known(f"{value:,.2f}" if value is not None else None, label)


def _known(text: str | None, label: str) -> Cell:
    return (
        Cell(text=text, kind="n") if text is not None else Cell(text=f"not {label}", kind="n none")
    )


# -- the measurements ----------------------------------------------------------------------------


def _run_rows(running: Sequence[Run]) -> Iterator[tuple[str, list[Cell]]]:
    """A row per figure, a cell per setting that ran: the first is what they are compared to."""
    for figure in measured(running):
        yield figure.title, [_measured_cell(figure, run, running[0]) for run in running]


def _measured_cell(figure: Figure, run: Run, first: Run) -> Cell:
    text, by, outcome = beside(figure, run, first)
    if value(run, figure) is None:
        return Cell(text=text, kind="n none")
    kind = {Outcome.BETTER: "n good", Outcome.WORSE: "n worse"}.get(outcome, "n")
    return Cell(text=text, sort=by, kind=kind, note=_spread(figure, run))


def _spread(figure: Figure, run: Run) -> str:
    ends = spread(run, figure)
    least, most = map(figure.unit.brief, ends) if ends else ("", "")
    return f"{least} to {most}" if least != most else ""
