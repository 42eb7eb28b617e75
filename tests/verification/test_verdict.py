"""The verdict: the plan stays unless another row is better by more than noise."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.figures import E2E_P95, ITL_MAX, ITL_P99, MAKESPAN, TTFT_P95
from chunkscope.report.words import sentence
from chunkscope.report.words.verdicts import verdict as in_words
from chunkscope.simulation.slo import read_slo
from chunkscope.verification.result import Conclusion, MeasuredVerdict
from chunkscope.verification.verdict import Outcome, goal_of, is_tie, judged, outcomes, ratio
from chunkscope.vllm.settings import Settings
from tests.build import WORKLOAD, failed, figures, run, verification

PLAN = run("plan", 10.0, 9.9, 10.1)
STEADY = run("plan", 10.0, 9.99, 10.01)
NO_FLAG = Settings(max_model_len=4_096)
LIMITS = read_slo("ttft_p95=1s,itl_p99=50ms")


def verdict(*runs, slo=(), **more) -> MeasuredVerdict:
    """Every verdict has words, too."""
    measured = judged(verification(*runs, **more), slo)
    assert in_words(measured)
    return measured.verdict


@pytest.mark.parametrize(
    ("default", "conclusion"),
    [
        pytest.param((10.05, 9.95, 10.2), Conclusion.DROP_FLAGS, id="the spreads overlap"),
        pytest.param((10.25, 10.24, 10.26), Conclusion.DROP_FLAGS, id="2.5 % is too little"),
        pytest.param((10.35, 10.34, 10.36), Conclusion.KEEP_PLAN, id="3.5 % is worth a flag"),
        pytest.param((9.0, 8.9, 9.1), Conclusion.USE_ANOTHER, id="the default is faster"),
    ],
)
def test_a_flag_has_to_gain_three_per_cent_beyond_the_spread(default, conclusion) -> None:
    result = verdict(STEADY, run("default", *default))
    assert result.conclusion is conclusion
    assert result.use == ("plan" if conclusion is Conclusion.KEEP_PLAN else "default")
    dropped = conclusion is Conclusion.DROP_FLAGS
    assert result.drop == (("max_num_batched_tokens",) if dropped else ())


def test_what_all_rows_have_in_common_is_no_flag_that_can_go() -> None:
    """An expert-parallel plan and its default are the same engines but for what was planned."""
    common = {"max_model_len": 4_096, "enable_expert_parallel": True, "kv_cache_dtype": "fp8"}
    planned = replace(PLAN, settings=Settings(max_num_seqs=8, **common))
    default = run("default", 10.0, 9.9, 10.1, settings=Settings(**common))
    assert verdict(planned, default).drop == ("max_num_seqs",)


def test_a_row_that_beats_the_plan_and_the_default_is_to_be_used() -> None:
    default = run("default", 10.0, 9.9, 10.1)
    result = verdict(PLAN, default, run("small", 9.0, 8.9, 9.1), run("smaller", 8.0, 8.0, 8.0))
    assert (result.conclusion, result.use) == (Conclusion.USE_ANOTHER, "smaller")


def test_what_only_ties_with_the_default_gives_way_to_it() -> None:
    near, small = run("default", 9.1, 9.0, 9.2), run("small", 9.0, 8.9, 9.1)
    assert verdict(PLAN, near, small).use == "default"
    default = run("default", 9.9, 9.89, 9.91)
    result = verdict(STEADY, default, run("small", 9.65, 9.64, 9.66))
    assert result.conclusion is Conclusion.DROP_FLAGS


def test_a_plan_that_is_the_default_changes_nothing_unless_a_row_is_better() -> None:
    default = replace(PLAN, settings=NO_FLAG, same_as=("default",))
    slower = verdict(default, run("off", 12.0, 11.9, 12.1))
    assert (slower.conclusion, slower.use) == (Conclusion.KEEP_DEFAULT, "plan")
    assert verdict(default, run("off", 9.0, 8.9, 9.1)).use == "off"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(run("off", 9.8, 9.7, 9.95), id="the spreads overlap"),
        pytest.param(run("off", 12.0, 11.9, 12.1), id="slower"),
        pytest.param(failed("off"), id="it did not run"),
        pytest.param(failed("default"), id="the default did not run"),
    ],
)
def test_with_no_default_to_beat_the_plan_is_kept(other) -> None:
    assert verdict(PLAN, other).conclusion is Conclusion.KEEP_PLAN
    assert verdict(PLAN).conclusion is Conclusion.KEEP_PLAN


def test_when_the_plan_does_not_run_the_best_of_the_rest_is_to_be_used() -> None:
    result = verdict(failed("plan"), run("a", 9.0), run("b", 8.0))
    assert (result.conclusion, result.use) == (Conclusion.PLAN_FAILED, "b")
    assert verdict(failed("plan"), failed("off")).use is None


def test_without_a_plan_there_is_no_verdict() -> None:
    measured = judged(verification(run("endpoint", 1.0)))
    assert measured.verdict is None
    assert in_words(measured) == ""


def test_the_goal_is_what_the_plan_was_made_for() -> None:
    """At a given rate, how long all of it takes is the rate's doing."""
    assert goal_of("batch") is MAKESPAN
    assert goal_of("4/s") is E2E_P95
    rated = replace(WORKLOAD, arrivals="4/s")
    assert verdict(PLAN, run("off", 10.0, 10.0), workload=rated).goal == "e2e_s.p95"


