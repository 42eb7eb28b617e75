"""Verdicts on a terminal: a table by the budget's own tables, then what is broken, in full."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from chunkscope.gating.verdict import GateResult, Verdict
from chunkscope.lengths.profile import ALL
from chunkscope.report.terminal.tables import bare_table
from chunkscope.sources.base import printable

if TYPE_CHECKING:
    from rich.console import Console

MOST_KEPT = 20  # of one table: a hundred datasets, three figures each, are read by nobody


def show_gate(result: GateResult, console: "Console") -> None:
    console.print(Text(f"{result.headline}, by {result.budget}"))
    console.print()
    # The figures need 51 columns; names give way, and are whole in the sentences below.
    console.print(_table(result, names=max(16, console.width - 51)))
    show_broken(result, console)


def show_broken(result: GateResult, console: "Console") -> None:
    """In full, and what to run once for all that it mends; what rests on something stale first."""
    for (cause, _), verdicts in _together(result.broken).items():
        console.print()
        if cause:
            console.print(Text(printable(f"{cause}. This follows:")))
        for verdict in verdicts:
            console.print(Text(printable(f"{verdict.title}: {verdict.told}")))
        _advise(verdicts[0], console)


def _together(broken: Sequence[Verdict]) -> dict[tuple[str, str], list[Verdict]]:
    """By what they rest on, else by the command that accepts them."""
    found: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in sorted(broken, key=lambda verdict: not verdict.because):
        command = "" if verdict.because else verdict.if_intended
        found.setdefault((verdict.because, command), []).append(verdict)
    return found


def _advise(verdict: Verdict, console: "Console") -> None:
    """The command stands in a line of its own, to be copied."""
    if verdict.if_intended:
        console.print(Text("If that is intended:"))
        console.print(Text(f"  {printable(verdict.if_intended)}", overflow="fold"))


def _table(result: GateResult, names: int) -> Table:
    table = bare_table(gap=1)
    table.add_column("", no_wrap=True)
    table.add_column("promise", no_wrap=True, overflow="ellipsis", max_width=names)
    table.add_column("promised")
    table.add_column("found")
    for name, verdicts in groupby(result.verdicts, key=_table_of):
        table.add_row("", Text(name, "bold"))
        shown, left = _shortened(list(verdicts))
        for verdict in shown:
            table.add_row(*_cells(verdict))
        if left:
            table.add_row(Text("kept", "green"), f"... {left:,} more")
    return table


def _table_of(verdict: Verdict) -> str:
    return verdict.promise.rpartition(".")[0]


def _shortened(verdicts: Sequence[Verdict]) -> tuple[list[Verdict], int]:
    """All that is broken, and the first of what is kept."""
    kept = [verdict for verdict in verdicts if verdict.kept]
    left_out = {id(verdict) for verdict in kept[MOST_KEPT:]}
    return [verdict for verdict in verdicts if id(verdict) not in left_out], len(left_out)


def _cells(verdict: Verdict) -> list[Text]:
    mark = Text("kept", "green") if verdict.kept else Text("BROKEN", "bold red")
    key = verdict.promise.rpartition(".")[2]
    label = key if verdict.subject == ALL else f"{key}: {verdict.subject}"
    told = (label, verdict.promised, verdict.found)
    return [mark, *(Text(printable(cell)) for cell in told)]
