"""Points in rows and columns of letters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log

from chunkscope.artefacts.numbers import seconds

ROWS = 12
MARGIN = 12  # for what stands beside the vertical axis
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letter(place: int) -> str:
    return LETTERS[place % len(LETTERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Where a value stands among others; a logarithmic one shows ratios."""

    title: str
    shown: Callable[[float], str] = seconds
    logarithmic: bool = True

    def place(self, value: float, among: Sequence[float], cells: int) -> int:
        at, least, most = (self._scaled(v) for v in (value, min(among), max(among)))
        return round((at - least) / (most - least) * (cells - 1)) if most > least else 0

    def _scaled(self, value: float) -> float:
        return log(max(value, 1e-6)) if self.logarithmic else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    x: float
    y: float
    text: str


def scatter(
    dots: Sequence[Dot], x: Axis, y: Axis, width: int, *, limit: float | None = None
) -> Iterator[str]:
    """The last of the dots lies on top. `limit`, as a dotted line, belongs to the vertical axis."""
    xs, ys = [dot.x for dot in dots], [dot.y for dot in dots]
    ys += [] if limit is None else [limit]
    columns = width - MARGIN
    grid = [[" "] * columns for _ in range(ROWS)]
    labels = {0: y.shown(max(ys)), ROWS - 1: y.shown(min(ys))}
    if limit is not None:
        row = ROWS - 1 - y.place(limit, ys, ROWS)
        grid[row] = ["."] * columns
        labels[row] = y.shown(limit)
    for dot in dots:
        row, column = ROWS - 1 - y.place(dot.y, ys, ROWS), x.place(dot.x, xs, columns - 1)
        grid[row][column : column + len(dot.text)] = dot.text
    yield y.title
    for place, cells in enumerate(grid):
        yield f"{labels.get(place, ''):>9} |{''.join(cells)[:columns].rstrip()}"
    left, right = x.shown(min(xs)), f"{x.shown(max(xs))} {x.title}"
    yield f"{'':9} +{'-' * columns}"
    yield f"{'':11}{left}{right:>{max(1, columns - len(left))}}"
