"""The manual's job, hook and budget, run as they stand: offline, in a copy, on the sample data."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.update_readme import GUIDE

PAGE = (GUIDE / "gate.md").read_text(encoding="utf-8")


def block(language: str, holding: str) -> str:
    """The one block of that language that holds those words."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [text for text in blocks if holding in text]
    return found


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `chunkscope` on the PATH that is this checkout's."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "chunkscope"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m chunkscope "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture
def checkout(tmp_path: Path, programs: Path) -> Path:
    """A repository after the page's first commands, with its budget."""
    shutil.copytree(REPOSITORY / "sample_data", tmp_path / "sample_data")
    done = shell(block("sh", "gate --init"), tmp_path, programs)
    assert done.returncode == 0, done.stderr
    (tmp_path / "chunkscope.toml").write_text(block("toml", "[gate.data]"))
    return tmp_path


def shell(script: str, place: Path, programs: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """As GitHub runs a step: bash, ending at the first failure."""
    usual = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=place,
        env={**usual, "PATH": path, "PYTHONPATH": str(REPOSITORY), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def run_job(place: Path, programs: Path) -> list[subprocess.CompletedProcess[str]]:
    """Every `run:` step in turn; a step that fails is the last."""
    (job,) = yaml.safe_load(block("yaml", "jobs:"))["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "run" in step]
    install, *rest = steps
    assert install.startswith("pip install"), "the environment is there already"
    done = []
    for step in rest:
        done.append(shell(step, place, programs, GITHUB_STEP_SUMMARY=str(place / "summary.md")))
        if done[-1].returncode:
            break
    return done


def run_hook(place: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    (repository,) = yaml.safe_load(block("yaml", "hooks:"))["repos"]
    (hook,) = repository["hooks"]
    return shell(hook["entry"], place, programs)


def grow(place: Path) -> None:
    """One prompt far longer than all others."""
    file = place / "sample_data" / "code_repair.jsonl.gz"
    with gzip.open(file, "at") as rows:
        rows.write(json.dumps({"prompt": "word " * 40_000}) + "\n")


def test_the_job_passes_on_unchanged_data(checkout, programs):
    done = run_job(checkout, programs)
    assert [step.returncode for step in done] == [0, 0, 0], done[-1].stdout + done[-1].stderr
    assert done[-1].stdout.startswith("::notice title=chunkscope gate::")
    assert "promises kept" in (checkout / "summary.md").read_text()


def test_the_job_fails_when_the_data_grows(checkout, programs):
    grow(checkout)
    done = run_job(checkout, programs)
    assert [step.returncode for step in done] == [0, 0, 1], done[-1].stderr
    assert "title=data.longest_prompt of all together::" in done[-1].stdout
    assert "title=drift.max of code_repair::" in done[-1].stdout
    assert "title=settings." not in done[-1].stdout, "longer prompts still fit the model's context"
    assert "promises broken" in (checkout / "summary.md").read_text()


def test_the_hook_passes_and_fails_likewise(checkout, programs):
    done = run_hook(checkout, programs)
    assert done.returncode == 0, done.stderr
    grow(checkout)
    assert run_hook(checkout, programs).returncode == 1


def test_the_speed_example_is_a_budget(tmp_path):
    from chunkscope.gating.budget_file import parse_file

    budget = parse_file(block("text", "[gate.speed]"), tmp_path / "chunkscope.toml").budget
    assert budget.speed.output_tokens_per_s == 4500
