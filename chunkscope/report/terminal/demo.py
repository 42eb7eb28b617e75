"""`chunkscope demo` on a terminal: the first steps, every request, and what chunks did."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.numbers import plural, seconds
from chunkscope.reference.demo import Demonstration
from chunkscope.reference.engine import ReferenceRun
from chunkscope.report.terminal.simulation import TIMELINE_KEY, timeline_table
from chunkscope.report.terminal.tables import figure_table
from chunkscope.report.words import verdicts as words

if TYPE_CHECKING:
    from rich.console import Console

KEY = (
    "Averages: until the first token of a short prompt, and a step that reads prompts. Memory: the "
    "peak beyond the weights."
)
BESIDE = 2  # settings in one table of requests


def show_demo(found: Demonstration, console: "Console", steps: int = 3) -> None:
    console.print(Text(_headline(found)), style="bold")
    console.print(Text(_asked(found)))
    for name, run in found.runs.items() if steps else ():
        console.print()
        shown = run.run.timeline[:steps]
        console.print(
            Text(
                f"{name}: {len(shown)} of {plural(run.run.figures.steps or 0, 'step')}{_ratio(run)}"
            )
        )
        console.print(timeline_table(replace(run.run, timeline=shown), console.width))
    if steps:
        console.print(Text(TIMELINE_KEY))
    names = tuple(found.runs)
    for start in range(0, len(names), BESIDE):
        console.print()
        console.print(_requests(found, names[start : start + BESIDE]))
    console.print()
    console.print(_summary(found))
    console.print(Text(KEY))
    console.print()
    for line in (words.demo(found.measured), _answers(found)):
        console.print(Text(line))


def _headline(found: Demonstration) -> str:
    model, machine = found.measured.model, found.measured.machine
    where = (machine and machine.gpu) or "a CPU"
    torch = f", torch {machine.torch}" if machine else ""
    return f"{model.name}, {(model.parameters or 0) / 1e6:,.1f} M parameters, on {where}{torch}"


def _asked(found: Demonstration) -> str:
    long = [
        len(r.prompt) for r in found.requests if len(r.prompt) > found.measured.workload.long_over
    ]
    early = sum(r.arrival_s == 0 for r in found.requests)
    rest = len(found.requests) - len(long) - early
    return (
        f"{early} short prompts are being answered when {len(long)} of {long[0]:,} tokens come, "
        f"and {rest} short ones behind them."
    )


def _requests(found: Demonstration, names: Sequence[str]) -> Table:
    """Each request's size; with each setting its first token and its end."""
    table = figure_table("request", ("tokens", *(f"first, end {name}" for name in names)))
    answers = zip(*(found.runs[name].answers for name in names), strict=True)
    for place, (request, of_one) in enumerate(zip(found.requests, answers, strict=True), start=1):
        size = "long" if len(request.prompt) > found.measured.workload.long_over else "short"
        cells = [f"{seconds(a.first_s):>7}  {seconds(a.all_s):>7}" for a in of_one]
        table.add_row(f"{place} {size}", f"{len(request.prompt):,}", *cells)
    return table


def _summary(found: Demonstration) -> Table:
    table = figure_table("", ("short wait", "longest gap", "all done", "prompt step", "memory"))
    for name, run in found.runs.items():
        table.add_row(
            name,
            seconds(_short_wait(found, name)),
            seconds(run.run.figures.longest_gap_s),
            seconds(run.run.figures.makespan_s),
            seconds(mean(run.chunk_s)),
            _memory(run.beyond_weights_gib),
        )
    return table


def _short_wait(found: Demonstration, name: str) -> float | None:
    run = found.measured.run(name)
    return run.figures.short.ttft_s.mean if run and run.figures and run.figures.short else None


def _ratio(run: ReferenceRun) -> str:
    ratio = run.interleaving
    return "" if ratio is None else f", {ratio:.2f} chunks for each that decodes"


def _memory(gib: float | None) -> str:
    return "not measured" if gib is None else f"{gib * 1024:,.0f} MiB"


def _answers(found: Demonstration) -> str:
    same, total = found.same_answers, len(found.requests)
    if same == total:
        return f"All {total} answers are the same, token by token."
    return (
        f"{same} of {total} answers are the same; logits after a prompt differ by up to "
        f"{found.logits_apart:.2g}, by rounding: sums are added up in another order."
    )
