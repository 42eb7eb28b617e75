"""[gate.memory], [gate.slo], [gate.speed], [gate.outputs], [gate.doctor]."""

import pytest

from chunkscope.diagnosis.doctor import doctor
from chunkscope.errors import InputError
from chunkscope.verification.result import RunOutputs, Subject
from tests.build import SHORT, advised, failed, figures, profile, run
from tests.report import examples


def measured(**more):
    """A run that took two seconds, twice."""
    times = figures(2.0, **more)
    return run(figures=times, repeats=(times, times))


# -- [gate.speed] ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "passes", "fails"),
    [
        ("ttft_p95", "400ms", "399.9ms"),
        ("itl_max", "40ms", "39.9ms"),
        ("e2e_p95", "2s", "1.99s"),
        ("makespan", "2s", "1.99s"),
        ("output_tokens_per_s", "8", "9"),
    ],
)
def test_a_figure_may_be_as_bad_as_the_limit(place, key, passes, fails):
    place.save_verification(measured())
    assert place.one(f'[speed]\n{key} = "{passes}"').passed
    check = place.one(f'[speed]\n{key} = "{fails}"')
    assert not check.passed
    assert check.value is not None


@pytest.mark.parametrize(
    ("measured_run", "key"),
    [
        pytest.param(measured(gap_s=None), "itl_p95", id="no second token"),
        pytest.param(failed(), "ttft_p95", id="a run that failed"),
        pytest.param(run("default"), "ttft_p95", id="another setting"),
    ],
)
def test_what_was_not_measured_fails(place, measured_run, key):
    place.save_verification(measured_run)
    check = place.one(f'[speed]\n{key} = "99h"')
    assert (check.passed, check.value) == (False, None)


@pytest.mark.parametrize(
    ("budget", "name"),
    [
        ("[speed]\nttft_p95 = '1s'", "verify"),
        ("[doctor]\nfindings = 0", "doctor"),
        ("[slo]\nmakespan = '1s'", "plan"),
    ],
)
def test_a_missing_artefact_is_an_error_and_never_a_pass(place, budget, name):
    place.save_profile()
    with pytest.raises(InputError, match=rf"{name}\.json"):
        place.gate(budget)


# -- [gate.outputs] --------------------------------------------------------------------


EQUAL_ANSWERS = RunOutputs(answers=((1,),), again=1.0, reference="default", equal=0.9)
OWN_WEIGHTS = Subject(name="tiny", load_format="auto")


@pytest.mark.parametrize(("limit", "passed"), [("90%", True), ("91%", False)])
def test_the_share_of_equal_answers_has_a_limit(place, limit, passed):
    place.save_verification(run(outputs=EQUAL_ANSWERS), model=OWN_WEIGHTS)
    check = place.one(f'[outputs]\nequal = "{limit}"')
    assert (check.passed, check.value) == (passed, 0.9)


def test_answers_of_random_weights_are_no_evidence(place):
    place.save_verification(run(outputs=EQUAL_ANSWERS))
    check = place.one('[outputs]\nequal = "10%"')
    assert (check.passed, check.value) == (False, None)
    assert check.reason.code == "gate_random_weights"


def test_answers_that_were_not_compared_fail(place):
    place.save_verification(measured())
    check = place.one('[outputs]\nequal = "10%"')
    assert (check.passed, check.value) == (False, None)
    assert check.reason.code == "gate_outputs_not_compared"


# -- [gate.slo] ------------------------------------------------------------------------


@pytest.mark.parametrize(("times", "passed"), [(1.01, True), (0.99, False)])
def test_what_is_predicted_of_the_plan_has_limits(place, times, passed):
    plan = advised(SHORT)
    profile(data=SHORT).save(place.reports / "profile.json")
    plan.save(place.reports / "plan.json")
    seconds = plan.run.figures.makespan_s
    check = place.one(f'[slo]\nmakespan = "{times * seconds:.6f}s"')
    assert (check.passed, check.value) == (passed, seconds)


def test_a_plan_that_was_not_simulated_fails(place):
    place.save_plan(place.save_profile(data=SHORT), model=None, gpu=None)
    assert not place.one('[slo]\nmakespan = "99h"').passed


# -- [gate.memory] ---------------------------------------------------------------------


@pytest.mark.parametrize(("more_gib", "passed"), [(0.001, True), (-0.001, False)])
def test_memory_is_checked_as_predicted(place, more_gib, passed):
    plan = place.save_plan(place.save_profile())
    peak = plan.memory.line("activation").gib + plan.memory.line("sampler").gib
    limit = f'activation_peak = "{peak + more_gib:.3f}GiB"'
    assert place.one(f"[memory.predicted]\n{limit}").passed is passed


@pytest.mark.parametrize(("limit", "passed"), [("0.5GiB", True), ("0.499GiB", False)])
def test_memory_is_checked_as_measured(place, limit, passed):
    place.save_verification(run())
    check = place.one(f'[memory.measured]\nactivation_peak = "{limit}"')
    assert check.passed is passed


@pytest.mark.parametrize(("more", "passed"), [(0, True), (1, False)])
def test_the_kv_cache_has_to_hold_as_many_requests(place, more, passed):
    plan = place.save_plan(place.save_profile())
    count = plan.requests_of(plan.decision.p95) + more
    check = place.one(f"[memory.predicted]\nkv_requests_of_p95 = {count}")
    assert check.passed is passed


def test_requests_that_the_kv_cache_holds_are_predicted_alone(place):
    place.save_verification(run())
    assert not place.one("[memory.measured]\nkv_requests_of_p95 = 1").passed


def test_memory_without_a_model_is_not_known_and_the_dataset_is_named(place):
    place.save_plan(place.save_profile(), model=None, gpu=None, dataset="data")
    check = place.one('[memory.predicted]\nactivation_peak = "999GiB"')
    assert (check.passed, check.subject) == (False, "plan, data alone")


# -- [gate.doctor] ---------------------------------------------------------------------


def test_what_a_log_says_has_limits(place):
    diagnosis = doctor(examples.LOG)
    diagnosis.save(place.reports / "doctor.json")
    count = len(diagnosis.symptoms)
    assert place.one(f"[doctor]\nfindings = {count}").passed
    assert not place.one(f"[doctor]\nfindings = {count - 1}").passed
