"""`chunkscope report` as a user meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chunkscope.findings import load_findings
from chunkscope.planning.plan import Plan
from chunkscope.report.markdown import as_markdown, text
from chunkscope.report.tradeoff import tradeoff
from tests.conftest import REPOSITORY
from tests.processes import PATIENCE_S
from tests.report import examples
from tests.test_architecture import HEAVY, HELP, loaded_by


def report(place: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chunkscope", "report", *map(str, words)],
        cwd=place,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    examples.everything(tmp_path / "reports")
    return tmp_path


def test_the_page_goes_beside_the_artefacts_and_a_summary_to_the_terminal(place: Path) -> None:
    run = report(place)
    assert run.returncode == 0, run.stderr
    assert (place / "reports" / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert run.stdout.startswith("Cap prefill chunks at ")
    for words in (
        "Measured on NVIDIA H200, vLLM 0.24.0, dummy weights",
        " ".join(Plan.load(place / "reports" / "plan.json").cli_args()),
        "off: out of memory at 32,768 tokens.",
        "max-num-batched-tokens=256: timed out",
        "simulated, not measured",
    ):
        assert words in run.stdout
    assert "wrote reports/report.html" in run.stderr
    assert max(map(len, run.stdout.splitlines())) <= 80


def test_markdown_and_json_go_to_stdout_and_nothing_else_does(place: Path) -> None:
    markdown = report(place, "--format", "md")
    assert markdown.stdout.startswith("## chunkscope: Cap prefill chunks at ")
    assert markdown.stderr == ""
    joined = json.loads(report(place, "--format", "json").stdout)
    assert joined["schema"] == "chunkscope/report/1"
    assert joined["plan"]["mode"] == "aggressive"
    assert [r["status"] for r in joined["verify"]["runs"]].count("out_of_memory") == 1
    assert joined["plan_is_of_this_profile"] is True
    assert not (place / "reports" / "report.html").exists()


def test_the_files_name_says_the_format(place: Path) -> None:
    assert report(place, "-o", "out/comment.md").returncode == 0
    assert (place / "out" / "comment.md").read_text().startswith("## chunkscope")
    assert report(place, "-o", "all.json").returncode == 0
    assert json.loads((place / "all.json").read_bytes())["profile"]
    assert report(place, "-o", "page.html").returncode == 0
    assert not (place / "reports" / "report.html").exists()


def test_what_is_missing_is_null(tmp_path: Path) -> None:
    examples.write(tmp_path / "reports", found=examples.profile(), planned=False)
    joined = json.loads(report(tmp_path, "--format", "json").stdout)
    assert joined["plan"] is joined["verify"] is joined["simulation"] is None
    assert joined["plan_is_of_this_profile"] is None


def test_two_runs_are_compared(place: Path) -> None:
    shorter = examples.profile(examples.dataset("gsm8k", examples.lengths(100, 900, 0.3, 1)))
    examples.write(place / "new", found=shorter)
    run = report(place, "--compare", "reports", "new")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("What changed from reports to new")
    assert "aggressive" in run.stdout
    assert not list(place.rglob("*.html"))
    found = json.loads(report(place, "--compare", "reports", "new", "--format", "json").stdout)
    assert found["schema"] == "chunkscope/comparison/1"
    assert {change["part"] for change in found["changes"]} >= {"lengths", "mode", "arguments"}
    markdown = report(place, "--compare", "reports", "new", "--format", "md").stdout
    assert "| plan | mode | aggressive | **off** |" in markdown
    assert report(place, "--compare", "reports", "new", "-o", "c.html").returncode == 0
    assert 'id="changes"' in (place / "c.html").read_text()


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        pytest.param(["nope"], 3, "no such folder: nope", id="no folder"),
        pytest.param(["empty"], 3, "there are no artefacts in empty", id="no artefacts"),
        pytest.param(["reports/plan.json"], 3, "it is in: reports", id="a file of it"),
        pytest.param(["torn"], 3, "is damaged", id="a torn file"),
        pytest.param(["foreign"], 3, "reads version 1", id="another version"),
        pytest.param(["--compare", "nope", "reports"], 3, "no such folder: nope", id="no old run"),
        pytest.param(["--compare", "reports", "empty"], 3, "no artefacts", id="no new run"),
        pytest.param(["-o", "reports"], 3, "cannot write", id="a folder as the output"),
        pytest.param(["--format", "table", "-o", "x"], 2, "--format table", id="a table to a file"),
        pytest.param(["--format", "pdf"], 2, "pdf", id="no such format"),
    ],
)
def test_bad_input_is_a_sentence_and_a_code(
    place: Path, words: list[str], code: int, sentence: str
) -> None:
    (place / "empty").mkdir()
    for folder, content in (
        ("torn", '{"schema": "chunkscope/profile/2"'),
        ("foreign", '{"schema": "chunkscope/verify/9"}'),
    ):
        name = "profile.json" if folder == "torn" else "verify.json"
        (place / folder).mkdir()
        (place / folder / name).write_text(content)
    run = report(place, *words)
    assert run.returncode == code, run.stderr
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr


def test_help_loads_nothing_heavy() -> None:
    assert not loaded_by(HELP.format(arguments=["report", "--help"])) & HEAVY


# -- Markdown ------------------------------------------------------------------------------------


def test_names_cannot_break_out_of_a_comment(tmp_path: Path) -> None:
    evil = "@team `x` | <script> [l](http://e) #1 \n## heading"
    found = examples.profile(
        examples.dataset(evil, examples.lengths(90, 20, 0.1, 1)),
        examples.dataset("b", examples.lengths(90, 20, 0.1, 1)),
    )
    markdown = as_markdown(load_findings(examples.write(tmp_path, found=found)))
    assert text(evil) in markdown
    assert "<script>" not in markdown
    assert "\n## heading" not in markdown
    assert not [line for line in markdown.splitlines() if " @team" in line]


def test_a_comment_on_a_hundred_datasets_is_not_too_long(tmp_path: Path) -> None:
    folder = examples.write(tmp_path, found=examples.hundred(), verified=examples.verification())
    markdown = as_markdown(load_findings(folder))
    assert "of 100" in markdown
    assert len(markdown) < 65_536  # what GitHub takes


def test_the_steps_that_simulate_keeps_are_drawn(tmp_path: Path) -> None:
    folder = examples.write(tmp_path / "reports", found=examples.profile())
    words = ["simulate", "--timeline", "12", "--requests", "60", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "chunkscope", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    found = tradeoff(load_findings(folder))
    assert found is not None
    assert {piece.step for piece in found.timeline} == set(range(12))
    assert any(piece.kind.startswith("prompt ") for piece in found.timeline)
