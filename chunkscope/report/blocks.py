"""What an answer consists of, as values that every renderer draws.

`report/plan.py`, `report/profile.py` and their like turn an artefact into blocks. The
terminal, Markdown and the page turn blocks into what people see, and know no artefact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from chunkscope.artefacts.numbers import number
from chunkscope.report.charts import Chart, StackedBars


class Look(StrEnum):
    """How a cell is coloured, where there is colour."""

    PLAIN = ""
    GOOD = "good"
    WORSE = "worse"
    BAD = "bad"
    UNKNOWN = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    text: str
    look: Look = Look.PLAIN

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Headline:
    """The answer in one or two sentences. It stands first."""

    text: str


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of the blocks that follow."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph of whole sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Flags:
    """Arguments of vLLM as they are typed; the page has a button that copies them."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under headings.

    `words` are the places of columns that hold words: they stand left and wrap. The
    first column always does. `strong` are the places of rows that matter most.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: frozenset[int] = frozenset({0})
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What it is about, its value, and a word on the value."""

    label: str
    value: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """A list of facts, which the page shows as tiles."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Notes:
    """What a reader should be careful about, a sentence or two each."""

    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that are shown on demand, under a title that says what they answer."""

    title: str
    blocks: "tuple[Block, ...]"


Block = Headline | Heading | Text | Flags | Table | Facts | Notes | Chart | Details

Written = Cell | str | float | None


def cell(value: Written) -> Cell:
    """A value as a cell: a number in digits, "-" for what is not known.

    >>> str(cell(16_000)), str(cell(None))
    ('16,000', '-')
    """
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell(text="-", look=Look.UNKNOWN)
    if isinstance(value, str):
        return Cell(text=value)
    return Cell(text=number(value))


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Written]],
    *,
    words: Sequence[str] = (),
    strong: Sequence[int] = (),
) -> Table:
    """A table of values; `words` are the headings of columns that hold words.

    Renderers leave out a table without rows.
    """
    places = {0}
    for place, heading in enumerate(headings):
        if heading in words:
            places.add(place)
    return Table(
        headings=tuple(headings),
        rows=tuple(tuple(cell(value) for value in row) for row in rows),
        words=frozenset(places),
        strong=frozenset(strong),
    )


def filled(blocks: Sequence[Block]) -> list[Block]:
    """Those that have something to show: no empty table, list or fold."""
    result: list[Block] = []
    for block in blocks:
        if isinstance(block, Details):
            block = Details(block.title, tuple(filled(block.blocks)))
        if not _is_empty(block):
            result.append(block)
    return result


def _is_empty(block: Block) -> bool:
    match block:
        case Headline(text="") | Text(text="") | Flags(text=""):
            return True
        case Table(rows=()) | Facts(facts=()) | Notes(notes=()) | Details(blocks=()):
            return True
        case StackedBars(bars=()):
            return True
    return False


def without_headline(blocks: Sequence[Block]) -> list[Block]:
    """What is left where the answer is said elsewhere."""
    return [block for block in blocks if not isinstance(block, Headline)]
