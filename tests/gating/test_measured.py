"""[gate.memory], [gate.slo], [gate.speed], [gate.outputs], [gate.doctor]."""

import pytest

from chunkscope.diagnosis.doctor import doctor
from chunkscope.errors import InputError
from tests.build import SHORT, advised, failed, figures, profile, run
from tests.report import examples


def measured(**more):
    return run(figures=figures(2.0, **more), repeats=(figures(2.0, **more),) * 2)


def test_a_figure_may_be_as_bad_as_the_limit(place):
    place.save_verification(measured())
    for key, passes, fails in (
        ("ttft_p95", "400ms", "399.9ms"),
        ("itl_max", "40ms", "39.9ms"),
        ("e2e_p95", "2s", "1.99s"),
        ("makespan", "2s", "1.99s"),
        ("output_tokens_per_s", "8", "9"),
    ):
        assert place.one(f'[speed]\n{key} = "{passes}"').passed, key
        check = place.one(f'[speed]\n{key} = "{fails}"')
        assert (check.passed, check.value is None) == (False, False), key


def test_what_was_not_measured_fails(place):
    place.save_verification(measured())
    check = place.one('[outputs]\nequal = "10%"')
    assert (check.passed, check.value) == (False, None), (
        "random weights are no evidence"
    )
    place.save_verification(measured(gap_s=None))
    check = place.one('[speed]\nitl_p95 = "99h"')
    assert (check.passed, check.value) == (False, None)
    place.save_verification(failed())
    assert not place.one("[speed]\noutput_tokens_per_s = 1").passed
    place.save_verification(run("default"))
    check = place.one('[speed]\nttft_p95 = "99h"')
    assert check.reason.values == {"count": 0, "setting": "plan", "names": "default"}
    assert place.one('[speed]\nsetting = "default"\nttft_p95 = "99h"').passed
    place.save_verification(run(), run("other", same_as=("plan",)))
    assert not place.one('[speed]\nttft_p95 = "99h"').passed, "two runs of one name"


def test_a_missing_artefact_is_an_error_and_never_a_pass(place):
    place.save_profile()
    for budget, name in (
        ("[speed]\nttft_p95 = '1s'", "verify"),
        ("[doctor]\nkv_use = '1%'", "doctor"),
    ):
        with pytest.raises(InputError, match=rf"{name}\.json"):
            place.gate(budget)


def test_what_is_predicted_of_the_plan_has_limits_too(place):
    plan = advised(SHORT)
    profile(data=SHORT).save(place.reports / "profile.json")
    plan.save(place.reports / "plan.json")
    seconds = plan.run.figures.makespan_s
    assert place.one(f'[slo]\nmakespan = "{seconds * 1.01:.6f}s"').passed
    check = place.one(f'[slo]\nmakespan = "{seconds * 0.99:.6f}s"')
    assert (check.passed, check.value) == (False, seconds)
    place.save_plan(place.save_profile(data=SHORT), model=None, gpu=None)
    assert not place.one('[slo]\nmakespan = "99h"').passed, "nothing was simulated"


def test_memory_is_checked_as_predicted_and_as_measured(place):
    made = place.save_profile()
    plan = place.save_plan(made)
    peak = plan.memory.line("activation").gib + plan.memory.line("sampler").gib
    budget = '[memory.{}]\nactivation_peak = "{:.3f}GiB"'
    assert place.one(budget.format("predicted", peak + 0.001)).passed
    assert not place.one(budget.format("predicted", peak - 0.001)).passed
    place.save_verification(run())
    assert place.one(budget.format("measured", 0.5)).passed
    assert not place.one(budget.format("measured", 0.499)).passed
    held = plan.requests_of(plan.decision.p95)
    assert place.one(f"[memory.predicted]\nkv_requests_of_p95 = {held}").passed
    assert not place.one(f"[memory.predicted]\nkv_requests_of_p95 = {held + 1}").passed
    assert not place.one("[memory.measured]\nkv_requests_of_p95 = 1").passed, (
        "predicted alone"
    )
    place.save_plan(made, model=None, gpu=None, dataset="data")
    check = place.one('[memory.predicted]\nactivation_peak = "999GiB"')
    assert (check.passed, check.subject) == (False, "plan, data alone")


def test_what_a_log_says_has_limits(place):
    diagnosis = doctor(examples.LOG)
    diagnosis.save(place.reports / "doctor.json")
    count = len(diagnosis.symptoms)
    assert place.one(f"[doctor]\nfindings = {count}").passed
    assert not place.one(f"[doctor]\nfindings = {count - 1}").passed
