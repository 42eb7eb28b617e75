"""The manual's job, hook and budget, run as they stand: offline, on the sample data."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from chunkscope.gating.budget import parse_budget
from tests.conftest import REPOSITORY

ACTION = REPOSITORY / ".github" / "actions" / "gate"
PAGE = (REPOSITORY / "chunkscope" / "guide" / "gate.md").read_text(encoding="utf-8")


def block(language: str, holding: str) -> str:
    """The one block of that language that holds those words."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [text for text in blocks if holding in text]
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository after the page's first commands, with its budget."""
    place = tmp_path_factory.mktemp("prepared")
    shutil.copytree(REPOSITORY / "sample_data", place / "sample_data")
    done = shell(block("sh", "gate --init"), place)
    assert done.returncode == 0, done.stderr
    (place / "chunkscope.toml").write_text(block("toml", "[gate.data]"))
    return place


@pytest.fixture
def checkout(tmp_path: Path, prepared: Path) -> Path:
    return shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)


# This checkout's; `pip install` only says what it would install.
HERE = f"""
chunkscope() {{ {shlex.quote(sys.executable)} -m chunkscope "$@"; }}
python() {{ [ "$1 $2 $3" = "-m pip install" ] && (cd "$5" && pwd); }}
"""


def shell(script: str, place: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """As GitHub runs a step: bash, ending at the first failure."""
    usual = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", HERE + script]
    env = {**usual, "PYTHONPATH": str(REPOSITORY), **env}
    return subprocess.run(
        bash, cwd=place, env=env, capture_output=True, text=True, check=False
    )


Steps = list[subprocess.CompletedProcess[str]]


def run_job(place: Path) -> Steps:
    """The job's one step of ours: the action, with the job's inputs."""
    (job,) = yaml.safe_load(block("yaml", "jobs:"))["jobs"].values()
    _checkout, ours = job["steps"]
    assert ours["uses"] == "chunkscope/chunkscope/.github/actions/gate@main"
    return run_action(place, ours["with"])


def run_action(place: Path, given: dict[str, str]) -> Steps:
    """Every `run:` step in turn, as GitHub runs them; a step that fails is the last."""
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    inputs = {name: about["default"] for name, about in action["inputs"].items()}
    assert given.keys() <= inputs.keys()
    inputs |= given
    done: Steps = []
    for step in action["runs"]["steps"]:
        needed = re.search(r"inputs\.(\w+) != ''", step.get("if", ""))
        is_skipped = needed is not None and not inputs[needed[1]]
        if "run" not in step or is_skipped:
            continue
        assert step["shell"] == "bash", "a composite action has to say so"
        assert "${{" not in step["run"], "what people write is no part of a script"
        env = environment(step, inputs)
        env["GITHUB_STEP_SUMMARY"] = str(place / "summary.md")
        env["GITHUB_ACTION_PATH"] = str(ACTION)
        done.append(shell(step["run"], place, **env))
        if done[-1].returncode:
            break
    return done


def environment(step: dict[str, Any], inputs: dict[str, str]) -> dict[str, str]:
    """A step's variables, with `${{ inputs.analyze }}` replaced as GitHub does it."""
    env = {}
    for name, value in step.get("env", {}).items():
        for given, text in inputs.items():
            value = value.replace(f"${{{{ inputs.{given} }}}}", text)
        env[name] = value
    return env


def run_hook(place: Path) -> subprocess.CompletedProcess[str]:
    """The hook that the page's lines name, by its manifest."""
    (repository,) = yaml.safe_load(block("yaml", "hooks:"))["repos"]
    manifest = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    ((named,), (hook,)) = repository["hooks"], manifest
    assert named["id"] == hook["id"]
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    return shell(hook["entry"], place)


def grow(place: Path) -> None:
    """One prompt far longer than all others."""
    file = place / "sample_data" / "code_repair.jsonl.gz"
    with gzip.open(file, "at") as rows:
        rows.write(json.dumps({"prompt": "word " * 40_000}) + "\n")


def test_the_job_passes_on_unchanged_data(checkout):
    done = run_job(checkout)
    codes = [step.returncode for step in done]
    assert codes == [0] * 4, done[-1].stdout + done[-1].stderr
    assert done[-1].stdout.startswith("::notice title=chunkscope gate::")
    assert "| ok: " in (checkout / "summary.md").read_text()


def test_the_job_fails_when_data_grows(checkout):
    grow(checkout)
    done = run_job(checkout)
    assert [step.returncode for step in done] == [0, 0, 0, 1], done[-1].stderr
    annotations = done[-1].stdout
    assert "title=data.longest_prompt::" in annotations
    assert "title=drift.max of code_repair::" in annotations
    assert "title=drift.content of code_repair::" in annotations
    assert "title=settings." not in annotations, "longer prompts fit the context"
    assert "| FAIL: " in (checkout / "summary.md").read_text()


def test_the_action_judges_what_is_committed_where_nothing_is_to_be_counted(checkout):
    grow(checkout)
    _install, done = run_action(checkout, {"gate": "reports --config chunkscope.toml"})
    assert done.returncode == 1
    assert "title=freshness.data of code_repair::" in done.stdout
    (checkout / "chunkscope.toml").write_text("[gate]\n")
    _install, done = run_action(checkout, {})
    assert done.returncode == 3
    assert done.stdout.startswith(
        "::error file=chunkscope.toml,title=chunkscope gate cannot judge"
    )


def test_what_stands_in_an_input_is_never_run(checkout):
    given = {"gate": "; touch stolen", "analyze": "$(touch stolen)"}
    assert run_action(checkout, given)[-1].returncode
    assert not (checkout / "stolen").exists()


def test_the_hook_passes_and_fails_likewise(checkout):
    done = run_hook(checkout)
    assert done.returncode == 0, done.stderr
    grow(checkout)
    done = run_hook(checkout)
    assert done.returncode == 1
    assert "chunkscope analyze sample_data/" in done.stdout


def test_the_speed_example_is_a_budget(tmp_path):
    budget = parse_budget(
        block("text", "[gate.speed]"), tmp_path / "chunkscope.toml"
    ).budget
    assert budget.speed.output_tokens_per_s == 4500
