"""How many samples or requests to keep under way, and what more would do."""

from dataclasses import replace
from typing import Any

import pytest

from chunkscope.artefacts.artefact import Numbers, built, plain
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.lengths.sessions import Sessions
from chunkscope.planning.emit import emit
from chunkscope.planning.plan import ConcurrencyAnswer, Plan
from chunkscope.planning.predict import SimulateOptions, predict
from chunkscope.planning.recommend import recommend
from tests import build

TURNS = 6
FIRST_TOKENS = 4_000
NEW_TOKENS = 2_000
ANSWER_TOKENS = 100


def agents(samples: int, **about: Any) -> DatasetProfile:
    """Contexts grow to 14,500 tokens; half a second between turns."""
    prompts, kept = [], []
    for turn in range(TURNS):
        prompts.append(FIRST_TOKENS + turn * (NEW_TOKENS + ANSWER_TOKENS))
        kept.append(prompts[-1] - NEW_TOKENS if turn else 0)
    count = samples * TURNS
    sessions = Sessions(
        turns=Numbers([TURNS] * samples),
        prompt_tokens=Numbers(prompts * samples),
        kept_tokens=Numbers(kept * samples),
        output_tokens=Numbers([ANSWER_TOKENS] * count),
        think_ms=Numbers([500] * count),
        system_tokens=1_000,
        **about,
    )
    return replace(
        build.dataset("agents", prompts * samples),
        output_lengths=LengthHistogram({ANSWER_TOKENS: count}),
        sessions=sessions,
    )


def planned(*datasets: DatasetProfile, **asked: Any) -> Plan:
    """An 8B model on a GPU whose KV cache holds some of the contexts."""
    profile: Profile = replace(build.profile(a=[1]), datasets=datasets)
    return recommend(
        profile, model="qwen3-8b", gpu="l40s", vllm_version="0.24", **asked
    )


def answer_of(plan: Plan) -> ConcurrencyAnswer:
    if plan.concurrency is None:
        raise AssertionError("nothing was simulated")
    return plan.concurrency


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned(agents(40))


def test_fewer_samples_than_there_are_is_best_where_the_cache_holds_no_more(
    plan: Plan,
) -> None:
    answer = answer_of(plan)
    best, every = answer.point(answer.advised), answer.point(None)

    assert best is not None
    assert every is not None
    assert answer.unit == "samples"
    assert 1 < answer.advised < answer.samples == 40
    assert best.hours < every.hours
    assert best.served_from_cache > every.served_from_cache
    assert best.ttft_p95_s < every.ttft_p95_s


def test_the_time_is_for_the_advised_number_where_nobody_names_one(plan: Plan) -> None:
    answer = answer_of(plan)
    best = answer.point(answer.advised)

    assert plan.cost is not None
    assert best is not None
    assert plan.cost.client == answer.advised
    assert plan.cost.hours == pytest.approx(best.hours)


def test_a_smaller_type_of_the_cache_lets_more_samples_run(plan: Plan) -> None:
    changes = {change.code: change for change in answer_of(plan).changes}

    assert changes["fp8_kv_cache"].at_once > answer_of(plan).advised
    assert {"kv_offload", "other_gpu", "shorter_context"} <= changes.keys()


def test_inspect_is_told_the_number(plan: Plan) -> None:
    at_once = answer_of(plan).advised
    words = emit(plan, "inspect").text

    assert f"--max-samples {at_once} --max-connections {at_once}" in words


def test_a_plan_with_sessions_is_read_back_and_simulated_alike(plan: Plan) -> None:
    profile = replace(build.profile(a=[1]), datasets=(agents(40),))
    simulation = predict(plan, profile, SimulateOptions())

    assert built(Plan, plain(plan)) == plan
    assert plan.run is not None
    assert simulation.runs[0].figures == plan.run.figures


def test_a_simulation_has_a_row_for_each_request(plan: Plan) -> None:
    profile = replace(build.profile(a=[1]), datasets=(agents(40),))
    rows = predict(plan, profile, SimulateOptions()).to_frame()

    assert len(rows) == 40 * TURNS
    assert list(rows.columns) == [
        "setting",
        "session",
        "turn",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "start_s",
        "first_token_s",
        "end_s",
    ]
    assert (rows.start_s < rows.first_token_s).all()


def test_the_client_of_the_log_is_what_the_time_is_for() -> None:
    plan = planned(agents(16, at_once=2))
    answer = answer_of(plan)

    assert plan.cost is not None
    assert (plan.cost.client, answer.client) == (2, 2)
    assert answer.advised > 2


def test_a_sample_whose_context_is_too_long_ends_and_is_counted() -> None:
    answer = answer_of(planned(agents(8), max_model_len=10_000))

    assert answer.outgrow == 8


# -- prompts that are sent several times -------------------------------------------


def test_many_long_answers_are_not_all_sent_at_once() -> None:
    """So that a request takes minutes, at the same time for all."""
    plan = planned(
        build.dataset("problems", [150] * 10), samples=24, output="p50=1k,p95=3k"
    )
    answer = answer_of(plan)
    best, every = answer.point(answer.advised), answer.points[-1]

    assert plan.cost is not None
    assert plan.cost.requests == 240
    assert best is not None
    assert best.hours <= 1.03 * every.hours
    assert best.e2e_p95_s <= every.e2e_p95_s


def test_requests_that_outlast_the_client_are_counted() -> None:
    answer = answer_of(
        planned(build.dataset("a", [150] * 40), max_output=2_000, e2e_timeout=10)
    )

    assert answer.timeouts == 40


def test_longer_answers_are_priced_where_nobody_counted_them() -> None:
    assumed = planned(build.dataset("a", [500] * 60))
    counted = planned(
        build.dataset("a", [500] * 60, output_lengths=LengthHistogram({256: 60}))
    )

    assert assumed.cost is not None
    assert counted.cost is not None
    assert assumed.cost.hours_per_1000_output_tokens > assumed.cost.hours
    assert counted.cost.hours_per_1000_output_tokens is None


# -- suites ------------------------------------------------------------------------


def test_datasets_are_sent_one_after_the_other_and_their_times_add_up() -> None:
    plan = planned(agents(8), build.dataset("questions", [300] * 200))

    assert plan.cost is not None
    hours = [work.hours for work in plan.cost.datasets.values()]
    assert list(plan.cost.datasets) == ["agents", "questions"]
    assert plan.cost.hours == pytest.approx(sum(hours))


def test_datasets_may_be_sent_together() -> None:
    datasets = [build.dataset(name, [300] * 40) for name in "ab"]
    apart, together = planned(*datasets), planned(*datasets, together=True)

    assert apart.cost is not None
    assert together.cost is not None
    assert together.cost.hours < apart.cost.hours
    assert together.cost.datasets == {}
