"""Sections on a terminal: wrapped sentences, aligned figures. Reads well without colour."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from chunkscope.console import NO_BREAK, printable
from chunkscope.report.section import Section, Table, sections

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2
_LOOKS = {"good": "green", "worse": "red", "bad": "bold red", "none": "dim"}


def show(artefact: object, console: "Console", *, details: bool = False) -> None:
    """The short answer, or all of it."""
    all_sections = [s for s in sections(artefact) if s.sentences or s.table or s.notes]
    draw(
        [section for section in all_sections if details or not section.details], console
    )
    if not details and any(section.details for section in all_sections):
        console.print(Text("\nMore: --details"))


def draw(shown: Sequence[Section], console: "Console") -> None:
    for place, section in enumerate(shown):
        if place:
            console.print()
        if section.title:
            console.print(clean(section.title, "bold"))
        for number, sentence in enumerate(section.sentences):
            is_answer = not (place or number or section.title)
            console.print(clean(unbroken(sentence), "bold" if is_answer else ""))
        if section.table is not None:
            if section.sentences:
                console.print()
            for grid in grids(section.table, console.width):
                console.print(grid)
        if section.notes and section.table is not None:
            console.print()
        for note in section.notes:
            console.print(clean(unbroken(f"note: {note}")))


def clean(text: str, style: str = "") -> Text:
    """Text without control characters: a terminal must not obey names and data of users."""
    return Text(
        "\n".join(map(printable, text.split("\n"))), style=style, overflow="fold"
    )


def unbroken(text: str) -> str:
    """A number and its unit stay on one line; `console.show` writes plain blanks.

    >>> unbroken("takes 1.04 s (-67 %)").split()
    ['takes', '1.04\\ue000s', '(-67\\ue000%)']
    """
    return re.sub(r"(?<=\d) (?=(?:%|m?s|min|h|GiB|KiB)(?!\w))", NO_BREAK, text)


def grids(table: Table, width: int) -> Iterator[Grid]:
    """The table, in parts where its columns do not fit; each part begins with the first column."""
    sizes = []
    for at, heading in enumerate(table.headings):
        size = max(map(len, (heading, *(str(row[at]) for row in table.rows)))) + GAP
        # Words can be wrapped, but not to a letter a line.
        sizes.append(size if table.is_right(at) else min(size, 22))
    part = [0]
    for at in range(1, len(sizes)):
        too_wide = sum(sizes[one] for one in (*part, at)) - GAP > width
        if too_wide and len(part) > 1 and table.has_headings:
            yield _grid(table, part)
            part = [0]
        part.append(at)
    yield _grid(table, part)


def _grid(table: Table, shown: Sequence[int]) -> Grid:
    """Figures keep their line, words are wrapped."""
    heads = {"show_header": table.has_headings, "header_style": "bold"}
    grid = Grid(box=None, pad_edge=False, padding=(0, GAP, 0, 0), **heads)  # type: ignore[arg-type]
    for at in shown:
        right = table.is_right(at)
        is_short = all(len(str(row[at])) < 16 for row in table.rows)
        grid.add_column(
            clean(table.headings[at]),
            justify="right" if right else "left",
            no_wrap=right or is_short or not (at or table.has_headings),
            overflow="fold",
        )
    for place, row in enumerate(table.rows):
        looks = [_LOOKS.get(getattr(row[at], "look", ""), "") for at in shown]
        grid.add_row(
            *(
                clean(unbroken(str(row[at])), look)
                for at, look in zip(shown, looks, strict=True)
            ),
            style="bold" if place in table.strong else None,
        )
    return grid
