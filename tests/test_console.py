"""What is said while a scan or a verification goes on, in a log and on a terminal."""

import pytest

from chunkscope import console
from chunkscope.console import scan_progress, verify_progress


def tell(listener):
    listener.setting("plan", 1, 2)
    listener.phase("loading")
    listener.phase("measuring", "repeat 1 of 3")
    listener.progress(40, 200)
    listener.setting("off", 2, 2)
    listener.phase("loading")


def test_in_a_log_each_phase_is_a_line(capsys) -> None:
    with verify_progress(quiet=False) as listener:
        tell(listener)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "0:00 plan (1 of 2): loading",
        "0:00 plan (1 of 2): measuring, repeat 1 of 3",
        "0:00 off (2 of 2): loading",
    ]


def test_on_a_terminal_the_line_says_how_far_and_how_long(capsys, monkeypatch) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with verify_progress(quiet=False) as listener:
        tell(listener)
    said = capsys.readouterr().err
    assert "off (2 of 2): loading" in said
    assert "about 0:00 left" in said


@pytest.mark.parametrize("terminal", [True, False])
def test_when_quiet_nothing_is_said(capsys, monkeypatch, terminal) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda: terminal)
    with verify_progress(quiet=True) as listener:
        tell(listener)
    assert capsys.readouterr().err == ""


def scan(progress):
    progress.begin(1_000)
    progress.at(rows=1_500, tokens=40_000, bytes_read=600)
    progress.at(rows=2_000, tokens=42_000, bytes_read=1_000)


@pytest.mark.parametrize(("terminal", "quiet"), [(False, False), (True, True)])
def test_a_scan_is_silent_in_a_log_and_when_quiet(capsys, monkeypatch, terminal, quiet) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda: terminal)
    with scan_progress(quiet=quiet) as progress:
        scan(progress)
    assert capsys.readouterr().err == ""


def test_a_scan_on_a_terminal_says_rows_and_tokens(capsys, monkeypatch) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with scan_progress(quiet=False) as progress:
        scan(progress)
    assert "2,000 rows  42,000 tokens" in capsys.readouterr().err
