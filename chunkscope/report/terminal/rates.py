"""The highest rate that each setting sustains, on a terminal: a table, and what a rate costs."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.figures import ITL_P99, TTFT_P95, Figure
from chunkscope.artefacts.numbers import per_second, seconds
from chunkscope.report import sentences
from chunkscope.report.terminal.plots import Axis, Dot, letter, scatter
from chunkscope.report.terminal.tables import figure_table
from chunkscope.simulation.result import SimulatedRun, Simulation
from chunkscope.simulation.slo import Limit

if TYPE_CHECKING:
    from rich.console import Console

RATE = Axis(title="requests per second", shown=per_second, logarithmic=False)
BEYOND = 1.2  # times saturation: further on everything only gets worse
# By the limit that belongs to it, and its value in a point.
PLOTS = {
    "ttft_p95": ("p95 time to first token", TTFT_P95),
    "itl_p99": ("p99 gap between tokens", ITL_P99),
}


def show_rates(simulation: Simulation, console: "Console") -> None:
    runs = simulation.runs
    limits = runs[0].slo.limits if runs[0].slo else ()
    if limits:
        console.print(Text(f"Limits: {', '.join(map(str, limits))}."))
    console.print(_table(runs))
    for line in sentences.rates(simulation):
        console.print(Text(line))
    for name, (title, key) in PLOTS.items():
        limit = next((limit for limit in limits if limit.name == name), None)
        for line in _plot(runs, title, key, limit, min(console.width, 100)):
            console.print(Text(line))


def _table(runs: Sequence[SimulatedRun]) -> Table:
    figures = ("sustains", "saturation", "TTFT p95", "gap p99", "goodput")
    table = figure_table("", figures, gap=1)
    table.add_column("breaks first", no_wrap=True)
    best = max(run.rate.rate_per_s or 0.0 for run in runs if run.rate)
    for place, run in enumerate(runs):
        if run.rate is None:
            continue
        kept = run.rate.rate_per_s
        table.add_row(
            f"{letter(place)} {sentences.settings(run)}",
            "no rate" if kept is None else per_second(kept),
            per_second(run.rate.saturation_per_s),
            seconds(run.figures.ttft_s.p95),
            seconds(run.figures.itl_s.p99) if run.figures.itl_s else "-",
            per_second(run.figures.goodput_per_s),
            run.rate.breaks or "",
            style="bold" if kept == best else None,
        )
    return table


def _plot(
    runs: Sequence[SimulatedRun], title: str, key: Figure, limit: Limit | None, width: int
) -> Iterator[str]:
    most = BEYOND * max((run.rate and run.rate.saturation_per_s) or inf for run in runs)
    dots = [
        Dot(x=point.rate_per_s, y=value, text=letter(place))
        for place, run in enumerate(runs)
        for point in (run.rate.points if run.rate else ())
        if point.rate_per_s <= most and (value := key.value(point.figures)) is not None
    ]
    if dots:
        yield ""
        up = Axis(title=f"{title} (logarithmic{'; dotted: the limit' if limit else ''})")
        yield from scatter(dots, RATE, up, width, limit=limit.seconds if limit else None)
