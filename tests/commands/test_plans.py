"""`recommend`, `simulate` and `prefixes` as a user meets them."""

import json
from pathlib import Path

import pytest

import chunkscope as python
from chunkscope.commands.simulate import plan_at_rate
from chunkscope.vllm import check
from chunkscope.vllm.enums import Entry, Target
from tests import build
from tests.commands.helpers import analyze, chunkscope, write_jsonl
from tests.conftest import REPOSITORY

MACHINE = ("--model", "qwen2.5-1.5b", "--gpu", "l4", "--vllm-version", "0.24")


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> Path:
    """A folder with a profile and its plan."""
    place = tmp_path_factory.mktemp("planned")
    profile = build.profile(short=build.SHORT, mixed=build.MIXED)
    profile.save(place / "reports" / "profile.json")
    run = chunkscope(place, "recommend", *MACHINE)
    assert run.code == 0, run.err
    return place


def plan_in(place: Path, name: str = "reports/plan.json") -> python.Plan:
    return python.Plan.load(place / name)


def next_command(err: str) -> str:
    return err.partition("next: ")[2].strip()


# -- recommend -------------------------------------------------------------------------


def test_several_profiles_are_planned_as_one_run(tmp_path):
    build.profile(a=[10] * 20).save(tmp_path / "a.json")
    build.profile(b=[5_000] * 20).save(tmp_path / "b.json")

    run = chunkscope(tmp_path, "recommend", "a.json", "b.json", *MACHINE)

    assert run.code == 0, run.err
    assert plan_in(tmp_path).refused.of == 40


def test_a_plan_of_several_profiles_is_simulated_with_all_of_them(tmp_path):
    build.profile(a=[10] * 20).save(tmp_path / "a.json")
    build.profile(b=[5_000] * 20).save(tmp_path / "b.json")
    chunkscope(tmp_path, "recommend", "a.json", "b.json", *MACHINE)

    run = chunkscope(tmp_path, "simulate", "--json")

    assert json.loads(run.out)["workload"]["requests"] == 40


@pytest.mark.parametrize(
    ("words", "request_has"),
    [
        pytest.param("--price-per-hour 2.5", {"price_per_hour": 2.5}, id="price"),
        pytest.param("--max-output 9", {"max_output": 9}, id="answers of one length"),
        pytest.param("--samples 4", {"samples": 4}, id="several answers"),
        pytest.param("--samples-at-once 8", {"samples_at_once": 8}, id="agents"),
        pytest.param("--e2e-timeout 600", {"e2e_timeout_s": 600}, id="time limit"),
        pytest.param("--together", {"together": True}, id="datasets together"),
        pytest.param("--dataset short", {"dataset": "short"}, id="one dataset"),
        pytest.param("--requests 30", {"requests": 30}, id="fewer requests"),
        pytest.param("--concurrency 5", {"concurrency": 5}, id="a slow client"),
    ],
)
def test_an_option_is_in_the_request_of_the_plan(planned, words, request_has):
    run = chunkscope(planned, "recommend", *MACHINE, *words.split(), "-o", "other.json")

    assert run.code == 0, run.err
    request = plan_in(planned, "other.json").request
    assert {name: getattr(request, name) for name in request_has} == request_has


def test_lengths_of_answers_are_in_the_request_of_the_plan(planned):
    words = ("--output", "p50=9,p95=32", "-o", "other.json")

    assert chunkscope(planned, "recommend", *MACHINE, *words).code == 0
    output = plan_in(planned, "other.json").request.output
    assert (output.p50, output.p95) == (9, 32)


@pytest.mark.parametrize("command", ["recommend", "simulate", "verify"])
def test_a_file_after_output_is_told_to_go_after_o(planned, command):
    run = chunkscope(planned, command, "--output", "plans/a.json")

    assert run.code == 2
    assert "hint: to write the result there: -o plans/a.json" in run.err


@pytest.mark.parametrize(
    ("words", "version"),
    [
        pytest.param((), "0.24.0", id="the installed one"),
        pytest.param(
            ("--vllm-version", "0.30"), "0.30", id="the one that is asked for"
        ),
    ],
)
def test_with_check_a_version_is_planned_for(planned, monkeypatch, words, version):
    monkeypatch.setattr(check, "vllm_python", lambda: "python")
    monkeypatch.setattr(check, "version_in", lambda _: "0.24.0")
    monkeypatch.setattr(check, "check", lambda *_, **__: "0.24.0")

    words = ("recommend", *MACHINE[:4], "--check", *words, "-o", "checked.json")

    assert chunkscope(planned, *words).code == 0
    assert plan_in(planned, "checked.json").deployment.release.text == version


