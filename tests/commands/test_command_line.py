"""The command line itself: help, completion, the manual, files that are spared."""

import json
import os
import re
import subprocess
import sys

import pytest
import typer

from chunkscope.cli import COMMANDS, app
from chunkscope.commands.help import pages
from chunkscope.console import progress
from chunkscope.report.accuracy import accuracy_tables
from tests.commands.helpers import (
    analyze,
    analyze_apart,
    chunkscope,
    prompts,
    write_jsonl,
)


def command(name: str) -> typer.core.TyperCommand:
    group = typer.main.get_command(app)
    return group.get_command(typer.Context(group), name)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_in_an_example(tmp_path, name):
    run = chunkscope(tmp_path, name, "--help")

    assert run.code == 0
    assert f"Example: chunkscope {name}" in run.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns(tmp_path, name):
    run = chunkscope(tmp_path, name, "--help")

    assert max(len(line) for line in run.out.splitlines()) <= 80


def test_help_lists_options_in_groups(tmp_path):
    run = chunkscope(tmp_path, "recommend", "--help")

    headings = re.findall(r"^\w+:$", run.out, re.MULTILINE)
    assert headings == ["Arguments:", "Machine:", "Workload:", "Limits:", "Output:"]


def test_without_a_command_the_help_is_shown(tmp_path):
    run = chunkscope(tmp_path)

    assert run.code == 2
    assert run.err.strip() == chunkscope(tmp_path, "--help").out.strip()


def test_a_mistyped_command_is_named_with_the_nearest(tmp_path):
    run = chunkscope(tmp_path, "analyse")

    assert run.code == 2
    assert "did you mean analyze?" in run.err


def test_a_short_letter_stands_for_one_option_in_all_commands():
    names: dict[str, set[str]] = {}
    for name in COMMANDS:
        for parameter in command(name).params:
            for letter in parameter.opts:
                if letter.startswith("-") and len(letter) == 2:
                    names.setdefault(letter, set()).update(parameter.opts)

    assert names == {
        "-c": {"-c", "--config"},
        "-f": {"-f", "--field"},
        "-m": {"-m", "--model"},
        "-o": {"-o", "--out"},
        "-q": {"-q", "--quiet"},
        "-t": {"-t", "--tokenizer"},
    }


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        pytest.param("recommend --gpu h1", "h100", id="a GPU"),
        pytest.param("memory --model llama-3", "llama-3.1-8b", id="a model"),
        pytest.param("help rec", "recommend", id="a page"),
        pytest.param("recommend --task log", "loglikelihood", id="a choice"),
        pytest.param("reco", "recommend", id="a command"),
    ],
)
def test_the_shell_completes(typed, offered):
    words = f"chunkscope {typed}"
    env = {
        **os.environ,
        "_CHUNKSCOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    line = [sys.executable, "-c", "from chunkscope.cli import main; main()"]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)

    assert offered in done.stdout.split(), done.stderr


# -- the manual and the lists of names -------------------------------------------------


@pytest.mark.parametrize("page", pages())
def test_a_page_of_the_manual_is_listed(tmp_path, page):
    assert f"chunkscope help {page}" in chunkscope(tmp_path, "help").out


@pytest.mark.parametrize("page", sorted(pages().keys() - {"accuracy"}))
def test_a_page_of_the_manual_is_shown_as_it_is(tmp_path, page):
    assert chunkscope(tmp_path, "help", page).out == pages()[page].read_text()


def test_the_page_on_accuracy_ends_in_tables(tmp_path):
    shown = chunkscope(tmp_path, "help", "accuracy").out

    assert shown == pages()["accuracy"].read_text() + accuracy_tables()


def test_a_page_that_is_not_there_is_an_error(tmp_path):
    run = chunkscope(tmp_path, "help", "recomend")

    assert run.code == 2
    assert "did you mean recommend?" in run.err


@pytest.mark.parametrize(
    ("command", "name"), [("gpus", "h100"), ("models", "qwen3-8b")]
)
def test_known_names_are_listed(tmp_path, command, name):
    rows = json.loads(chunkscope(tmp_path, command, "--json").out)[command]

    assert name in {row["name"] for row in rows}


# -- what is written where -------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["analyze a.jsonl", "doctor a.jsonl", "recommend", "simulate", "report", "verify"],
)
def test_a_result_never_replaces_data(tmp_path, words):
    write_jsonl(tmp_path / "a.jsonl", prompts())
    data = (tmp_path / "a.jsonl").read_bytes()

    run = chunkscope(tmp_path, *words.split(), "-o", "a.jsonl")

    assert run.code == 2
    assert "a.jsonl exists and is not a result" in run.err
    assert (tmp_path / "a.jsonl").read_bytes() == data


def test_a_result_replaces_an_empty_file_and_an_older_result(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", prompts())
    (tmp_path / "empty.json").touch()  # as mktemp makes it

    assert analyze(tmp_path, "a.jsonl", "-o", "empty.json").code == 0
    assert analyze(tmp_path, "a.jsonl", "-o", "empty.json").code == 0


def test_an_empty_argument_is_an_error(tmp_path):
    run = chunkscope(tmp_path, "recommend", "--model", "")

    assert run.code == 2
    assert "is a shell variable not set?" in run.err


# -- terminals -------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path):
    write_jsonl(tmp_path / "data.jsonl", prompts(40))
    return tmp_path


def test_a_terminal_without_unicode_gets_ascii(place):
    run = analyze_apart(place, "data.jsonl", env={"PYTHONIOENCODING": "ascii"})

    assert run.code == 0, run.err
    assert run.out.isascii()
    assert "\x1b" not in run.out


@pytest.mark.parametrize("columns", ["0", "nonsense", "40", "200"])
def test_any_width_works(place, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)

    assert analyze(place, "data.jsonl", "--details").code == 0


def test_a_log_has_a_line_for_each_phase(capsys):
    with progress() as lines:
        for name in ("loading", "calibrating", "calibrating"):
            lines.phase(name)

    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_progress_bar_shows_names_as_they_are(monkeypatch):
    from chunkscope import console

    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with console.progress() as bar:
        bar.phase("tok[/x]")  # which is no markup of rich
        bar.at(rows=1, tokens=2, bytes_read=3)
        bar.phase("measuring", "[/b]")
        bar.progress(1, 2)
