"""What `analyze` shows: a table for people, data for programs, talk on stderr only."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

import chunkscope
from chunkscope import console
from chunkscope.lengths.histogram import LengthHistogram
from tests.commands.helpers import (
    Run,
    analyze,
    analyze_apart,
    command,
    environment,
    prompts,
    write_jsonl,
)
from tests.commands.helpers import chunkscope as chunkscope_here
from tests.processes import PATIENCE_S, started

ODD_NAMES = (
    "[red]",
    "[/b]",
    "[link=https://example.org]x",
    "ends in a backslash\\",
    ":smile:",
    "🎉🎉🎉",
    "数学の問題",
    "x" * 200,
    "two\nlines",
    "tab\tand \x1b[31mred",
    "right-to-left \u202e",
)


@pytest.fixture
def odd(tmp_path: Path) -> list[str]:
    """Datasets whose names try to break a table; the words that analyze them."""
    words = []
    for number, name in enumerate(ODD_NAMES):
        write_jsonl(tmp_path / f"{number}.jsonl", prompts(number + 1))
        words += [f"{number}.jsonl", "--name", name]
    return words


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [20, 80, 111, 112, 140])
def test_no_line_is_wider_than_the_terminal(
    tmp_path: Path, odd: list[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run = analyze(tmp_path, *odd, "--show-longest", "3", "--sample", "2")
    assert run.code == 0, run.err
    assert max(cell_len(line) for line in run.out.splitlines()) <= width


@pytest.mark.parametrize("width", [80, 140])
def test_each_dataset_has_one_line_and_its_name_as_it_is(
    tmp_path: Path, odd: list[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run = analyze(tmp_path, *odd)
    lines = run.out.splitlines()
    table = lines[lines.index("", 1) + 1 :] if lines[1] else lines[2:]
    rows = table[1 : table.index("")]
    assert len(rows) == len(ODD_NAMES) + 1
    assert rows[0].startswith("[red] ")
    assert rows[1].startswith("[/b] ")
    assert rows[3].startswith("ends in a backslash\\ ")
    assert rows[4].startswith(":smile: ")
    assert rows[7].startswith("xxxxxxxxxx")
    assert rows[8].startswith("two\\nlines ")
    assert rows[-1].startswith("all together ")
    assert "\x1b" not in run.out


def test_large_numbers_do_not_push_the_table_off_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.csv").write_text("ContextTokens,GeneratedTokens\n999999999999,1\n1,1\n")
    monkeypatch.setenv("COLUMNS", "80")
    run = analyze(tmp_path, "trace.csv", "--name", "a trace of everything there ever was")
    assert run.code == 0
    assert max(map(cell_len, run.out.splitlines())) <= 80


@pytest.mark.parametrize("width", [80, 100])
def test_no_figure_is_cut_in_its_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Names give way, numbers do not: `4,523,0...` tells nothing."""
    monkeypatch.setenv("COLUMNS", str(width))
    rows = "4523040,1234567\n" * 3
    (tmp_path / "trace.csv").write_text(f"ContextTokens,GeneratedTokens\n{rows}")
    name = ("--name", "a trace of everything there ever was, in a rather long name")
    counted = analyze(tmp_path, "trace.csv", *name)
    profile = chunkscope.Profile.load(tmp_path / "reports" / "profile.json")
    many = LengthHistogram({4_523_040: 4_523_040, 7: 12})
    replace(profile, datasets=(replace(profile.datasets[0], lengths=many),)).save(
        tmp_path / "reports" / "profile.json"
    )
    planned = chunkscope_here(tmp_path, "recommend")
    assert counted.out.count("4,523,040") >= 3
    assert planned.out.count("4,523,040") >= 3
    for text in (counted.out, planned.out):
        assert not re.search(r"\d,?\d*(\.\.\.|\u2026)", text)
        assert max(map(cell_len, text.splitlines())) <= width


def test_thousands_of_files_do_not_make_thousands_of_lines(tmp_path: Path) -> None:
    for number in range(250):
        (tmp_path / f"{number}.txt").write_text(f"how much is {number} and {number}?")
    run = analyze(tmp_path, ".")
    assert run.code == 0
    assert "... and 150 more" in run.out
    assert len(run.out.splitlines()) < 140
    assert len(run.profile["datasets"]) == 250


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({"NO_COLOR": "1", "TERM": "xterm-256color"}, id="NO_COLOR"),
        pytest.param({"TERM": "dumb", "NO_COLOR": ""}, id="a dumb terminal"),
    ],
)
def test_a_terminal_without_colour_gets_none(tmp_path: Path, env: dict[str, str]) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    shown = on_a_terminal(tmp_path, "a.jsonl", **env)
    assert "tokens per prompt" in shown
    assert "\x1b[3" not in shown
    if env["TERM"] == "dumb":
        assert "\x1b" not in shown


