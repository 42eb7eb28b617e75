"""Blocks as Markdown: for pull requests, job summaries and wikis."""

from collections.abc import Iterator, Sequence

from chunkscope.console import printable
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
    filled,
)

MARKUP = "\\`*_{}[]<>|#~@&!"


def markdown(blocks: Sequence[Block]) -> str:
    """All blocks; details are folded where the reader supports it (GitHub, GitLab)."""
    return "\n\n".join(_paragraphs(filled(blocks))) + "\n"


def _paragraphs(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Headline():
                yield f"**{text(block.text)}**"
            case Heading():
                yield f"## {text(block.text)}"
            case Text():
                yield text(block.text)
            case Flags():
                yield f"    {printable(block.text)}"  # code: nothing in it is markup
            case Table():
                yield table(block)
            case Facts():
                yield "\n".join(_fact_lines(block))
            case Notes():
                yield "\n".join(f"- {text(note)}" for note in block.notes)
            case Details():
                yield f"<details><summary>{text(block.title)}</summary>"
                yield from _paragraphs(block.blocks)
                yield "</details>"


def _fact_lines(facts: Facts) -> Iterator[str]:
    for fact in facts.facts:
        yield f"- {text(fact.label)}: **{text(fact.value)}** {text(fact.remark)}"


def table(block: Table) -> str:
    """A table in GitHub's form."""
    rules = []
    for place in range(len(block.headings)):
        rules.append("---" if place in block.words else "---:")
    lines = [_row(text(heading) for heading in block.headings), _row(rules)]
    for row in block.rows:
        lines.append(_row(text(cell.text) for cell in row))
    return "\n".join(lines)


def _row(cells: Iterator[str] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(words: str) -> str:
    """Text that ends no cell or line, is no markup and calls nobody's name.

    >>> text("a|b @team")
    'a\\\\|b \\\\@team'
    """
    letters = []
    for letter in printable(" ".join(words.split())):
        if letter in MARKUP:
            letters.append("\\")
        letters.append(letter)
    return "".join(letters)
