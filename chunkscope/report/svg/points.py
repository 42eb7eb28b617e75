"""Points between two axes, which a pointer, a finger or the Tab key can choose."""

from chunkscope.report.charts import Point, Scatter
from chunkscope.report.svg.axes import LEFT, Plot, plot
from chunkscope.report.svg.canvas import (
    LINE,
    Canvas,
    cut,
    look_of,
    tag,
    text_width,
    title,
)

MOST_NAMES = 10  # with more points, names would lie on each other
TOUCH = 12  # px around a point that a finger hits


def draw_scatter(canvas: Canvas, chart: Scatter) -> None:
    places = [(point.x, point.y) for point in chart.points]
    if chart.diagonal:  # both axes have one range
        places += [(y, x) for x, y in places]
    axes = plot(canvas, (chart.x, chart.y), places)
    if chart.diagonal:
        _draw_diagonal(axes)
    groups = list(dict.fromkeys(point.group for point in chart.points))
    for point in chart.points:
        _draw_point(axes, point, look_of(groups.index(point.group)))
    if len(chart.points) <= MOST_NAMES:
        _draw_names(axes, chart.points)
    if len(groups) > 1:
        entries = []
        for place, group in enumerate(groups):
            entries.append((group, look_of(place)))
        canvas.legend(entries)


def _draw_diagonal(axes: Plot) -> None:
    low = max(axes.x.low, axes.y.low)
    high = min(axes.x.high, axes.y.high)
    ends = [axes.place(low, low), axes.place(high, high)]
    axes.canvas.path(ends, "soft", dashes="5 4")


def _draw_point(axes: Plot, point: Point, look: str) -> None:
    """A dot with a larger area around it, and what it says when it is chosen."""
    words = f"{point.name}: {axes.x.figure(point.x)}, {axes.y.figure(point.y)}."
    if point.detail:
        words += f" {point.detail}"
    x, y = axes.place(point.x, point.y)
    radius = 7 if point.strong else 5
    parts = [
        title(words),
        tag("circle", cx=x, cy=y, r=TOUCH, fill="transparent"),
        tag("circle", cx=x, cy=y, r=radius, class_=f"{look} ground-line"),
    ]
    content = "".join(parts)
    button = {"tabindex": "0", "role": "button", "aria_label": words}
    axes.canvas.add(tag("g", content, class_="point", **button))


def _draw_names(axes: Plot, points: tuple[Point, ...]) -> None:
    """Each name beside, above or below its point, where nothing stands yet."""
    taken: list[tuple[float, float, float]] = []  # from x to x, at a height
    for point in points:
        x, y = axes.place(point.x, point.y)
        taken.append((x - TOUCH, x + TOUCH, y + 4))
    for point in sorted(points, key=lambda point: not point.strong):
        name = cut(point.name, axes.canvas.width / 2)
        width = text_width(name)
        x, y = axes.place(point.x, point.y)
        for start, base in (
            (x + TOUCH, y + 4),
            (x - TOUCH - width, y + 4),
            (x - width / 2, y - TOUCH),
            (x - width / 2, y + TOUCH + 10),
        ):
            end = start + width
            is_inside = start >= LEFT and end <= axes.canvas.width
            if is_inside and not _is_taken(taken, start, end, base):
                taken.append((start, end, base))
                axes.canvas.text(start, base, name, look="ink")
                break


def _is_taken(
    taken: list[tuple[float, float, float]], start: float, end: float, base: float
) -> bool:
    for other_start, other_end, height in taken:
        is_beside = end <= other_start or start >= other_end
        if not is_beside and abs(base - height) < LINE - 2:
            return True
    return False
