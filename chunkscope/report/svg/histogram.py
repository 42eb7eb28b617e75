"""How many prompts are how long: a bar for each doubling of the length."""

from math import log2

from chunkscope.artefacts.numbers import number, plural, share
from chunkscope.report.charts import Histogram
from chunkscope.report.svg.axes import draw_x_label
from chunkscope.report.svg.canvas import LINE, Box, Canvas, text_width

HEIGHT = 190.0  # px of the highest bar
LEAST = 2.0  # px of the lowest: the few long prompts are what this is about


def draw_histogram(canvas: Canvas, chart: Histogram) -> None:
    floor = LINE * (len(chart.marks) + 1) + 6 + HEIGHT
    slot = canvas.width / len(chart.bins)
    most = max(bin_.count for bin_ in chart.bins)
    total = sum(bin_.count for bin_ in chart.bins)
    for place, bin_ in enumerate(chart.bins):
        left = place * slot
        if bin_.count:
            height = max(HEIGHT * bin_.count / most, LEAST)
            part = share(bin_.count / total)
            words = f"{bin_.span} tokens: {plural(bin_.count, 'prompt')}, {part}"
            box = Box(left + 1, floor - height, slot - 2, height)
            canvas.rect(box, "c1", words)
            _write_count(canvas, bin_.count, left + slot / 2, floor - height - 4, slot)
        if place > 0 and (place % 2 == 0 or slot > 2 * LINE):
            canvas.text(left, floor + LINE, _tokens(bin_.low), anchor="middle")
    canvas.across(floor, 0, canvas.width, "soft")
    draw_x_label(canvas, "tokens of a prompt", floor)
    _draw_marks(canvas, chart, slot, floor)


def _write_count(canvas: Canvas, count: int, x: float, y: float, room: float) -> None:
    words = number(count)
    if text_width(words) <= room:
        canvas.text(x, y, words, anchor="middle")


def _draw_marks(canvas: Canvas, chart: Histogram, slot: float, floor: float) -> None:
    """The settings of an engine as lines, each with its name on a line of its own."""
    for place, mark in enumerate(chart.marks):
        x = slot * _bin_place(chart, mark.tokens)
        y = LINE * (place + 1)
        canvas.path([(x, y - 10), (x, floor)], "c2", dashes="5 3")
        words = f"{mark.label} {mark.tokens:,}"
        if x > canvas.width / 2:
            canvas.text(x - 5, y, words, anchor="end", look="ink")
        else:
            canvas.text(x + 5, y, words, look="ink")


def _bin_place(chart: Histogram, tokens: int) -> float:
    """Where a length stands, in bins: 2.5 is the middle of the third."""
    for place, bin_ in enumerate(chart.bins):
        if tokens < bin_.high:
            low = max(bin_.low, bin_.high // 2)
            return place + max(0.0, log2(tokens / low) / log2(bin_.high / low))
    return float(len(chart.bins))


def _tokens(length: int) -> str:
    """
    >>> _tokens(64), _tokens(2048)
    ('64', '2K')
    """
    if length >= 1024:
        return f"{length // 1024}K"
    return str(length)
