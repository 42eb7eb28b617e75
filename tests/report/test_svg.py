"""Pictures: what is drawn where, and that every value of a stranger stays text."""

from xml.etree import ElementTree

import pytest

from chunkscope.artefacts.numbers import SECONDS, SHARE, SIZE
from chunkscope.report.charts import (
    Axis,
    Bar,
    Bin,
    Chart,
    Histogram,
    Lane,
    Line,
    Lines,
    Mark,
    Part,
    Point,
    Scatter,
    StackedBars,
    Step,
    StepPart,
    Timeline,
)
from chunkscope.report.svg import NARROW, WIDE, picture, picture_file
from chunkscope.report.svg.scale import Scale, scale_of

SVG = "{http://www.w3.org/2000/svg}"
TIME = Axis(label="time", unit=SECONDS)
LOG_TIME = Axis(label="time", unit=SECONDS, logarithmic=True)
STRETCHED = Axis(label="share", unit=SHARE, stretched=True)
STRANGE = '<b>"a" & b</b>'

POINTS = (
    Point(x=10, y=1, name="plan", detail="Flags: --max-num-seqs 8", strong=True),
    Point(x=12, y=0.1, name=STRANGE),
)
SCATTER = Scatter(title="t", alternative=STRANGE, x=TIME, y=LOG_TIME, points=POINTS)
LINES = Lines(
    title="t",
    alternative="a",
    x=LOG_TIME,
    y=STRETCHED,
    lines=(
        Line(name="plan", points=((0.0, 0.0), (1.0, 1.0))),
        Line(name=STRANGE, points=((0.1, 0.0), (2.0, 1.0))),
    ),
    mark=Point(x=1.0, y=0.0, name="advised"),
)
BARS = StackedBars(
    title="t",
    alternative="a",
    unit=SIZE,
    bars=(Bar(name=STRANGE, parts=(Part(name="weights", value=15.0),)),),
    limit=80.0,
    limit_name="the GPU has",
)
STEP = Step(
    start_s=0.0,
    seconds=0.3,
    decodes=2,
    parts=(StepPart(prompt="A", tokens=100), StepPart(prompt="", tokens=50)),
    detail=STRANGE,
)
TIMELINE = Timeline(
    title="t", alternative="a", lanes=(Lane(name=STRANGE, steps=(STEP,)),)
)
HISTOGRAM = Histogram(
    title="t",
    alternative="a",
    bins=(Bin(low=0, high=64, count=900), Bin(low=64, high=128, count=1)),
    marks=(Mark(label=STRANGE, tokens=100),),
)
CHARTS = {
    "scatter": SCATTER,
    "lines": LINES,
    "bars": BARS,
    "timeline": TIMELINE,
    "histogram": HISTOGRAM,
}


def drawn(chart: Chart, width: int = WIDE) -> ElementTree.Element:
    return ElementTree.fromstring(picture(chart, width=width))


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_shape_is_inside_its_picture(name: str, width: int) -> None:
    root = drawn(CHARTS[name], width)
    height = float(root.attrib["height"])
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.attrib["x"]) >= 0
        assert float(rect.attrib["y"]) >= 0
        right = float(rect.attrib["x"]) + float(rect.attrib["width"])
        bottom = float(rect.attrib["y"]) + float(rect.attrib["height"])
        assert right <= width + 0.1
        assert bottom <= height + 0.1


@pytest.mark.parametrize("name", CHARTS)
def test_a_strangers_text_is_no_markup(name: str) -> None:
    root = drawn(CHARTS[name])
    assert not list(root.iter(f"{SVG}b"))


@pytest.mark.parametrize("name", CHARTS)
def test_a_picture_says_in_words_what_it_shows(name: str) -> None:
    assert drawn(CHARTS[name]).attrib["aria-label"] == CHARTS[name].alternative


def test_a_point_can_be_reached_and_says_what_it_is() -> None:
    first, _ = [part for part in drawn(SCATTER) if part.get("class") == "point"]
    assert first.attrib["tabindex"] == "0"
    assert first.attrib["aria-label"] == (
        "plan: time 10.0 s, time 1.00 s. Flags: --max-num-seqs 8"
    )


def test_what_is_rare_can_be_seen() -> None:
    heights = [
        float(rect.attrib["height"]) for rect in drawn(HISTOGRAM).iter(f"{SVG}rect")
    ]
    assert min(heights) == 2.0


def test_several_pictures_are_one_file() -> None:
    root = ElementTree.fromstring(picture_file(list(CHARTS.values())))
    assert "prefers-color-scheme: dark" in (root.find(f"{SVG}style").text or "")
    assert len(root.findall(f"{SVG}g")) == len(CHARTS)


# -- scales ----------------------------------------------------------------------------


def scale(axis: Axis, low: float, high: float, length: float = 600.0) -> Scale:
    return Scale(axis=axis, low=low, high=high, start=0.0, end=length)


@pytest.mark.parametrize(
    ("axis", "low", "high", "labels"),
    [
        pytest.param(TIME, 0, 10, ["0", "2 s", "4 s", "6 s", "8 s", "10 s"], id="s"),
        pytest.param(TIME, 0, 1_000, ["0", "5 min", "10 min", "15 min"], id="minutes"),
        pytest.param(LOG_TIME, 0.01, 9, ["10 ms", "100 ms", "1 s"], id="decades"),
        pytest.param(
            STRETCHED, 0, 1, ["0", "50 %", "90 %", "95 %", "99 %", "100 %"], id="tail"
        ),
    ],
)
def test_ticks_are_round_and_few(
    axis: Axis, low: float, high: float, labels: list[str]
) -> None:
    shown = scale(axis, low, high, 330.0)
    assert [shown.written(tick) for tick in shown.ticks()] == labels


def test_a_stretched_axis_gives_the_slowest_tenth_half_of_its_room() -> None:
    assert scale(STRETCHED, 0, 1).at(0.9) == 300.0


def test_a_logarithmic_axis_has_a_place_for_zero() -> None:
    shown = scale_of(LOG_TIME, [0.0, 1.0], (0.0, 600.0), from_zero=False)
    assert 0.0 <= shown.at(0.0) < shown.at(1.0) <= 600.0


def test_a_small_difference_looks_small() -> None:
    shown = scale_of(TIME, [100.0, 101.0], (0.0, 600.0), from_zero=False)
    assert shown.at(101.0) - shown.at(100.0) < 60.0


def test_one_value_alone_has_a_place() -> None:
    shown = scale_of(TIME, [5.0], (0.0, 600.0), from_zero=False)
    assert 0.0 < shown.at(5.0) < 600.0
