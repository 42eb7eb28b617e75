"""What the verdicts look like: for people, for JUnit readers, for GitHub, as JSON."""

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from chunkscope.gating.verdict import GateResult, Verdict
from chunkscope.report.github import MOST_ROWS, annotations, append_summary, summary
from chunkscope.report.junit import as_junit
from chunkscope.report.terminal.gate import show_gate
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

EVIL = "a:b,c%d\r\n::error::[/b]<script>|`x`\x1b[31m"


def verdict(*, kept=True, promise="data.p95", subject="all together", **more):
    told = {"promised": "at most 10 tokens", "found": "12 tokens", **more}
    return Verdict(promise=promise, subject=subject, kept=kept, **told)


def result(*verdicts, lines=None):
    return GateResult(
        budget=Path("chunkscope.toml"),
        folder=Path("reports"),
        verdicts=verdicts,
        lines=lines or {},
        created="2025-01-01T00:00:00+00:00",
    )


# -- JUnit ---------------------------------------------------------------------------------------


def test_junit_has_a_case_per_promise_and_a_failure_per_broken_one():
    xml = as_junit(result(verdict(), verdict(kept=False, note="why"), verdict(promise="speed.x")))
    root = ElementTree.fromstring(xml)
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "3", "1")
    assert [(s.get("name"), s.get("tests")) for s in root] == [("data", "2"), ("speed", "1")]
    (failure,) = root.iter("failure")
    assert failure.get("message") == "promised at most 10 tokens, found 12 tokens"
    assert failure.text.endswith("why")


@given(st.text(max_size=30))
def test_junit_is_xml_whatever_a_dataset_is_called(name):
    root = ElementTree.fromstring(as_junit(result(verdict(kept=False, subject=name, note=name))))
    (case,) = root.iter("testcase")
    assert case.get("name").startswith("data.p95 of ")


# -- GitHub --------------------------------------------------------------------------------------


def test_an_annotation_stands_at_the_promises_line():
    lines = {("data",): 3, ("data", "p95"): 4}
    text = annotations(result(verdict(kept=False), verdict(), lines=lines))
    assert text == (
        "::error file=chunkscope.toml,line=4,title=data.p95 of all together::"
        "promised at most 10 tokens, found 12 tokens\n"
    )


def test_a_promise_without_a_line_of_its_own_stands_at_its_table():
    lines = {("data",): 3}
    assert ",line=3," in annotations(result(verdict(kept=False), lines=lines))
    assert "line=" not in annotations(result(verdict(kept=False)))


def test_when_all_is_kept_there_is_a_notice():
    assert annotations(result(verdict())) == (
        "::notice title=chunkscope gate::the one promise is kept\n"
    )


def test_no_name_can_end_an_annotation_or_start_another():
    text = annotations(result(verdict(kept=False, subject=EVIL, note=EVIL)))
    assert text.count("\n") == 1
    assert "\r" not in text
    head, message = text.removeprefix("::error ").split("::", 1)
    assert "title=data.p95 of a%3Ab%2Cc%25d%0D%0A%3A%3Aerror%3A%3A" in head
    assert "a:b,c%25d%0D%0A::error::" in message


@given(st.text(max_size=30))
def test_an_annotation_is_one_line_that_can_be_read_back(name):
    text = annotations(result(verdict(kept=False, subject=name)))
    found = re.fullmatch(r"::error ([^\r\n]*?)::([^\r\n]*)\n", text)
    title = found[1].split(",")[1].removeprefix("title=")
    for code, char in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        title = title.replace(code, char)
    assert title == f"data.p95 of {name}"


def test_the_file_is_named_as_seen_from_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    found = GateResult(
        budget=tmp_path / "ci" / "chunkscope.toml",
        folder=Path("reports"),
        verdicts=(verdict(kept=False),),
    )
    assert "file=ci/chunkscope.toml," in annotations(found)


def test_the_summary_shows_the_broken_first_and_escapes_names():
    text = summary(result(verdict(), verdict(kept=False, subject=EVIL)))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert text.startswith("### chunkscope gate: 1 of 2 promises broken\n")
    assert rows[2].startswith("| **broken** | data.p95 | a:b,c%d ::error::")
    assert "<script>" not in text
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)


def test_the_summary_stays_within_what_github_takes():
    text = summary(result(*[verdict(subject="x" * 200)] * 3000))
    assert f"... and {3000 - MOST_ROWS:,} more" in text
    assert len(text) < 1_000_000


def test_the_summary_is_appended_where_github_wants_it(tmp_path, monkeypatch):
    place = tmp_path / "summary.md"
    place.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    assert append_summary(result(verdict())) is None
    assert place.read_text().startswith("before\n### chunkscope gate: the one promise is kept\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert append_summary(result(verdict())) == "cannot write the job summary: Is a directory"
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert append_summary(result(verdict())) is None


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ([True], "the one promise is kept"),
        ([True, True], "2 promises kept"),
        ([False, True], "1 of 2 promises broken"),
        ([False], "1 of 1 promises broken"),
    ],
)
def test_the_headline_counts(kept, said):
    assert result(*(verdict(kept=k) for k in kept)).headline == said


# -- terminal ------------------------------------------------------------------------------------


def shown(found, width=80):
    out = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    show_gate(found, out)
    return out.file.getvalue()


def test_the_table_is_told_by_the_budgets_tables_and_the_broken_once_more_in_full():
    text = shown(
        result(
            verdict(found="9 tokens"),
            verdict(kept=False, subject="gsm8k", note="it grew"),
            verdict(promise="memory.predicted.device_peak", subject="plan"),
        )
    )
    assert [line.rstrip() for line in text.splitlines()] == [
        "1 of 3 promises broken, by chunkscope.toml",
        "",
        "       promise           promised          found",
        "       data",
        "kept   p95               at most 10 tokens 9 tokens",
        "BROKEN p95: gsm8k        at most 10 tokens 12 tokens",
        "       memory.predicted",
        "kept   device_peak: plan at most 10 tokens 12 tokens",
        "",
        "data.p95 of gsm8k: promised at most 10 tokens, found 12 tokens (it grew)",
    ]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal_and_the_broken_are_named_in_full(width):
    name = "a_very_long_name_of_a_dataset/" * 3
    text = shown(result(verdict(kept=False, subject=name), verdict(subject=name)), width)
    assert max(map(len, text.splitlines())) <= width
    assert name in text.replace("\n", "").replace(" ", "").replace("promised", "")


def test_names_are_shown_as_they_are_and_do_nothing_to_a_terminal():
    text = shown(result(verdict(kept=False, subject="[/b][draft]\x1b[31m\n")), 140)
    assert "[/b][draft]\\x1b[31m\\n" in text
    assert "\x1b" not in text


def test_of_many_kept_promises_only_some_are_shown_and_of_the_broken_all():
    many = [verdict(subject=f"kept{n}") for n in range(50)]
    broken = [verdict(kept=False, subject=f"broken{n}") for n in range(50)]
    text = shown(result(*many, *broken))
    assert "... 30 more" in text
    assert all(f"BROKEN p95: broken{n}" in text for n in range(50))
