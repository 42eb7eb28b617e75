"""Sections on a terminal: wrapped sentences, aligned figures, bars. Reads well without colour."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from chunkscope.console import NO_BREAK, printable
from chunkscope.report.section import Chart, Section, Table, sections, text_of

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2
WIDE = 112  # columns of a terminal that has room for every column of a table
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_LOOKS = {"good": "green", "worse": "red", "bad": "bold red", "none": "dim"}


def show(artefact: object, console: "Console", *, details: bool = False) -> None:
    """The short answer, or all of it."""
    found = sections(artefact)
    draw([section for section in found if details or not section.details], console)
    if not details and any(section.details for section in found):
        console.print()
        console.print(Text("More: --details"))


def draw(shown: Sequence[Section], console: "Console") -> None:
    for place, section in enumerate(shown):
        if place:
            console.print()
        if section.title:
            console.print(clean(section.title, "bold"))
        for number, sentence in enumerate(section.sentences):
            is_answer = not (place or number or section.title)
            style = "bold" if is_answer else ""
            console.print(clean(unbroken(sentence), style))
        chart = section.chart if section.chart and section.chart.bars else None
        parts = [part for part in (section.table, chart) if part is not None]
        for number, part in enumerate(parts):
            is_facts = isinstance(part, Table) and not part.has_headings
            if number or (section.sentences and not is_facts):
                console.print()
            if isinstance(part, Table):
                for place_of_grid, columns in enumerate(pages(part, console.width)):
                    if place_of_grid:
                        console.print()
                    console.print(grid(part, columns))
                if part.caption:
                    console.print(clean(part.caption, "dim"))
            else:
                for line in bars(part, min(console.width, 100), console.encoding):
                    console.print(line)
        if section.notes and section.table is not None:
            console.print()
        for note in section.notes:
            console.print(clean(unbroken(f"note: {note}")))


def clean(text: str, style: str = "") -> Text:
    """Words, whoever wrote them: a terminal obeys none of them."""
    return Text("\n".join(map(printable, text.split("\n"))), style=style, overflow="fold")


def unbroken(text: str) -> str:
    """A number and its unit stay on one line; `console.show` writes plain blanks.

    >>> unbroken("takes 1.04 s (-67 %)").split()
    ['takes', '1.04\\ue000s', '(-67\\ue000%)']
    """
    return re.sub(r"(?<=\d) (?=(?:%|m?s|min|h|GiB|KiB)(?!\w))", NO_BREAK, text)


def pages(table: Table, width: int) -> Iterator[list[int]]:
    """The columns that fit side by side; each page begins with the first column."""
    shown = [at for at, column in enumerate(table.columns) if width >= WIDE or not column.wide]
    cells = [[text_of(row[at]) if at < len(row) else "" for row in table.rows] for at in shown]
    widths = {
        at: max(map(len, (table.columns[at].heading, *texts)), default=0) + GAP
        for at, texts in zip(shown, cells, strict=True)
    }
    wraps = [at for at in shown if not table.columns[at].right and not table.columns[at].fixed]
    for at in wraps:  # words can be wrapped, but not to a letter a line
        widths[at] = min(widths[at], 22)
    if not table.has_headings or sum(widths.values()) <= width:
        yield shown
        return
    page = shown[:1]
    for at in shown[1:]:
        if len(page) > 1 and sum(widths[one] for one in (*page, at)) > width:
            yield page
            page = shown[:1]
        page.append(at)
    yield page


def grid(table: Table, shown: Sequence[int]) -> Grid:
    """Figures keep their line, words are wrapped."""
    made = Grid(
        box=None,
        pad_edge=False,
        padding=(0, GAP, 0, 0),
        show_header=table.has_headings,
        header_style="bold",
    )
    for at in shown:
        column = table.columns[at]
        is_label = not table.has_headings and not at
        made.add_column(
            clean(column.heading),
            justify="right" if column.right else "left",
            no_wrap=column.right or column.fixed or is_label,
            overflow="fold",
        )
    for place, row in enumerate(table.rows):
        cells = [row[at] if at < len(row) else "" for at in shown]
        looks = ["" if isinstance(cell, str) else _LOOKS.get(cell.look, "") for cell in cells]
        made.add_row(
            *(clean(text_of(cell), look) for cell, look in zip(cells, looks, strict=True)),
            style="bold" if place in table.strong else None,
        )
    return made


def bars(chart: Chart, width: int, encoding: str) -> Iterator[Text]:
    """A line for each bar; what is there at all is visible."""
    if not chart.bars:
        return
    labels = max(len(label) for label, _, _ in chart.bars)
    room = max(10, width - labels - 24)
    largest = max(value for _, value, _ in chart.bars) or 1
    for label, value, figure in chart.bars:
        eighths = max(1, round(value / largest * room * 8)) if value else 0
        drawn = "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
        if not encoding.startswith("utf"):
            drawn = "#" * -(-eighths // 8)
        yield Text(f"{label:>{labels}}  {drawn} {figure}", no_wrap=True)
