"""The steps of runs, one run above the other, on one scale of time.

A step is as wide as it took, and as high as it was full of prompt tokens; the strip
below it stands for the answers that go on in it.
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
    """How steps are drawn: the time, the height of a token, the colours of prompts."""

    canvas: Canvas
    x: Scale
    px_per_token: float
    looks: dict[str, str]


def draw_timeline(canvas: Canvas, chart: Timeline) -> None:
    end_s = 0.0
    most_tokens = 1
    looks = {"": WHOLE}
    for lane in chart.lanes:
        for step in lane.steps:
            end_s = max(end_s, step.start_s + step.seconds)
            most_tokens = max(most_tokens, sum(part.tokens for part in step.parts))
            for part in step.parts:
                looks.setdefault(part.prompt, look_of(len(looks) - 1))
    axis = Axis(label="time since the first step", unit=SECONDS)
    x = Scale(axis=axis, low=0.0, high=end_s or 1.0, start=1, end=canvas.width - RIGHT)
    steps = _Steps(canvas=canvas, x=x, px_per_token=HEIGHT / most_tokens, looks=looks)
    y = 0.0
    for lane in chart.lanes:
        y = _draw_lane(steps, lane, y)
    draw_x_axis(canvas, x, y, y - 5)
    entries = []
    for prompt, look in looks.items():
        entries.append((f"prompt {prompt}" if prompt else "prompts read whole", look))
    entries.append(("answers that go on", ANSWERS))
    canvas.legend(entries)


def _draw_lane(steps: _Steps, lane: Lane, y: float) -> float:
    """Returns where the next lane begins."""
    canvas = steps.canvas
    canvas.text(0, y + 13, cut(lane.name, canvas.width), look="ink")
    floor = y + LINE + 4 + HEIGHT
    for step in lane.steps:
        _draw_step(steps, step, floor)
    canvas.across(floor, steps.x.start, steps.x.end, "soft")
    return floor + STRIP + 12


def _draw_step(steps: _Steps, step: Step, floor: float) -> None:
    left = steps.x.at(step.start_s)
    width = steps.x.at(step.start_s + step.seconds) - left - 1
    top = floor
    for part in step.parts:
        height = part.tokens * steps.px_per_token
        top -= height
        box = Box(left, top, width, height - 0.5)
        steps.canvas.rect(box, steps.looks[part.prompt], step.detail)
        if part.prompt and width > 2 * LETTER and height > LINE:
            x, y = left + width / 2, top + height / 2 + 4
            steps.canvas.text(x, y, part.prompt, anchor="middle", look="on-colour")
    if step.decodes:
        strip = Box(left, floor + 2, width, STRIP - 2)
        steps.canvas.rect(strip, ANSWERS, step.detail)
