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


def test_the_page_goes_beside_the_results_and_the_answer_to_the_terminal(place) -> None:
    run = chunkscope(place, "report")
    assert run.code == 0, run.err
    assert (
        (place / "reports" / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")
    )
    for wanted in (place / "reports" / "report.html", place / "page.html"):
        wanted.unlink(missing_ok=True)
        asked = wanted if wanted.name == "page.html" else None
        assert python.report(place / "reports", output=asked) == wanted
        assert wanted.read_bytes().startswith(b"<!DOCTYPE html>")


def test_markdown_and_json_go_to_stdout_and_the_files_name_says_the_form(place) -> None:
    assert "\n| " in chunkscope(place, "report", "--format", "md").out
    document = json.loads(chunkscope(place, "report", "--json").out)
    assert document["simulation"] is None
    assert document["plan"]["schema"].startswith("chunkscope/plan/")
    chunkscope(place, "report", "-o", "all.json")
    assert json.loads((place / "all.json").read_bytes()) == document
    chunkscope(place, "report", "-o", "all.md")
    assert "|" in (place / "all.md").read_text()


def test_two_folders_are_compared(place) -> None:
    build.profile(short=[7]).save(place / "new" / "profile.json")
    changes = json.loads(chunkscope(place, "report", "reports", "new", "--json").out)
    assert {change["subject"] for change in changes["data"]} >= {"short"}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_budget_goes_beside_other_tables_is_kept_broken_and_replaced(
    place, end
) -> None:
    others, path = (
        f"# mine{end}[verify]{end}seed = 3  # why{end}",
        place / "chunkscope.toml",
    )
    path.write_bytes(b"\xef\xbb\xbf" + others.encode())
    assert "gate --init" in chunkscope(place, "gate").err
    run = chunkscope(place, "gate", "--init")
    assert (run.code, "--emit vllm-yaml > vllm.yaml" in run.err) == (0, True), run.err
    written = path.read_bytes()
    assert written.startswith(others.encode())
    old = place / "chunkscope.toml.old"
    old.mkdir()  # which cannot be written, as in a read-only folder
    for words, code in (((), 0), (("--init",), 2), (("--init", "--force"), 3)):
        assert chunkscope(place, "gate", *words).code == code
    old.rmdir()
    assert chunkscope(place, "gate", "--init", "--force").code == 0
    assert old.read_bytes() == path.read_bytes() == written
    profile = build.profile(short=build.SHORT, mixed=(*build.MIXED, 99_999))
    profile.save(place / "reports" / "profile.json")
    run = chunkscope(place, "gate")
    assert (run.code, "99,999" in run.out) == (1, True)
    path.write_text("[gate")
    assert chunkscope(place, "gate", "--init", "--force").code == 3


def test_a_gate_speaks_json_and_python(place) -> None:
    (place / "s.toml").write_text("[gate.data]\nlongest_prompt = 100\n")
    assert (
        "1 of 1 check in s.toml failed."
        in chunkscope(place, "gate", "-c", "s.toml").out
    )
    document = json.loads(chunkscope(place, "gate", "--config", "s.toml", "--json").out)
    result = python.gate(place / "reports", config=place / "s.toml")
    assert (document["passed"], document["failed"], result.passed) == (False, 1, False)
    assert document["checks"][0]["value"] == result.checks[0].value == 4_000


def test_the_answer_comes_first_and_the_diagnosis_is_kept(place) -> None:
    run = chunkscope(place, "doctor", examples.LOG)
    assert run.code == 0, run.err
    assert python.Diagnosis.load(place / "reports" / "doctor.json").symptoms
    assert chunkscope(
        place, "doctor", "-", "--format", "md", stdin=examples.LOG.read_bytes()
    ).out
    run = chunkscope(place, "doctor", examples.LOG, "--profile", "elsewhere.json")
    assert (run.code, "elsewhere.json" in run.err) == (3, True)
