"""The plan on a terminal: the mode, why, the arguments with their reasons, where memory goes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.numbers import as_written, number, seconds, share
from chunkscope.artefacts.units import exceeds
from chunkscope.planning.plan import Plan, TriedRow
from chunkscope.planning.rule import Decision
from chunkscope.report import sentences
from chunkscope.report.memory import memory_table
from chunkscope.report.terminal import grid
from chunkscope.report.terminal.tables import bare_table, figure_table
from chunkscope.report.words import plan as words
from chunkscope.report.words import sentence

if TYPE_CHECKING:
    from rich.console import Console


def show_plan(plan: Plan, console: "Console") -> None:
    console.print(Text(words.advice(plan)), style="bold")
    console.print(_headline(plan))
    for line in _why(plan):
        console.print(line)
    console.print()
    console.print(_decisions(plan, console.width))
    console.print(Text(sentences.RULE_WORDS))
    console.print()
    console.print(_arguments(plan))
    if plan.memory is not None:
        console.print()
        console.print(grid(memory_table(plan.memory), console.width))
        console.print(Text(sentences.capacity(plan) or ""))
    if plan.tried:
        console.print()
        console.print(_tried(plan, console.width))
    for said in _predicted(plan):
        console.print(Text(said))
    console.print()
    console.print(Text(sentences.arguments(plan), overflow="fold"))


def _headline(plan: Plan) -> Text:
    model = plan.model.name if plan.model else "any model"
    card = f" on {plan.gpu.title}" if plan.gpu else ""
    entry = plan.deployment.entry
    return Text(f"For {model}{card}, vLLM {plan.release.text}, started as {entry}.")


def _why(plan: Plan) -> Iterator[Text]:
    yield Text(sentences.length_rule(plan))
    said = sentences.chunks(plan.chunks)
    joint = ": " if plan.chunks.prompts else " "
    yield Text(f"With these settings{joint}{said[0].lower()}{said[1:]}")
    if plan.refused.prompts or plan.settings.max_model_len is not None:
        yield Text(sentences.refused(plan) or "")


def _predicted(plan: Plan) -> Iterator[str]:
    said = [sentences.forecast, sentences.preemptions, sentences.cost]
    if not plan.request.is_open:
        said.append(sentences.client)
    yield from filter(None, (sentence(plan) for sentence in said))


def _decisions(plan: Plan, width: int) -> Table:
    # The figures need 61 columns; names give way.
    names = max(12, width - 61)
    table = figure_table("by dataset", ("rows", "p95", "max"), gap=1, max_width=names)
    for heading in ("mode", "chunk at", "over", "benefit"):
        table.add_column(heading, no_wrap=True)
    for dataset in plan.decisions:
        table.add_row(escape(dataset.name), *_cells(dataset.decision))
    if len(plan.decisions) > 1 and plan.request.dataset is None:
        table.add_row("all together", *_cells(plan.decision), style="bold")
    return table


def _cells(decision: Decision) -> list[str]:
    figures = [number(decision.prompts), number(decision.p95), number(decision.longest)]
    rate = share(decision.chunks.share) if decision.chunks.prompts else "-"
    return [*figures, decision.mode, number(decision.threshold), rate, decision.tier]


def _tried(plan: Plan, width: int) -> Table:
    if plan.request.slo:
        return _tried_limits(plan, width)
    headings = ("all done", "TTFT p95", "gap p50", "p99", "longest", "preempted", "KV use")
    table = figure_table("simulated", headings, gap=1, max_width=max(12, width - 60))
    for row in plan.tried:
        found = row.run.figures
        gap = found.itl_s
        gaps = (gap.p50, gap.p99, gap.max) if gap else (None, None, None)
        times = [seconds(s) for s in (found.makespan_s, found.ttft_s.p95)]
        times += ["-" if gap is None else seconds(gap) for gap in gaps]
        mark = "* " if row.chosen else ""
        cells = (*times, number(found.preemptions), share(_kv_peak(row)))
        table.add_row(f"{mark}{words.row_name(row)}", *cells, style="bold" if row.chosen else None)
    return table


def _tried_limits(plan: Plan, width: int) -> Table:
    """The figures that are limited; ! are over their limit. A few long gaps hide in percentiles."""
    limits = plan.request.slo
    headings = (*(str(limit) for limit in limits), "room", "longest", "preempted", "KV use")
    table = figure_table("simulated", headings, gap=1, max_width=max(12, width - 60))
    for row in plan.tried:
        slo, longest = row.run.slo, row.run.figures.longest_gap_s
        found = [(limit, slo.found_of(limit)) for limit in limits] if slo else []
        over = ("! " if exceeds(value or 0.0, limit.seconds) else "" for limit, value in found)
        cells = [f"{mark}{seconds(v)}" for mark, (_, v) in zip(over, found, strict=True)]
        room = share(slo.room) if slo and slo.is_met else "-"
        mark = "* " if row.chosen else ""
        gap = "-" if longest is None else seconds(longest)
        cells += [room, gap, number(row.run.figures.preemptions), share(_kv_peak(row))]
        table.add_row(f"{mark}{words.row_name(row)}", *cells, style="bold" if row.chosen else None)
    return table


def _kv_peak(row: TriedRow) -> float:
    return row.run.kv_peak_tokens / row.run.args.kv_cache_tokens


def _arguments(plan: Plan) -> Table:
    table = bare_table()
    table.add_column("argument", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("why")
    given = plan.settings.given()
    for reason in plan.reasons:
        value = as_written(given[reason.argument]) if reason.argument in given else "default"
        table.add_row(reason.argument, value, escape(sentence(reason)))
    return table
