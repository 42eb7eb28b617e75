"""The steps of runs, one run above the other, on one scale of time.

A step is as wide as it took, and as high as it was full of prompt tokens, beside the
fullest of its run; the strip below it stands for the answers that go on in it.
"""

from dataclasses import dataclass

from chunkscope.artefacts.numbers import SECONDS
from chunkscope.report.charts import Axis, Lane, Step, Timeline
from chunkscope.report.svg.axes import RIGHT, draw_x_axis
from chunkscope.report.svg.canvas import LETTER, LINE, Box, Canvas, cut, look_of
from chunkscope.report.svg.scale import Scale

HEIGHT = 70.0  # px of the fullest step
STRIP = 7.0  # px of the strip below a step
WHOLE, ANSWERS = "quiet", "soft"  # the colours of whole prompts and of answers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """How the steps of a run are drawn: its floor, the time, the height of a token."""

    canvas: Canvas
    x: Scale
    floor: float
    px_per_token: float


def draw_timeline(canvas: Canvas, chart: Timeline) -> None:
    end_s = 0.0
    for lane in chart.lanes:
        for step in lane.steps:
            end_s = max(end_s, step.start_s + step.seconds)
    axis = Axis(label="time since the first step", unit=SECONDS)
    x = Scale(axis=axis, low=0.0, high=end_s or 1.0, start=1, end=canvas.width - RIGHT)
    y = 0.0
    for lane in chart.lanes:
        y = _draw_lane(canvas, x, lane, y)
    draw_x_axis(canvas, x, y, y - 5)
    canvas.legend(
        [
            ("a long prompt, in parts (one colour each)", look_of(0)),
            ("prompts read whole", WHOLE),
            ("answers that go on", ANSWERS),
        ]
    )


def _draw_lane(canvas: Canvas, x: Scale, lane: Lane, y: float) -> float:
    """Returns where the next lane begins."""
    canvas.text(0, y + 13, cut(lane.name, canvas.width), look="ink")
    floor = y + LINE + 4 + HEIGHT
    fullest = max(sum(part.tokens for part in step.parts) for step in lane.steps)
    steps = _Steps(
        canvas=canvas, x=x, floor=floor, px_per_token=HEIGHT / (fullest or 1)
    )
    for step in lane.steps:
        _draw_step(steps, step)
    canvas.across(floor, x.start, x.end, "soft")
    return floor + STRIP + 12


def _draw_step(steps: _Steps, step: Step) -> None:
    left = steps.x.at(step.start_s)
    width = steps.x.at(step.start_s + step.seconds) - left - 0.5
    top = steps.floor
    for part in step.parts:
        height = part.tokens * steps.px_per_token
        top -= height
        gap = 0.5 if height > 2 else 0.0
        box = Box(left, top, width, height - gap)
        steps.canvas.rect(box, _look(part.prompt), step.detail)
        if part.prompt and width > 2 * LETTER and height > LINE:
            x, y = left + width / 2, top + height / 2 + 4
            steps.canvas.text(x, y, part.prompt, anchor="middle", look="on-colour")
    if step.decodes:
        strip = Box(left, steps.floor + 2, width, STRIP - 2)
        steps.canvas.rect(strip, ANSWERS, step.detail)


def _look(prompt: str) -> str:
    """The colour of a prompt, by its letter."""
    if not prompt:
        return WHOLE
    return look_of(ord(prompt) - ord("A"))
