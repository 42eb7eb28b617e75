"""Tables as all of the terminal has them: no lines, bold headings, figures to the right."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text


def bare_table(*, gap: int = 2, heading: str = "bold") -> Table:
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style=heading)


class _NamedRows(Table):
    """Its first column alone gives way: rich narrows what may wrap, and a name is cut instead."""

    def add_row(self, name: Any = None, *cells: Any, **how: Any) -> None:
        shown = Text.from_markup(name) if isinstance(name, str) else name
        if isinstance(shown, Text):
            shown.no_wrap, shown.overflow = True, "ellipsis"
        super().add_row(shown, *cells, **how)


def figure_table(
    names: str, figures: Iterable[str], *, gap: int = 2, wrap: bool = False, **names_column: Any
) -> Table:
    """A column of names, which are cut where there is no room, and columns of figures."""
    table = _NamedRows(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    table.add_column(names, overflow="ellipsis", **names_column)
    add_figures(table, figures, wrap=wrap)
    return table


def add_figures(table: Table, headings: Iterable[str], *, wrap: bool = False) -> None:
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=not wrap)
