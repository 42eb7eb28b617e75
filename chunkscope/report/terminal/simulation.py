"""A simulation on a terminal: one setting beside vLLM's own, a sweep as table and plot, a timeline.

All of it is predicted, and says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.figures import BY_PROMISE, ITL_MAX, ITL_P99, MAKESPAN, TTFT_P95
from chunkscope.artefacts.note import Note
from chunkscope.artefacts.numbers import change, number, per_second, plural, seconds, share
from chunkscope.artefacts.units import SECONDS, exceeds
from chunkscope.hardware.cost_model import CostModel
from chunkscope.hardware.step_time import NO_HOST
from chunkscope.report import sentences
from chunkscope.report.terminal.plots import Axis, Dot, letter, scatter
from chunkscope.report.terminal.rates import show_rates
from chunkscope.report.terminal.tables import add_figures, bare_table, figure_table
from chunkscope.report.words import sentence
from chunkscope.simulation.result import SimulatedRun, Simulation, TimelineStep
from chunkscope.simulation.slo import Limit, SloFound
from chunkscope.simulation.sweep import axes
from chunkscope.vllm.enums import SendOrder

if TYPE_CHECKING:
    from rich.console import Console

NO_GAPS = "* The fastest. Nobody gets a second token, so there are no gaps to weigh against it."
BAR_CELLS = 20
MOST_TELLING = ("ttft_p50", "ttft_p95", "itl_p50", "itl_p99", "itl_max", "e2e_p95")
SWEEP_COLUMNS = {
    "makespan": MAKESPAN,
    "TTFT p95": TTFT_P95,
    "gap p50": BY_PROMISE["itl_p50"],
    "longest gap": ITL_MAX,
}
OPEN_COLUMNS = {
    "TTFT p95": TTFT_P95,
    "gap p50": BY_PROMISE["itl_p50"],
    "gap p99": ITL_P99,
}
TIMES = (MAKESPAN, *(BY_PROMISE[name] for name in MOST_TELLING))


def show_simulation(simulation: Simulation, console: "Console") -> None:
    console.print(_headline(simulation), style="bold")
    console.print(Text(_workload(simulation)))
    console.print()
    if any(run.rate for run in simulation.runs):
        show_rates(simulation, console)
    elif simulation.pareto:
        _show_sweep(simulation, console)
    else:
        console.print(_beside(simulation.runs))
        for line in sentences.simulated(simulation):
            console.print(Text(line))
    for run in simulation.runs:
        if run.timeline:
            console.print()
            console.print(timeline_table(run, console.width))
            console.print(Text(TIMELINE_KEY))
    console.print()
    console.print(Text(_basis(simulation)))


_ORDERS = {
    SendOrder.DATA: "in the data's order",
    SendOrder.LONGEST: "the longest first",
    SendOrder.SHUFFLED: "shuffled",
}


def _headline(simulation: Simulation) -> Text:
    cost = simulation.cost_model
    return Text(f"{cost.model} on {cost.gpu}, vLLM {simulation.vllm} (predicted, not measured)")


def _workload(simulation: Simulation) -> str:
    work, run = simulation.workload, simulation.run
    arrivals = work.sent
    if work.concurrency is not None:
        arrivals += f", at most {work.concurrency:,} under way"
        arrivals = arrivals.removeprefix("all at once, ")
    order = f", {_ORDERS[work.order]}" if work.order else ""
    seed = f", seed {work.seed}" if work.seed is not None else ""
    return (
        f"{plural(work.requests, 'request')} from {work.source}, {arrivals}{order}{seed}: "
        f"{run.input_tokens:,} tokens in, {run.output_tokens:,} out."
        f"{_from_cache(run)}"
    )


def _from_cache(run: SimulatedRun) -> str:
    """What prompts share counts, and this is how much."""
    if not run.cached_tokens:
        return ""
    return (
        f" Of the tokens in, {share(run.cached_tokens / run.input_tokens)} are in the prefix cache."
    )


def _basis(simulation: Simulation) -> str:
    cost, policy = simulation.cost_model, simulation.run.policy
    off = f", off by {share(cost.error)} in the median" if cost.error is not None else ""
    kind = f"Kind of model: {cost.kind}.\n" if cost.kind else ""
    return (
        f"{kind}Step times ({cost.source}): {cost.step.origin}{off}.\n"
        f"{_host(cost)}"
        f"Policy {policy}: {sentence(Note(code=f'policy_{policy}'))}."
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
    if any(run.args.max_num_active_seqs for run in runs):
        yield ["max_num_active_seqs", *(number(r.args.max_num_active_seqs) for r in runs)]
    yield ["KV cache, tokens", *(number(r.args.kv_cache_tokens) for r in runs)]
    yield [""]
    for figure in TIMES:
        values = [figure.value(run.figures) for run in runs]
        by = [change(values[1], values[0])] if len(values) == 2 else []
        yield [figure.title, *("-" if v is None else seconds(v) for v in values), *by]
    yield from _slo_rows(runs)
    yield ["tokens per second, in and out", *(number(round(r.figures.tokens_per_s)) for r in runs)]
    yield ["steps", *(number(r.figures.steps) for r in runs)]
    yield ["prompts read in chunks", *(number(r.figures.chunked_prompts) for r in runs)]
    yield ["most chunks of one prompt", *(number(r.figures.chunks_max) for r in runs)]
    yield ["preemptions", *(number(r.figures.preemptions) for r in runs)]
    yield ["KV cache at its fullest", *(share(_fullest(r)) for r in runs)]


def _slo_rows(runs: Sequence[SimulatedRun]) -> Iterator[list[str]]:
    """Figures that are limited, and requests a second that met all limits."""
    found = [run.slo for run in runs if run.slo]
    for limit in found[0].limits if found else ():
        title = f"{limit.name}, limit {SECONDS.write(limit.seconds)}"
        yield [title, *(_limited(one, limit) for one in found)]
    if found:
        yield [
            "goodput, requests per second",
            *(f"{r.figures.goodput_per_s:.3g}" for r in runs),
        ]


def _limited(found: SloFound, limit: Limit) -> str:
    value = found.found_of(limit)
    mark = "! " if exceeds(value or 0.0, limit.seconds) else ""
    return "-" if value is None else f"{mark}{seconds(value)}"


def _threshold(run: SimulatedRun) -> str:
    adapts = ", adaptive" if run.args.long_prefill_token_threshold_adaptive else ""
    return number(run.args.long_prefill_token_threshold or None) + adapts


def _fullest(run: SimulatedRun) -> float:
    return run.kv_peak_tokens / (run.args.num_blocks * run.args.tokens_per_block)


# -- a sweep -----------------------------------------------------------------------------------


def _show_sweep(simulation: Simulation, console: "Console") -> None:
    runs = simulation.runs
    console.print(_sweep_table(simulation))
    if not any(run.figures.itl_s for run in runs):
        console.print()
        console.print(Text(NO_GAPS))
        return
    console.print(Text(_knee(simulation, runs)))
    console.print()
    for line in _plot(simulation, min(console.width, 100)):
        console.print(Text(line))
    names = [letter(place) for place in range(len(runs))]
    if overloaded := tuple(sentences.overload(simulation, names)):
        console.print()
    for line in overloaded:
        console.print(Text(line))


def _sweep_table(simulation: Simulation) -> Table:
    is_open = axes(simulation.runs)[0] is TTFT_P95
    columns = OPEN_COLUMNS if is_open else SWEEP_COLUMNS
    goodput = ["goodput"] if simulation.run.slo else []
    table = bare_table(gap=2 - len(goodput))
    table.add_column("")
    add_figures(table, ("budget", "threshold", *columns, *goodput))
    table.add_column("", overflow="fold")
    for place, run in enumerate(simulation.runs):
        values = (figure.value(run.figures) for figure in columns.values())
        table.add_row(
            letter(place),
            number(run.args.max_num_batched_tokens),
            _threshold(run),
            *("-" if value is None else seconds(value) for value in values),
            *([per_second(run.figures.goodput_per_s)] if goodput else []),
            ", ".join(_marks(simulation, place)),
            style="bold" if place == simulation.knee else None,
        )
    return table


def _marks(simulation: Simulation, place: int) -> Iterator[str]:
    run = simulation.runs[place]
    if run.setting:
        yield sentences.settings(run)
    if place in simulation.pareto:
        yield "* knee" if place == simulation.knee else "*"
    if run.slo and not run.slo.is_met:
        yield f"! {run.slo.tightest.name}"
    if run.backlog and run.backlog.grows:
        yield "! queue"


def _plot(simulation: Simulation, width: int) -> Iterator[str]:
    """Both axes by their ratio; * are on the front, and on top."""
    runs, front = simulation.runs, simulation.pareto
    across, up = axes(runs)
    dots = [
        Dot(
            x=across.value(runs[place].figures) or 0.0,
            y=up.value(runs[place].figures) or 0.0,
            text=letter(place) + ("*" if place in front else ""),
        )
        for place in sorted(range(len(runs)), key=lambda i: i in front)
    ]
    title = f"{up.title} (both axes are logarithmic)"
    return scatter(dots, Axis(title=across.title), Axis(title=title), width)


def _knee(simulation: Simulation, runs: Sequence[SimulatedRun]) -> str:
    front = ", ".join(letter(place) for place in simulation.pareto)
    said = f"* No other setting is better in both: {front}."
    if simulation.knee is None:
        return f"{said} There is no bend in between."
    run = runs[simulation.knee]
    threshold = run.args.long_prefill_token_threshold
    capped = f" and a threshold of {threshold:,}" if threshold else ""
    return (
        f"{said} The knee is {letter(simulation.knee)}, a budget of "
        f"{run.args.max_num_batched_tokens:,}{capped}: beyond it a shorter gap costs most time."
    )


# -- the first steps ---------------------------------------------------------------------------

TIMELINE_KEY = (
    "The bar is the step's token budget: d decodes, A B C ... chunks of prompts that take several "
    "steps (and how much is read by then), - prompts read whole."
)
MOST_NAMED = 2


def timeline_table(run: SimulatedRun, width: int) -> Table:
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
    return {request: letter(place).upper() for place, request in enumerate(split)}


def _bar(step: TimelineStep, budget: int, names: dict[int, str]) -> str:
    parts = [("d", step.decode_requests)]
    parts += [(names.get(c.request, "-"), c.end - c.start) for c in step.chunks]
    bar, tokens = "", 0
    for sign, count in parts:
        tokens += count
        bar += sign * (round(tokens / budget * BAR_CELLS) - len(bar))
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