def test_a_terminal_with_colour_works_too(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    shown = on_a_terminal(tmp_path, "a.jsonl", TERM="xterm-256color", NO_COLOR="")
    assert "tokens per prompt" in shown


def test_quiet_shows_no_bar(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    bar = "\x1b[?25l"  # it hides the cursor while it moves
    assert bar in on_a_terminal(tmp_path, "a.jsonl", "--no-cache", TERM="xterm")
    quiet = on_a_terminal(tmp_path, "a.jsonl", "--no-cache", "-q", TERM="xterm")
    assert bar not in quiet
    assert "tokens per prompt" in quiet


def on_a_terminal(place: Path, *words: str, **env: str) -> str:
    """What a terminal of 80 columns is sent, stdout and stderr together."""
    ours, theirs = pty.openpty()
    settings = environment(**env)
    if not settings["NO_COLOR"]:
        del settings["NO_COLOR"]
    with started(command(*words), cwd=place, env=settings, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # how Linux says that the other side is closed
            while more := os.read(ours, 1 << 16):
                shown += more
        os.close(ours)
        assert process.wait(PATIENCE_S) == 0
    return shown.decode()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_terminal_without_unicode_is_no_obstacle(tmp_path: Path, encoding: str) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    words = ("a.jsonl", "--name", "数学")
    done = subprocess.run(
        command(*words),
        cwd=tmp_path,
        env=environment(PYTHONIOENCODING=encoding),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"###" in done.stdout


def test_a_strange_width_is_ignored_or_obeyed_but_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    for columns in ("0", "-5", "wide", "1", "7", "100000"):
        monkeypatch.setenv("COLUMNS", columns)
        assert analyze(tmp_path, "a.jsonl").code == 0


# --- for programs ---------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with good rows, bad rows, a file to skip and a note."""
    rows: list[Any] = [{"context": "a long story " * 9, "question": "why?"} for _ in range(5)]
    write_jsonl(tmp_path / "data" / "qa.jsonl", [*rows, {"question": None}])
    write_jsonl(tmp_path / "data" / "deeper" / "more.jsonl", prompts())
    (tmp_path / "data" / "weights.bin").write_bytes(bytes(1000))
    return tmp_path


def test_json_is_exactly_the_profile_and_all_talk_is_on_stderr(mixed: Path) -> None:
    run = analyze_apart(mixed, "data", "--json")
    assert run.code == 3
    assert json.loads(run.out) == run.profile
    assert run.out.encode() == (mixed / "reports" / "profile.json").read_bytes()
    for talk in ("skipped data/weights.bin", "note: ", "bad row: ", "wrote reports/profile.json"):
        assert talk in run.err
        assert talk not in run.out


def test_the_table_is_all_there_is_on_stdout(mixed: Path) -> None:
    run = analyze(mixed, "data")
    for talk in ("skipped", "note: ", "bad row", "hint", "wrote "):
        assert talk not in run.out


def test_the_profile_has_the_keys_the_documentation_lists(mixed: Path) -> None:
    profile = analyze(mixed, "data").profile
    assert profile["schema"] == "chunkscope/profile/2"
    assert profile["chunkscope"] == chunkscope.__version__
    assert {"name", "digest", "engine", "reference"} <= profile["tokenizer"].keys()
    tokens = {"count", "mean", "min", "p50", "p75", "p90", "p95", "p99", "max", "total"}
    assert profile["overall"]["tokens"].keys() == tokens
    assert [group["name"] for group in profile["groups"]] == ["data/deeper", "data"]
    for dataset in profile["datasets"]:
        listed = {"name", "path", "format", "rows", "skipped", "field", "sha256", "tokens"}
        assert listed <= dataset.keys()
        assert dataset["tokens"].keys() == tokens
        assert sum(dataset["histogram"].values()) == dataset["rows"] == dataset["tokens"]["count"]
        assert len(dataset["sha256"]) == 64
        assert dataset["over"].keys() == {"1K", "2K", "4K", "8K", "32K"}


def test_csv_has_a_row_per_dataset_that_programs_can_read(tmp_path: Path, odd: list[str]) -> None:
    run = analyze(tmp_path, *odd, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(run.out)))
    datasets = run.profile["datasets"]
    assert [row["dataset"] for row in rows] == [dataset["name"] for dataset in datasets]
    assert [int(row["rows"]) for row in rows] == [dataset["rows"] for dataset in datasets]
    assert [float(row["p95"]) for row in rows] == [d["tokens"]["p95"] for d in datasets]


def test_markdown_is_one_table_whatever_the_names_are(tmp_path: Path, odd: list[str]) -> None:
    more = write_jsonl(tmp_path / "more.jsonl", prompts())
    run = analyze(tmp_path, *odd, more, "--name", "a|b <script>", "--format", "md")
    lines = run.out.splitlines()
    table = lines[: lines.index("")]
    assert len(table) == len(ODD_NAMES) + 4
    assert "<script>" not in run.out.replace("\\<", "")
    unescaped = [line.replace("\\|", "") for line in table]
    assert {line.count("|") for line in unescaped} == {11}


# --- a sample says that it is one -----------------------------------------------------------------


def sampled(place: Path, *words: str) -> Run:
    return analyze(place, "a.jsonl", "--sample", "20", *words)


def test_a_sample_says_so_in_every_form(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(500))
    table = sampled(tmp_path)
    assert table.dataset["sample"] == {"rows": 20, "out_of": 500, "seed": 0}
    assert table.profile["overall"]["sampled"] is True
    assert table.profile["options"]["sample"] == 20
    assert "20 prompts in 1 dataset (a sample, see below)" in table.out
    assert "Sampled: 20 of 500 rows of a (seed 0)" in table.out
    (row,) = csv.DictReader(io.StringIO(sampled(tmp_path, "--format", "csv").out))
    assert row["sampled"] == "500"
    markdown = sampled(tmp_path, "--format", "md").out
    assert "| a (sample) |" in markdown
    assert "Sampled: 20 of 500 rows of a (seed 0)" in markdown


def test_a_sample_is_the_same_for_the_same_seed_and_another_for_another(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(500))
    first, again, other = (
        sampled(tmp_path, "--no-cache", "--seed", seed).dataset["histogram"]
        for seed in ("7", "7", "8")
    )
    assert first == again != other


def test_a_sample_larger_than_the_data_is_no_sample(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(20))
    run = sampled(tmp_path)
    assert run.dataset["sample"] is None
    assert "sample" not in run.out.lower()


# --- where the longest are ------------------------------------------------------------------------


def test_the_longest_prompts_are_where_it_says(tmp_path: Path) -> None:
    lengths = [5, 900, 17, 33, 901, 12, 450, 901, 3]
    rows = [{"prompt": " a" * length} for length in lengths]
    lines = [json.dumps(row) for row in rows]
    lines.insert(2, "")  # a blank line is a line
    lines.insert(4, "oops")
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    run = analyze(tmp_path, "a.jsonl", "--show-longest", "4", "--skip-bad-rows")
    shown = run.out[run.out.index("the longest prompts") :].splitlines()[1:5]
    positions = [int(line.split()[-1]) for line in shown]
    text = (tmp_path / "a.jsonl").read_text().splitlines()
    found = [json.loads(text[position - 1])["prompt"].count("a") for position in positions]
    assert found == [901, 901, 900, 450]
    assert positions == sorted(positions[:2]) + positions[2:]
    alone = write_jsonl(tmp_path / "one.jsonl", [json.loads(text[positions[0] - 1])])
    assert analyze(tmp_path, alone).dataset["tokens"]["max"] == int(shown[0].split()[0])


def test_the_longest_of_parquet_and_csv_are_rows_and_lines_of_the_file(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [" a" * n for n in (3, 800, 20, 900)]
    parquet.write_table(pyarrow.table({"prompt": texts}), tmp_path / "a.parquet")
    with (tmp_path / "b.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["prompt", "x"], ["two\nlines", 1], [texts[1], 2], ["c", 3]])
    run = analyze(tmp_path, "a.parquet", "b.csv", "--show-longest", "3")
    shown = run.out[run.out.index("the longest prompts") :].splitlines()[1:4]
    found = [" ".join(line.split()[1:]) for line in shown]
    assert found == ["a.parquet row 4", "a.parquet row 2", "b.csv line 4"]


def test_thousands_of_longest_prompts_take_no_longer_than_they_must(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ({"prompt": "a " * (n % 97)} for n in range(60_000)))
    run = analyze(tmp_path, "a.jsonl", "--show-longest", "50000", "--json")
    longest = run.dataset["longest"]
    assert len(longest) == 50_000
    assert [x["tokens"] for x in longest] == sorted((x["tokens"] for x in longest), reverse=True)


def test_each_command_ends_with_the_next_step(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    run = analyze(tmp_path, "a.jsonl")
    assert run.err.endswith("wrote reports/profile.json; next: chunkscope recommend\n")


def test_the_next_step_names_the_file_that_was_just_written(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    (tmp_path / "my plans").mkdir()
    run = analyze(tmp_path, "a.jsonl", "-o", "other.json")
    assert run.err.endswith("wrote other.json; next: chunkscope recommend other.json\n")
    words = ("recommend", "other.json", "-m", "qwen2.5-1.5b", "--gpu", "l4")
    run = chunkscope_here(tmp_path, *words, "-o", "my plans/plan.json")
    again = "chunkscope recommend other.json -m qwen2.5-1.5b --gpu l4 -o 'my plans/plan.json'"
    assert f"$({again} --emit vllm-args)" in run.err
    simulate = ("simulate", "my plans/plan.json", "--profile", "other.json", "-o", "s.json")
    run = chunkscope_here(tmp_path, *simulate)
    of_it = "'my plans/plan.json' --profile other.json"
    after = f"chunkscope simulate {of_it} --sweep, or chunkscope verify {of_it}"
    assert run.err.endswith(f"wrote s.json; next: {after}\n")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "."])
def test_data_where_a_profile_is_wanted_is_told_apart(tmp_path: Path, name: str) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(3))
    (tmp_path / "a.json").write_text('[{"prompt": "one"}]')
    (tmp_path / "a.csv").write_text("prompt\none\n")
    run = chunkscope_here(tmp_path, "recommend", name)
    assert run.code == 3
    hint = f"count it first: `chunkscope analyze {name}`, then `chunkscope recommend`"
    assert run.err == f"error: {name} is data, not a profile\n\nhint: {hint}\n"


COMMANDS = (
    *("analyze", "merge", "prefixes", "recommend", "simulate", "verify", "report", "gate"),
    *("memory", "models", "gpus", "help", "doctor", "demo"),
)
NEVER_WRAPPED = "--long-prefill-token-threshold-adaptive / "  # two names that are one word each


@pytest.mark.parametrize("width", ["80", "140"])
def test_help_fits_the_screen_and_ends_no_sentence_in_dots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    overview = chunkscope_here(tmp_path, "--help").out
    assert "..." not in overview.partition("Commands:")[2]
    assert not [name for name in COMMANDS if f"\n  {name} " not in overview]
    for name in COMMANDS:
        shown = chunkscope_here(tmp_path, name, "--help").out
        lines = [line for line in shown.splitlines() if NEVER_WRAPPED not in line]
        assert max(map(cell_len, lines)) <= int(width), name
        assert f"Example: chunkscope {name}" in shown
        assert "on stdout." not in shown  # a riddle: what is printed, and how?


def test_short_options_for_help_and_the_version(tmp_path: Path) -> None:
    assert chunkscope_here(tmp_path, "-V").out == chunkscope_here(tmp_path, "--version").out
    assert chunkscope_here(tmp_path, "-h").out == chunkscope_here(tmp_path, "--help").out
    assert "Measure how long" in chunkscope_here(tmp_path, "analyze", "-h").out


def test_a_shell_can_complete_commands_and_options(tmp_path: Path) -> None:
    assert "--install-completion" in chunkscope_here(tmp_path, "--help").out
    asked = {"_CHUNKSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": "chunkscope sim"}
    program = [sys.executable, "-c", "from chunkscope.cli import app; app(prog_name='chunkscope')"]
    done = subprocess.run(
        program,
        env=environment(**asked, COMP_CWORD="1"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["simulate"]


def test_the_bar_says_what_is_prepared_and_uses_the_width_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = Console(file=io.StringIO(), force_terminal=True, width=130)
    monkeypatch.setattr(console, "err", lambda: wide)
    bar = console._ScanBar()
    bar.preparing("org/name")
    (task,) = bar._bar.tasks
    assert task.description == "preparing the tokenizer org/name, once"
    assert task.total is None, "it moves without an end"
    bar.preparing("/a/folder/somewhere/else/llama3.1")
    assert task.description == "preparing the tokenizer llama3.1, once"
    bar.begin(1_000)
    bar.at(rows=5, tokens=70, bytes_read=500)
    (task,) = bar._bar.tasks
    assert (task.description, task.completed, task.total) == ("counting", 500, 1_000)
    with wide.capture() as shown:
        wide.print(bar._bar.get_renderable())
    bar.stop()
    assert cell_len(Text.from_ansi(shown.get()).plain.splitlines()[0]) > 120


def test_a_long_name_gives_way_to_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    write_jsonl(tmp_path / f"{'long' * 20}.jsonl", prompts(3))
    (heading, row) = analyze(tmp_path, f"{'long' * 20}.jsonl").out.splitlines()[2:4]
    assert heading.split()[-7:] == ["rows", "p50", "p95", "p99", "max", ">2K", ">8K"]
    assert "…" not in row.split(maxsplit=1)[1]
    assert row.startswith("longlong")
    assert len(row) <= 80
