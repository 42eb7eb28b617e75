"""A plot between two axes: the grid, the labels of its ticks, what the axes show."""

from dataclasses import dataclass

from chunkscope.report.charts import Axis
from chunkscope.report.svg.canvas import LINE, Canvas
from chunkscope.report.svg.scale import Scale, scale_of

LEFT = 58.0  # px for the labels of the y axis
RIGHT = 14.0  # px that the last label of the x axis reaches over
BOTTOM = 40.0  # px for the labels of the x axis
HEIGHT = 250.0  # px between the axes, from top to bottom
ROW_ROOM = 42.0  # px between two ticks of the y axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """The scales of both axes, drawn on a canvas."""

    canvas: Canvas
    x: Scale
    y: Scale

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where two values stand, in px."""
        return self.x.at(x), self.y.at(y)


def plot(
    canvas: Canvas,
    axes: tuple[Axis, Axis],
    points: list[tuple[float, float]],
    *,
    from_zero: bool = False,
) -> Plot:
    """Axes on which all points have a place.

    The label of the y axis stands above the plot: there is no room at its side.
    """
    top = LINE + 10
    x = scale_of(
        axes[0],
        [place for place, _ in points],
        (LEFT, canvas.width - RIGHT),
        from_zero=from_zero,
    )
    y = scale_of(
        axes[1],
        [place for _, place in points],
        (top + HEIGHT, top),
        from_zero=from_zero,
    )
    canvas.text(0, LINE - 4, axes[1].label, look="ink")
    for tick in y.ticks(ROW_ROOM):
        canvas.across(y.at(tick), x.start, x.end, "grid")
        canvas.text(x.start - 6, y.at(tick) + 4, y.written(tick), anchor="end")
    draw_x_axis(canvas, x, y.start, y.end)
    return Plot(canvas=canvas, x=x, y=y)


def draw_x_axis(canvas: Canvas, x: Scale, floor: float, top: float) -> None:
    """The lines and labels of the ticks, and the axis's label below them."""
    for tick in x.ticks():
        canvas.down(x.at(tick), top, floor, "grid")
        canvas.text(x.at(tick), floor + LINE, x.written(tick), anchor="middle")
    draw_x_label(canvas, x.axis.label, floor)


def draw_x_label(canvas: Canvas, label: str, floor: float) -> None:
    """What the x axis shows. The canvas ends below it."""
    middle = canvas.width / 2
    canvas.text(middle, floor + 2 * LINE + 2, label, anchor="middle", look="ink")
    canvas.height = floor + BOTTOM
