"""The verdict: the plan stays unless another row is better by more than noise."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.figures import BY_KEY, MAKESPAN
from chunkscope.report.verification import headline as measured_answer
from chunkscope.report.verification import measured_on
from chunkscope.report.verification import outputs_sentences as outputs_words
from chunkscope.simulation.slo import read_slo
from chunkscope.verification.result import Conclusion, MeasuredVerdict, RunOutputs
from chunkscope.verification.verdict import (
    is_noise,
    is_tie,
    judge,
    judged,
    with_outputs_compared,
    worse_figures,
)
from chunkscope.vllm.settings import Settings
from tests.build import WORKLOAD, failed, run, verification

PLAN = run("plan", 10.0, 9.9, 10.1)
STEADY = run("plan", 10.0, 9.99, 10.01)
NO_FLAG = Settings(max_model_len=4_096)
LIMITS = read_slo("ttft_p95=1s,itl_p99=50ms")


def verdict(*runs, slo=(), **more) -> MeasuredVerdict:
    return judged(verification(*runs, slo=slo, **more)).verdict


@pytest.mark.parametrize(
    ("default", "conclusion"),
    [
        pytest.param(
            (10.05, 9.95, 10.2), Conclusion.DROP_FLAGS, id="the spreads overlap"
        ),
        pytest.param(
            (10.25, 10.24, 10.26), Conclusion.DROP_FLAGS, id="2.5 % is too little"
        ),
        pytest.param(
            (10.35, 10.34, 10.36), Conclusion.KEEP_PLAN, id="3.5 % is worth a flag"
        ),
        pytest.param(
            (9.0, 8.9, 9.1), Conclusion.USE_ANOTHER, id="the default is faster"
        ),
    ],
)
def test_a_flag_has_to_gain_three_per_cent_beyond_the_spread(default, conclusion):
    result = verdict(STEADY, run("default", *default))
    assert result.conclusion is conclusion
    assert result.use == ("plan" if conclusion is Conclusion.KEEP_PLAN else "default")
    dropped = conclusion is Conclusion.DROP_FLAGS
    assert result.drop == (("max_num_batched_tokens",) if dropped else ())


def test_what_all_rows_have_in_common_is_no_flag_that_can_go():
    """An expert-parallel plan and its default are the same engine otherwise."""
    common = {
        "max_model_len": 4_096,
        "enable_expert_parallel": True,
        "kv_cache_dtype": "fp8",
    }
    planned = replace(PLAN, settings=Settings(max_num_seqs=8, **common))
    default = run("default", 10.0, 9.9, 10.1, settings=Settings(**common))
    assert verdict(planned, default).drop == ("max_num_seqs",)


def test_a_row_that_beats_the_plan_and_the_default_is_to_be_used():
    default = run("default", 10.0, 9.9, 10.1)
    result = verdict(
        PLAN, default, run("small", 9.0, 8.9, 9.1), run("smaller", 8.0, 8.0, 8.0)
    )
    assert (result.conclusion, result.use) == (Conclusion.USE_ANOTHER, "smaller")


def test_what_only_ties_with_the_default_gives_way_to_it():
    near, small = run("default", 9.1, 9.0, 9.2), run("small", 9.0, 8.9, 9.1)
    assert verdict(PLAN, near, small).use == "default"
    default = run("default", 9.9, 9.89, 9.91)
    result = verdict(STEADY, default, run("small", 9.65, 9.64, 9.66))
    assert result.conclusion is Conclusion.DROP_FLAGS


def test_a_plan_that_is_the_default_changes_nothing_unless_a_row_is_better():
    default = replace(PLAN, settings=NO_FLAG, same_as=("default",))
    slower = verdict(default, run("off", 12.0, 11.9, 12.1))
    assert (slower.conclusion, slower.use) == (Conclusion.KEEP_DEFAULT, "plan")
    assert verdict(default, run("off", 9.0, 8.9, 9.1)).use == "off"


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([run("off", 9.8, 9.7, 9.95)], id="a tie without chunks"),
        pytest.param([failed("off")], id="none without chunks"),
        pytest.param([failed("default")], id="a default that failed"),
        pytest.param([], id="nothing else"),
    ],
)
def test_with_no_default_to_beat_the_plan_is_kept(others):
    assert verdict(PLAN, *others).conclusion is Conclusion.KEEP_PLAN


def test_when_the_plan_does_not_run_the_best_of_the_rest_is_to_be_used():
    result = verdict(failed("plan"), run("a", 9.0), run("b", 8.0))
    assert (result.conclusion, result.use) == (Conclusion.PLAN_FAILED, "b")
    assert verdict(failed("plan"), failed("off")).use is None
    assert verdict(run("endpoint", 1.0)) is None, "of no plan"


def test_at_a_given_rate_latency_decides_for_how_long_all_takes_is_the_rates_doing():
    rated = replace(WORKLOAD, arrivals="4/s")
    assert verdict(PLAN, workload=rated).goal == "e2e_s.p95"
    assert verdict(PLAN).goal == "makespan_s"


def using(measured, *uses):
    """The same run, with so much of the tightest limit used in its repeats."""
    repeats = []
    for repeat, use in zip(measured.repeats, uses, strict=True):
        repeats.append(replace(repeat, slo_use=use))
    figures = replace(measured.figures, slo_use=uses[0])
    return replace(measured, repeats=tuple(repeats), figures=figures)


def test_limits_decide_and_a_default_with_about_the_same_room_needs_no_flag():
    planned = using(run("plan", 12.0, 11.9, 12.1), 0.84, 0.83, 0.85)
    default = using(run("default", 10.0, 9.9, 10.1), 3.16, 3.0, 3.2)
    assert verdict(planned, default, slo=LIMITS).conclusion is Conclusion.KEEP_PLAN
    planned, default = using(PLAN, 0.80, 0.79, 0.81), run("default", 12.5, 12.4, 12.6)
    assert verdict(planned, using(default, 0.88, 0.87, 0.89), slo=LIMITS).drop
    assert not verdict(planned, using(default, 0.91, 0.90, 0.92), slo=LIMITS).drop


def test_with_one_repeat_small_differences_are_ties():
    assert is_tie(run("a", 61.5), run("b", 57.6), MAKESPAN)
    assert not is_tie(run("a", 61.5), run("b", 55.6), MAKESPAN)
    assert is_tie(run("a", 10.0, 9.9, 10.1), run("b", 10.2, 10.1, 10.3), MAKESPAN), (
        "they touch"
    )


@pytest.mark.parametrize(
    ("tokens", "outcome", "named"),
    [
        pytest.param(980, "tie", [], id="2 % of what is read once"),
        pytest.param(979, "worse", [], id="more than 2 %"),
        pytest.param(971, "worse", [], id="less than 3 %"),
        pytest.param(969, "worse", ["kv_cache_tokens"], id="3 %: worth a word"),
    ],
)
def test_how_much_less_is_worse(tokens, outcome, named):
    ours, theirs = (replace(PLAN, kv_cache_tokens=count) for count in (tokens, 1_000))
    assert judge(BY_KEY["kv_cache_tokens"], ours, theirs) == outcome
    assert [figure.key for figure in worse_figures(ours, theirs)] == named


def test_of_a_server_the_figure_that_decides_is_the_answer():
    assert measured_answer(verification(run("endpoint", 3.0))).endswith(
        "all requests 3.00 s (measured)."
    )
    died = verification(failed("endpoint"), repeats=3)
    assert measured_answer(died).startswith("Endpoint: out of memory")
    assert "median" not in measured_on(died), "of no figure"


# -- answers ---------------------------------------------------------------------------


def answering(setting: str, *answers: int):
    """A run with answers of one token each."""
    tokens = tuple((answer,) for answer in answers)
    return run(setting, outputs=RunOutputs(answers=tokens, again=1.0))


@pytest.mark.parametrize(
    ("settings", "compared"),
    [
        pytest.param(["plan"], [(None, None)], id="the first"),
        pytest.param(
            ["plan", "default"], [("default", 0.0), (None, None)], id="the default"
        ),
        pytest.param(
            ["plan", "default", "off"],
            [("off", 1.0), ("off", 0.0), (None, None)],
            id="without chunks",
        ),
    ],
)
def test_the_reference_is_without_chunks_else_the_default_else_the_first(
    settings, compared
):
    answers = {"plan": 5, "default": 6, "off": 5}
    runs = [answering(setting, answers[setting]) for setting in settings]
    result = with_outputs_compared(verification(failed("small"), *runs))
    outputs = [run.outputs for run in result.runs[1:]]
    assert [(one.reference, one.equal) for one in outputs] == compared


def test_without_answers_nothing_is_compared():
    result = with_outputs_compared(verification(run("plan"), failed("off")))
    assert [run.outputs for run in result.runs] == [None, None]


@pytest.mark.parametrize(
    ("equal", "noise"), [(0.95, True), (0.9, True), (0.85, False), (None, False)]
)
def test_no_more_differences_than_sending_again_makes_are_noise(equal, noise):
    reference = RunOutputs(answers=(), again=0.9)
    outputs = RunOutputs(answers=(), again=1.0, equal=equal)
    assert is_noise(outputs, reference) is noise


def test_only_answers_that_differ_are_explained():
    runs = [
        answering("plan", 5, 6),
        answering("max-num-seqs=8", 5, 5),
        answering("default", 5, 5),
    ]
    differs, same = outputs_words(with_outputs_compared(verification(*runs)))
    assert differs.startswith("The plan: 50 %")
    assert "rounding decides" in differs
    assert same.endswith("equal those of vLLM's default, 100 % when sent again.")
