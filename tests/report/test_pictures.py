"""The pictures of plans and runs: what is on them."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.figures import Figures, Percentiles
from chunkscope.report.charts import StepPart
from chunkscope.report.pictures import (
    Setting,
    measured_memory_bar,
    memory_bars,
    predicted_against_measured,
    predicted_memory_bar,
    spreads,
    time_over_samples,
    timeline,
    trade_off,
)
from chunkscope.simulation.result import PromptChunk, TimelineStep
from chunkscope.verification.result import Distribution, WorkerMemory
from chunkscope.vllm.footprint import memory
from tests import build


def figures(makespan_s: float, gap_s: float) -> Figures:
    gap = Percentiles(p50=gap_s / 4, p95=gap_s / 2, p99=gap_s / 2, max=gap_s)
    wait = Percentiles(p50=1.0, p95=makespan_s / 2, p99=3.0, max=4.0)
    return Figures(
        makespan_s=makespan_s,
        ttft_s=wait,
        itl_s=gap,
        e2e_s=wait,
        input_tokens_per_s=1.0,
        output_tokens_per_s=1.0,
    )


SLOW = Setting(name="default", flags="", figures=figures(12.0, 0.2))
FAST = Setting(name="plan", flags="--max-num-seqs 8", figures=figures(10.0, 5.0))


def step(number: int, *chunks: PromptChunk) -> TimelineStep:
    return TimelineStep(
        number=number,
        start_s=0.1 * number,
        duration_s=0.1,
        decode_requests=2,
        chunks=chunks,
        waiting=0,
        preempted=(),
    )


# -- settings --------------------------------------------------------------------------


def test_each_setting_is_a_point_with_its_flags() -> None:
    picture = trade_off([SLOW, FAST])
    assert picture is not None
    assert [(point.x, point.y, point.detail) for point in picture.points] == [
        (12.0, 0.2, "vLLM's defaults."),
        (10.0, 5.0, "Flags: --max-num-seqs 8"),
    ]


def test_one_setting_alone_is_no_picture() -> None:
    assert trade_off([SLOW]) is None


def test_where_requests_arrive_at_their_times_their_waits_are_drawn() -> None:
    picture = trade_off([SLOW, FAST], is_open=True)
    assert picture is not None
    assert picture.x.label == "p95 time to first token"
    assert picture.points[0].x == 6.0


def test_the_words_of_a_picture_name_the_fastest_and_the_smoothest() -> None:
    picture = trade_off([SLOW, FAST])
    assert picture is not None
    assert "Fastest: plan, 10.0 s and 5.00 s." in picture.alternative
    assert "Smoothest: default, 12.0 s and 200 ms." in picture.alternative


@pytest.mark.parametrize(
    ("gap_s", "is_wide"), [(0.3, False), (5.0, True)], ids=["near", "far apart"]
)
def test_values_far_apart_get_a_logarithmic_axis(gap_s: float, is_wide: bool) -> None:
    other = replace(FAST, figures=figures(10.0, gap_s))
    picture = trade_off([SLOW, other])
    assert picture is not None
    assert picture.y.logarithmic is is_wide


def test_predictions_are_compared_with_what_was_measured() -> None:
    run = replace(build.run("plan", 10.0), predicted_figures=figures(9.0, 0.03))
    picture = predicted_against_measured([("the plan", run)])
    assert picture is not None
    assert (picture.points[0].x, picture.points[0].y) == (9.0, 10.0)
    assert picture.points[0].name == "time for all requests, the plan"


def test_without_predictions_there_is_nothing_to_compare() -> None:
    run = replace(build.run("plan", 10.0), predicted_figures=None)
    assert predicted_against_measured([("the plan", run)]) is None


# -- memory ----------------------------------------------------------------------------


def test_the_parts_of_a_predicted_bar_are_what_vllm_takes() -> None:
    bill = memory("qwen3-8b", "h100", vllm_version="0.32").memory
    bar = predicted_memory_bar("predicted", bill)
    assert [part.name for part in bar.parts][:3] == [
        "weights",
        "activations",
        "KV cache",
    ]
    taken_gib = sum(part.value for part in bar.parts)
    assert taken_gib == pytest.approx(bill.requested_gib, abs=0.01)


def test_a_measured_bar_is_of_the_fullest_gpu() -> None:
    small = WorkerMemory(
        rank=0,
        activation_peak_gib=None,
        device_peak_gib=None,
        weights_gib=4.0,
        kv_cache_gib=50.0,
    )
    bar = measured_memory_bar("measured", [small, replace(small, weights_gib=5.0)])
    assert bar is not None
    assert [(part.name, part.value) for part in bar.parts] == [
        ("weights", 5.0),
        ("KV cache", 50.0),
    ]
    assert "weights 5.00 GiB" in memory_bars([bar]).alternative


# -- steps and curves ------------------------------------------------------------------


def test_a_prompt_in_parts_has_a_letter_and_whole_ones_are_together() -> None:
    first = step(
        0,
        PromptChunk(1, 0, 60, 100),
        PromptChunk(2, 0, 30, 30),
        PromptChunk(3, 5, 9, 9),
    )
    second = step(1, PromptChunk(1, 60, 100, 100))
    picture = timeline([("the plan", [first, second])])
    assert picture is not None
    before, after = picture.lanes[0].steps
    assert before.parts == (
        StepPart(prompt="A", tokens=60),
        StepPart(prompt="", tokens=34),
    )
    assert after.parts == (StepPart(prompt="A", tokens=40),)
    assert after.detail == "step 1, 100 ms: prompt A 40 tokens (now 100 %), 2 answers"


def test_runs_without_steps_have_no_timeline() -> None:
    assert timeline([("the plan", [])]) is None


def test_times_are_spread_over_their_percentiles() -> None:
    waits = Distribution(ttft_s=(1.0, 2.0, 4.0), itl_s=None)
    (picture,) = spreads([("the plan", waits)])
    assert picture.lines[0].points == ((1.0, 0.0), (2.0, 0.5), (4.0, 1.0))


def test_the_advised_number_at_once_is_marked() -> None:
    picture = time_over_samples([(8, 90.0), (16, 60.0), (32, 75.0)], 16)
    assert picture.mark is not None
    assert picture.mark.name == "advised: 16"
    assert picture.alternative == "With 8 at once 90.0 s; fastest with 16: 60.0 s."
