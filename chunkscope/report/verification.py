"""Measured runs as sections: the verdict, the figures that decide, then every figure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from chunkscope.artefacts.figures import (
    ACTIVATION,
    FIGURES,
    INPUT_RATE,
    ITL_MAX,
    KV_TOKENS,
    MAKESPAN,
    OUTPUT_RATE,
    QUANTILES,
    TTFT_P95,
    Figure,
    Group,
    Latencies,
    in_group,
)
from chunkscope.artefacts.numbers import NOT_MEASURED, as_written, change, seconds
from chunkscope.reference.demo import Demonstration
from chunkscope.report.section import Cell, Chart, Column, Section, Table, figures
from chunkscope.report.simulation import timeline_table
from chunkscope.report.words import sentence
from chunkscope.report.words import verdicts as words
from chunkscope.verification.result import EngineKind, Run, Verification
from chunkscope.verification.verdict import Outcome, judge, spread, value

SHORT = (
    *((MAKESPAN, "time"), (TTFT_P95, "first token p95"), (ITL_MAX, "longest gap")),
    *((ACTIVATION, "activations"), (OUTPUT_RATE, "output tokens/s"), (KV_TOKENS, "KV tokens")),
)
LOOKS = {Outcome.BETTER: "good", Outcome.WORSE: "worse"}
TIMES = ("ttft_s", "itl_s")
PERCENTS = dict(zip(QUANTILES, (50, 95, 99, 100), strict=True))


def sections(v: Verification) -> list[Section]:
    failed = [f"{words.failure(run)}." for run in v.runs if not run.ok]
    is_demo = v.measured is EngineKind.DEMO
    answer = words.demo(v) if is_demo else words.verdict(v) or words.without_plan(v)
    return [
        Section(
            sentences=(answer, words.measured_on(v), *failed),
            table=runs_table(v),
            chart=_chart(v),
        ),
        Section(
            sentences=tuple(words.outputs(v)),
            notes=tuple(f"{run.setting}: {sentence(n)}" for run in v.runs for n in run.notes),
        ),
        Section(title="Every figure", table=every_figure(v), details=True),
        Section(title="Settings", table=_settings(v), details=True),
        Section(title="How it was measured", sentences=tuple(words.method(v)), details=True),
    ]


def titled(run: Run) -> str:
    """A setting by all its names: the same arguments are measured once."""
    return " = ".join((run.setting, *run.same_as))


def runs_table(v: Verification) -> Table | None:
    """A row for each setting that ran: the figures that decide, compared with the first."""
    ran = [run for run in v.runs if run.ok]
    shown = [(f, head) for f, head in SHORT if any(value(run, f) is not None for run in ran)]
    if not shown:
        return None
    columns = [Column(heading="setting (measured)", right=False)]
    for place, (figure, heading) in enumerate(shown):
        columns.append(Column(heading=heading, wide=place > 2))
        if figure is MAKESPAN and len(ran) > 1:
            columns.append(Column(heading="change"))
    rows = []
    for run in ran:
        cells: list[Cell | str] = [titled(run)]
        for figure, _ in shown:
            look = LOOKS.get(judge(figure, run, ran[0]), "") if run is not ran[0] else ""
            cells.append(Cell(text=words.shown(figure, run), look=look))
            if figure is MAKESPAN and len(ran) > 1:
                cells.append(_change(figure, run, ran[0]))
        rows.append(tuple(cells))
    use = v.verdict.use if v.verdict else None
    strong = tuple(at for at, run in enumerate(ran) if use is not None and run.is_called(use))
    return Table(columns=tuple(columns), rows=tuple(rows), strong=strong)


def _change(figure: Figure, run: Run, first: Run) -> str:
    if run is first:
        return ""
    if judge(figure, run, first) is Outcome.TIE:
        return "tie"
    return change(value(first, figure), value(run, figure))


def every_figure(v: Verification) -> Table | None:
    """Figures down, settings across: the median, the spread over repeats, and the change."""
    ran = [run for run in v.runs if run.ok]
    rows: list[tuple[Cell | str, ...]] = [
        (figure.title, *(_cell(figure, run, ran[0]) for run in ran))
        for figure in _figures()
        if any(value(run, figure) is not None for run in ran)
    ]
    return Table(columns=figures("median", *map(titled, ran)), rows=tuple(rows)) if rows else None


def _figures() -> Iterator[Figure]:
    """All of them, times of short and of long prompts besides."""
    yield from FIGURES
    for prompts in ("short", "long"):
        for figure in in_group(Group.TTFT, Group.ITL):
            title = f"{figure.title}, {prompts} prompts"
            yield replace(figure.among(prompts), title=title)


def _cell(figure: Figure, run: Run, first: Run) -> Cell:
    if value(run, figure) is None:
        return Cell(text=NOT_MEASURED, look="none")
    ends = spread(run, figure) if len(run.repeats) > 1 else None
    least, most = map(figure.unit.brief, ends) if ends else ("", "")
    return Cell(
        text=words.shown(figure, run),
        note=_change(figure, run, first),
        more=f"({least} to {most})" if least != most else "",
        look=LOOKS.get(judge(figure, run, first), "") if run is not first else "",
    )


def _settings(v: Verification) -> Table:
    rows = tuple(
        (
            titled(run),
            ", ".join(f"{name} {as_written(value)}" for name, value in run.settings.given().items())
            or "vLLM's defaults",
        )
        for run in v.runs
    )
    return Table(columns=tuple(Column(heading=h, right=False) for h in ("", "sets")), rows=rows)


# -- for the page --------------------------------------------------------------------------------


def _chart(v: Verification) -> Chart | None:
    if not any(run.ok for run in v.runs):
        return None
    return Chart(
        name="measured",
        data={
            "settings": [titled(run) for run in v.runs],
            "curves": curves(v.runs),
            "latency": list(_latencies(v.runs)),
            "bars": list(_bars(v.runs)),
        },
    )


def curves(runs: Sequence[Run]) -> dict[str, list[dict[str, Any]]]:
    """Per time, how its values are spread in each setting: pairs of percentile and seconds."""
    spreads: dict[str, list[dict[str, Any]]] = {}
    for name in TIMES:
        for run in runs:
            values: tuple[float, ...] = getattr(run.distribution, name, None) or ()
            if len(values) > 1:
                last = len(values) - 1
                points = [[100 * i / last, float(f"{x:.4g}")] for i, x in enumerate(values)]
                row = {"setting": titled(run), "whole": True, "at": points}
                spreads.setdefault(name, []).append(row)
    return spreads


def _latencies(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """One row per setting, time and kind of prompt; failed runs have none."""
    for run in runs:
        for name in TIMES:
            for group in ("all", "short", "long"):
                if quantiles := _quantiles(run.figures, name, group):
                    repeats = [q for r in run.repeats if (q := _quantiles(r, name, group))]
                    ends = [
                        {"at": at, "min": min(values), "max": max(values)}
                        for at in QUANTILES
                        if len(repeats) > 1 and (values := [q[at] for q in repeats])
                    ]
                    row = {"setting": titled(run), "figure": name, "group": group}
                    yield {**row, **quantiles, "spread": ends}


def _quantiles(measured: Latencies | None, name: str, group: str) -> dict[str, float] | None:
    part = getattr(measured, group, None) if group != "all" else measured
    times = getattr(part, name, None)
    return {at: getattr(times, at) for at in QUANTILES} if times else None


def _bars(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    for figure in (MAKESPAN, INPUT_RATE, OUTPUT_RATE, KV_TOKENS):
        for run in runs:
            ends = spread(run, figure) if len(run.repeats) > 1 else None
            yield {
                "figure": figure.key,
                "title": figure.title,
                "better": figure.better.value,
                "setting": titled(run),
                "value": value(run, figure),
                "shown": words.shown(figure, run) if run.ok else words.STATUS[run.status],
                "ok": run.ok,
                "min": ends[0] if ends else None,
                "max": ends[1] if ends else None,
            }


STEPS = 3  # of each setting, in the short answer
MOST_STEPS = 30


def demo_sections(demo: Demonstration) -> list[Section]:
    runs = [(name, run.run) for name, run in demo.runs.items()]
    return [
        Section(
            sentences=(words.demo(demo.measured), words.demo_setup(demo), words.demo_answers(demo)),
            table=_demo_summary(demo),
        ),
        *(
            Section(
                title=f"First steps {name}",
                table=timeline_table(run.timeline[:steps], run.settings.step_tokens),
                details=steps == MOST_STEPS,
            )
            for steps in (STEPS, MOST_STEPS)
            for name, run in runs
        ),
        Section(title="Every request: first token, end", table=_demo_requests(demo), details=True),
    ]


def _demo_summary(demo: Demonstration) -> Table:
    columns = figures("setting", "short wait", "longest gap", "all done", "prompt step", "memory")
    rows = []
    for name, run in demo.runs.items():
        memory = run.beyond_weights_bytes
        rows.append(
            (
                name,
                seconds(_waits(demo, name)),
                seconds(run.run.figures.longest_gap_s),
                seconds(run.run.figures.makespan_s),
                seconds(mean(run.chunk_s)),
                "not measured" if memory is None else f"{memory / 2**20:,.0f} MiB",
            )
        )
    return Table(columns=columns, rows=tuple(rows), caption=words.DEMO_KEY)


def _waits(demo: Demonstration, setting: str) -> float | None:
    """Of short requests, until their first token."""
    run = demo.measured.run(setting)
    short = run.figures.short if run and run.figures else None
    return short.ttft_s.mean if short else None


def _demo_requests(demo: Demonstration) -> Table:
    answers = zip(*(run.answers for run in demo.runs.values()), strict=True)
    rows = []
    for place, (request, settings) in enumerate(zip(demo.requests, answers, strict=True), start=1):
        size = "long" if len(request.prompt) > demo.measured.workload.long_over else "short"
        times = [f"{seconds(a.first_s)}, {seconds(a.all_s)}" for a in settings]
        rows.append((f"{place} {size}", f"{len(request.prompt):,}", *times))
    return Table(columns=figures("request", "tokens", *demo.runs), rows=tuple(rows))
