"""Curves between two axes. Each has a colour and its own dashes."""

from chunkscope.report.charts import Line, Lines
from chunkscope.report.svg.axes import Plot, plot
from chunkscope.report.svg.canvas import LINE, Canvas, look_of

DASHES = ("", "7 3", "2 3", "9 3 2 3")
MOST_DOTS = 20  # a curve of more points is shown without them


def draw_lines(canvas: Canvas, chart: Lines) -> None:
    points = [point for line in chart.lines for point in line.points]
    axes = plot(canvas, (chart.x, chart.y), points, from_zero=True)
    if chart.mark is not None:
        x = axes.x.at(chart.mark.x)
        canvas.down(x, axes.y.end, axes.y.start, "soft")
        canvas.text(x + 5, axes.y.end + LINE, chart.mark.name, look="ink")
    entries = []
    for place, line in enumerate(chart.lines):
        look = look_of(place)
        _draw_line(axes, line, look, DASHES[place % len(DASHES)])
        entries.append((line.name, look))
    if len(entries) > 1:
        canvas.legend(entries)


def _draw_line(axes: Plot, line: Line, look: str, dashes: str) -> None:
    places = [axes.place(x, y) for x, y in line.points]
    axes.canvas.path(places, f"curve {look}", dashes=dashes)
    if len(places) > MOST_DOTS:
        return
    for (x_value, y_value), (x, y) in zip(line.points, places, strict=True):
        words = f"{axes.x.figure(x_value)}, {axes.y.figure(y_value)}"
        axes.canvas.dot(x, y, 4, look, words)
