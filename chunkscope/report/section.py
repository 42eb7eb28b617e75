"""What is shown of an artefact, as values: sections, which three renderers draw.

`sections(artefact)` is the one layout of each kind. The terminal, Markdown and the page differ in
how they draw a sentence, a table or a chart, never in what they say.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from chunkscope.artefacts.artefact import Shown
from chunkscope.artefacts.numbers import number
from chunkscope.report.show import headline

# Where each artefact's layout is: loaded when it is needed, `analyze` has no use for plans.
LAYOUTS = {
    "Profile": "profile",
    "PrefixSummary": "prefixes",
    "Footprint": "plan.footprint_sections",
    "Plan": "plan",
    "Simulation": "runs.simulated_sections",
    "Verification": "runs.measured_sections",
    "Demonstration": "runs.demo_sections",
    "Diagnosis": "diagnosis",
    "GateResult": "gate",
    "Findings": "folder",
    "ReportComparison": "folder.changes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A table's cell that is more than its text: `look` is good, worse, bad or none."""

    text: str
    look: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells. Without any heading it is a list of facts: a label and what is known.

    The first column and those called as in `words` stand left, figures right. `strong` are the
    places of rows that matter most.
    """

    headings: tuple[str, ...]
    rows: tuple[Sequence[Cell | str], ...]
    words: Collection[str] = ()
    strong: Collection[int] = ()

    @property
    def has_headings(self) -> bool:
        return any(self.headings)

    def is_right(self, place: int) -> bool:
        return place > 0 and self.headings[place] not in self.words


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """For the page's script: a terminal and Markdown leave it out."""

    name: str
    data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of an answer. `details` are shown on demand; `notes` say what to be careful about.

    What is `top` stands on the page's first screen, in its words.
    """

    title: str = ""
    sentences: tuple[str, ...] = ()
    table: Table | None = None
    chart: Chart | None = None
    notes: tuple[str, ...] = ()
    details: bool = False
    top: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.sentences or self.table or self.chart or self.notes)


def sections(artefact: object) -> list[Section]:
    """Everything there is to show of it: the answer first, details last."""
    module, _, function = LAYOUTS[type(artefact).__name__].partition(".")
    layout = getattr(
        import_module(f"chunkscope.report.{module}"), function or "sections"
    )
    return [section for section in layout(artefact) if not section.is_empty]


Shown.first_sentence = lambda artefact: headline(artefact)

Written = Cell | str | float | None


def table_of(
    headings: Sequence[str], rows: Iterable[Sequence[Written]], **how: Any
) -> Table | None:
    """A table of figures; None without rows.

    >>> table_of(("side", "area"), [("a", 16_000), ("b", None)]).rows[0]
    ('a', '16,000')
    """
    lines = tuple(tuple(map(written, row)) for row in rows)
    return Table(headings=tuple(headings), rows=lines, **how) if lines else None


def written(value: Written) -> Cell | str:
    """A number in digits; "-" for what is not known."""
    if value is None:
        return Cell(text="-", look="none")
    return value if isinstance(value, str | Cell) else number(value)
