"""`chunkscope analyze` as a user meets it: what is counted, exit codes, bad input, the cache."""

import csv
import io
import json
import os
from pathlib import Path

import pytest

import chunkscope as python
from chunkscope.commands.api import tokenizer_of
from tests.commands.helpers import analyze, chunkscope, prompts, write_jsonl

ROWS = [
    {
        "prompt": "one two three",
        "context": "a b",
        "answer": "yes it is",
        "turns": ["x", "y z"],
    },
    {
        "prompt": "four five six seven",
        "context": "c",
        "answer": "no",
        "turns": ["p", "q"],
    },
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "data.jsonl", ROWS)
    return tmp_path


def profile(place: Path) -> python.Profile:
    return python.Profile.load(place / "reports" / "profile.json")


def test_python_gives_the_same_profile_as_the_command(place) -> None:
    analyze(place, "data.jsonl", "-f", "context", "--field", "prompt", "--sample", "1")
    made = python.analyze(place / "data.jsonl", field=["context", "prompt"], sample=1)
    assert made.datasets[0].field == "context + prompt"
    assert made.overall == profile(place).overall


def test_bad_rows_come_in_order_and_a_file_that_failed_with_its_hint(place) -> None:
    (place / "bad.jsonl").write_text(
        '{"prompt": "a"}\n{"prompt": 3}\n{"pro\n{"prompt": "b"}\n{}\n'
    )
    (place / "cut.json").write_text('[{"prompt": "a"}, {"pro')
    (place / "broken.parquet").write_bytes(os.urandom(500))
    run = analyze(place, ".")
    bad, broken, cut, data = profile(place).datasets
    assert (run.code, bad.rows, data.rows) == (3, 2, 2)  # none takes the others with it
    assert (
        f"error: broken: cannot read broken.parquet: {broken.failure.values['why']}"
        in run.err
    )
    assert [row.position for row in bad.bad_rows] == [2, 3, 5]
    assert f"error: cut: {cut.failure.values['path']} is not " in run.err
    assert run.err.endswith("; next: fix what failed, run it again\n")
    nothing = analyze(place, "data.jsonl", "--field", "nothing")
    assert (nothing.code, nothing.written) == (
        3,
        run.written,
    )  # what was there is not lost


def test_a_reason_is_told_once(place) -> None:
    (place / "bad.jsonl").write_text('{"prompt": "a"}\n' + '{"prompt": 3}\n' * 9)
    (line,) = (
        line
        for line in analyze(place, "bad.jsonl").err.splitlines()
        if "bad row:" in line
    )
    assert line.startswith(
        'bad row: bad.jsonl line 2, 3, 4, ...: field "prompt" is a number'
    )


# -- what is printed -----------------------------------------------------------------------------


def test_json_is_the_profile_and_csv_a_row_for_each_dataset(place) -> None:
    run = analyze(place, "data.jsonl", "--json")
    assert json.loads(run.out) == json.loads(run.written or b"")
    run = analyze(place, "data.jsonl", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(run.out))
    assert (row["dataset"], row["rows"]) == ("data", "2")
    assert "|" in analyze(place, "data.jsonl", "--format", "md").out


def test_a_trace_is_exported_and_the_next_commands_name_what_was_written(place) -> None:
    run = analyze(
        place, "data.jsonl", "--export-trace", "trace.jsonl", "-o", "my file.json"
    )
    assert run.code == 0, run.err
    assert len((place / "trace.jsonl").read_text().splitlines()) == 2
    assert "vllm bench serve" in run.err
    assert "chunkscope recommend 'my file.json'" in run.err


def test_a_field_that_was_probably_left_out_is_said_first_and_counted_next(
    place,
) -> None:
    law = [
        {"document": "long " * 3000, "query": f"Why {n}?", "gold": "so"}
        for n in range(4)
    ]
    write_jsonl(place / "law=eu.jsonl", law)
    run = analyze(place, "law=eu.jsonl", "data.jsonl")
    assert run.out.startswith(
        'law=eu: probably miscounted: only "query" was counted, not'
    )
    assert "matters" not in run.out
    table = 'field = ["document", "query"] under [datasets."law=eu"]'
    assert table in " ".join(run.out.split())
    words = "analyze law=eu.jsonl data.jsonl"
    assert run.err.endswith(
        f"next: add that to chunkscope.toml, then chunkscope {words}\n"
    )
    option, _, header = table.partition(" under ")
    (place / "chunkscope.toml").write_text(f"{header}\n{option}\n")
    again = chunkscope(place, *words.split())
    assert (
        "67 % are longer than 2,048 tokens, where chunked prefill matters" in again.out
    )
    assert again.err.endswith("next: chunkscope recommend\n")
    assert chunkscope(place, "recommend", "--max-output", "law=eu=9,data=7").code == 0


# -- bad input -----------------------------------------------------------------------------------


def test_of_many_files_that_are_no_data_some_are_named(place) -> None:
    for number in range(7):
        (place / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\r")
    (place / "!.zip").write_bytes(b"PK\x03\x04")
    told = analyze(place, ".").err
    assert told.count("!.zip") == told.count("error: ") == 1, "data that cannot be read"
    said = [line for line in told.splitlines() if line.startswith("skipped ")]
    assert [line.split()[1] for line in said] == [*(f"{n}.png:" for n in range(5)), "2"]


def test_a_models_tokenizer_is_found_by_its_name(place, monkeypatch) -> None:
    monkeypatch.chdir(place)
    (place / "m").mkdir()
    (place / "m" / "config.json").write_text("{}")
    ids = {
        "llama-3.1-8b": "meta-llama/Llama-3.1-8B",
        "m": "m",
        "m/config.json": "m",
        "a/b": "a/b",
    }
    assert [*map(tokenizer_of, ids)] == [*ids.values()]
    for mistyped, hint in (
        ("lama-3.1-8b", "llama-3.1-8b or"),
        ("qwen3-8b-instruct", "qwen3-8b?"),
    ):
        with pytest.raises(python.ChunkscopeError, match=mistyped) as raised:
            tokenizer_of(mistyped)
        assert f"did you mean {hint}" in str(raised.value.hint)


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "[/b]", "=1+1", "naïve 🚀"])
def test_any_file_name_can_be_counted_and_is_shown_harmlessly(
    tmp_path, name: str
) -> None:
    write_jsonl(tmp_path / f"{name}.jsonl", prompts())
    run = analyze(tmp_path, f"{name}.jsonl", "--details")
    assert run.code == 0, run.err
    assert "\x1b[31m" not in run.out + run.err


def test_data_where_a_profile_is_wanted_is_told_apart(place) -> None:
    for command in ("recommend", "prefixes", "simulate", "verify"):
        run = chunkscope(place, command, "data.jsonl")
        assert run.code == 3
        assert "data.jsonl" in run.err
        assert "chunkscope analyze" in run.err or "chunkscope recommend" in run.err
