"""The verdict: the plan stays unless another row is better by more than noise."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.figures import E2E_P95, ITL_MAX, ITL_P99, MAKESPAN
from chunkscope.engine.choices import Objective
from chunkscope.verification.verdict import goal_of, is_tie, judged, ratio
from tests.verification.runs import WORKLOAD, failed, figures, run, verification

PLAN = run("plan", 10.0, 9.9, 10.1)


def verdict(*runs, objective=Objective.THROUGHPUT, **more):
    return judged(verification(*runs, **more), objective)


def test_a_row_that_is_clearly_faster_is_better() -> None:
    found = verdict(PLAN, run("off", 9.0, 8.9, 9.1))
    assert found.better == "off"
    assert "9.00 s instead of 10.00 s (-10.0%)" in found.verdict


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param(run("off", 9.8, 9.7, 9.95), "is a tie", id="the spreads overlap"),
        pytest.param(run("off", 9.85, 9.84, 9.86), "takes 1.5% shorter", id="less than 2 %"),
        pytest.param(run("off", 12.0, 11.9, 12.1), "takes 20.0% longer", id="slower"),
        pytest.param(failed("off"), "off: out of memory", id="it did not run"),
    ],
)
def test_otherwise_the_plan_is_kept(other, why) -> None:
    found = verdict(PLAN, other)
    assert found.better is None
    assert found.verdict.startswith("Keep the plan: time for all requests 10.00 s")
    assert why in found.verdict


def test_the_best_of_several_better_rows_is_named() -> None:
    found = verdict(PLAN, run("a", 9.0, 9.0, 9.0), run("b", 8.0, 8.0, 8.0))
    assert found.better == "b"


def test_a_better_row_says_what_it_costs() -> None:
    found = verdict(PLAN, run("off", 9.0, 8.9, 9.1, gap_s=0.05))
    assert "longest gap between tokens 5.0 times as long" in found.verdict


def test_with_one_repeat_small_differences_are_ties() -> None:
    assert is_tie(run("a", 1.04), run("b", 1.0), MAKESPAN)
    assert not is_tie(run("a", 1.06), run("b", 1.0), MAKESPAN)


def test_when_the_plan_does_not_run_the_best_of_the_rest_is_named() -> None:
    found = verdict(failed("plan"), run("a", 9.0), run("b", 8.0))
    assert found.better == "b"
    assert found.verdict.startswith("The plan does not run here (it failed)")


def test_when_nothing_runs_nothing_is_better() -> None:
    assert verdict(failed("plan"), failed("off")).better is None


def test_a_plan_alone_is_kept_and_that_is_said() -> None:
    assert "nothing else was measured" in verdict(PLAN).verdict


def test_without_a_plan_there_is_no_verdict() -> None:
    assert verdict(run("endpoint", 1.0)).verdict is None


def test_a_latency_plan_is_judged_by_the_gaps() -> None:
    slow_but_smooth = run("small", 20.0, 20.0, 20.0, gap_s=0.005)
    found = verdict(PLAN, slow_but_smooth, objective=Objective.LATENCY)
    assert found.better == "small"
    assert "100% more time for all requests" in found.verdict


def test_at_a_rate_the_latency_of_requests_decides() -> None:
    """How long all of it takes is then the rate's doing."""
    assert goal_of(Objective.THROUGHPUT, "4/s") is E2E_P95
    rated = replace(WORKLOAD, arrivals="4/s")
    assert "p95 whole answer" in verdict(PLAN, run("off", 10.0, 10.0), workload=rated).verdict


def test_figures_are_found_by_their_names_in_the_artefact() -> None:
    made = figures(10.0, gap_s=0.01)
    assert MAKESPAN.of(made) == 10.0
    assert ITL_P99.of(made) == pytest.approx(0.03)
    assert ITL_MAX.among("short").of(made) == pytest.approx(0.04)
    assert ITL_MAX.among("long").of(made) is None
    assert MAKESPAN.of(None) is None


def test_a_ratio_to_what_was_not_measured_is_not_known() -> None:
    assert ratio(PLAN, failed("off"), MAKESPAN) is None
