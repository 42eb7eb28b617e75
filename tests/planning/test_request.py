"""What is asked of a plan: how long answers are, and how often prompts are sent."""

import pytest

from chunkscope.errors import UsageError
from chunkscope.planning.request import PlanRequest
from chunkscope.simulation.outputs import OutputLengths, read_output


@pytest.mark.parametrize(
    ("text", "p50", "p95"),
    [
        pytest.param("300", 300, 300, id="a number"),
        pytest.param("p50=9k,p95=32k", 9_000, 32_000, id="log-normal"),
        pytest.param("mean=11.6k,p50=9.2k", 9_200, 28_195, id="by mean and median"),
        pytest.param("mean=12k,p95=32k", 8_836, 32_000, id="by mean and p95"),
    ],
)
def test_answers_are_a_number_or_log_normal(text: str, p50: int, p95: int) -> None:
    output = read_output(text)

    assert (output.p50, output.p95) == (p50, p95)


def test_a_log_normal_has_the_median_and_the_mean_that_were_asked_for() -> None:
    lengths = read_output("p50=9.2k,mean=11.6k").lengths()

    assert sorted(lengths)[len(lengths) // 2] == pytest.approx(9_200, rel=0.01)
    assert sum(lengths) / len(lengths) == pytest.approx(11_600, rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("many", id="no number"),
        pytest.param("p50=9k", id="one of two"),
        pytest.param("p50=9k,p95=32k,mean=12k", id="three"),
        pytest.param("p50=9k,p50=9k", id="one twice"),
        pytest.param("p95=9k,p50=32k", id="the wrong way round"),
        pytest.param("p99=9k,p50=1k", id="another percentile"),
        pytest.param("gsm8k=300", id="a dataset"),
        pytest.param("0", id="none at all"),
        pytest.param("mean=1k,p95=5k", id="wider than a log-normal can be"),
    ],
)
def test_other_lengths_are_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--output"):
        read_output(text)


def test_answers_may_differ_by_dataset() -> None:
    request = PlanRequest.of(outputs={"aime": "p50=9k,p95=32k", "mmlu": 1})

    assert request.outputs["mmlu"] == OutputLengths(p50=1, p95=1)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_output": 64, "output": "64"}, id="--max-output"),
        pytest.param({"output": "64", "output_from": "a.eval"}, id="--output-from"),
    ],
)
def test_answers_are_asked_for_once(options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="both say how long answers are"):
        PlanRequest.of(**options)


@pytest.mark.parametrize(
    ("text", "seconds"), [("600", 600.0), ("10min", 600.0), (90, 90)]
)
def test_a_timeout_is_in_seconds_or_has_a_unit(
    text: str | float, seconds: float
) -> None:
    assert PlanRequest.of(e2e_timeout=text).e2e_timeout_s == seconds
