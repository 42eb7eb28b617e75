"""Pictures as values: what is drawn, without how.

`svg.py` draws them for the page and as files; a terminal draws a histogram in letters.
`title` and `alternative` are a picture's words for those who see it and those who do
not.
"""

from dataclasses import dataclass

from chunkscope.artefacts.numbers import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A scale of numbers. A logarithmic one has no place for 0."""

    label: str
    unit: Unit
    logarithmic: bool = False
    # Of shares: the part over 90 % takes half of the axis, as the slowest tenth is
    # what people look for.
    stretched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured or simulated thing. `detail` is shown when it is chosen.

    Points of one `group` have the same colour and an entry in the legend.
    """

    x: float
    y: float
    name: str
    detail: str = ""
    group: str = ""
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Points between two axes. With a `diagonal`, those on it have equal values."""

    title: str
    alternative: str
    x: Axis
    y: Axis
    points: tuple[Point, ...]
    diagonal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points (x, y) that are joined, from left to right."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Curves between two axes, each with an entry in the legend.

    `mark` is a place on the x axis that a reader should see, and its name.
    """

    title: str
    alternative: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    mark: Point | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a bar. Parts of one name have one colour."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Parts that add up, from left to right."""

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBars:
    """Bars one below the other, on one scale up to `limit` where there is one."""

    title: str
    alternative: str
    unit: Unit
    bars: tuple[Bar, ...]
    limit: float | None = None
    limit_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """Tokens of one prompt in a step. Parts of one `prompt` have one colour."""

    prompt: str  # a letter, or "" for prompts that are read whole
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the engine: when it began, how long it took, and what it computed."""

    start_s: float
    seconds: float
    decodes: int
    parts: tuple[StepPart, ...]
    detail: str  # the same in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The steps of one run."""

    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The steps of several runs one above the other, on one scale of time."""

    title: str
    alternative: str
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """How many lengths are at least `low` and less than `high`."""

    low: int
    high: int
    count: int

    @property
    def span(self) -> str:
        return f"{self.low:,} to {self.high - 1:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A setting of the engine beside the lengths."""

    label: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many prompts are how long, in doubling bins."""

    title: str
    alternative: str
    bins: tuple[Bin, ...]
    marks: tuple[Mark, ...] = ()


Chart = Scatter | Lines | StackedBars | Timeline | Histogram
