"""What is shown of an artefact, as values: sections, which three renderers draw.

`sections(artefact)` is the one layout of each kind. The terminal, Markdown and the page differ in
how they draw a sentence, a table or a chart, never in what they say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

# Where each artefact's layout is: loaded when it is needed, `analyze` has no use for plans.
LAYOUTS = {
    "Profile": "profile",
    "PrefixSummary": "prefixes",
    "Footprint": "plan.footprint_sections",
    "Plan": "plan",
    "Simulation": "simulation",
    "Verification": "verification",
    "Demonstration": "verification.demo_sections",
    "Diagnosis": "diagnosis",
    "GateResult": "ci",
    "Findings": "findings",
    "ReportComparison": "comparison",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A table's cell that is more than its text.

    `look` is good, worse, bad or none; `note` stands behind the text, `more` where there is room:
    not on a terminal; `sort` is what the page sorts by.
    """

    text: str
    look: str = ""
    note: str = ""
    more: str = ""
    sort: float | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`wide` ones are left out on a narrow terminal; `meaning` is the page's tooltip."""

    heading: str
    right: bool = True
    wide: bool = False
    fixed: bool = False  # short words that stay on one line
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells. Without any heading it is a list of facts: a label and what is known.

    `strong` are the places of rows that matter most; a `searchable` one is sorted and filtered on
    the page.
    """

    columns: tuple[Column, ...]
    rows: tuple[Sequence[Cell | str], ...]
    strong: tuple[int, ...] = ()
    caption: str = ""
    searchable: bool = False

    @property
    def has_headings(self) -> bool:
        return any(column.heading for column in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`name` and `data` are for the page's script; `bars` are label, value and figure.

    Without bars a terminal and Markdown leave it out.
    """

    name: str
    data: Any = None
    bars: tuple[tuple[str, float, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One thing to tell. `details` are shown on demand; `notes` are what to be careful about."""

    title: str = ""
    sentences: tuple[str, ...] = ()
    table: Table | None = None
    chart: Chart | None = None
    notes: tuple[str, ...] = ()
    details: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.sentences or self.table or self.chart or self.notes)


def sections(artefact: object) -> list[Section]:
    """Everything there is to show of it: the answer first, details last."""
    module, _, function = LAYOUTS[type(artefact).__name__].partition(".")
    layout = getattr(import_module(f"chunkscope.report.{module}"), function or "sections")
    return [section for section in layout(artefact) if not section.is_empty]


def facts(**known: str | None) -> Table | None:
    """A list of facts by label, without those that are not known.

    >>> facts(time="34 s", on_disk=None).rows
    (('time', '34 s'),)
    """
    return fact_table({label.replace("_", " "): text for label, text in known.items()})


def fact_table(known: dict[str, str | None]) -> Table | None:
    rows = tuple((label, text) for label, text in known.items() if text)
    columns = (Column(heading="", right=False), Column(heading="", right=False))
    return Table(columns=columns, rows=rows) if rows else None


def figures(name: str, *headings: str, **looks: Any) -> tuple[Column, ...]:
    """The columns of a table of figures: names to the left, numbers to the right."""
    right = [Column(heading=heading, **looks) for heading in headings]
    return (Column(heading=name, right=False), *right)


def text_of(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else " ".join(filter(None, (cell.text, cell.note)))


def all_of(cell: Cell | str) -> str:
    return text_of(cell) if isinstance(cell, str) else f"{text_of(cell)} {cell.more}".strip()
