"""Sections as Markdown: for pull requests, job summaries and wikis."""

from collections.abc import Iterator, Sequence

from chunkscope.console import printable
from chunkscope.report.section import Section, Table, sections

MARKUP = "\\`*_{}[]<>|#~@&!"


def markdown(artefact: object) -> str:
    """All of it, details included."""
    return "\n\n".join(block for section in sections(artefact) for block in _blocks(section)) + "\n"


def _blocks(section: Section) -> Iterator[str]:
    if section.title:
        yield f"## {text(section.title)}"
    yield from map(text, section.sentences)
    if section.table is not None:
        yield table(section.table)
    if section.notes:
        yield "\n".join(f"- {text(note)}" for note in section.notes)


def table(shown: Table) -> str:
    lines = [
        _line([text(heading) for heading in shown.headings]),
        _line(["---:" if shown.is_right(at) else "---" for at in range(len(shown.headings))]),
        *(_line([text(str(cell)) for cell in row]) for row in shown.rows),
    ]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(words: str) -> str:
    """Text from users must not end its cell or line, become markup, or call anybody's name.

    >>> text("a|b @team")
    'a\\\\|b \\\\@team'
    """
    one_line = printable(" ".join(words.split()))
    return "".join(f"\\{c}" if c in MARKUP else c for c in one_line)
