"""What is said while a verification goes on: one line per phase in a log, one that moves else."""

import pytest

from chunkscope import console
from chunkscope.progress import verify_progress


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