@pytest.mark.parametrize(
    ("words", "command"),
    [
        pytest.param(
            MACHINE,
            "vllm serve Qwen/Qwen2.5-1.5B",
            id="serve it",
        ),
        pytest.param(
            ("--model", "qwen2.5-1.5b"),
            "chunkscope gpus",
            id="list the GPUs",
        ),
        pytest.param(
            (*MACHINE, "--entry", "llm"), "chunkscope verify next.json", id="measure it"
        ),
    ],
)
def test_the_next_command_can_be_run(planned, words, command):
    run = chunkscope(planned, "recommend", *words, "-o", "next.json")

    assert next_command(run.err).startswith(command)


@pytest.fixture(scope="module")
def logged(tmp_path_factory) -> Path:
    """A folder with the profile of an lm-eval log, whose run started vLLM itself."""
    place = tmp_path_factory.mktemp("logged")
    assert analyze(place, REPOSITORY / "reports/example/lm_eval").code == 0
    return place


def test_a_harness_that_starts_vllm_is_planned_for_with_its_defaults(logged):
    chunkscope(logged, "recommend", "--model", "llama-3.1-8b", "--gpu", "h100")

    assert plan_in(logged).deployment.entry is Entry.LLM


@pytest.mark.parametrize("target", [t for t in Target if t.entry is Entry.SERVE])
def test_arguments_of_another_entry_are_refused(logged, target):
    if target is Target.JSON:
        pytest.skip("JSON is for every entry")
    words = ("--model", "llama-3.1-8b", "--gpu", "h100", "--entry", "llm")

    run = chunkscope(logged, "recommend", *words, "--emit", target)

    assert run.code == 2
    assert "hint: leave --entry out" in run.err


# -- simulate --------------------------------------------------------------------------


def test_python_simulates_what_the_command_does(planned):
    chunkscope(planned, "simulate", "--max-num-batched-tokens", "512")
    plan = planned / "reports" / "plan.json"

    simulation = python.simulate(plan, max_num_batched_tokens=512)

    saved = python.Simulation.load(planned / "reports" / "simulation.json")
    assert simulation.runs[0].figures == saved.runs[0].figures


def test_a_plan_is_never_simulated_with_other_data(planned, tmp_path):
    plan_in(planned).save(tmp_path / "reports" / "plan.json")
    build.profile(other=[7]).save(tmp_path / "reports" / "profile.json")

    run = chunkscope(tmp_path, "simulate")

    assert run.code == 3
    assert "hint: name it with --profile" in run.err


def test_the_profile_of_a_plan_can_be_named(planned, tmp_path):
    plan_in(planned).save(tmp_path / "reports" / "plan.json")

    run = chunkscope(
        tmp_path, "simulate", "--profile", planned / "reports" / "profile.json"
    )

    assert run.code == 0, run.err


@pytest.mark.parametrize(
    ("words", "command"),
    [
        pytest.param((), "chunkscope simulate --sweep", id="sweep"),
        pytest.param(("--sweep",), "chunkscope verify", id="measure"),
        pytest.param(
            ("reports/plan.json", "--sweep"),
            "chunkscope verify reports/plan.json",
            id="measure this plan",
        ),
    ],
)
def test_the_next_command_after_a_simulation(planned, words, command):
    assert next_command(chunkscope(planned, "simulate", *words).err) == command


def test_a_rate_is_planned_for_on_the_machine_of_the_plan(planned):
    command = plan_at_rate(plan_in(planned), 3.25, "ttft_p95=5s")

    assert command == (
        "chunkscope recommend --model Qwen/Qwen2.5-1.5B --gpu l4 --slo ttft_p95=5s "
        "--arrivals 3.25/s"
    )


# -- prefixes --------------------------------------------------------------------------


def test_prefixes_say_how_much_is_served(tmp_path):
    rows = []
    for number in range(30):
        rows.append({"prompt": f"{'the same long beginning of it all ' * 20}{number}"})
    write_jsonl(tmp_path / "data.jsonl", rows)
    analyze(tmp_path, "data.jsonl")

    shown = json.loads(chunkscope(tmp_path, "prefixes", "--json").out)

    assert shown["together"]["hit_rate"] > 0.5
