"""Runs as tables, simulated, tried for a plan, swept or measured; a simulation as sections."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from chunkscope.artefacts.figures import (
    ACTIVATION,
    BY_PROMISE,
    FIGURES,
    ITL_MAX,
    ITL_P99,
    KV_TOKENS,
    MAKESPAN,
    OUTPUT_RATE,
    TTFT_P95,
    Figure,
    Group,
    in_group,
)
from chunkscope.artefacts.numbers import NOT_MEASURED, change, per_second, seconds, share
from chunkscope.artefacts.units import SECONDS, exceeds
from chunkscope.report.section import (
    Cell,
    Chart,
    Section,
    Table,
    Written,
    fact_table,
    table_of,
)
from chunkscope.report.words import sentence
from chunkscope.report.words import simulation as simulated
from chunkscope.report.words import verdicts as words
from chunkscope.simulation.result import SimulatedRun, Simulation, TimelineStep
from chunkscope.simulation.slo import Limit
from chunkscope.simulation.sweep import axes
from chunkscope.verification.result import Run
from chunkscope.verification.verdict import Outcome, judge, spread, value

AnyRun = SimulatedRun | Run
Named = Sequence[tuple[str, AnyRun]]
SHORT = {
    "time": MAKESPAN,
    "first token p95": TTFT_P95,
    "gap p50": BY_PROMISE["itl_p50"],
    "gap p99": ITL_P99,
    "longest gap": ITL_MAX,
    "activations": ACTIVATION,
    "output tokens/s": OUTPUT_RATE,
    "KV tokens": KV_TOKENS,
}
WIDE = ("gap p50", "activations", "output tokens/s", "KV tokens", "preempted", "KV use")
LOOKS = {Outcome.BETTER: "good", Outcome.WORSE: "worse"}
MOST_NAMED = 2


def runs_table(named: Named, *, strong: Collection[int] = ()) -> Table | None:
    """The figures that decide; measured ones compared with the first; limited ones marked."""
    runs: list[Any] = [run for _, run in named]
    first = runs[0] if runs else None
    limits = first.slo.limits if isinstance(first, SimulatedRun) and first.slo else ()
    columns: dict[str, Callable[[Any], Written]] = {
        f"{limit.name} ({SECONDS.write(limit.seconds)})": partial(_limited, limit)
        for limit in limits
    }
    for heading, figure in SHORT.items():
        is_limited = limits and figure not in (MAKESPAN, ITL_MAX)
        if not is_limited and any(value(run, figure) is not None for run in runs):
            columns[heading] = partial(cell, figure, first)
            if figure is MAKESPAN and isinstance(first, Run) and len(runs) > 1:
                columns["change"] = partial(changed, MAKESPAN, first)
    if isinstance(first, SimulatedRun):
        columns["preempted"] = lambda run: run.figures.preemptions
        columns["KV use"] = lambda run: share(kv_use(run))
    rows = [(name, *(column(run) for column in columns.values())) for name, run in named]
    wide = WIDE if isinstance(first, SimulatedRun) else (*WIDE, "gap p99")
    return table_of(("setting", *columns), rows, wide=wide, strong=strong)


def cell(figure: Figure, first: Any, run: Any) -> Written:
    """As it is written; measured runs are better or worse than the first."""
    if isinstance(run, SimulatedRun):
        number = figure.value(run.figures)
        return None if number is None else figure.unit.brief(number)
    text = words.shown(figure, run)
    if text == NOT_MEASURED:
        return Cell(text=text, look="none")
    return Cell(text=text, look="" if run is first else LOOKS.get(judge(figure, run, first), ""))


def changed(figure: Figure, first: Run, run: Run) -> str:
    if run is first:
        return ""
    is_tie = judge(figure, run, first) is Outcome.TIE
    return "tie" if is_tie else change(value(first, figure), value(run, figure))


def every_figure(named: Named, lines: Sequence[Sequence[Written]] = ()) -> Table | None:
    """Figures down, settings across; of measured ones the median, the change and the spread.

    Times also of short and of long prompts alone.
    """
    some = [
        replace(figure.among(prompts), title=f"{figure.title}, {prompts} prompts")
        for prompts in ("short", "long")
        for figure in in_group(Group.TTFT, Group.ITL)
    ]
    runs: list[Any] = [run for _, run in named]
    figures = [f for f in (*FIGURES, *some) if any(value(run, f) is not None for run in runs)]
    rows = [(f.title, *(_with_spread(f, run, runs[0]) for run in runs)) for f in figures]
    return table_of(("", *(name for name, _ in named)), [*lines, *rows])


def _with_spread(figure: Figure, run: Any, first: Any) -> Written:
    shown = cell(figure, first, run)
    if not isinstance(shown, Cell) or value(run, figure) is None:
        return shown
    ends = spread(run, figure) if len(run.repeats) > 1 else None
    least, most = map(figure.unit.brief, ends) if ends else ("", "")
    between = f"({least} to {most})" if least != most else ""
    return replace(shown, note=f"{changed(figure, first, run)} {between}".strip())


def _limited(limit: Limit, run: SimulatedRun) -> Written:
    number = run.slo.found_of(limit) if run.slo else None
    if number is None or not exceeds(number, limit.seconds):
        return None if number is None else seconds(number)
    return Cell(text=f"! {seconds(number)}", look="bad")


def kv_use(run: SimulatedRun) -> float:
    return run.kv_peak_tokens / (run.pool.num_blocks * run.pool.tokens_per_block)


def steps_table(steps: Sequence[TimelineStep]) -> Table | None:
    """The first steps of a run; a letter for each prompt that takes several."""
    split = dict.fromkeys(c.request for step in steps for c in step.chunks if not c.is_whole)
    letters = {request: chr(ord("A") + place % 26) for place, request in enumerate(split)}

    def prompts(step: TimelineStep) -> str:
        chunks = [c for c in step.chunks if c.request in letters]
        parts = [f"{letters[c.request]} {share(c.end / c.prompt_tokens)}" for c in chunks]
        parts[MOST_NAMED:] = [f"+{len(parts) - MOST_NAMED}"] if parts[MOST_NAMED:] else []
        if whole := len(step.chunks) - len(chunks):
            parts.append(f"{whole:,} whole")
        if step.preempted:
            parts.append(f"{len(step.preempted):,} preempted")
        return "  ".join(parts) or "-"

    rows = [
        (
            *(f"{step.number:,}", seconds(step.start_s), seconds(step.duration_s)),
            *(step.decode_requests, sum(c.end - c.start for c in step.chunks), prompts(step)),
        )
        for step in steps
    ]
    heads = ("step", "start", "took", "decodes", "prompt tokens", "prompts (done so far)")
    return table_of(heads, rows, words=heads[-1:])


# -- a simulation ---------------------------------------------------------------------------------

Simulated = Sequence[tuple[str, SimulatedRun]]


def sections(simulation: Simulation) -> list[Section]:
    runs = simulation.runs
    named = list(zip(simulated.run_names(runs), runs, strict=True))
    strong = [simulation.knee] if simulation.knee is not None else []
    is_rate = runs[0].rate is not None
    return [
        Section(
            sentences=(
                simulated.simulated_answer(simulation),
                simulated.simulated_setup(simulation),
            ),
            table=_rates_table(named) if is_rate else runs_table(named, strong=strong),
            chart=_tradeoff_chart(simulation, named),
        ),
        *(
            Section(title=f"First steps: {name}", table=steps_table(run.timeline))
            for name, run in named
            if run.timeline
        ),
        Section(
            sentences=tuple(simulated.simulated_findings(simulation)),
            notes=tuple(map(sentence, simulation.notes)),
        ),
        Section(title="Every figure", table=every_figure(named, _settings(named)), details=True),
        Section(
            title="How it was computed",
            table=fact_table(simulated.simulated_basis(simulation)),
            details=True,
        ),
    ]


def _rates_table(named: Simulated) -> Table | None:
    """The highest rate of each setting that keeps the limits, and what breaks above it."""
    rows = []
    for name, run in named:
        rate, figures = run.rate, run.figures
        assert rate is not None  # noqa: S101  (a rate was looked for)
        kept = rate.rate_per_s is not None
        rows.append(
            (
                name,
                per_second(rate.rate_per_s) if kept else "no rate",
                per_second(rate.saturation_per_s),
                seconds(figures.ttft_s.p95) if kept else None,
                seconds(figures.itl_s.p99) if kept and figures.itl_s else None,
                rate.breaks or "",
            )
        )
    heads = ("setting", "sustains", "saturated at", "first token p95", "gap p99", "breaks first")
    return table_of(heads, rows, words=heads[-1:])


def _settings(named: Simulated) -> list[tuple[Written, ...]]:
    runs = [run for _, run in named]
    return [
        ("tokens per step", *(run.settings.step_tokens for run in runs)),
        ("tokens per prompt", *map(simulated.threshold, runs)),
        ("requests at once", *(run.settings.max_num_seqs for run in runs)),
        ("KV cache, tokens", *(run.pool.tokens for run in runs)),
        ("KV cache at its fullest", *(share(kv_use(run)) for run in runs)),
    ]


# -- for the page --------------------------------------------------------------------------------


def _tradeoff_chart(simulation: Simulation, named: Simulated) -> Chart | None:
    """Two figures of each setting of a sweep; a few settings are better shown by the table."""
    across, up = axes(simulation.runs)
    points = [
        {
            "setting": name,
            "x": across.value(run.figures),
            "y": up.value(run.figures),
            "best": at in simulation.pareto,
            "knee": at == simulation.knee,
            "named": bool(run.setting),
            "details": simulated.in_arguments(run),
        }
        for at, (name, run) in enumerate(named)
        if up.value(run.figures) is not None
    ]
    if len(points) < 3 or not simulation.pareto:
        return None
    titles = {"x": across.title, "y": up.title}
    return Chart(name="tradeoff", data={"points": points, "axes": titles})
