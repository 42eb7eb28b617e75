"""A broken promise says what it rests on, and what to run if the change is intended."""

import io
from dataclasses import replace

import pytest
from chunkscope.report.github import annotations, summary
from chunkscope.report.terminal.gate import show_gate
from rich.console import Console

import chunkscope
from chunkscope.gating.remedies import _OF_OUTPUT, _without
from chunkscope.lengths.profile import Sample
from chunkscope.planning.emit import emit
from chunkscope.vllm.enums import Target
from tests.build import MIXED
from tests.gating.helpers import figures, run

PLANNED = ("chunkscope", "recommend", "-m", "llama-3.1-8b", "--gpu", "h200", "--emit", "vllm-yaml")
AGAIN = "chunkscope recommend -m llama-3.1-8b --gpu h200"
EQUAL = '[settings]\nfile = "vllm.yaml"\nmust_be = "equal"\n'


def shown(result):
    console = Console(file=io.StringIO(), width=200)
    show_gate(result, console)
    return console.file.getvalue()


@pytest.fixture
def planned(place):
    """A profile, its plan with the command that made it, and what it emits."""
    plan = place.save_plan(place.save_profile(data=MIXED))
    plan = replace(plan, inputs=replace(plan.inputs, command=PLANNED))
    plan.save(place.reports / "plan.json")
    place.write("vllm.yaml", emit(plan, Target.VLLM_YAML).text)
    return place


def test_a_stale_plan_is_one_cause_and_what_follows_from_it(planned):
    planned.save_profile(data=[*MIXED, 5_000])
    budget = f'{EQUAL}[memory.predicted]\ndevice_peak = "1GiB"\n[freshness]\nplan = true'
    result = planned.gate(budget)
    assert len(result.broken) == 3
    (cause,) = {verdict.because for verdict in result.broken}
    reports = planned.reports
    assert cause == f"{reports}/plan.json was made from another profile than {reports}/profile.json"
    assert {verdict.if_intended for verdict in result.broken} == {AGAIN}
    said = shown(result)
    assert said.count("was made from another profile") == 1
    assert said.count(AGAIN) == 1
    assert said.index(cause[:60]) < said.index("settings.equal of plan:")
    assert summary(result).count("was made from another profile") == 1
    assert annotations(result).count(AGAIN) == 3, "each is read alone"


def test_data_that_changed_are_one_cause(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    for name in "abcde":
        place.write(f"data/{name}.jsonl", '{"prompt": "one two"}\n')
    place.save_profile(chunkscope.analyze("data"))
    for name in "abcde":
        place.write(f"data/{name}.jsonl", '{"prompt": "one two three"}\n')
    result = place.gate("[data]\nlongest_prompt = 1\n[freshness]\ndata = true")
    assert len(result.broken) == 6
    (cause,) = {verdict.because for verdict in result.broken}
    assert cause.endswith("was counted from: a, b, c and 2 more")
    assert {verdict.if_intended for verdict in result.broken} == {"chunkscope analyze data"}


def test_a_measurement_of_another_plan_is_one_cause(place):
    place.save_plan(place.save_profile())
    place.save_verification(run(), plan_digest="0" * 64)
    result = place.gate('[speed]\nttft_p95 = "1ms"\n[freshness]\nverification = true')
    assert {v.because.split("/")[-2] for v in result.broken} == {"reports"}
    assert {v.if_intended for v in result.broken} == {"chunkscope verify"}


@pytest.mark.parametrize(
    ("budget", "command"),
    [
        ("[data]\nlongest_prompt = 1", "gate --update {reports} --config {toml}"),
        ('[data]\ndatasets = ["gone"]', "gate --update {reports} --config {toml}"),
        ('[memory.predicted]\ndevice_peak = "1GiB"', "gate --update {reports} --config {toml}"),
        ('[speed]\nttft_p95 = "1ms"', "gate --update {reports} --config {toml}"),
        ('[drift]\nbaseline = "b.json"\nmax = "0%"', "cp {reports}/profile.json {folder}/b.json"),
        ('[speed]\nbaseline = "v.json"', "cp {reports}/verify.json {folder}/v.json"),
        (f"{EQUAL}allow = []", f"{AGAIN} --emit vllm-yaml > {{folder}}/vllm.yaml"),
    ],
)  # fmt: skip
def test_every_broken_promise_ends_with_a_command(planned, budget, command):
    was = chunkscope.Profile.load(planned.reports / "profile.json")
    was.save(planned.folder / "b.json")
    grown = planned.save_profile(data=[*MIXED, 9_000])
    if "settings" not in budget:
        planned.save_plan(grown)
    else:
        was.save(planned.reports / "profile.json")
        planned.write("vllm.yaml", "max-num-seqs: 7\n")
    planned.save_verification(name="v.json")
    planned.save_verification(run(found=figures(ttft=9.0, itl=9.0, rate=1.0)))
    result = planned.gate(budget)
    folder = planned.folder
    told = command.format(
        reports=planned.reports, folder=folder, toml=folder / "chunkscope.toml"
    ).removeprefix("chunkscope ")
    assert result.broken
    assert {v.if_intended.removeprefix("chunkscope ") for v in result.broken} == {told}
    # Wrapped where the folder of the test has a long name.
    assert "".join(shown(result).split()).endswith("".join(told.split()))


def test_a_sample_is_counted_whole_by_the_command_that_is_said(place):
    found = place.save_profile(data=[5, 6])
    sampled = tuple(replace(d, sample=Sample(rows=2, out_of=9, seed=0)) for d in found.datasets)
    command = ["chunkscope", "analyze", "data", "--sample", "2", "--seed=3"]
    place.save_profile(replace(found, datasets=sampled, options={"command": command}))
    verdict = place.one("[data]\nlongest_prompt = 9")
    assert (verdict.kept, verdict.if_intended) == (False, "chunkscope analyze data")


def test_what_was_only_shown_is_no_part_of_the_command():
    words = ["a", "--json", "--emit=vllm-args", "b", "--check", "c", "--emit", "vllm-yaml"]
    assert _without(words, _OF_OUTPUT) == ["a", "b", "c"]
