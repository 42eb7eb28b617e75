"""What was measured on an H200 is committed; here it is held against what is said of it."""

from dataclasses import replace

import pytest

from chunkscope.models import find_model
from chunkscope.planning.request import PlanRequest
from chunkscope.verification.predicting import with_prediction
from tests.h200 import FOLDER, Scenario, advice_table, measured, scenarios, table

README = (FOLDER / "README.md").read_text()
RUNS = [
    pytest.param(verification, run, id=f"{name}: {run.setting}")
    for name, verification in measured().items()
    for run in verification.runs
]


def test_the_readme_shows_what_was_measured_of_two_models_over_three_kinds_of_data() -> (
    None
):
    assert table() in README
    models, data = ("llama-3.1-8b", "qwen2.5-1.5b"), ("short", "mixed", "long")
    assert {f"{m}-{d}" for m in models for d in data} <= set(measured())
    there = {
        (v.machine.gpu, v.machine.vllm, v.model.dummy) for v in measured().values()
    }
    assert there == {("NVIDIA H200", "0.24.0", True)}
    assert all(v.run("plan") for v in measured().values())


@pytest.mark.parametrize(("verification", "run"), RUNS)
def test_predicted_memory_is_close_and_as_it_was_committed(verification, run) -> None:
    """From 2,048 tokens per step to 34,816."""
    bare = replace(run, predicted=None)
    v, shape = verification, find_model(verification.model.name)
    today = with_prediction(bare, shape, v.machine, v.workload, PlanRequest())
    assert today.predicted.kv_cache_tokens == pytest.approx(
        run.kv_cache_tokens, rel=0.005
    )
    assert today.predicted == run.predicted


NAMES = sorted(path.parent.name for path in FOLDER.glob("advice/*/verify.json"))


@pytest.fixture(scope="module")
def tried() -> dict[str, Scenario]:
    return {one.name: one for one in scenarios()}


@pytest.fixture(params=NAMES)
def one(tried: dict[str, Scenario], request: pytest.FixtureRequest) -> Scenario:
    return tried[request.param]


def test_there_are_eleven_scenarios_and_the_table_has_every_row(tried) -> None:
    assert len(tried) == 11
    assert advice_table(list(tried.values())) in README


def test_no_plan_was_slower_than_vllms_default_beyond_the_spread(one) -> None:
    """Where there are limits they decide, and the plan keeps them."""
    if one.plan.request.slo:
        assert one.ours.figures.slo_use <= 1 < one.default.figures.slo_use
        return
    least = min(repeat.makespan_s for repeat in one.ours.repeats)
    assert least <= max(repeat.makespan_s for repeat in one.default.repeats)


def test_where_a_gain_was_promised_at_least_half_of_it_was_there(one) -> None:
    if one.promised is not None:
        assert one.gained >= one.promised / 2


def test_prefix_hits_were_as_predicted(one) -> None:
    figures = one.ours.figures
    assert figures.prefix_hit_rate == pytest.approx(
        one.ours.predicted_prefix_hit_rate, abs=0.003
    )


def test_verify_predicts_what_simulate_does_to_the_last_digit(one) -> None:
    """Of the very requests that were sent, for the plan and for vLLM's default."""
    there, v = one.plan.deployment, one.verification
    for name in ("plan", "default"):
        run = v.run(name)
        if run is not None:
            beside = (there.shape, v.machine, v.workload, one.plan.request, there.entry)
            today = with_prediction(run, *beside)
            assert today.predicted_figures == one.simulated[name]
