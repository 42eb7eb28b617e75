"""Sections as Markdown: for pull requests, job summaries and wikis."""

from collections.abc import Iterator

from chunkscope.console import printable
from chunkscope.report.section import Section, Table, sections

MARKUP = "\\`*_{}[]<>|#~@&!"


def markdown(artefact: object) -> str:
    """All sections; details are folded where the reader supports it (GitHub, GitLab)."""
    blocks, is_open = [], False
    for section in (s for s in sections(artefact) if s.sentences or s.table or s.notes):
        goes_on = is_open and section.details and not section.title
        blocks += ["</details>"] if is_open and not goes_on else []
        if section.details and not goes_on:
            blocks.append(
                f"<details><summary>{text(section.title or 'More')}</summary>"
            )
        is_open = section.details
        blocks += _blocks(section)
    return "\n\n".join([*blocks, "</details>"] if is_open else blocks) + "\n"


def _blocks(section: Section) -> Iterator[str]:
    if section.title and not section.details:
        yield f"## {text(section.title)}"
    yield from map(text, section.sentences)
    if section.table is not None:
        yield table(section.table)
    if section.notes:
        yield "\n".join(f"- {text(note)}" for note in section.notes)


def table(shown: Table) -> str:
    rule = [
        "---:" if shown.is_right(at) else "---" for at in range(len(shown.headings))
    ]
    head, *rows = (
        [text(str(cell)) for cell in row] for row in (shown.headings, *shown.rows)
    )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def text(words: str) -> str:
    """Text from users must not end its cell or line, become markup, or call anybody's name.

    >>> text("a|b @team")
    'a\\\\|b \\\\@team'
    """
    return "".join(
        f"\\{c}" if c in MARKUP else c for c in printable(" ".join(words.split()))
    )
