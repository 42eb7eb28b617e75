"""Chunks, refusals, capacity and forecasts are told in the same words wherever they are told."""

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from chunkscope.findings import Findings, load_findings
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.step_time import step_model
from chunkscope.models import find_model
from chunkscope.planning.plan import Cost, Forecast, Plan, Refused
from chunkscope.report import sentences
from chunkscope.report.summary import summarize
from chunkscope.report.terminal.findings import show_findings
from chunkscope.report.terminal.plan import show_plan
from chunkscope.simulation.simulate import simulate
from tests.h200 import FOLDER
from tests.report import examples


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """A plan that nobody ran: its gains are predicted."""
    made = load_findings(
        examples.write(tmp_path_factory.mktemp("reports"), found=examples.profile())
    )
    assert made.plan is not None
    refused = Refused(prompts=3, of=100, room_tokens=8_000, too_long=1)
    cost = Cost(
        input_tokens=5_000,
        output_tokens=700,
        hours=3.0,
        least_hours=1.5,
        most_hours=4.5,
        varied=("another draw",),
        gpus=4,
        price_per_hour=2.5,
    )
    return replace(made, plan=replace(made.plan, refused=refused, cost=cost))


def said(plan: Plan) -> list[str]:
    assert plan.forecast is not None
    return [
        sentences.chunks(plan.chunks),
        sentences.refused(plan) or "",
        sentences.capacity(plan) or "",
        sentences.forecast(plan) or "",
        sentences.cost(plan) or "",
        sentences.client(plan) or "",
        sentences.arguments(plan),
    ]


def test_the_plan_and_the_report_say_the_same(found: Findings) -> None:
    console = Console(file=io.StringIO(), width=1_000)
    show_plan(found.plan, console)
    plan_shown = console.file.getvalue()
    show_findings(found, console)
    report_shown = console.file.getvalue().removeprefix(plan_shown)
    summary = summarize(found)
    for sentence in said(found.plan):
        assert sentence in plan_shown
        assert sentence in report_shown
        assert sentence in (*summary.why, *summary.gains, summary.refused) or "--" in sentence


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ((10.0, 0.2), "all done in 8.00 s instead of 10.0 s (-20 %); "),
        ((8.0, 0.2), "all done in 8.00 s, no difference; "),
        (
            (None, None),
            "longest gap between tokens 100 ms; vLLM's own setting would not run.",
        ),
    ],
)
def test_a_forecast_is_told_beside_vllms_own(
    found: Findings, own: tuple[float, float], told: str
) -> None:
    makespan, gap = own
    forecast = Forecast(
        requests=5,
        makespan_s=8.0,
        longest_gap_s=0.1,
        default_makespan_s=makespan,
        default_longest_gap_s=gap,
    )
    assert told in (sentences.forecast(replace(found.plan, forecast=forecast)) or "")


def test_an_output_length_that_nobody_knows_is_called_assumed_wherever_it_is_used(
    found: Findings,
) -> None:
    assert found.plan.inputs.output.assumed
    for sentence in (sentences.refused, sentences.capacity, sentences.forecast, sentences.cost):
        assert "assumed)" in (sentence(found.plan) or ""), sentence
    output = replace(found.plan.inputs.output, origin="--max-output")
    asked = replace(found.plan, inputs=replace(found.plan.inputs, output=output))
    for sentence in (sentences.refused, sentences.capacity, sentences.forecast, sentences.cost):
        assert "assumed" not in (sentence(asked) or "assumed"), sentence


def test_what_the_run_will_cost_is_told_with_its_range(found: Findings) -> None:
    said = sentences.cost(found.plan) or ""
    assert "5,000 tokens in, 700 out (256 each, assumed) and 3.00 h on 4 GPUs (predicted" in said
    assert "90.0 min to 4.50 h if one thing turns out otherwise (another draw)" in said
    assert said.endswith("At 2.50 per GPU and hour that is 30.00 (15.00 to 45.00).")


def test_where_the_host_is_the_limit_a_range_is_shown():
    """The range is that of the measured repeats: nobody made it up."""
    spreads = []
    for run in json.loads((FOLDER / "qwen2.5-1.5b-mixed" / "verify.json").read_text())["runs"]:
        spreads += [repeat["makespan_s"] / run["makespan_s"] - 1 for repeat in run["repeats"]]
    assert (min(spreads), max(spreads)) == pytest.approx(sentences.HOST_SPREAD, abs=0.01)
    small, large = (
        simulate(
            [(64, 64)] * 200,
            {"max_num_batched_tokens": 8_192, "max_num_seqs": 256, "kv_cache_tokens": 1_000_000},
            step_model(find_model(model), find_gpu("h200")),
        )
        for model in ("qwen2.5-1.5b", "qwen3-32b")
    )
    said = " ".join(sentences.simulated(small))
    assert "waits for the engine's Python" in said
    assert re.search(r"expect [\d.]+ m?s to [\d.]+ m?s", said)
    assert "Python" not in " ".join(sentences.simulated(large))
