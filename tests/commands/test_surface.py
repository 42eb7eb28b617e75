"""The command line itself: help in groups, few options, completion, streams, width, known names."""

import json
import os
import subprocess
import sys

import pytest
from typer.main import get_command

from chunkscope.cli import application
from chunkscope.commands.options import pages
from chunkscope.console import progress
from chunkscope.report.accuracy import accuracy_tables
from tests.commands.helpers import (
    analyze,
    analyze_apart,
    chunkscope,
    prompts,
    write_jsonl,
)

COMMANDS = get_command(application()).commands  # type: ignore[attr-defined]
EACH = pytest.mark.parametrize("name", sorted(COMMANDS))


def options(name: str) -> list:
    command = COMMANDS[name]
    context = command.make_context(name, ["--help"], resilient_parsing=True)
    return [p for p in command.get_params(context) if p.param_type_name == "option"]


@EACH
def test_help_fits_80_columns_and_ends_in_an_example(tmp_path, name: str) -> None:
    run = chunkscope(tmp_path, name, "--help")
    assert run.code == 0
    assert all(len(line) <= 80 for line in run.out.splitlines())
    assert f"Example: chunkscope {name}" in run.out


@pytest.mark.parametrize(
    "words", ["analyze a.jsonl", "doctor a.jsonl", "recommend", "simulate"]
)
def test_an_output_replaces_results_and_no_data(tmp_path, words: str) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    data = (tmp_path / "a.jsonl").read_bytes()
    run = chunkscope(tmp_path, *words.split(), "-o", "a.jsonl")
    assert (run.code, "--output a.jsonl exists" in run.err) == (2, True), run.err
    assert (tmp_path / "a.jsonl").read_bytes() == data
    (tmp_path / "empty.json").touch()  # as mktemp makes it
    for name in ("empty.json", "empty.json", "new.json"):
        assert analyze(tmp_path, "a.jsonl", "-o", name).code == 0


def test_one_name_means_one_thing_everywhere() -> None:
    """A short letter stands for one option."""
    every = [option.opts for name in COMMANDS for option in options(name)]
    letters: dict[str, set[str]] = {}
    for letter, *names in (sorted(opts, key=len) for opts in every if len(opts) > 1):
        letters.setdefault(letter, set()).update(names)
    assert all(len(names) == 1 for names in letters.values()), letters
    assert not {"--policy", "--order"} & {name for opts in every for name in opts}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("recommend --gpu h1", "h100"),
        ("memory --model llama-3", "llama-3.1-8b"),
        ("help rec", "recommend"),
        ("recommend --task log", "loglikelihood"),
    ],
)
def test_the_shell_completes_commands_gpus_models_and_pages(
    typed: str, offered: str
) -> None:
    env = {**os.environ, "_CHUNKSCOPE_COMPLETE": "complete_bash"}
    words = f"chunkscope {typed}"
    env |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    code = "import sys; sys.argv = ['chunkscope']; from chunkscope.cli import application; "
    code += "application()(prog_name='chunkscope')"
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert offered in done.stdout.split(), done.stderr


def test_every_page_of_the_manual_is_shown_and_the_help_without_a_command(
    tmp_path,
) -> None:
    run = chunkscope(tmp_path)
    assert (run.code, run.err.strip()) == (
        2,
        chunkscope(tmp_path, "--help").out.strip(),
    )
    listed = chunkscope(tmp_path, "help").out
    for page, path in pages().items():
        assert page in listed
        shown = chunkscope(tmp_path, "help", page).out
        if page == "accuracy":  # the tables follow, which no page repeats
            assert shown == path.read_text() + accuracy_tables()
        else:
            assert shown == path.read_text()
    assert chunkscope(tmp_path, "help", "nothing").code == 2


@pytest.mark.parametrize(
    ("command", "name"), [("gpus", "h100"), ("models", "qwen3-8b")]
)
def test_known_names_are_listed(tmp_path, command: str, name: str) -> None:
    rows = json.loads(chunkscope(tmp_path, command, "--json").out)[command]
    assert name in {row["name"] for row in rows}


@pytest.fixture
def place(tmp_path):
    write_jsonl(tmp_path / "data.jsonl", prompts(40))
    return tmp_path


def test_a_terminal_without_colour_or_unicode_is_no_obstacle(place) -> None:
    run = analyze_apart(place, "data.jsonl", env={"PYTHONIOENCODING": "ascii"})
    assert run.code == 0, run.err
    assert run.out.isascii()
    assert "\x1b" not in run.out


@pytest.mark.parametrize("columns", ["0", "nonsense", "40", "200"])
def test_any_width_works(place, columns: str, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert analyze(place, "data.jsonl", "--details").code == 0


def test_a_log_has_a_phase_once(capsys) -> None:
    with progress() as lines:
        for name in ("loading", "calibrating", "calibrating"):
            lines.phase(name)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_name_full_of_markup_is_no_markup_to_the_bar(monkeypatch) -> None:
    """On a terminal a tokenizer called tok[/x] ended in a traceback of the bar's thread."""
    from chunkscope import console

    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with console.progress() as bar:
        bar.phase("tok[/x]")
        bar.at(rows=1, tokens=2, bytes_read=3)
        bar.phase("measuring", "[/b]")
        bar.progress(1, 2)
