"""Tables as all of the terminal has them: no lines, bold headings, figures to the right."""

from collections.abc import Iterable

from rich.table import Table


def bare_table(*, gap: int = 2, heading: str = "bold") -> Table:
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style=heading)


def add_figures(table: Table, headings: Iterable[str], *, wrap: bool = False) -> None:
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=not wrap)
