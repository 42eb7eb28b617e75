"""`gate --init`: a budget that today's artefacts keep, whatever they are."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunkscope.errors import InputError
from chunkscope.findings import Findings, load_findings
from chunkscope.gating.budget_file import parse_file
from chunkscope.gating.check import judge
from chunkscope.gating.limits import roomy
from chunkscope.gating.starting_file import starting_text, toml
from chunkscope.lengths.profile import Profile, Sample
from chunkscope.planning.emit import emit
from chunkscope.vllm.enums import Target
from tests.build import TOKENIZER, dataset
from tests.gating.helpers import out_of_memory, run

PATH = Path("chunkscope.toml")


def start(place):
    """The starting file, and what it says when it is read back."""
    findings = load_findings(place.reports)
    text = starting_text(findings, PATH)
    return text, judge(parse_file(text, PATH), findings)


def test_a_starting_file_of_everything_is_kept_and_covers_every_table(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    place.save_plan(place.save_profile())
    place.save_verification()
    text, result = start(place)
    assert result.kept, result.broken
    found = {v.promise for v in result.verdicts}
    assert {"data.longest_prompt", "data.p95", "data.datasets", "memory.predicted.device_peak",
            "memory.measured.activation_peak", "speed.ttft_p95", "speed.output_tokens_per_s",
            "freshness.plan"} <= found  # fmt: skip
    assert "# [gate.drift]" in text
    assert "# [gate.settings]" in text


def test_the_commented_tables_are_right_once_their_files_are_there(place):
    plan = place.save_plan(place.save_profile())
    text, _ = start(place)
    head, examples = text.split("\n# Lengths against a profile")
    lines = [
        line.removeprefix("# ") for line in examples.splitlines() if "=" in line or "[" in line
    ]
    place.write("baseline/profile.json", (place.reports / "profile.json").read_text())
    place.write("vllm.yaml", emit(plan, Target.VLLM_YAML).text)
    whole = parse_file("\n".join([head, *lines]), place.folder / "chunkscope.toml")
    result = judge(whole, load_findings(place.reports))
    assert {v.promise.split(".")[0] for v in result.verdicts} >= {"drift", "settings"}
    assert result.kept, result.broken


def test_files_that_are_there_already_are_promised(place, monkeypatch):
    """A baseline, an older measurement and arguments, made before the file."""
    monkeypatch.chdir(place.folder)
    plan = place.save_plan(place.save_profile())
    place.save_verification()
    place.save_verification(name="baseline/verify.json")
    place.write("baseline/profile.json", (place.reports / "profile.json").read_text())
    place.write("vllm.yaml", emit(plan, Target.VLLM_YAML).text + "\nenforce-eager: true\n")
    text, result = start(place)
    assert result.kept, result.broken
    found = {v.promise for v in result.verdicts}
    assert {"drift.p95", "drift.vanished_datasets", "settings.accepted", "settings.as-good",
            "settings.allow", "speed.baseline.ttft_p95"} <= found  # fmt: skip
    assert 'allow = ["enforce_eager"]' in text
    assert "# [gate." not in text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("baseline/profile.json", "{", "damaged"),
        ("vllm.yaml", "max-num-seqs: 0\n", "settings.accepted: it does not"),
        ("vllm.yaml", "max-num-seqs: [\n", "vllm.yaml"),
    ],
)
def test_a_file_that_cannot_be_promised_is_a_comment_that_says_why(
    place, monkeypatch, name, content, said
):
    monkeypatch.chdir(place.folder)
    place.save_plan(place.save_profile())
    (place.folder / "baseline").mkdir()
    (place.folder / name).write_text(content)
    text, result = start(place)
    assert result.kept
    assert "# [gate.drift]" in text
    assert "# [gate.settings]" in text
    first = ("# baseline = ", "# file = ")
    (line,) = [x for x in text.splitlines() if "broken today" in x and x.startswith(first)]
    assert said in line


def test_what_is_broken_today_is_only_a_comment(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    place.save_plan(place.save_profile())
    place.save_profile(data=[5, 6_000])  # the plan is now of another profile
    text, result = start(place)
    assert result.kept
    assert "\n# plan = true  # made from this profile; broken today: made from another" in text
    assert "\n# data = true" in text, "the data of this profile are nowhere"


@pytest.mark.parametrize(
    ("datasets", "absent"),
    [
        pytest.param((dataset("a", [5], skipped=3),), None, id="bad rows"),
        pytest.param((dataset("a", [5], failure="cut off"),), "\nlongest_prompt", id="a failure"),
        pytest.param(
            (dataset("a", [5], sample=Sample(rows=1, out_of=9, seed=0)),), None, id="sample"
        ),
        pytest.param((dataset("a", [5]), dataset("empty", [])), '"empty"', id="an empty dataset"),
        pytest.param((dataset("a", [0]),), None, id="a prompt of no tokens"),
        pytest.param(tuple(dataset(f"d{n}", [5]) for n in range(200)), "\ndatasets", id="many"),
    ],
)
def test_odd_profiles_get_a_file_that_is_kept(place, datasets, absent):
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=datasets))
    text, result = start(place)
    assert result.kept, result.broken
    assert absent is None or absent not in text


def test_data_that_were_not_read_to_their_end_say_why_nothing_is_promised(place):
    failure = "cannot tell which field is the prompt; there are:\n  key  text\n\nhint: name it"
    failed = dataset("a", [5], failure=failure)
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=(failed,)))
    text, _ = start(place)
    (line,) = [line for line in text.splitlines() if line.startswith("# bad_rows")]
    why = "a could not be read to its end: cannot tell which field is the prompt"
    assert line.endswith(f"broken today: {why}")


def test_a_plan_without_a_model_promises_no_context(place):
    place.save_plan(place.save_profile(), model=None, gpu=None, max_model_len=None)
    text, result = start(place)
    assert result.kept
    assert "max_model_len" not in text


def test_a_run_that_failed_promises_no_speed(place):
    place.save_verification(out_of_memory())
    place.save_profile()
    text, result = start(place)
    assert "[gate.speed]" not in text
    assert result.kept


def test_a_plan_alone_is_enough(place):
    place.save_plan(place.save_profile())
    (place.reports / "profile.json").unlink()
    text, result = start(place)
    assert result.kept
    assert "[gate.memory.predicted]" in text


def test_nothing_to_promise_is_an_error():
    with pytest.raises(InputError, match="nothing in reports could be promised"):
        starting_text(Findings(folder=Path("reports")), PATH)


def test_the_device_is_not_allowed_more_than_it_has(place):
    place.save_plan(place.save_profile())
    place.save_verification(run())
    text, _ = start(place)
    assert text.count('device_peak = "139.8') == 2


@given(st.lists(st.text(min_size=1, max_size=20), unique=True, min_size=1, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_of_a_dataset_can_be_written_and_read_back(names):
    datasets = tuple(dataset(name, [5]) for name in names)
    found = Profile(tokenizer=TOKENIZER, datasets=datasets)
    findings = Findings(
        folder=Path("reports"), profile=replace(found), digests={"profile.json": "0"}
    )
    result = judge(parse_file(starting_text(findings, PATH), PATH), findings)
    present = [v.subject for v in result.verdicts if v.promise == "data.datasets"]
    assert present == names
    assert result.kept


@given(st.floats(0, 1e12), st.sampled_from([0.1, 0.25]))
def test_a_roomy_limit_is_never_below_and_not_far_above(value, room):
    limit = roomy(value, room)
    assert value <= limit <= value * (1 + room) * 1.1001 + 1e-9


@pytest.mark.parametrize("text", ['"', "\\", "\x7f", "\n", "😀", "\u2028", "''' # ["])
def test_toml_text_is_read_back(text):
    import tomllib

    assert tomllib.loads(f"a = {toml([text])}") == {"a": [text]}
