"""`chunkscope recommend` as a user meets it: stdout, stderr, exit codes, the artefact."""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from chunkscope.planning.plan import Plan
from chunkscope.vllm.enums import Target
from tests.build import LONG, SHORT, profile
from tests.conftest import REPOSITORY

VLLM = "CHUNKSCOPE_VLLM_PYTHON"


def chunkscope(
    *words: str, cwd: Path, columns: int = 80, **env: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "chunkscope", *words],
        cwd=cwd,
        env={
            **{name: value for name, value in os.environ.items() if name != VLLM},
            "COLUMNS": str(columns),
            "NO_COLOR": "1",
            "PYTHONPATH": str(REPOSITORY),
            # No GPU of this machine may answer: what is shown must not depend on it.
            "PATH": "",
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile of the sample data, and a plan, in reports/."""
    place = tmp_path_factory.mktemp("recommend")
    for words in (["analyze", str(REPOSITORY / "sample_data")], ["recommend"]):
        done = chunkscope(*words, cwd=place)
        assert done.returncode == 0, done.stderr
    return place


def test_emit_prints_one_line_of_words_a_shell_can_split(folder: Path) -> None:
    run = chunkscope("recommend", "-m", "llama-3.1-8b", "--gpu", "h200", "--emit", "vllm-args",
                     cwd=folder)  # fmt: skip
    assert run.returncode == 0
    assert run.stdout.count("\n") == 1
    plan = Plan.load(folder / "reports" / "plan.json")
    assert run.stdout.split() == shlex.split(run.stdout) == plan.cli_args()


@pytest.mark.parametrize("target", list(Target))
def test_every_form_can_be_emitted_for_a_model(folder: Path, target: Target) -> None:
    words = ("recommend", "-m", "qwen3-8b", "--gpu", "h200", "--policy", "lengths")
    run = chunkscope(*words, "--emit", target, cwd=folder)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


def test_nothing_to_set_is_said_in_the_headline_and_an_empty_line(folder: Path) -> None:
    words = ("recommend", "-m", "llama-3.1-8b", "--gpu", "h200")
    assert chunkscope(*words, cwd=folder).stdout.startswith("Change nothing: ")
    assert chunkscope(*words, "--emit", "vllm-args", cwd=folder).stdout == "\n"


def test_json_is_the_plan_and_nothing_else(folder: Path) -> None:
    run = chunkscope("recommend", "--json", "-o", "plan.json", cwd=folder)
    assert json.loads(run.stdout) == json.loads((folder / "plan.json").read_text())


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_is_wider_than_the_terminal(folder: Path, columns: int) -> None:
    run = chunkscope(
        "recommend", "-m", "llama-3.1-8b", "--gpu", "h200", cwd=folder, columns=columns
    )
    assert max(len(line.rstrip()) for line in run.stdout.splitlines()) <= columns
    assert "aggressive" in run.stdout
    assert "recommended" in run.stdout, "the benefit tier must not be cut"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["nope.json"], 3, "chunkscope analyze", id="no profile yet"),
        pytest.param(["-m", "no-such-model"], 4, "built in:", id="a model nobody knows"),
        pytest.param(["--gpu", "h2000"], 2, "did you mean h200", id="a GPU nobody knows"),
        pytest.param(["--max-itl-ms", "50"], 2, "--objective latency", id="half an objective"),
        pytest.param(["--dataset", "code_repai"], 2, "code_repair", id="a dataset misspelt"),
        pytest.param(["-m", "llama-3.1-70b", "--gpu", "l4"], 3, "does not fit", id="too large"),
        pytest.param(["--mode", "of"], 2, "conservative", id="a mode misspelt"),
        pytest.param(["--vllm-version", "old"], 2, "version", id="no version at all"),
    ],
)
def test_a_mistake_gets_a_sentence_a_hint_and_its_exit_code(
    folder: Path, words: list[str], code: int, said: str
) -> None:
    before = (folder / "reports" / "plan.json").read_bytes()
    run = chunkscope("recommend", *words, cwd=folder)
    assert run.returncode == code, run.stderr
    assert said in run.stderr
    assert "Traceback" not in run.stderr
    assert not run.stdout
    assert (folder / "reports" / "plan.json").read_bytes() == before, "nothing half-written"


@pytest.mark.parametrize("env", [{}, {VLLM: ""}], ids=["unset", "empty"])
def test_a_check_without_vllm_says_what_is_missing(folder: Path, env: dict[str, str]) -> None:
    words = ("recommend", "-m", "llama-3.1-8b", "--gpu", "h200", "--check")
    run = chunkscope(*words, cwd=folder, **env)
    if run.returncode == 0:
        pytest.skip("this Python has vLLM")
    assert run.returncode == 4
    assert f"{sys.executable} has no vLLM" in run.stderr


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    command = [sys.executable, "-m", "chunkscope", "recommend", "-m", "llama-3.1-8b"]
    with subprocess.Popen(
        [*command, "--gpu", "h200"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == 0, said
    assert "Traceback" not in said


# -- several profiles ----------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two profiles, and a plan for what is sent of both together."""
    saved(tmp_path / "reports" / "profile.json", short=SHORT)
    saved(tmp_path / "other" / "long.json", long=LONG)
    words = ("reports/profile.json", "other/long.json", "-m", "llama-3.1-8b", "--gpu", "h200")
    done = chunkscope("recommend", *words, "--max-output", "8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def saved(path: Path, **datasets: list[int]) -> None:
    path.parent.mkdir(exist_ok=True)
    profile(**datasets).save(path)


def test_several_profiles_are_planned_for_together(two: Path) -> None:
    plan = Plan.load(two / "reports" / "plan.json")
    assert [d.name for d in plan.decisions] == ["short", "long"]
    assert plan.decision.prompts == len(SHORT) + len(LONG)
    assert [file.path for file in plan.inputs.profiles] == [
        "reports/profile.json",
        "other/long.json",
    ]


def test_simulate_and_the_gate_find_the_profiles_again(two: Path) -> None:
    done = chunkscope("simulate", "--json", "--quiet", cwd=two)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workload"]["requests"] == len(SHORT) + len(LONG)
    assert "not the one that the plan was made from" not in done.stderr
    (two / "chunkscope.toml").write_text("[gate.freshness]\nplan = true\n")
    assert chunkscope("gate", cwd=two).returncode == 0
    saved(two / "other" / "long.json", long=LONG[:-1])
    assert chunkscope("gate", cwd=two).returncode == 1, "one of them has changed"
    assert "not the one that the plan was made from" in chunkscope("simulate", cwd=two).stderr


def test_simulate_takes_several_profiles(two: Path) -> None:
    words = ("--profile", "other/long.json", "--profile", "reports/profile.json")
    done = chunkscope("simulate", "--json", "--quiet", *words, cwd=two)
    assert json.loads(done.stdout)["workload"]["requests"] == len(SHORT) + len(LONG)


def test_profiles_of_different_tokenizers_do_not_add_up(two: Path) -> None:
    other = profile(long=LONG)
    tokenizer = dataclasses.replace(other.tokenizer, name="another", digest="1")
    dataclasses.replace(other, tokenizer=tokenizer).save(two / "other" / "long.json")
    done = chunkscope("recommend", "reports/profile.json", "other/long.json", cwd=two)
    assert done.returncode == 3
    assert "different tokenizers (test and another)" in done.stderr
