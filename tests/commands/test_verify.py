"""`chunkscope verify` as far as it goes without an engine; with one, see tests/verification."""

import subprocess
import sys

import pytest

from tests.build import MIXED, plan, profile


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with a plan and its profile, and no vLLM."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHUNKSCOPE_VLLM_PYTHON", raising=False)
    profile(data=MIXED).save()
    plan(MIXED).save()
    return tmp_path


def verify(*words):
    command = [sys.executable, "-m", "chunkscope", "verify", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def python_with_vllm(monkeypatch, folder, version) -> None:
    python = folder / "python"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", str(python))


@pytest.mark.usefixtures("workplace")
def test_without_vllm_it_says_what_to_install(monkeypatch) -> None:
    done = verify("--load-format", "dummy")
    assert done.returncode == 4
    assert "pip install 'chunkscope[verify]'" in done.stderr
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", "/nowhere/python")
    done = verify("--load-format", "dummy")
    assert done.returncode == 4
    assert "/nowhere/python" in done.stderr


def test_a_vllm_that_is_too_old_is_named(workplace, monkeypatch) -> None:
    python_with_vllm(monkeypatch, workplace, "0.6.3")
    done = verify("--load-format", "dummy")
    assert done.returncode == 4
    assert "0.6.3" in done.stderr


def test_without_a_plan_it_says_how_to_make_one(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = verify()
    assert done.returncode == 3
    assert "chunkscope recommend" in done.stderr


def test_a_plan_of_another_profile_is_refused(workplace, monkeypatch) -> None:
    python_with_vllm(monkeypatch, workplace, "0.24.0")
    profile(data=[1, 2, 3]).save()
    done = verify("--load-format", "dummy")
    assert done.returncode == 3
    assert "profile" in done.stderr


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("words", [["--repeats", "0"], ["--engine-arg", "dtype"], ["--also", "x"]])
def test_options_that_make_no_sense_are_named(words, monkeypatch, workplace) -> None:
    python_with_vllm(monkeypatch, workplace, "0.24.0")
    done = verify(*words)
    assert done.returncode == 2
    assert words[0] in done.stderr


@pytest.mark.usefixtures("workplace")
def test_a_server_that_is_not_there() -> None:
    done = verify("--endpoint", "http://127.0.0.1:9")
    assert done.returncode == 4
    assert "127.0.0.1:9" in done.stderr