# -- where the plan was made for limits ------------------------------------------------------------


def using(one, *uses):
    """The same run, with so much of the tightest limit used in its repeats."""
    pairs = zip(one.repeats, uses, strict=True)
    repeats = tuple(replace(repeat, slo_use=use) for repeat, use in pairs)
    return replace(one, repeats=repeats, figures=replace(one.figures, slo_use=uses[0]))


def test_a_plan_that_keeps_limits_the_default_breaks_stays_though_it_is_slower() -> None:
    planned = using(run("plan", 12.0, 11.9, 12.1), 0.84, 0.83, 0.85)
    default = using(run("default", 10.0, 9.9, 10.1), 3.16, 3.0, 3.2)
    assert verdict(planned, default, slo=LIMITS).conclusion is Conclusion.KEEP_PLAN


def test_a_default_with_about_the_same_room_needs_no_flag() -> None:
    planned, default = using(PLAN, 0.80, 0.79, 0.81), run("default", 12.5, 12.4, 12.6)
    assert verdict(planned, using(default, 0.88, 0.87, 0.89), slo=LIMITS).drop
    assert not verdict(planned, using(default, 0.91, 0.90, 0.92), slo=LIMITS).drop


def test_a_row_with_more_room_is_better_than_the_plan() -> None:
    default = using(run("default", 20.0, 19.0, 21.0), 0.5, 0.5, 0.5)
    assert verdict(using(PLAN, 1.3, 1.2, 1.4), default, slo=LIMITS).use == "default"


# -- one run beside another ------------------------------------------------------------------------


def test_outcomes_say_what_got_better_and_what_got_worse() -> None:
    other = run("default", 10.0, 9.9, 10.1, gap_s=0.005, kv_cache_tokens=900)
    pairs = outcomes(replace(PLAN, kv_cache_tokens=1_000), other)
    by_key = {figure.key: outcome for figure, outcome in pairs}
    assert [key for key, outcome in by_key.items() if outcome is Outcome.BETTER] == [
        "kv_cache_tokens"
    ]
    assert (by_key["itl_s.max"], by_key["makespan_s"]) == (Outcome.WORSE, Outcome.TIE)


def test_with_one_repeat_small_differences_are_ties() -> None:
    assert is_tie(run("a", 1.04), run("b", 1.0), MAKESPAN)
    assert not is_tie(run("a", 1.06), run("b", 1.0), MAKESPAN)


def test_a_ratio_to_what_was_not_measured_is_not_known() -> None:
    assert ratio(PLAN, failed("off"), MAKESPAN) is None


def test_figures_are_found_by_their_names_in_the_artefact() -> None:
    one = figures(10.0, gap_s=0.01)
    assert MAKESPAN.value(one) == 10.0
    assert ITL_P99.value(one) == pytest.approx(0.03)
    assert TTFT_P95.among("short").value(one) == pytest.approx(2.0)
    assert ITL_MAX.among("long").value(one) is None
    assert MAKESPAN.value(None) is None


def test_a_failure_has_words() -> None:
    assert "no memory" in sentence(failed().failure)
