"""From Python: the commands' names and values, and what a notebook shows."""

import json
from dataclasses import replace
from html import escape
from inspect import signature
from shutil import copytree
from typing import Any

import pytest

import chunkscope
from chunkscope.commands import api
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.findings import load_findings
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.planning.predict import SimulateOptions
from chunkscope.planning.recommend import recommend
from chunkscope.planning.request import PlanRequest
from chunkscope.report.plan import headline as answer
from chunkscope.verification.options import VerifyOptions
from chunkscope.vllm.settings import Settings
from tests.commands.helpers import chunkscope as command
from tests.commands.test_surface import COMMANDS
from tests.conftest import REPOSITORY

PROFILE = REPOSITORY / "reports" / "example" / "profile.json"
VERIFY = REPOSITORY / "reports" / "h200" / "llama-3.1-8b-mixed" / "verify.json"


@pytest.fixture(scope="module")
def plan():
    return chunkscope.recommend(PROFILE, model="qwen2.5-1.5b", gpu="l4")


def test_a_plan_is_that_of_the_command_line(tmp_path, plan):
    words = ("recommend", PROFILE, "--model", "qwen2.5-1.5b", "--gpu", "l4", "--json")
    document = json.loads(command(tmp_path, *words).out)
    assert document["settings"] == json.loads(json.dumps(plan.to_json()["settings"]))
    assert (
        chunkscope.Plan.load(str(tmp_path / "reports" / "plan.json")).digest()
        == plan.digest()
    )


@pytest.mark.parametrize("word", ["task", "mode", "order", "entry", "slo", "arrivals"])
def test_an_unknown_word_is_an_error_that_names_the_argument(word):
    with pytest.raises(UsageError, match=word):
        chunkscope.recommend(
            PROFILE, model="qwen3-8b", gpu="l4", **{word: ["nonsense"]}
        )


def test_simulate_takes_a_text_for_a_trace_and_refuses_a_step_of_no_tokens(
    tmp_path, plan
):
    (trace := tmp_path / "a.jsonl").write_text(
        '{"timestamp": 0, "input_length": 9, "output_length": 2}\n'
    )
    assert chunkscope.simulate(plan, trace=str(trace)).workload.requests == 1
    for wrong in (
        {"profile": []},
        *({"max_num_batched_tokens": n} for n in (0, "256", 2.5, True)),
    ):
        with pytest.raises(ChunkscopeError, match=r"no profile|max_num_batched_tokens"):
            chunkscope.simulate(plan, **{"profile": PROFILE, **wrong})


def test_a_mistyped_keyword_is_named_as_it_is_written_and_other_mistakes_as_they_are_made():
    with pytest.raises(UsageError, match="feild") as raised:
        chunkscope.analyze(PROFILE, feild="question")
    assert raised.value.hint == "did you mean field?"
    for name, value in {
        "timeout": -1,
        "sample": 0,
        "keep_longest": 2.5,
        "task": "a",
    }.items():
        with pytest.raises(UsageError, match=name):
            chunkscope.analyze("lm-eval:a", **{name: value})
    for given in (
        {"paths": [{}]},
        {"paths": {}},
        {"prefix_file": 3},
        {"encoding": None},
    ):
        with pytest.raises(UsageError, match=r"not a name|not text"):
            chunkscope.analyze(**{"paths": "a"} | given)
    with pytest.raises(UsageError, match="log"):
        chunkscope.doctor()


def test_values_are_frames_and_tables(plan):
    values = (
        chunkscope.Profile.load(PROFILE),
        plan,
        chunkscope.simulate(plan, PROFILE, slo=["ttft_p95=1s", "itl_p99=50ms"]),
        chunkscope.Verification.load(VERIFY),
        chunkscope.memory("qwen3-8b", "h100"),
    )
    for value in values:
        assert len(value.to_frame()), type(value)
        assert "\n" not in repr(value)
    kept = chunkscope.Plan.load(PROFILE.with_name("plan.json"))
    assert not kept.settings.given(), "nothing is set, and it says so, too"
    for one in (plan, kept):
        assert escape(answer(one)) in one._repr_html_(), "as a notebook shows it"


# Of the terminal alone, and what Python does with the value that it gets back.
SHOWN = {"details", "json", "quiet", "output", "form", "help", "skip_bad_rows"}
RETURNED = {
    "recommend": {"emit", "anyway", "check"},
    "gate": {"init", "force"},
}
# Whose options are keywords, too.
MODELS: dict[str, tuple[Any, ...]] = {
    "analyze": (AnalyzeOptions,),
    "recommend": (recommend, PlanRequest.of, PlanRequest),
    "simulate": (SimulateOptions, Settings),
    "verify": (VerifyOptions,),
    "memory": (Settings,),
}


@pytest.mark.parametrize(
    "command", sorted(COMMANDS.keys() - {"help", "gpus", "models"})
)
def test_an_option_of_a_command_is_a_keyword_of_its_function(command: str) -> None:
    function = getattr(api, command, None) or getattr(chunkscope, command)
    keywords = {*signature(function).parameters, *api.ALIASES}
    keywords |= {
        name for model in MODELS.get(command, ()) for name in api.option_types(model)
    }
    options = {
        parameter.name
        for parameter in COMMANDS[command].params
        if parameter.param_type_name == "option"
    }
    assert not options - keywords - SHOWN - RETURNED.get(command, set())


def test_a_plan_of_several_profiles_is_found_with_all_of_them(tmp_path):
    profile = chunkscope.Profile.load(PROFILE)
    for name, part in (("a", profile.datasets[:2]), ("b", profile.datasets[2:])):
        replace(profile, datasets=part).save(tmp_path / "reports" / f"{name}.json")
    words = (
        "reports/a.json",
        "reports/b.json",
        "--model",
        "qwen2.5-1.5b",
        "--gpu",
        "l4",
    )
    assert command(tmp_path, "recommend", *words).code == 0
    findings = load_findings(tmp_path / "reports")
    assert findings.profile.overall == profile.overall
    assert findings.plan_is_of_this_profile


def test_a_copied_folder_has_its_own_profile(tmp_path, monkeypatch):
    """Its plan names reports/profile.json, which holds other data by now."""
    profile = chunkscope.Profile.load(PROFILE)
    monkeypatch.chdir(tmp_path)
    for name, datasets in (
        ("old", profile.datasets[:2]),
        ("new", profile.datasets[2:]),
    ):
        replace(profile, datasets=datasets).save()
        assert command(tmp_path, "recommend").code == 0
        copytree("reports", name)
    assert load_findings(tmp_path / "old").profile.datasets == profile.datasets[:2]
    assert "the data is not the same" in command(tmp_path, "report", "old", "new").out
