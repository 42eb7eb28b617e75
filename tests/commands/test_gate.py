"""`chunkscope gate` as a user meets it: stdout, stderr, exit codes, files."""

import io
import json
import os
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

import chunkscope
from chunkscope import cli
from tests.conftest import REPOSITORY
from tests.gating.helpers import Place


@dataclass(frozen=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str


def gate(place: Place, *words: str, columns: int = 80, **env: str) -> Ran:
    """`cd PLACE; chunkscope gate WORDS`, through `main` in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    usual = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    shown = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    with (
        chdir(place.folder),
        patch.dict(os.environ, {**usual, **shown, **env}, clear=True),
        patch.multiple(sys, argv=["chunkscope", "gate", *words], stdout=out, stderr=err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    return Ran(ended.value.code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()


@pytest.fixture
def ready(place: Place) -> Place:
    place.save_plan(place.save_profile(data=[100, 200]))
    place.write("chunkscope.toml", "[gate.data]\nlongest_prompt = 200\nmin_rows = 2\n")
    return place


def test_kept_promises_exit_0_and_say_what_was_read(ready):
    run = gate(ready)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("2 promises kept, by chunkscope.toml\n")
    assert "all promises of chunkscope.toml are kept" in run.stderr


def test_a_broken_promise_exits_1_with_both_numbers(ready):
    ready.write("chunkscope.toml", "[gate.data]\nlongest_prompt = 199\nmin_rows = 2\n")
    run = gate(ready)
    assert run.returncode == 1
    assert "BROKEN longest_prompt at most 199 tokens 200 tokens" in run.stdout
    assert run.stderr == "error: 1 promise is broken: data.longest_prompt of all together\n"


def test_json_is_the_verdicts_and_nothing_else(ready):
    ready.write("chunkscope.toml", "[gate.data]\nlongest_prompt = 199\nmin_rows = 2\n")
    run = gate(ready, "--json")
    found = json.loads(run.stdout)
    assert run.returncode == 1
    assert (found["schema"], found["kept"], found["broken"]) == ("chunkscope/gate/1", False, 1)
    assert found["verdicts"][0] == {
        "promise": "data.longest_prompt",
        "subject": "all together",
        "kept": False,
        "promised": "at most 199 tokens",
        "found": "200 tokens",
        "promised_value": 199,
        "found_value": 200,
        "note": "",
        "because": "",
        "if_intended": "chunkscope gate --update",
    }


def test_junit_is_xml_and_nothing_else(ready):
    run = gate(ready, "--format", "junit")
    assert run.returncode == 0
    assert ElementTree.fromstring(run.stdout).get("tests") == "2"


def test_github_gets_annotations_and_a_summary(ready):
    ready.write("chunkscope.toml", "[gate.data]\nlongest_prompt = 199\n")
    place = ready.folder / "summary.md"
    run = gate(ready, "--format", "github", GITHUB_STEP_SUMMARY=str(place))
    assert run.returncode == 1
    assert run.stdout.startswith("::error file=chunkscope.toml,line=2,title=data.longest_prompt")
    assert "1 of 1 promises broken" in place.read_text()


def test_no_name_can_give_github_a_command_through_stderr(ready):
    ready.write("chunkscope.toml", '[gate.data]\ndatasets = ["x\\n::error::boo"]\n')
    run = gate(ready, "--format", "github")
    assert run.returncode == 1
    said = (run.stdout + run.stderr).splitlines()
    assert sum(line.startswith("::") for line in said) == 1


def test_a_summary_that_cannot_be_written_does_not_change_the_verdict(ready):
    run = gate(ready, "--format", "github", GITHUB_STEP_SUMMARY="/nowhere/summary.md")
    assert run.returncode == 0
    assert "note: cannot write the job summary" in run.stderr


def test_of_two_budgets_it_says_which_was_read(ready):
    ready.write("pyproject.toml", "[tool.chunkscope.gate.data]\nlongest_prompt = 1\n")
    run = gate(ready)
    assert run.returncode == 0
    assert "note: pyproject.toml has a [tool.chunkscope.gate] too: not read" in run.stderr
    assert gate(ready, "--config", "pyproject.toml").returncode == 1


def test_another_folder_of_artefacts_can_be_named(ready):
    (ready.folder / "reports").rename(ready.folder / "elsewhere")
    assert gate(ready, "elsewhere").returncode == 0
    assert gate(ready).returncode == 3


def test_init_writes_a_file_that_passes_and_is_not_overwritten(ready):
    (ready.folder / "chunkscope.toml").unlink()
    run = gate(ready, "--init")
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr == "wrote chunkscope.toml; next: chunkscope gate\n"
    assert gate(ready).returncode == 0
    again = gate(ready, "--init")
    assert again.returncode == 2
    assert "--update" in again.stderr
    assert "--force" in again.stderr


def test_force_keeps_the_old_files_aside_and_says_so(ready):
    mine = (ready.folder / "chunkscope.toml").read_text()
    for name in ("chunkscope.toml.old", "chunkscope.toml.old1"):
        run = gate(ready, "--init", "--force")
        assert run.returncode == 0
        assert f"the old chunkscope.toml is now {name}" in run.stderr
    assert (ready.folder / "chunkscope.toml.old").read_text() == mine


def test_update_shows_what_it_moves_and_asks_nothing(ready):
    ready.write("chunkscope.toml", "# Mine.\n[gate.data]\nlongest_prompt = 150  # why\n")
    run = gate(ready, "--update", CI="true")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "--- chunkscope.toml",
        "+++ chunkscope.toml (today)",
        "@@ -2,2 +2,2 @@",
        " [gate.data]",
        "-longest_prompt = 150  # why",
        "+longest_prompt = 230  # why",
    ]
    assert gate(ready).returncode == 0
    again = gate(ready, "--update")
    assert (again.returncode, again.stdout) == (0, "")
    assert "there is nothing to move in chunkscope.toml" in again.stderr


def test_update_fails_where_no_limit_can_be_moved(ready):
    ready.write(
        "chunkscope.toml", "[gate.data]\nlongest_prompt = 5\n[gate.freshness]\ndata = true\n"
    )
    run = gate(ready, "--update")
    assert run.returncode == 1
    assert "If that is intended:\n  chunkscope analyze data/" in run.stdout
    assert "1 promise is broken" not in run.stderr
    assert "no limit could be moved for that: 2 promises are broken" in run.stderr


def test_init_writes_where_it_is_told(ready):
    run = gate(ready, "--init", "--config", "ci/budget.toml")
    assert run.returncode == 0, run.stderr
    assert "next: chunkscope gate --config ci/budget.toml" in run.stderr
    assert gate(ready, "--config", "ci/budget.toml").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "--format", "junit"], "exclude each other"),
        (["--init", "--json"], "leave out --json"),
        (["--update", "--format", "github"], "--update writes a file"),
        (["--update", "--init"], "choose"),
        (["--update", "--force"], "only means something with --init"),
        (["--force"], "only means something with --init"),
        (["--format", "xml"], "junit"),
        (["--init", "--config", "pyproject.toml"], "[tool.chunkscope.gate]"),
    ],
)
def test_a_command_line_that_makes_no_sense_exits_2(ready, words, said):
    run = gate(ready, *words)
    assert run.returncode == 2, run.stderr
    assert said in run.stderr
    assert not run.stdout


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        pytest.param("reports/profile.json", None, "and it is not there", id="missing"),
        pytest.param("reports/profile.json", "{", "damaged", id="damaged"),
        pytest.param("reports/profile.json", '{"schema": "chunkscope/profile/9"}', "version 1",
                     id="another schema version"),
        pytest.param("reports/plan.json", "\x00", "damaged", id="damaged beside"),
        pytest.param("reports/verify.json", '{"schema": "chunkscope/verify/2"}', "damaged",
                     id="half a verify file"),
        pytest.param("chunkscope.toml", "", "no [gate] table", id="an empty budget"),
        pytest.param("chunkscope.toml", "[gate]", "promises nothing", id="no promises"),
        pytest.param("chunkscope.toml", "[gate.data]\nlongest_prompt = '200ms'", "K is 1024",
                     id="a wrong unit"),
        pytest.param("chunkscope.toml", "[gate.data]\nlongest = 200", "did you mean longest_prompt",
                     id="an unknown key"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [[], ["--json"], ["--format", "junit"], ["--format", "github"]])
def test_bad_input_exits_3_and_never_passes(ready, name, text, said, form):
    path = ready.folder / name
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    run = gate(ready, *form)
    assert run.returncode == 3, run.stdout
    assert said in run.stderr
    assert "Traceback" not in run.stderr
    if "github" in form:
        (line,) = run.stdout.splitlines()
        assert line.startswith("::error file=chunkscope.toml,title=chunkscope gate cannot judge::")
        assert said in unquote(line)
    else:
        assert not run.stdout


def test_what_cannot_be_judged_is_in_the_jobs_summary(ready):
    (ready.folder / "chunkscope.toml").unlink()
    place = ready.folder / "summary.md"
    run = gate(ready, "--format", "github", GITHUB_STEP_SUMMARY=str(place))
    assert run.returncode == 3
    assert run.stdout.startswith("::error title=chunkscope gate cannot judge::there is no chunk")
    assert "there is no chunkscope.toml" in place.read_text()


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_is_wider_than_the_terminal(ready, columns):
    gate(ready, "--init", "--force")
    run = gate(ready, columns=columns)
    assert max(len(line.rstrip()) for line in run.stdout.splitlines()) <= columns
    assert "\x1b" not in run.stdout


def test_a_reader_that_goes_away_is_no_error(ready):
    command = f"{sys.executable} -m chunkscope gate --json | head -c 1"
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ready.folder, env=env, capture_output=True
    )
    assert run.returncode == 0, run.stderr


def test_the_same_from_python(ready, monkeypatch):
    monkeypatch.chdir(ready.folder)
    result = chunkscope.gate()
    assert isinstance(result, chunkscope.GateResult)
    assert result.kept
    assert [v.found_value for v in result.verdicts] == [200, 2]
    strict = ready.write("strict.toml", "[gate.data]\nlongest_prompt = 199\n")
    assert not chunkscope.gate(Path("reports"), config=strict).kept
