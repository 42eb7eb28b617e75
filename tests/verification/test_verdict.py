"""The verdict: the plan stays unless another row is better by more than noise."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.figures import E2E_P95, ITL_MAX, ITL_P99, MAKESPAN
from chunkscope.simulation.slo import read_slo
from chunkscope.verification.outcomes import is_tie, ratio
from chunkscope.verification.verdict import goal_of, judged
from chunkscope.vllm.enums import Objective
from tests.build import WORKLOAD, failed, figures, run, verification

PLAN = run("plan", 10.0, 9.9, 10.1)


def verdict(*runs, objective=Objective.THROUGHPUT, **more):
    return judged(verification(*runs, **more), objective)


def test_a_plan_that_ties_with_the_default_need_not_be_set() -> None:
    found = verdict(PLAN, run("default", 10.05, 9.95, 10.2))
    assert (found.better, found.can_go) == (None, ("max_num_batched_tokens",))
    assert found.verdict == (
        "The flag can go: time for all requests 10.00 s with max_num_batched_tokens and 10.05 s "
        "with vLLM's default (-0.5 %, within the spread). Against default, a tie in all else."
    )


def test_less_than_three_per_cent_is_a_tie_however_steady_the_repeats() -> None:
    """Three per cent is what `recommend` asks of a flag."""
    little, enough = run("default", 10.25, 10.24, 10.26), run("default", 10.35, 10.34, 10.36)
    steady = run("plan", 10.0, 9.99, 10.01)
    found = verdict(steady, little)
    assert found.can_go
    assert "10.25 s with vLLM's default (-2.4 %, less than 3 %)" in found.verdict
    assert verdict(steady, enough).can_go == ()


def test_a_tie_says_which_figures_were_better_and_which_were_worse() -> None:
    capped = replace(PLAN, args={"max_num_seqs": 4, "max_num_batched_tokens": 512})
    default = run("default", 10.0, 9.9, 10.1, gap_s=0.005, kv_cache_tokens=900)
    found = verdict(replace(capped, kv_cache_tokens=1_000), default)
    assert found.verdict.startswith("The flags can go: ")
    assert "10.00 s with max_num_seqs, max_num_batched_tokens and 10.00 s" in found.verdict
    _, _, beside = found.verdict.partition("Against default, ")
    better, worse, rest = beside.split("; ")
    assert better == "better: KV cache tokens 1,000 instead of 900 (+11 %)"
    assert worse.startswith("worse: median gap between tokens 10.0 ms instead of 5.00 ms (+100 %)")
    assert rest == "a tie in all else."


def test_a_plan_that_wins_is_kept_and_what_it_costs_is_said() -> None:
    found = verdict(PLAN, run("default", 12.5, 12.4, 12.6, gap_s=0.005), failed("off"))
    assert (found.better, found.can_go) == (None, ())
    assert found.verdict.startswith(
        "Keep the plan: time for all requests 10.00 s instead of 12.50 s with vLLM's default "
        "(-20 %); off: out of memory. Against default, better: output tokens per second"
    )
    assert "worse: median gap between tokens 10.0 ms instead of 5.00 ms" in found.verdict


def test_a_plan_that_loses_is_told_so_with_the_arguments_to_use() -> None:
    bare = run("default", 9.0, 8.9, 9.1, gap_s=0.05)
    found = verdict(PLAN, replace(bare, args={"max_model_len": 4_096}))
    assert (found.better, found.can_go) == ("default", ())
    assert found.verdict.startswith(
        "vLLM's default is better than the plan: time for all requests 9.00 s instead of 10.00 s "
        "(-10 %). It needs no flag. Against plan, better: "
    )
    assert "longest gap between tokens 200 ms instead of 40.0 ms (+400 %)" in found.verdict


def test_a_row_that_beats_the_plan_and_the_default_is_named_with_its_arguments() -> None:
    found = verdict(PLAN, run("default", 10.0, 9.9, 10.1), run("small", 9.0, 8.9, 9.1))
    assert found.better == "small"
    assert "Its arguments: max_num_batched_tokens=2048." in found.verdict


def test_what_only_ties_with_the_default_gives_way_to_it() -> None:
    near, plan = run("default", 9.1, 9.0, 9.2), run("small", 9.0, 8.9, 9.1)
    assert verdict(PLAN, near, plan).better == "default"
    steady, default = run("plan", 10.0, 9.99, 10.01), run("default", 9.9, 9.89, 9.91)
    found = verdict(steady, default, run("small", 9.65, 9.64, 9.66))
    assert found.better is None
    assert found.can_go


def test_a_plan_that_is_the_default_changes_nothing() -> None:
    own = replace(PLAN, args={"max_model_len": 4_096}, same_as=("default",))
    found = verdict(own, run("off", 12.0, 11.9, 12.1))
    assert (found.better, found.can_go) == (None, ())
    assert found.verdict == (
        "Change nothing: the plan is vLLM's default, time for all requests 10.00 s; off is "
        "20 % slower."
    )
    assert verdict(own, run("off", 9.0, 8.9, 9.1)).better == "off"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param(run("off", 9.8, 9.7, 9.95), "off is a tie", id="the spreads overlap"),
        pytest.param(run("off", 9.75, 9.74, 9.76), "off is 2.5 % faster", id="less than 3 %"),
        pytest.param(run("off", 12.0, 11.9, 12.1), "off is 20 % slower", id="slower"),
        pytest.param(failed("off"), "off: out of memory", id="it did not run"),
        pytest.param(failed("default"), "default: out of memory", id="the default did not run"),
    ],
)
def test_with_no_default_to_beat_the_plan_is_kept(other, why) -> None:
    found = verdict(PLAN, other)
    assert found.better is None
    assert found.verdict.startswith("Keep the plan: time for all requests 10.00 s; ")
    assert why in found.verdict


def test_the_best_of_several_better_rows_is_named() -> None:
    found = verdict(PLAN, run("a", 9.0, 9.0, 9.0), run("b", 8.0, 8.0, 8.0))
    assert found.better == "b"


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
    assert "vLLM's default was not measured" in verdict(PLAN).verdict


def test_without_a_plan_there_is_no_verdict() -> None:
    assert verdict(run("endpoint", 1.0)).verdict is None


def test_a_latency_plan_is_judged_by_the_gaps() -> None:
    slow_but_smooth = run("small", 20.0, 20.0, 20.0, gap_s=0.005)
    found = verdict(PLAN, slow_but_smooth, objective=Objective.LATENCY)
    assert found.better == "small"
    assert "worse: time for all requests 20.0 s instead of 10.0 s (+100 %)" in found.verdict


def test_at_a_rate_the_latency_of_requests_decides() -> None:
    """How long all of it takes is then the rate's doing."""
    assert goal_of(Objective.THROUGHPUT, "4/s") is E2E_P95
    rated = replace(WORKLOAD, arrivals="4/s")
    assert "p95 whole answer" in verdict(PLAN, run("off", 10.0, 10.0), workload=rated).verdict


