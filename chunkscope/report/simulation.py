"""A simulation as sections: what each setting does, side by side; a timeline of the first steps."""

from collections.abc import Sequence

from chunkscope.artefacts.figures import BY_PROMISE, ITL_MAX, MAKESPAN, TTFT_P95, Figure
from chunkscope.artefacts.numbers import number, per_second, seconds, share
from chunkscope.artefacts.units import SECONDS, exceeds
from chunkscope.report.section import Cell, Chart, Column, Section, Table, fact_table, figures
from chunkscope.report.words import sentence
from chunkscope.report.words import simulation as words
from chunkscope.simulation.result import SimulatedRun, Simulation, TimelineStep
from chunkscope.simulation.slo import Limit
from chunkscope.simulation.sweep import axes

MOST_STEPS = 200  # of the page's timeline: more would be thinner than a pixel
BAR_CELLS = 20
MOST_NAMED = 2
SHORT = (  # figures of the short table
    *((MAKESPAN, "time"), (TTFT_P95, "first token p95")),
    *((BY_PROMISE["itl_p50"], "gap p50"), (BY_PROMISE["itl_p99"], "gap p99")),
    (ITL_MAX, "longest gap"),
)
TOLD = ("ttft_p50", "ttft_p95", "itl_p50", "itl_p99", "itl_max", "e2e_p95")


def sections(simulation: Simulation) -> list[Section]:
    runs = simulation.runs
    named = list(zip(words.run_names(runs), runs, strict=True))
    strong = [simulation.knee] if simulation.knee is not None else []
    return [
        Section(
            sentences=(words.simulated_answer(simulation), words.simulated_setup(simulation)),
            table=rates_table(named) if runs[0].rate else runs_table(named, strong),
            chart=_rates_chart(named) if runs[0].rate else _tradeoff_chart(simulation, named),
        ),
        *(
            Section(
                title=f"First steps: {name}",
                table=timeline_table(run.timeline, run.settings.step_tokens),
                chart=_timeline_chart(run),
            )
            for name, run in named
            if run.timeline
        ),
        Section(
            sentences=tuple(words.simulated_findings(simulation)),
            notes=tuple(map(sentence, simulation.notes)),
        ),
        Section(title="Every figure", table=_every_figure(named), details=True),
        Section(
            title="How it was computed",
            table=fact_table(words.simulated_basis(simulation)),
            details=True,
        ),
    ]


# -- settings side by side -----------------------------------------------------------------------

Named = Sequence[tuple[str, SimulatedRun]]


def runs_table(named: Named, strong: Sequence[int] = ()) -> Table:
    """A row for each setting: its times; with limits, the figures that are limited."""
    limits = named[0][1].slo.limits if named and named[0][1].slo else ()
    shown = [pair for pair in SHORT if not limits or pair[0] in (MAKESPAN, ITL_MAX)]
    shown = [(f, head) for f, head in shown if any(f.value(run.figures) for _, run in named)]
    columns = [
        *figures(
            "setting", *(f"{limit.name} ({SECONDS.write(limit.seconds)})" for limit in limits)
        ),
        *(Column(heading=heading) for _, heading in shown),
        Column(heading="preempted", wide=True),
        Column(heading="KV use", wide=True),
    ]
    rows = [
        (
            name,
            *(_limited(run, limit) for limit in limits),
            *(_time(figure, run) for figure, _ in shown),
            number(run.figures.preemptions),
            share(kv_use(run)),
        )
        for name, run in named
    ]
    return Table(columns=tuple(columns), rows=tuple(rows), strong=tuple(strong))


def _time(figure: Figure, run: SimulatedRun) -> str:
    value = figure.value(run.figures)
    return "-" if value is None else seconds(value)


def _limited(run: SimulatedRun, limit: Limit) -> Cell | str:
    value = run.slo.found_of(limit) if run.slo else None
    if value is None:
        return "-"
    broken = exceeds(value, limit.seconds)
    return Cell(text=f"{'! ' if broken else ''}{seconds(value)}", look="bad" if broken else "")


def kv_use(run: SimulatedRun) -> float:
    return run.kv_peak_tokens / (run.pool.num_blocks * run.pool.tokens_per_block)


def rates_table(named: Named) -> Table:
    """The highest rate of each setting that keeps the limits, and what breaks above it."""
    columns = (
        *figures("setting", "sustains", "saturated at", "first token p95", "gap p99"),
        Column(heading="breaks first", right=False),
    )
    rows = []
    for name, run in named:
        rate, itl = run.rate, run.figures.itl_s
        kept = rate is not None and rate.rate_per_s is not None
        rows.append(
            (
                name,
                per_second(rate.rate_per_s) if rate and kept else "no rate",
                per_second(rate.saturation_per_s) if rate else "-",
                seconds(run.figures.ttft_s.p95) if kept else "-",
                seconds(itl.p99) if kept and itl else "-",
                (rate.breaks or "") if rate else "",
            )
        )
    return Table(columns=columns, rows=tuple(rows))


