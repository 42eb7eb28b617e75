"""Charts as SVG, for the page and as files: no script and no library draws them."""

from chunkscope.report.charts import (
    Chart,
    Histogram,
    Lines,
    Scatter,
    StackedBars,
    Timeline,
)
from chunkscope.report.svg.bars import draw_bars
from chunkscope.report.svg.canvas import Box, Canvas, file_style
from chunkscope.report.svg.histogram import draw_histogram
from chunkscope.report.svg.lines import draw_lines
from chunkscope.report.svg.points import draw_scatter
from chunkscope.report.svg.timeline import draw_timeline

WIDE, NARROW = 720, 320  # px of a picture on a desk and on a phone
MARGIN = 20  # px around the pictures of a file


def picture(chart: Chart, *, width: int, look: str = "") -> str:
    """The chart as an SVG element of this width."""
    canvas = _drawn(chart, width)
    # The points of a scatter can be chosen one by one: it is no single image.
    is_group = isinstance(chart, Scatter)
    return canvas.svg(label=chart.alternative, look=look, is_group=is_group)


def picture_file(charts: list[Chart]) -> str:
    """Charts below each other as one SVG file, light or dark as the reader's system."""
    canvas = Canvas(width=WIDE + 2 * MARGIN)
    y = float(MARGIN)
    for chart in charts:
        canvas.text(MARGIN, y + 12, chart.title, look="ink")
        drawn = _drawn(chart, WIDE)
        canvas.add(f'<g transform="translate({MARGIN} {y + 24:.0f})">')
        canvas.elements.extend(drawn.elements)
        canvas.add("</g>")
        y += 24 + drawn.height + MARGIN
    ground = Canvas(width=canvas.width, height=y)
    ground.add(f"<style>{file_style()}</style>")
    ground.rect(Box(0, 0, canvas.width, y), "ground")
    ground.elements.extend(canvas.elements)
    titles = "; ".join(chart.title for chart in charts)
    return ground.svg(label=titles, is_group=True) + "\n"


def _drawn(chart: Chart, width: int) -> Canvas:
    canvas = Canvas(width=width)
    match chart:
        case Scatter():
            draw_scatter(canvas, chart)
        case Lines():
            draw_lines(canvas, chart)
        case StackedBars():
            draw_bars(canvas, chart)
        case Timeline():
            draw_timeline(canvas, chart)
        case Histogram():
            draw_histogram(canvas, chart)
    return canvas
