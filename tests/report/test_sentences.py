"""Chunks, refusals, capacity and forecasts are told in the same words wherever they are told."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from chunkscope.findings import Findings, load_findings
from chunkscope.planning.plan import Forecast, Plan, Refused
from chunkscope.report import sentences
from chunkscope.report.summary import summarize
from chunkscope.report.terminal.findings import show_findings
from chunkscope.report.terminal.plan import show_plan
from tests.report import examples


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """A plan that nobody ran: its gains are predicted."""
    made = load_findings(
        examples.write(tmp_path_factory.mktemp("reports"), found=examples.profile())
    )
    assert made.plan is not None
    refused = Refused(prompts=3, of=100, room_tokens=8_000)
    return replace(made, plan=replace(made.plan, refused=refused))


def said(plan: Plan) -> list[str]:
    assert plan.forecast is not None
    return [
        sentences.chunks(plan.chunks),
        sentences.refused(plan.refused),
        sentences.capacity(plan) or "",
        sentences.forecast(plan.forecast),
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
def test_a_forecast_is_told_beside_vllms_own(own: tuple[float, float], told: str) -> None:
    makespan, gap = own
    said = sentences.forecast(
        Forecast(
            requests=5,
            makespan_s=8.0,
            longest_gap_s=0.1,
            default_makespan_s=makespan,
            default_longest_gap_s=gap,
        )
    )
    assert told in said
