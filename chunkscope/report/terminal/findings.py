"""The report, or what changed, on a terminal: the page's content in short."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.figures import DECISIVE, ITL_MAX, MAKESPAN, Figure
from chunkscope.artefacts.numbers import number
from chunkscope.findings import Findings
from chunkscope.lengths.profile import Profile
from chunkscope.report import sentences
from chunkscope.report.comparison import Change, Comparison, Part
from chunkscope.report.runs import beside, titled
from chunkscope.report.summary import Summary, failure, summarize
from chunkscope.report.terminal.tables import add_figures, bare_table, figure_table
from chunkscope.report.tradeoff import Tradeoff, tradeoff
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.verdict import Outcome

if TYPE_CHECKING:
    from rich.console import Console


def show_findings(findings: Findings, console: "Console") -> None:
    summary = summarize(findings)
    console.print(Text(summary.headline), style="bold")
    console.print(Text(summary.title))
    for line in summary.mixed:
        console.print(Text(f"Mixed data: {line}"), style="bold")
    for sentence in _sentences(summary):
        console.print(sentence)
    if findings.profile is not None:
        console.print(Text(_lengths(findings.profile)))
    if findings.plan is not None:
        console.print()
        console.print(Text(summary.arguments, overflow="fold"))
    if findings.verification is not None and findings.verification.runs:
        console.print()
        console.print(_measured(findings.verification))
        for failed in _failures(findings.verification, summary):
            console.print(failed)
    if (simulated := tradeoff(findings)) is not None and simulated.points:
        console.print()
        console.print(_simulated(simulated))
        if simulated.knee:
            console.print(Text(sentences.KNEE))
        console.print(Text(f"Step times: {simulated.source}."))
    for line in (*filter(None, (summary.overruled,)), *summary.cautions):
        console.print(Text(f"note: {line}"))


def _sentences(summary: Summary) -> Iterator[Text]:
    if summary.basis is not None:
        yield Text(f"{summary.basis.value.capitalize()} {summary.basis_text}.")
    yield from map(Text, (*summary.why, *summary.gains))
    if summary.refused is not None:
        yield Text(summary.refused)


def _lengths(profile: Profile) -> str:
    lengths = profile.overall
    figures = ", ".join(f"p{p} {number(lengths.percentile(p))}" for p in (50, 95, 99))
    return f"{sentences.prompts(profile)}: {figures}, longest {number(lengths.max)} tokens."


def _measured(verification: Verification) -> Table:
    """One row per setting: the figures that decide, and how they differ from the first's."""
    headings = (figure.heading for figure in DECISIVE)
    table = figure_table("measured", headings, gap=1, wrap=True)
    first = next((run for run in verification.runs if run.ok), None)
    for run in verification.runs:
        if run.ok and first is not None:
            table.add_row(escape(titled(run)), *(_cell(f, run, first) for f in DECISIVE))
    return table


def _failures(verification: Verification, summary: Summary) -> Iterator[Text]:
    """Settings that did not run, unless the verdict has said so."""
    said = (failure(run) for run in verification.runs if not run.ok)
    yield from (Text(sentence) for sentence in said if sentence not in summary.gains)


def _cell(figure: Figure, run: Run, first: Run) -> str:
    cell, by, outcome = beside(figure, run, first)
    if run is first or outcome is Outcome.UNKNOWN:
        return cell
    return f"{cell}\n{'tie' if outcome is Outcome.TIE else by}"


def _simulated(simulated: Tradeoff) -> Table:
    figures = (MAKESPAN, ITL_MAX)
    headings = (*(figure.heading for figure in figures), "")
    table = figure_table("simulated, not measured", headings, gap=1, wrap=True)
    for point in simulated.points:
        name = f"{point.setting}: {point.details}" if point.named else point.setting
        table.add_row(escape(name), *map(point.shown, figures), point.mark)
    return table


# -- what changed --------------------------------------------------------------------------------


def show_comparison(comparison: Comparison, console: "Console") -> None:
    title = f"What changed from {comparison.old_name} to {comparison.new_name}"
    console.print(Text(title), style="bold")
    for note in comparison.notes:
        console.print(Text(note))
    if not comparison.changes:
        console.print(Text(sentences.NOTHING_CHANGED))
    for part in Part:
        if changes := comparison.of(part):
            console.print()
            console.print(_changes(part, changes))
    if comparison.ties:
        console.print()
        console.print(Text(sentences.ties(comparison.ties)))


def _changes(part: Part, changes: tuple[Change, ...]) -> Table:
    table = bare_table()
    table.add_column(part.value, overflow="ellipsis", no_wrap=True, max_width=28)
    table.add_column("", overflow="fold")
    add_figures(table, ("before", "now", ""))
    for found in changes:
        by = found.by
        if found.outcome in (Outcome.BETTER, Outcome.WORSE):
            by = f"{by} {found.outcome.value}".strip()
        cells = (found.subject, found.figure, found.old, found.new, by)
        table.add_row(*map(escape, cells))
    return table