def _every_figure(named: Named) -> Table:
    """Figures down, settings across."""
    lines: list[tuple[str, ...]] = [
        ("tokens per step", *(number(r.settings.step_tokens) for _, r in named)),
        ("tokens per prompt", *(words.threshold(r) for _, r in named)),
        ("requests at once", *(number(r.settings.max_num_seqs) for _, r in named)),
        ("KV cache, tokens", *(number(r.pool.tokens) for _, r in named)),
        *(
            (figure.title, *(_time(figure, r) for _, r in named))
            for figure in (MAKESPAN, *(BY_PROMISE[name] for name in TOLD))
        ),
        ("tokens per second", *(number(round(r.figures.tokens_per_s)) for _, r in named)),
        ("steps", *(number(r.figures.steps) for _, r in named)),
        ("prompts in chunks", *(number(r.figures.chunked_prompts) for _, r in named)),
        ("most chunks of one", *(number(r.figures.chunks_max) for _, r in named)),
        ("preemptions", *(number(r.figures.preemptions) for _, r in named)),
        ("KV cache at its fullest", *(share(kv_use(r)) for _, r in named)),
    ]
    if any(run.slo for _, run in named):
        lines.append(("goodput", *(per_second(r.figures.goodput_per_s) for _, r in named)))
    return Table(columns=figures("", *(name for name, _ in named)), rows=tuple(lines))


# -- for the page --------------------------------------------------------------------------------


def _tradeoff_chart(simulation: Simulation, named: Named) -> Chart | None:
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
            "details": words.in_arguments(run),
        }
        for at, (name, run) in enumerate(named)
        if up.value(run.figures) is not None
    ]
    if len(points) < 3 or not simulation.pareto:
        return None
    return Chart(
        name="tradeoff", data={"points": points, "axes": {"x": across.title, "y": up.title}}
    )


def _rates_chart(named: Named) -> Chart:
    slo = named[0][1].slo
    points = [
        {
            "setting": name,
            "rate_per_s": point.rate_per_s,
            "ttft_p95_s": point.figures.ttft_s.p95,
            "itl_p99_s": point.figures.itl_s.p99 if point.figures.itl_s else None,
            "grows": point.grows,
        }
        for name, run in named
        for point in (run.rate.points if run.rate else ())
    ]
    limits = {limit.name: limit.seconds for limit in slo.limits} if slo else {}
    data = {"points": points, "limits": limits, "settings": [name for name, _ in named]}
    return Chart(name="rates", data=data)


def _timeline_chart(run: SimulatedRun) -> Chart:
    return Chart(
        name="timeline",
        data=[
            {
                "step": step.number,
                "start_s": step.start_s,
                "end_s": step.start_s + step.duration_s,
                "kind": kind,
                "tokens": tokens,
            }
            for step in run.timeline[:MOST_STEPS]
            for kind, tokens in _tokens_by_kind(step).items()
        ],
    )


def _tokens_by_kind(step: TimelineStep) -> dict[str, int]:
    """A prompt that is computed in one step needs no colour of its own."""
    tokens: dict[str, int] = {"decodes": step.decode_requests, "whole prompts": 0}
    for chunk in step.chunks:
        kind = "whole prompts" if chunk.is_whole else f"prompt {chunk.request}"
        tokens[kind] = tokens.get(kind, 0) + chunk.end - chunk.start
    return {kind: count for kind, count in tokens.items() if count}


# -- the first steps -----------------------------------------------------------------------------


def timeline_table(steps: Sequence[TimelineStep], budget: int) -> Table:
    """One row for each step; a letter for each prompt that takes several."""
    columns = (
        *figures("step", "start", "took", "decodes"),
        Column(heading="tokens of the step", right=False),
        Column(heading="prompts", right=False),
    )
    split = dict.fromkeys(c.request for step in steps for c in step.chunks if not c.is_whole)
    names = {request: _letter(place) for place, request in enumerate(split)}
    rows = tuple(
        (
            number(step.number),
            seconds(step.start_s),
            seconds(step.duration_s),
            number(step.decode_requests),
            _bar(step, budget, names),
            _prompts(step, names),
        )
        for step in steps
    )
    return Table(columns=columns, rows=rows, caption=words.TIMELINE_KEY)


def _letter(place: int) -> str:
    """
    >>> _letter(0), _letter(26)
    ('A', '+')
    """
    return chr(ord("A") + place) if place < 26 else "+"


def _bar(step: TimelineStep, budget: int, names: dict[int, str]) -> str:
    parts = [("d", step.decode_requests)]
    parts += [(names.get(c.request, "-"), c.end - c.start) for c in step.chunks]
    bar, tokens = "", 0
    for sign, count in parts:
        tokens += count
        bar += sign * (round(tokens / budget * BAR_CELLS) - len(bar))
    return bar


def _prompts(step: TimelineStep, names: dict[int, str]) -> str:
    split = [
        f"{names[c.request]} {share(c.end / c.prompt_tokens)}"
        for c in step.chunks
        if c.request in names
    ]
    parts = [*split[:MOST_NAMED], *([f"+{len(split) - MOST_NAMED}"] if split[MOST_NAMED:] else [])]
    if whole := sum(c.request not in names for c in step.chunks):
        parts.append(f"{whole:,} whole")
    if step.preempted:
        parts.append(f"{len(step.preempted):,} preempted")
    return "  ".join(parts) or "-"
