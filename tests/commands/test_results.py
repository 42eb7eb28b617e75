"""`report`, `gate` and `doctor` as a user meets them."""

import json
from pathlib import Path

import pytest

import chunkscope as python
from tests import build
from tests.commands.helpers import chunkscope
from tests.report import examples


@pytest.fixture
def place(tmp_path: Path) -> Path:
    examples.folder(tmp_path / "reports", "profile", "plan", "verify")
    return tmp_path


# -- report ----------------------------------------------------------------------------


def test_the_page_goes_beside_the_results(place):
    assert chunkscope(place, "report").code == 0
    assert (place / "reports" / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_python_writes_the_page_and_returns_its_path(place):
    page = python.write_report(place / "reports", out=place / "page.html")

    assert page == place / "page.html"
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_markdown_goes_to_stdout(place):
    assert "\n| " in chunkscope(place, "report", "--format", "md").out


def test_json_has_every_artefact_or_null(place):
    document = json.loads(chunkscope(place, "report", "--json").out)

    assert document["plan"]["schema"].startswith("chunkscope/plan/")
    assert document["simulation"] is None


@pytest.mark.parametrize(
    ("name", "start"),
    [
        pytest.param("all.json", "{", id="JSON"),
        pytest.param("all.md", "**", id="Markdown"),
        pytest.param("all.html", "<!DOCTYPE", id="a page"),
    ],
)
def test_the_suffix_of_the_file_says_the_form(place, name, start):
    assert chunkscope(place, "report", "-o", name).code == 0
    assert (place / name).read_text().startswith(start)


# -- gate ------------------------------------------------------------------------------


@pytest.fixture
def gated(place: Path) -> Path:
    """With a budget that today's results keep."""
    run = chunkscope(place, "gate", "--init")
    assert run.code == 0, run.err
    return place


def test_a_budget_of_today_is_kept_today(gated):
    assert chunkscope(gated, "gate").code == 0


def test_the_gate_exits_1_where_the_data_has_drifted(gated):
    longer = build.profile(short=build.SHORT, mixed=(*build.MIXED, 99_999))
    longer.save(gated / "reports" / "profile.json")

    run = chunkscope(gated, "gate")

    assert run.code == 1
    assert "99,999" in run.out


def test_init_says_how_settings_are_checked(place):
    run = chunkscope(place, "gate", "--init")

    assert "--emit vllm-yaml > vllm.yaml`" in run.err
    assert "chunkscope gate --init --force`" in run.err


def test_init_commits_the_profile_as_the_baseline(gated):
    baseline = python.Profile.load(gated / "baseline" / "profile.json")

    assert baseline == python.Profile.load(gated / "reports" / "profile.json")


def test_init_names_the_budget_in_the_next_command(place):
    run = chunkscope(place, "gate", "--init", "-c", "b b/c.toml")

    assert run.err.endswith("next: chunkscope gate --config 'b b/c.toml'\n")


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_init_leaves_other_tables_as_they_are(place, end):
    others = f"# mine{end}[verify]{end}repeats = 3  # why{end}"
    (place / "chunkscope.toml").write_bytes(others.encode())

    assert chunkscope(place, "gate", "--init").code == 0
    assert (place / "chunkscope.toml").read_bytes().startswith(others.encode())


def test_init_does_not_replace_a_budget(gated):
    run = chunkscope(gated, "gate", "--init")

    assert run.code == 2
    assert "--force" in run.err


def test_with_force_the_old_budget_is_kept_aside(gated):
    budget = gated / "chunkscope.toml"
    budget.write_text(budget.read_text() + "# mine\n")
    written = budget.read_text()

    assert chunkscope(gated, "gate", "--init", "--force").code == 0
    assert (gated / "chunkscope.toml.old").read_text() == written


def test_a_budget_that_is_no_toml_is_not_replaced(place):
    (place / "chunkscope.toml").write_text("[gate")

    run = chunkscope(place, "gate", "--init", "--force")

    assert run.code == 3
    assert (place / "chunkscope.toml").read_text() == "[gate"


def test_json_and_python_give_the_same_checks(place):
    (place / "small.toml").write_text("[gate.data]\nlongest_prompt = 100\n")

    run = chunkscope(place, "gate", "--config", "small.toml", "--json")
    result = python.gate(place / "reports", config=place / "small.toml")

    document = json.loads(run.out)
    assert (document["passed"], result.passed) == (False, False)
    assert document["checks"][0]["value"] == result.checks[0].value == 4_000


# -- doctor ----------------------------------------------------------------------------


def test_the_diagnosis_is_written(place):
    run = chunkscope(place, "doctor", examples.LOG)

    assert run.code == 0, run.err
    assert python.Diagnosis.load(place / "reports" / "doctor.json").symptoms


def test_a_log_can_come_through_a_pipe(place):
    run = chunkscope(place, "doctor", "-", stdin=examples.LOG.read_bytes())

    assert run.out == chunkscope(place, "doctor", examples.LOG).out


def test_a_profile_that_is_named_must_be_there(place):
    run = chunkscope(place, "doctor", examples.LOG, "--profile", "elsewhere.json")

    assert run.code == 3
    assert "elsewhere.json" in run.err
