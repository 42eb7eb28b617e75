"""From Python: the commands' names and values, and what a notebook shows."""

import json
from dataclasses import replace
from inspect import signature
from shutil import copytree

import pytest

import chunkscope
from chunkscope.cli import COMMANDS
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.findings import load_findings
from tests.commands.helpers import chunkscope as command
from tests.commands.test_command_line import command as typer_command
from tests.conftest import REPOSITORY

PROFILE = REPOSITORY / "reports" / "example" / "profile.json"
VERIFY = REPOSITORY / "reports" / "h200" / "llama-3.1-8b-mixed" / "verify.json"


@pytest.fixture(scope="module")
def plan():
    return chunkscope.recommend(PROFILE, model="qwen2.5-1.5b", gpu="l4", requests=100)


# -- functions -------------------------------------------------------------------------

# Of the terminal alone.
SHOWN = {"details", "json", "quiet", "out", "form", "help", "skip_bad_rows"}
# What Python does with the value that it gets back.
RETURNED = {
    "recommend": {"emit", "anyway", "check"},
    "gate": {"init", "force"},
}
FUNCTIONS = {
    "analyze": chunkscope.analyze,
    "recommend": chunkscope.recommend,
    "simulate": chunkscope.simulate,
    "verify": chunkscope.verify,
    "gate": chunkscope.gate,
    "doctor": chunkscope.doctor,
    "prefixes": chunkscope.prefix_sharing,
    "report": chunkscope.write_report,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_option_of_a_command_is_a_keyword_of_its_function(name):
    options = set()
    for parameter in typer_command(name).params:
        if parameter.param_type_name == "option":
            options.add(parameter.name)

    keywords = set(signature(FUNCTIONS[name]).parameters)

    assert options - SHOWN - RETURNED.get(name, set()) <= keywords


def test_every_command_about_data_or_an_engine_has_a_function():
    without = {"memory", "demo", "models", "gpus", "help"}  # memory and demo have one

    assert COMMANDS.keys() - without == FUNCTIONS.keys()
    assert callable(chunkscope.memory)
    assert callable(chunkscope.demo)


def test_a_mistyped_keyword_is_pythons_own_error():
    with pytest.raises(TypeError, match="feild"):
        chunkscope.analyze(PROFILE, feild="question")


@pytest.mark.parametrize("word", ["task", "mode", "order", "entry", "slo", "arrivals"])
def test_an_unknown_word_is_an_error_that_names_the_argument(word):
    with pytest.raises(UsageError, match=word):
        chunkscope.recommend(PROFILE, model="qwen3-8b", gpu="l4", **{word: "nonsense"})


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"sample": 0}, id="no rows"),
        pytest.param({"limit": -1.0}, id="a negative limit"),
        pytest.param({"task": "a"}, id="no such task"),
    ],
)
def test_a_wrong_option_of_analyze_is_named(wrong):
    (name,) = wrong
    with pytest.raises(UsageError, match=name):
        chunkscope.analyze("lm-eval:a", **wrong)


@pytest.mark.parametrize("rows", [[{}], {}], ids=["rows", "a row"])
def test_rows_instead_of_a_path_are_told_to_be_written(rows):
    with pytest.raises(UsageError, match="not a name"):
        chunkscope.analyze(rows)


@pytest.mark.parametrize("tokens", [0, "256", 2.5, True])
def test_a_step_has_a_whole_number_of_tokens(plan, tokens):
    with pytest.raises(ChunkscopeError, match="max_num_batched_tokens"):
        chunkscope.simulate(plan, PROFILE, max_num_batched_tokens=tokens)


def test_a_trace_is_simulated_without_a_profile(tmp_path, plan):
    trace = tmp_path / "a.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2}\n')

    assert chunkscope.simulate(plan, trace=trace).workload.requests == 1


def test_a_plan_is_that_of_the_command_line(tmp_path, plan):
    machine = ("--model", "qwen2.5-1.5b", "--gpu", "l4")
    words = ("recommend", PROFILE, *machine, "--requests", "100", "--json")

    document = json.loads(command(tmp_path, *words).out)

    assert document["settings"] == json.loads(json.dumps(plan.to_json()["settings"]))


# -- values ----------------------------------------------------------------------------


@pytest.fixture(
    params=["profile", "plan", "simulation", "verification", "memory"],
)
def value(request, plan):
    if request.param == "profile":
        return chunkscope.Profile.load(PROFILE)
    if request.param == "plan":
        return plan
    if request.param == "simulation":
        return chunkscope.simulate(plan, PROFILE, slo=["ttft_p95=1s", "itl_p99=50ms"])
    if request.param == "verification":
        return chunkscope.Verification.load(VERIFY)
    return chunkscope.memory("qwen3-8b", "h100")


def test_a_value_is_a_frame(value):
    assert len(value.to_frame())


def test_a_value_is_shown_on_one_line(value):
    assert "\n" not in repr(value)


def test_a_notebook_shows_a_table(value):
    assert "<table" in value._repr_html_()


# -- folders of results ----------------------------------------------------------------


def test_a_plan_of_several_profiles_is_found_with_all_of_them(tmp_path):
    profile = chunkscope.Profile.load(PROFILE)
    replace(profile, datasets=profile.datasets[:2]).save(tmp_path / "reports/a.json")
    replace(profile, datasets=profile.datasets[2:]).save(tmp_path / "reports/b.json")
    command(tmp_path, "recommend", "reports/a.json", "reports/b.json")

    findings = load_findings(tmp_path / "reports")

    assert findings.profile.overall == profile.overall
    assert findings.plan_is_of_this_profile


def test_a_copied_folder_has_its_own_profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    profile = chunkscope.Profile.load(PROFILE)
    old = replace(profile, datasets=profile.datasets[:2])
    old.save()
    assert command(tmp_path, "recommend").code == 0
    copytree("reports", "old")
    # The plan names reports/profile.json, which holds other data from now on.
    replace(profile, datasets=profile.datasets[2:]).save()

    assert load_findings(tmp_path / "old").profile.datasets == old.datasets
