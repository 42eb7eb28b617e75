"""Sections as Markdown: for pull requests, job summaries and wikis."""

from collections.abc import Iterator, Sequence

from chunkscope.console import printable
from chunkscope.report.section import Section, Table, all_of, sections

MOST_ROWS = 500  # GitHub throws a summary over 1 MiB away as a whole
MARKUP = "\\`*_{}[]<>|#~@&!"


def markdown(artefact: object) -> str:
    """All of it, details included."""
    return draw(sections(artefact))


def draw(shown: Sequence[Section], level: int = 2) -> str:
    return "\n\n".join(block for section in shown for block in _blocks(section, level)) + "\n"


def _blocks(section: Section, level: int) -> Iterator[str]:
    if section.title:
        yield f"{'#' * level} {text(section.title)}"
    yield from (text(sentence) for sentence in section.sentences)
    if section.table is not None:
        yield table(section.table)
    if section.chart is not None and section.chart.bars:
        rows = [(label, figure) for label, _, figure in section.chart.bars]
        yield "\n".join(("| | |", "|---|---:|", *(f"| {text(a)} | {text(b)} |" for a, b in rows)))
    if section.notes:
        yield "\n".join(f"- {text(note)}" for note in section.notes)


def table(shown: Table) -> str:
    heads = [text(column.heading) for column in shown.columns]
    rules = ["---:" if column.right else "---" for column in shown.columns]
    rows = [[text(all_of(cell)) for cell in row] for row in shown.rows[:MOST_ROWS]]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows)]
    if (left := len(shown.rows) - MOST_ROWS) > 0:
        lines.append(f"\n... and {left:,} more.")
    return "\n".join(lines)


def text(words: str) -> str:
    """Text from users must not end its cell or line, become markup, or call anybody's name.

    >>> text("a|b @team")
    'a\\\\|b \\\\@team'
    """
    one_line = printable(" ".join(words.split()))
    return "".join(f"\\{c}" if c in MARKUP else c for c in one_line)