def test_figures_are_found_by_their_names_in_the_artefact() -> None:
    made = figures(10.0, gap_s=0.01)
    assert MAKESPAN.value(made) == 10.0
    assert ITL_P99.value(made) == pytest.approx(0.03)
    assert ITL_MAX.among("short").of(made) == pytest.approx(0.04)
    assert ITL_MAX.among("long").of(made) is None
    assert MAKESPAN.value(None) is None


def test_a_ratio_to_what_was_not_measured_is_not_known() -> None:
    assert ratio(PLAN, failed("off"), MAKESPAN) is None


# -- where the plan was made for limits ------------------------------------------------------------

LIMITS = read_slo("ttft_p95=1s,itl_p99=50ms")


def using(one, *uses):
    """The same run, with so much of the tightest limit used in its repeats."""
    repeats = tuple(
        replace(repeat, slo_use=use) for repeat, use in zip(one.repeats, uses, strict=True)
    )
    return replace(one, repeats=repeats, figures=replace(one.figures, slo_use=uses[0]))


def by_limits(*runs):
    return judged(verification(*runs), Objective.THROUGHPUT, LIMITS)


def test_a_plan_that_keeps_limits_the_default_breaks_stays_though_it_is_slower() -> None:
    kept = using(run("plan", 12.0, 11.9, 12.1), 0.84, 0.83, 0.85)
    found = by_limits(kept, using(run("default", 10.0, 9.9, 10.1), 3.16, 3.0, 3.2))
    assert (found.better, found.can_go) == (None, ())
    assert found.verdict.startswith(
        "Keep the plan: use of the tightest limit (100 % keeps it) 84 % instead of 316 % with "
        "vLLM's default"
    )
    assert "worse: time for all requests 12.0 s instead of 10.0 s (+20 %)" in found.verdict


def test_a_default_with_about_the_same_room_needs_no_flag() -> None:
    plan = using(PLAN, 0.80, 0.79, 0.81)
    default = run("default", 12.5, 12.4, 12.6)
    assert by_limits(plan, using(default, 0.88, 0.87, 0.89)).can_go == ("max_num_batched_tokens",)
    assert by_limits(plan, using(default, 0.91, 0.90, 0.92)).can_go == ()


def test_a_row_with_more_room_is_better_than_the_plan() -> None:
    found = by_limits(
        using(PLAN, 1.3, 1.2, 1.4), using(run("default", 20.0, 19.0, 21.0), 0.5, 0.5, 0.5)
    )
    assert found.better == "default"
    assert "50 % instead of 130 %" in found.verdict
