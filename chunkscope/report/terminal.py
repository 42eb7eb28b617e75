"""Blocks on a terminal: wrapped sentences, aligned figures; readable without colour."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text as Styled

from chunkscope.artefacts.numbers import share
from chunkscope.console import NO_BREAK, printable
from chunkscope.report.blocks import (
    Block,
    Details,
    Facts,
    Flags,
    Heading,
    Headline,
    Look,
    Notes,
    Table,
    Text,
    filled,
)
from chunkscope.report.charts import Chart, Histogram

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2  # blanks between two columns
WRAPPED = 20  # letters that a column of words keeps, however narrow the terminal
SHORT = 16  # letters of a cell that is not wrapped
BAR = 40  # blocks of the longest bar of a histogram
STYLES = {
    Look.PLAIN: "",
    Look.GOOD: "green",
    Look.WORSE: "red",
    Look.BAD: "bold red",
    Look.UNKNOWN: "dim",
}


def show(blocks: Sequence[Block], console: "Console", *, details: bool = False) -> None:
    """The short answer, or all of it."""
    shown = filled(blocks)
    has_more = any(isinstance(block, Details) for block in shown)
    if details:
        shown = list(_unfolded(shown))
    draw(shown, console)
    if has_more and not details:
        console.print(Styled("\nMore: --details"))


def draw(blocks: Sequence[Block], console: "Console") -> None:
    """Blocks one below the other, without those that a terminal cannot show."""
    before: Block | None = None
    for block in blocks:
        if isinstance(block, Details):
            continue
        if isinstance(block, Chart) and not isinstance(block, Histogram):
            continue
        if before is not None and not _belong_together(before, block):
            console.print()
        _draw(block, console)
        before = block


def _unfolded(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        if isinstance(block, Details):
            yield Heading(block.title)
            yield from _unfolded(block.blocks)
        else:
            yield block


def _belong_together(above: Block, below: Block) -> bool:
    """No blank line parts a heading from what follows it, nor text from text."""
    if isinstance(above, Heading):
        return True
    is_text_below = isinstance(below, Text | Flags | Notes)
    return isinstance(above, Headline | Text | Flags) and is_text_below


def _draw(block: Block, console: "Console") -> None:
    match block:
        case Headline() | Heading():
            console.print(clean(unbroken(block.text), "bold"))
        case Text():
            console.print(clean(unbroken(block.text)))
        case Flags():
            console.print(clean(f"Flags: {block.text}"))
        case Notes():
            notes = "\n".join(f"note: {note}" for note in block.notes)
            console.print(clean(unbroken(notes)))
        case Facts():
            console.print(_fact_grid(block))
        case Table():
            for grid in grids(block, console.width):
                console.print(grid)
        case Histogram():
            console.print(clean(block.title, "bold"))
            console.print(histogram_grid(block))


def clean(text: str, style: str = "") -> Styled:
    """Text without control characters: names and data give a terminal no orders."""
    lines = [printable(line) for line in text.split("\n")]
    return Styled("\n".join(lines), style=style, overflow="fold")


# A blank between a number and its unit: "1.04 s".
_UNIT = re.compile(r"(?<=\d) (?=(?:%|m?s|min|h|GiB|KiB)(?!\w))")


def unbroken(text: str) -> str:
    """A number and its unit stay on one line; `console.show` writes plain blanks.

    >>> unbroken("takes 1.04 s (-67 %)").split()
    ['takes', '1.04\\ue000s', '(-67\\ue000%)']
    """
    return _UNIT.sub(NO_BREAK, text)


# -- tables ----------------------------------------------------------------------------


def grids(table: Table, width: int) -> Iterator[Grid]:
    """The table in parts that fit the width; each begins with the first column."""
    sizes = [_column_width(table, place) for place in range(len(table.headings))]
    part = [0]
    used = sizes[0]
    for place in range(1, len(sizes)):
        if len(part) > 1 and used + sizes[place] - GAP > width:
            yield _grid(table, part)
            part = [0]
            used = sizes[0]
        part.append(place)
        used += sizes[place]
    yield _grid(table, part)


def plain_grid(*, show_header: bool = False) -> Grid:
    """Columns with a gap and no lines between them."""
    return Grid(
        box=None,
        pad_edge=False,
        padding=(0, GAP, 0, 0),
        show_header=show_header,
        header_style="bold",
    )


def _column_width(table: Table, place: int) -> int:
    """What a column takes at least, with the gap after it: words can be wrapped."""
    longest = len(table.headings[place])
    for row in table.rows:
        longest = max(longest, len(row[place].text))
    if place in table.words:
        longest = min(longest, WRAPPED)
    return longest + GAP


def _grid(table: Table, places: Sequence[int]) -> Grid:
    """Figures keep their line, words are wrapped."""
    grid = plain_grid(show_header=True)
    for place in places:
        is_words = place in table.words
        is_short = all(len(row[place].text) < SHORT for row in table.rows)
        grid.add_column(
            clean(table.headings[place]),
            justify="left" if is_words else "right",
            no_wrap=is_short or not is_words,
            overflow="fold",
        )
    for number, row in enumerate(table.rows):
        cells = []
        for place in places:
            text = unbroken(row[place].text)
            cells.append(clean(text, STYLES[row[place].look]))
        grid.add_row(*cells, style="bold" if number in table.strong else None)
    return grid


def _fact_grid(facts: Facts) -> Grid:
    """Labels, values and remarks below each other, without headings."""
    grid = plain_grid()
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for fact in facts.facts:
        grid.add_row(
            clean(fact.label),
            clean(unbroken(fact.value)),
            clean(unbroken(fact.remark)),
        )
    return grid


# -- the histogram ---------------------------------------------------------------------


def histogram_grid(histogram: Histogram) -> Grid:
    """A line for each bin: its lengths, a bar, how many prompts and which share."""
    most = max(bin_.count for bin_ in histogram.bins)
    total = sum(bin_.count for bin_ in histogram.bins)
    grid = plain_grid()
    for justify in ("right", "left", "right", "right"):
        grid.add_column(justify=justify, no_wrap=True)
    for bin_ in histogram.bins:
        bar = letter_bar(bin_.count / most)
        part = unbroken(share(bin_.count / total))
        grid.add_row(bin_.span, bar, f"{bin_.count:,}", part)
    return grid


def letter_bar(part: float) -> str:
    """A bar in eighths of a letter; a little is never drawn as nothing.

    >>> letter_bar(0.25), letter_bar(0.0001), letter_bar(0.0)
    ('██████████', '▏', '')
    """
    eighths = round(part * BAR * 8)
    if part > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    last = " ▏▎▍▌▋▊▉"[rest]
    return ("█" * whole + last).rstrip()
