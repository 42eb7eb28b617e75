"""A simulation on a terminal: one setting beside vLLM's own, a sweep as table and plot, a timeline.

All of it is predicted, and says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.figures import BY_PROMISE, MAKESPAN
from chunkscope.artefacts.numbers import change, number, plural, seconds, share
from chunkscope.artefacts.units import SECONDS, exceeds
from chunkscope.costs.cost_model import CostModel
from chunkscope.costs.step_time import NO_HOST
from chunkscope.report import sentences
from chunkscope.report.terminal.tables import add_figures, bare_table, figure_table
from chunkscope.simulation.policies import DESCRIBED
from chunkscope.simulation.result import SimulatedRun, Simulation, TimelineStep
from chunkscope.simulation.slo import Limit, SloFound

if TYPE_CHECKING:
    from rich.console import Console

PLOT_ROWS = 12
NO_GAPS = "* The fastest. Nobody gets a second token, so there are no gaps to weigh against it."
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BAR_CELLS = 20
MOST_TELLING = ("ttft_p50", "ttft_p95", "itl_p50", "itl_p99", "itl_max", "e2e_p95")
TIMES = (MAKESPAN, *(BY_PROMISE[name] for name in MOST_TELLING))


def show_simulation(simulation: Simulation, console: "Console") -> None:
    console.print(_headline(simulation), style="bold")
    console.print(Text(_workload(simulation)))
    console.print()
    if simulation.pareto:
        _show_sweep(simulation, console)
    else:
        console.print(_beside(simulation.runs))
        for line in sentences.simulated(simulation):
            console.print(Text(line))
    for run in simulation.runs:
        if run.timeline:
            console.print()
            console.print(_timeline(run, console.width))
            console.print(Text(TIMELINE_KEY))
    console.print()
    console.print(Text(_basis(simulation)))


def _headline(simulation: Simulation) -> Text:
    cost = simulation.cost_model
    return Text(f"{cost.model} on {cost.gpu}, vLLM {simulation.vllm} (predicted, not measured)")


def _workload(simulation: Simulation) -> str:
    work, run = simulation.workload, simulation.run
    arrivals = {"batch": "all at once", "given": "as given"}.get(work.arrivals, work.arrivals)
    if work.concurrency is not None:
        arrivals += f", at most {work.concurrency:,} under way"
        arrivals = arrivals.removeprefix("all at once, ")
    seed = f", seed {work.seed}" if work.seed is not None else ""
    return (
        f"{plural(work.requests, 'request')} from {work.source}, {arrivals}{seed}: "
        f"{run.input_tokens:,} tokens in, {run.output_tokens:,} out."
    )


def _basis(simulation: Simulation) -> str:
    cost, policy = simulation.cost_model, simulation.run.policy
    off = f", off by {share(cost.error)} in the median" if cost.error is not None else ""
    return (
        f"Step times ({cost.source}): {cost.step.origin}{off}.\n"
        f"{_host(cost)}"
        f"Policy {policy}: {DESCRIBED[policy].text}."
    )


def _host(cost: CostModel) -> str:
    """What the host takes, and whether that was measured."""
    host, step = cost.step.host, cost.step
    if host == NO_HOST:
        return ""
    assumed = {name for name in cost.assumed if name.startswith("host.")}
    known = "assumed" if len(assumed) == len(fields(host)) else "measured"
    if known == "measured" and assumed:
        known = f"assumed: {', '.join(sorted(name.removeprefix('host.') for name in assumed))}"
    each = f"{host.per_request_s * 1e6:.0f} us"
    return (
        f"The host takes {seconds(host.fixed_s)} a step, {each} more for each request, "
        f"{seconds(host.per_prompt_s)} for each prompt and {seconds(host.ungraphed_s)} over "
        f"{step.graphed_tokens:,} tokens ({known}); the slower of host and GPU counts.\n"
    )


# -- one setting -------------------------------------------------------------------------------


def _beside(runs: Sequence[SimulatedRun]) -> Table:
    settings = map(sentences.settings, runs)
    table = figure_table("", (*settings, *(["change"] if len(runs) == 2 else [])))
    for name, *cells in _rows(runs):
        table.add_row(name, *cells)
    return table


def _rows(runs: Sequence[SimulatedRun]) -> Iterator[list[str]]:
    yield ["max_num_batched_tokens", *(number(r.args.max_num_batched_tokens) for r in runs)]
    yield ["long_prefill_token_threshold", *(_threshold(r) for r in runs)]
    yield ["max_num_seqs", *(number(r.args.max_num_seqs) for r in runs)]
    yield ["KV cache, tokens", *(number(r.args.kv_cache_tokens) for r in runs)]
    yield [""]
    for figure in TIMES:
        values = [figure.of(run) for run in runs]
        by = [change(values[1], values[0])] if len(values) == 2 else []
        yield [figure.title, *("-" if v is None else seconds(v) for v in values), *by]
    yield from _slo_rows(runs)
    yield ["tokens per second, in and out", *(number(round(r.tokens_per_s)) for r in runs)]
    yield ["steps", *(number(r.steps) for r in runs)]
    yield ["prompts read in chunks", *(number(r.chunked_prompts) for r in runs)]
    yield ["most chunks of one prompt", *(number(r.most_chunks) for r in runs)]
    yield ["preemptions", *(number(r.preemptions) for r in runs)]
    yield ["KV cache at its fullest", *(share(_fullest(r)) for r in runs)]


def _slo_rows(runs: Sequence[SimulatedRun]) -> Iterator[list[str]]:
    """Figures that are limited, and requests a second that met all limits."""
    found = [run.slo for run in runs if run.slo]
    for limit in found[0].limits if found else ():
        title = f"{limit.name}, limit {SECONDS.write(limit.seconds)}"
        yield [title, *(_limited(one, limit) for one in found)]
    if found:
        yield ["goodput, requests per second", *(f"{run.goodput_per_s:.3g}" for run in runs)]


def _limited(found: SloFound, limit: Limit) -> str:
    value = found.found_of(limit)
    mark = "! " if exceeds(value or 0.0, limit.seconds) else ""
    return "-" if value is None else f"{mark}{seconds(value)}"


def _threshold(run: SimulatedRun) -> str:
    return number(run.args.long_prefill_token_threshold or None)


def _fullest(run: SimulatedRun) -> float:
    return run.kv_peak_tokens / (run.args.num_blocks * run.args.block_size)


# -- a sweep -----------------------------------------------------------------------------------


def _show_sweep(simulation: Simulation, console: "Console") -> None:
    runs = simulation.runs
    console.print(_sweep_table(simulation))
    console.print()
    if not any(run.itl_s for run in runs):
        console.print(Text(NO_GAPS))
        return
    for line in _plot(simulation, min(console.width, 100)):
        console.print(Text(line))
    console.print()
    console.print(Text(_knee(simulation, runs)))


def _sweep_table(simulation: Simulation) -> Table:
    figures = ("budget", "threshold", "makespan", "TTFT p95", "gap p50", "longest gap")
    table = figure_table("", figures)
    table.add_column("", no_wrap=True)
    for place, run in enumerate(simulation.runs):
        gap = seconds(run.itl_s.p50) if run.itl_s else "-"
        longest = seconds(run.itl_s.max) if run.itl_s else "-"
        table.add_row(
            LETTERS[place % len(LETTERS)],
            number(run.args.max_num_batched_tokens),
            _threshold(run),
            seconds(run.makespan_s),
            seconds(run.ttft_s.p95),
            gap,
            longest,
            _mark(simulation, place),
            style="bold" if place == simulation.knee else None,
        )
    return table


def _mark(simulation: Simulation, place: int) -> str:
    if place == simulation.knee:
        return "* knee"
    return "*" if place in simulation.pareto else ""


def _plot(simulation: Simulation, width: int) -> Iterator[str]:
    """Makespan to the right, longest gap upward, both by their ratio; * are on the front."""
    from math import log

    runs = simulation.runs
    gaps = [max(run.longest_gap_s, 1e-6) for run in runs]
    spans = [run.makespan_s for run in runs]
    columns = width - 12
    grid = [[" "] * columns for _ in range(PLOT_ROWS)]
    for place in sorted(range(len(runs)), key=lambda i: i in simulation.pareto):
        row = _scaled(log(gaps[place]), log(min(gaps)), log(max(gaps)), PLOT_ROWS)
        column = _scaled(log(spans[place]), log(min(spans)), log(max(spans)), columns - 1)
        grid[PLOT_ROWS - 1 - row][column] = LETTERS[place % len(LETTERS)]
        if place in simulation.pareto:
            grid[PLOT_ROWS - 1 - row][column + 1] = "*"
    yield "longest gap (both axes are logarithmic)"
    for place, cells in enumerate(grid):
        label = {0: seconds(max(gaps)), PLOT_ROWS - 1: seconds(min(gaps))}.get(place, "")
        yield f"{label:>9} |{''.join(cells).rstrip()}"
    left, right = seconds(min(spans)), f"{seconds(max(spans))} makespan"
    yield f"{'':9} +{'-' * columns}"
    yield f"{'':11}{left}{right:>{max(1, columns - len(left))}}"


def _scaled(value: float, least: float, most: float, cells: int) -> int:
    return round((value - least) / (most - least) * (cells - 1)) if most > least else 0


def _knee(simulation: Simulation, runs: Sequence[SimulatedRun]) -> str:
    front = ", ".join(LETTERS[place % len(LETTERS)] for place in simulation.pareto)
    said = f"* No other setting is better in both: {front}."
    spans = [run.makespan_s for run in runs]
    if max(spans) < min(spans) * 1.01:
        said += " The arrivals decide the makespan here: look at the time to first token (TTFT)."
    if simulation.knee is None:
        return f"{said} There is no bend in between."
    run = runs[simulation.knee]
    threshold = run.args.long_prefill_token_threshold
    capped = f" and a threshold of {threshold:,}" if threshold else ""
    return (
        f"{said} The knee is {LETTERS[simulation.knee % len(LETTERS)]}, a budget of "
        f"{run.args.max_num_batched_tokens:,}{capped}: from there on a shorter gap costs most."
    )


# -- the first steps ---------------------------------------------------------------------------

TIMELINE_KEY = (
    "The bar is the step's token budget: d decodes, A B C ... chunks of prompts that take several "
    "steps (and how much is read by then), - prompts read whole."
)
MOST_NAMED = 2


def _timeline(run: SimulatedRun, width: int) -> Table:
    table = bare_table(gap=1)
    add_figures(table, ("step", "start", "took", "decodes"))
    table.add_column("budget", no_wrap=True, width=BAR_CELLS)
    table.add_column("prompts", overflow="fold", max_width=max(20, width - 50))
    names = _names(run.timeline)
    for step in run.timeline:
        table.add_row(
            number(step.number),
            seconds(step.start_s),
            seconds(step.duration_s),
            number(step.decode_requests),
            _bar(step, run.args.max_num_batched_tokens, names),
            escape(_read(step, names)),
        )
    return table


def _names(steps: Sequence[TimelineStep]) -> dict[int, str]:
    """A capital letter for each prompt that is read in several steps, as far as they go."""
    split = dict.fromkeys(c.request for step in steps for c in step.chunks if not c.is_whole)
    return {request: LETTERS[place % 26].upper() for place, request in enumerate(split)}


def _bar(step: TimelineStep, budget: int, names: dict[int, str]) -> str:
    parts = [("d", step.decode_requests)]
    parts += [(names.get(c.request, "-"), c.end - c.start) for c in step.chunks]
    bar, tokens = "", 0
    for letter, count in parts:
        tokens += count
        bar += letter * (round(tokens / budget * BAR_CELLS) - len(bar))
    return bar


def _read(step: TimelineStep, names: dict[int, str]) -> str:
    split = [
        f"{names[c.request]} {share(c.end / c.prompt_tokens)}"
        for c in step.chunks
        if c.request in names
    ]
    said = [*split[:MOST_NAMED], *([f"+{len(split) - MOST_NAMED}"] if split[MOST_NAMED:] else [])]
    if whole := sum(c.request not in names for c in step.chunks):
        said.append(f"{whole:,} whole")
    if step.preempted:
        said.append(f"{len(step.preempted):,} preempted")
    return "  ".join(said) or "-"
