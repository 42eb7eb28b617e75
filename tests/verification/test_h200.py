"""What was measured on an H200 is committed.

Here it is held against what is said of it.
"""

from dataclasses import replace

import pytest

from chunkscope.models import find_model
from chunkscope.verification.verify import with_prediction
from tests.h200 import FOLDER, Scenario, advice_table, measured, scenarios, table

README = (FOLDER / "README.md").read_text()
RUNS = [
    pytest.param(verification, run, id=f"{name}: {run.setting}")
    for name, verification in measured().items()
    for run in verification.runs
]


def test_the_readme_shows_what_was_measured():
    assert table() in README


def test_two_models_were_measured_over_three_kinds_of_data():
    names = set()
    for model in ("llama-3.1-8b", "qwen2.5-1.5b"):
        names |= {f"{model}-{data}" for data in ("short", "mixed", "long")}
    assert names <= set(measured())


def test_they_ran_on_one_machine_and_each_has_a_plan():
    for verification in measured().values():
        machine = verification.machine
        assert (machine.gpu, machine.vllm) == ("NVIDIA H200", "0.24.0")
        assert verification.model.dummy
        assert verification.run("plan")


@pytest.mark.parametrize(("verification", "run"), RUNS)
def test_predicted_memory_is_close_and_as_it_was_committed(verification, run):
    bare = replace(run, predicted=None)
    shape = find_model(verification.model.name)
    today = with_prediction(bare, shape, verification)
    tokens = pytest.approx(run.kv_cache_tokens, rel=0.005)
    assert today.predicted.kv_cache_tokens == tokens
    assert today.predicted == run.predicted


NAMES = sorted(path.parent.name for path in FOLDER.glob("advice/*/verify.json"))


@pytest.fixture(scope="module")
def tried() -> dict[str, Scenario]:
    return {scenario.name: scenario for scenario in scenarios()}


@pytest.fixture(params=NAMES)
def scenario(tried: dict[str, Scenario], request: pytest.FixtureRequest) -> Scenario:
    return tried[request.param]


def test_there_are_eleven_scenarios_and_the_table_has_every_row(tried):
    assert len(tried) == 11
    assert advice_table(list(tried.values())) in README


def test_no_plan_was_slower_than_vllms_default_beyond_the_spread(scenario):
    """Where there are limits they decide, and the plan keeps them."""
    plan = scenario.ours
    default = scenario.default
    if scenario.plan.request.slo:
        assert plan.figures.slo_use <= 1 < default.figures.slo_use
        return
    least = min(repeat.makespan_s for repeat in plan.repeats)
    assert least <= max(repeat.makespan_s for repeat in default.repeats)


def test_where_a_gain_was_promised_at_least_half_of_it_was_there(scenario):
    if scenario.promised is not None:
        assert scenario.gained >= scenario.promised / 2


def test_prefix_hits_were_as_predicted(scenario):
    predicted = scenario.ours.predicted_prefix_hit_rate
    rate = scenario.ours.figures.prefix_hit_rate
    assert rate == pytest.approx(predicted, abs=0.003)


@pytest.mark.parametrize("name", ["plan", "default"])
def test_verify_predicts_what_simulate_does_to_the_last_digit(scenario, name):
    """Of the very requests that were sent, for the plan and for vLLM's default."""
    verification = scenario.verification
    run = verification.run(name)
    if run is None:  # the default was not measured beside every plan
        return
    shape = scenario.plan.deployment.shape
    today = with_prediction(run, shape, verification)
    assert today.predicted_figures == scenario.simulated[name]
