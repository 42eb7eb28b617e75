"""Blocks as HTML. Names and texts come from strangers' data: all are escaped."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from chunkscope.console import NO_BREAK
from chunkscope.report.blocks import (
    Block,
    Details,
    Facts,
    Flags,
    Heading,
    Headline,
    Notes,
    Table,
    Text,
)
from chunkscope.report.charts import Chart, Histogram
from chunkscope.report.svg import NARROW, WIDE, picture
from chunkscope.report.terminal import unbroken

LONG_NAME = re.compile(r"\w{20,}")  # one that may be broken, at an underscore
# Options and dates, of which a line has all or nothing: --tp, 2026-11-19.
WHOLE = re.compile(r"--\w[\w-]*|\d{4}-\d\d-\d\d")
CHOOSE = "Choose a point to see its settings."


def nobreak(words: str) -> Markup:
    """A number and its unit, an option, a date stay on one line; backticks are for
    terminals.

    >>> str(nobreak("1.04 s with `--tp <2>`"))
    '1.04\\xa0s with <span class="whole">--tp</span> &lt;2&gt;'
    """
    text = unbroken(words).replace(NO_BREAK, "\xa0").replace("`", "")
    parts = LONG_NAME.sub(_with_places_to_break, str(escape(text)))
    return Markup(WHOLE.sub(r'<span class="whole">\g<0></span>', parts))  # noqa: S704


def _with_places_to_break(name: re.Match[str]) -> str:
    return name[0].replace("_", "_<wbr>")


@dataclass
class PageWriter:
    """Writes the blocks of one part of the page; its tables are numbered for a screen
    reader."""

    title: str
    tables: int = 0

    def html(self, blocks: Sequence[Block]) -> Markup:
        """The blocks below each other; several histograms beside each other."""
        parts = []
        for is_histogram, group in groupby(blocks, key=_is_histogram):
            members = list(group)
            if is_histogram and len(members) > 1:
                parts.append(self._histograms(members))
            else:
                parts += [self._block(block) for block in members]
        return Markup("\n").join(parts)

    def _histograms(self, histograms: Sequence[Block]) -> Markup:
        figures = Markup().join(self._block(block) for block in histograms)
        return Markup('<div class="grid">{}</div>').format(figures)

    def _block(self, block: Block) -> Markup:
        match block:
            case Table():
                self.tables += 1
                return table_html(block, f"{self.title}, table {self.tables}")
            case Details():
                title, content = nobreak(block.title), self.html(block.blocks)
                text = Markup("<details><summary>{}</summary>\n{}</details>")
                return text.format(title, content)
        return simple_html(block)


def simple_html(
    block: Headline | Heading | Text | Flags | Facts | Notes | Chart,
) -> Markup:
    match block:
        case Headline() | Text():
            return Markup("<p>{}</p>").format(nobreak(block.text))
        case Heading():
            return Markup("<h3>{}</h3>").format(nobreak(block.text))
        case Flags():
            return flags_html(block)
        case Facts():
            return tiles_html(block)
        case Notes():
            return notes_html(block)
    return figure_html(block)


def _is_histogram(block: Block) -> bool:
    return isinstance(block, Histogram)


def notes_html(notes: Notes) -> Markup:
    items = Markup()
    for note in notes.notes:
        items += Markup("<li>{}</li>").format(nobreak(note))
    return Markup('<ul class="cautions">{}</ul>').format(items)


def flags_html(flags: Flags) -> Markup:
    """The arguments with a button that copies them."""
    return Markup(
        '<div class="arguments"><pre id="arguments"><code>{}</code></pre>\n'
        '<button type="button" id="copy">Copy</button> '
        '<span id="copied" role="status" aria-live="polite"></span></div>'
    ).format(nobreak(flags.text))


def tiles_html(facts: Facts) -> Markup:
    tiles = Markup()
    for fact in facts.facts:
        tiles += Markup(
            "<div><dt>{}</dt><dd>{}</dd><dd class='remark'>{}</dd></div>\n"
        ).format(fact.label, nobreak(fact.value), nobreak(fact.remark))
    return Markup('<dl class="tiles">{}</dl>').format(tiles)


def table_html(table: Table, label: str) -> Markup:
    """A table that scrolls by itself where the window is narrow."""
    head = Markup()
    for place, heading in enumerate(table.headings):
        kind = "" if place in table.words else "n"
        head += Markup('<th scope="col" class="{}">{}</th>').format(kind, heading)
    body = Markup()
    for number in range(len(table.rows)):
        body += row_html(table, number)
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table>\n'
        "<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table></div>"
    ).format(label, head, body)


def row_html(table: Table, number: int) -> Markup:
    """A row, whose first cell is its heading."""
    cells = Markup()
    for place, cell in enumerate(table.rows[number]):
        look = cell.look.value
        if place not in table.words:
            look = f"n {look}".strip()
        text = Markup('<td class="{}">{}</td>')
        if place == 0:
            text = Markup('<th scope="row" class="{}">{}</th>')
        cells += text.format(look, nobreak(cell.text))
    strong = "strong" if number in table.strong else ""
    return Markup('<tr class="{}">{}</tr>\n').format(strong, cells)


def figure_html(chart: Chart) -> Markup:
    """A picture for a wide and for a narrow place; the style shows one of them."""
    wide = Markup(picture(chart, width=WIDE, look="wide"))  # noqa: S704
    narrow = Markup(picture(chart, width=NARROW, look="narrow"))  # noqa: S704
    chosen = Markup()
    if 'class="point"' in wide:
        chosen = Markup('<p class="chosen" role="status">{}</p>').format(CHOOSE)
    return Markup(
        '<figure class="chart"><figcaption>{}</figcaption>\n{}\n{}\n{}</figure>'
    ).format(nobreak(chart.title), wide, narrow, chosen)
