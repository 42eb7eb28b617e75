"""`chunkscope verify` as far as it goes without an engine; with one, see tests/verification."""

import io
import subprocess
import sys
from dataclasses import replace

import pytest
from chunkscope.report.terminal.verification import show_verification
from rich.console import Console

from chunkscope.commands.verify import _doubts
from chunkscope.prefixes.sharing import Stretch
from chunkscope.verification.result import Machine
from chunkscope.vllm.log.fate import Status
from tests.build import MIXED, WORKLOAD, failed, plan, profile, run, verification


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with a plan and its profile, and no vLLM."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHUNKSCOPE_VLLM_PYTHON", raising=False)
    profile(data=MIXED).save()
    plan(MIXED).save()
    return tmp_path


def verify(*words):
    return subprocess.run(
        [sys.executable, "-m", "chunkscope", "verify", *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.usefixtures("workplace")
def test_without_vllm_it_says_what_to_install() -> None:
    done = verify("--load-format", "dummy")
    assert done.returncode == 4
    assert "has no vLLM" in done.stderr
    assert "pip install 'chunkscope[verify]'" in done.stderr


@pytest.mark.usefixtures("workplace")
def test_a_python_that_is_not_there_has_no_vllm(monkeypatch) -> None:
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", "/nowhere/python")
    done = verify("--load-format", "dummy")
    assert done.returncode == 4
    assert "/nowhere/python has no vLLM" in done.stderr


@pytest.mark.usefixtures("workplace")
def test_a_vllm_that_is_too_old_is_named(monkeypatch, tmp_path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho 0.6.3\n")
    old.chmod(0o755)
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", str(old))
    done = verify("--load-format", "dummy")
    assert done.returncode == 4
    assert "vLLM 0.6.3 is too old" in done.stderr


def test_without_a_plan_it_says_how_to_make_one(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = verify()
    assert done.returncode == 3
    assert "run `chunkscope recommend` first" in done.stderr


@pytest.mark.usefixtures("workplace")
def test_a_plan_of_another_profile_is_refused(monkeypatch, tmp_path) -> None:
    some = tmp_path / "python"
    some.write_text("#!/bin/sh\necho 0.24.0\n")
    some.chmod(0o755)
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", str(some))
    profile(data=[1, 2, 3]).save()
    done = verify("--load-format", "dummy")
    assert done.returncode == 3
    assert "the plan was made from another profile" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["--timeout", "0"], "--timeout must be over 0 seconds"),
        (["--shared-prefix", "-1"], "--shared-prefix must not be negative"),
        (["--only", "off"], "only the plan can be measured alone"),
        (["--fixed-kv-cache", "lots"], "is no amount of"),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_options_that_make_no_sense(words, said) -> None:
    done = verify(*words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.usefixtures("workplace")
def test_a_server_that_is_not_there() -> None:
    done = verify("--endpoint", "http://127.0.0.1:9")
    assert done.returncode == 4
    assert "127.0.0.1:9" in done.stderr


# -- what is shown ------------------------------------------------------------------------------


def shown(made, width):
    console = Console(width=width, record=True, file=io.StringIO())
    show_verification(made, console)
    return console.export_text()


SETTINGS = ("default", "off", "max-num-batched-tokens=2048", "conservative")
MADE = verification(
    run("plan", 10.0, 9.9, 10.1),
    *(run(name, 12.0, 11.9, 12.1) for name in SETTINGS),
    failed("tiny", Status.TIMEOUT),
    verdict="Keep the plan: it is fast.",
)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_table_fits_the_terminal(width) -> None:
    lines = shown(MADE, width).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    text = " ".join(" ".join(lines).split())
    assert "Keep the plan: it is fast." in text
    assert "tiny: it failed" in text
    assert "random weights" in text


def test_each_figure_stands_beside_the_first_ones() -> None:
    text = shown(MADE, 140)
    row = next(line for line in text.splitlines() if "all requests took" in line)
    assert row.split() == ["all", "requests", "took", "10.0", "s",
                           *["12.0", "s", "1.20x"] * 4, "-"]  # fmt: skip


def test_ties_are_marked() -> None:
    made = verification(run("plan", 10.0, 9.9, 10.1), run("off", 10.05, 10.0, 10.2))
    row = next(x for x in shown(made, 100).splitlines() if "all requests took" in x)
    assert row.rstrip().endswith("1.01x=")


def test_predicted_hits_stand_below_measured_ones() -> None:
    requests = tuple(replace(request, stretch=0) for request in WORKLOAD.requests)
    alike = replace(WORKLOAD, requests=requests, stretches=(Stretch(parent=-1, tokens=96),))
    made = verification(run("plan", 1.0, predicted_prefix_hit_rate=0.125), workload=alike)
    lines = [line.split() for line in shown(made, 120).splitlines()]
    at = lines.index(["prefix-cache", "hits", "0", "%"])
    assert lines[at + 1] == ["predicted", "12", "%"]
    assert "2 prompts begin like others; the prefix cache is empty" in shown(made, 120)


def test_a_setting_with_markup_in_its_name_is_shown_as_it_is() -> None:
    assert "[b]x[/b]" in shown(verification(run("plan", 1.0), run("[b]x[/b]", 1.0)), 100)


# -- what is doubted ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vllm", "gpu", "said"),
    [
        pytest.param("0.24.1", "NVIDIA H200", [], id="as planned"),
        pytest.param("0.28.0", "NVIDIA H200", ["made for vLLM 0.24.0, this is 0.28.0"], id="vLLM"),
        pytest.param("0.24.0", "NVIDIA L4", ["made for NVIDIA H200, this is NVIDIA L4"], id="GPU"),
        pytest.param(None, None, [], id="not known"),
    ],
)
def test_a_plan_made_for_something_else_is_doubted(vllm, gpu, said) -> None:
    machine = Machine(device="cuda", gpu=gpu, vllm=vllm)
    found = list(_doubts(plan(MIXED), verification(run("plan", 1.0), machine=machine)))
    assert len(found) == len(said)
    assert all(words in line for words, line in zip(said, found, strict=True))
