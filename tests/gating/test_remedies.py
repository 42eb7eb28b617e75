"""The command after a failed check: it makes an artefact again, or accepts it."""

import pytest

from chunkscope.findings import load_findings
from chunkscope.gating.budget import parse_budget
from chunkscope.gating.gate import judge
from chunkscope.gating.remedies import command_for, commands_of
from tests.build import MIXED, run


@pytest.fixture
def full(place):
    made = place.save_profile(data=MIXED)
    plan = place.save_plan(made)
    place.save_verification(run("plan"), plan_digest=plan.digest())
    return place


def remedy(place, budget):
    (check,) = place.gate(budget).failed
    return check.remedy


@pytest.mark.parametrize(
    "budget",
    [
        '[slo]\nmakespan = "1ms"',
        "[data]\np95 = 9",
        '[memory.predicted]\nactivation_peak = "1MiB"',
        '[speed]\nttft_p95 = "1ms"',
    ],
)
def test_a_limit_is_moved_by_init(full, budget):
    words = remedy(full, budget).split()
    assert words[:2] == ["chunkscope", "gate"]
    assert words[3:] == [
        "--init",
        "--force",
        "--config",
        str(full.folder / "chunkscope.toml"),
    ]


def test_limits_in_pyproject_are_moved_by_hand(full):
    path = full.folder / "pyproject.toml"
    file = parse_budget("[tool.chunkscope.gate.data]\np95 = 9\n", path)
    (check,) = judge(file, load_findings(full.reports)).failed
    assert check.remedy == ""


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param("[data]\nmax_model_len = 9", id="a decision"),
        pytest.param('[outputs]\nequal = "99%"', id="a value that is not known"),
    ],
)
def test_no_command_is_offered_where_none_helps(full, budget):
    assert remedy(full, budget) == ""


def test_what_follows_from_a_stale_plan_has_one_cause_and_one_command(full):
    full.save_profile(data=[5, 6])
    budget = '[memory.predicted]\nactivation_peak = "1MiB"\n[freshness]\nplan = true'
    failed = full.gate(budget).failed
    assert [check.name for check in failed] == [
        "memory.predicted.activation_peak",
        "freshness.plan",
    ]
    for check in failed:
        assert check.cause.code == "made_from_another"
        assert check.remedy.startswith("chunkscope recommend")


def test_an_artefact_that_python_made_has_the_usual_command(place):
    place.save_profile()
    assert commands_of(load_findings(place.reports)) == {
        "analyze": "chunkscope analyze data/",
        "recommend": "chunkscope recommend",
        "verify": "chunkscope verify",
    }


def test_a_command_is_shown_as_it_was_typed():
    typed = ("chunkscope", "analyze", "a b", "--include", "*.jsonl")
    shown = "chunkscope analyze 'a b' --include '*.jsonl'"
    assert command_for(typed, "chunkscope analyze data/") == shown
