"""Bars of parts that add up: a name above each, and one legend for all of them."""

from dataclasses import dataclass

from chunkscope.artefacts.numbers import Unit
from chunkscope.report.charts import Bar, StackedBars
from chunkscope.report.svg.canvas import LINE, Box, Canvas, cut, look_of, text_width
from chunkscope.report.svg.scale import without_zeros

HEIGHT = 26.0  # px of a bar


@dataclass(frozen=True, slots=True, kw_only=True)
class _BarScale:
    """What one px is worth, and the colour of each part."""

    unit: Unit
    per_px: float
    looks: dict[str, str]


def draw_bars(canvas: Canvas, chart: StackedBars) -> None:
    most = chart.limit or 0.0
    looks: dict[str, str] = {}
    for bar in chart.bars:
        most = max(most, sum(part.value for part in bar.parts))
        for part in bar.parts:
            looks.setdefault(part.name, look_of(len(looks)))
    scale = _BarScale(unit=chart.unit, per_px=most / (canvas.width - 2), looks=looks)
    y = 4.0
    for bar in chart.bars:
        canvas.text(0, y + 12, cut(bar.name, canvas.width), look="ink")
        y += LINE + 4
        _draw_bar(canvas, bar, y, scale)
        y += HEIGHT + 10
    canvas.height = y
    if chart.limit is not None:
        x = chart.limit / scale.per_px
        canvas.down(x, LINE + 6, y - 6, "ink")
        words = f"{chart.limit_name} {without_zeros(chart.unit.brief(chart.limit))}"
        canvas.text(x, y + 8, words, anchor="end", look="ink")
        canvas.height = y + 12
    canvas.legend(list(looks.items()))


def _draw_bar(canvas: Canvas, bar: Bar, y: float, scale: _BarScale) -> None:
    """A size is written into its part where there is room."""
    x = 0.0
    for part in bar.parts:
        width = part.value / scale.per_px
        size = scale.unit.brief(part.value)
        box = Box(x, y, width - 1, HEIGHT)
        canvas.rect(box, scale.looks[part.name], f"{part.name}: {size}")
        if width > text_width(size) + 8:
            canvas.text(x + width / 2, y + 17, size, anchor="middle", look="on-colour")
        x += width
