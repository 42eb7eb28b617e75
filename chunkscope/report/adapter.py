"""Sections as blocks, until the modules of plans and runs make blocks themselves."""

from chunkscope.report.blocks import (
    Block,
    Cell,
    Details,
    Fact,
    Facts,
    Flags,
    Heading,
    Headline,
    Look,
    Notes,
    Table,
    Text,
)
from chunkscope.report.section import Section
from chunkscope.report.section import Table as OldTable


def blocks_of(sections: list[Section]) -> list[Block]:
    """The same in the same order; charts are left out."""
    blocks: list[Block] = []
    for section in sections:
        content = _content(section)
        if section.details:
            blocks.append(Details(section.title or "More", tuple(content)))
            continue
        if section.title and content:
            blocks.append(Heading(section.title))
        blocks.extend(content)
    for place, block in enumerate(blocks):
        if isinstance(block, Text):
            blocks[place] = Headline(block.text)
            break
    return blocks


def _content(section: Section) -> list[Block]:
    blocks: list[Block] = []
    for sentence in section.sentences:
        if sentence.startswith("Flags: "):
            blocks.append(Flags(sentence.removeprefix("Flags: ")))
        else:
            blocks.append(Text(sentence))
    if section.table is not None and section.table.has_headings:
        blocks.append(_table(section.table))
    elif section.table is not None:
        facts = []
        for row in section.table.rows:
            remark = str(row[2]) if len(row) > 2 else ""
            facts.append(Fact(label=str(row[0]), value=str(row[1]), remark=remark))
        blocks.append(Facts(tuple(facts)))
    if section.notes:
        blocks.append(Notes(section.notes))
    return blocks


def _table(old: OldTable) -> Table:
    rows = []
    for row in old.rows:
        cells = []
        for value in row:
            look = Look.PLAIN if isinstance(value, str) else Look(value.look)
            cells.append(Cell(text=str(value), look=look))
        rows.append(tuple(cells))
    places = range(len(old.headings))
    words = {place for place in places if not old.is_right(place)}
    return Table(
        headings=old.headings,
        rows=tuple(rows),
        words=frozenset(words),
        strong=frozenset(old.strong),
    )
