"""`chunkscope analyze` as a user meets it: what is counted, written and said."""

import json
import os
import re
from pathlib import Path

import pytest

import chunkscope as python
from chunkscope.commands.api import tokenizer_of
from chunkscope.errors import MissingError
from tests.commands.helpers import analyze, chunkscope, prompts, write_jsonl

ROWS = [
    {"prompt": "one two three", "context": "a b", "answer": "yes it is"},
    {"prompt": "four five six seven", "context": "c", "answer": "no"},
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "data.jsonl", ROWS)
    return tmp_path


def profile(place: Path) -> python.Profile:
    return python.Profile.load(place / "reports" / "profile.json")


def test_python_gives_the_profile_of_the_command(place):
    analyze(place, "data.jsonl", "-f", "context", "--field", "prompt", "--sample", "1")

    made = python.analyze(place / "data.jsonl", field=["context", "prompt"], sample=1)

    assert made.datasets[0].field == "context + prompt"
    assert made.overall == profile(place).overall


# -- bad rows and files ----------------------------------------------------------------


def test_bad_rows_are_told_and_the_others_counted(place):
    rows = '{"prompt": "a"}\n{"prompt": 3}\n{"pro\n{"prompt": "b"}\n{}\n'
    (place / "bad.jsonl").write_text(rows)

    run = analyze(place, "bad.jsonl")

    assert run.code == 3
    (bad,) = profile(place).datasets
    assert bad.rows == 2
    assert [row.position for row in bad.bad_rows] == [2, 3, 5]
    assert run.err.endswith("; next: fix what failed, run it again\n")


def test_with_skip_bad_rows_they_are_no_failure(place):
    (place / "bad.jsonl").write_text('{"prompt": "a"}\n{"prompt": 3}\n')

    run = analyze(place, "bad.jsonl", "--skip-bad-rows")

    assert run.code == 0
    assert "1 bad row was not counted" in run.err


def test_a_file_that_cannot_be_read_does_not_stop_the_others(place):
    (place / "broken.parquet").write_bytes(os.urandom(500))

    run = analyze(place, ".")

    assert run.code == 3
    broken, data = profile(place).datasets
    assert data.rows == 2
    why = broken.failure.values["why"]
    assert f"error: broken: cannot read broken.parquet: {why}" in run.err


def test_a_reason_is_told_once(place):
    (place / "bad.jsonl").write_text('{"prompt": "a"}\n' + '{"prompt": 3}\n' * 9)

    run = analyze(place, "bad.jsonl")

    (line,) = re.findall("bad row: .*", run.err)
    assert line.startswith('bad row: bad.jsonl line 2, 3, 4, ...: field "prompt" is a')


def test_where_nothing_is_counted_the_old_profile_stays(place):
    old = analyze(place, "data.jsonl").written

    run = analyze(place, "data.jsonl", "--field", "nothing")

    assert run.code == 3
    assert run.written == old


def test_of_many_files_that_are_no_data_some_are_named(place):
    for number in range(7):
        (place / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\r")

    skipped = re.findall("skipped .*", analyze(place, ".").err)

    assert [line.split()[1] for line in skipped] == [
        *("0.png:", "1.png:", "2.png:", "3.png:", "4.png:"),
        "2",
    ]


# -- what is printed and written -------------------------------------------------------


def test_json_is_the_profile_as_it_is_written(place):
    run = analyze(place, "data.jsonl", "--json")

    assert json.loads(run.out) == json.loads(run.written)


def test_markdown_has_a_table(place):
    assert "\n| " in analyze(place, "data.jsonl", "--format", "md").out


def test_a_trace_is_exported_with_the_command_that_sends_it(place):
    run = analyze(place, "data.jsonl", "--export-trace", "trace.jsonl")

    assert run.code == 0
    assert len((place / "trace.jsonl").read_text().splitlines()) == 2
    assert "--dataset-path trace.jsonl --num-prompts 2 " in run.err


def test_the_next_command_names_what_was_written(place):
    run = analyze(place, "data.jsonl", "-o", "my file.json")

    assert run.err.endswith("next: chunkscope recommend 'my file.json'\n")


def test_what_was_typed_is_recorded_without_what_changes_no_result(place):
    analyze(place, "data.jsonl", "-q", "--exclude", "x")

    words = ("chunkscope", "analyze", "data.jsonl", "--exclude", "x")
    assert profile(place).command == words


def test_a_field_that_was_probably_left_out_is_said_first(place):
    law = []
    for number in range(4):
        law.append(
            {"document": "long " * 3000, "query": f"Why {number}?", "gold": "so"}
        )
    write_jsonl(place / "law.jsonl", law)

    run = analyze(place, "law.jsonl")

    assert run.out.startswith("Probably miscounted: law: ")
    assert "--field document" in run.err.partition("next: ")[2]


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "[/b]", "=1+1", "naïve 🚀"])
def test_any_file_name_is_counted_and_shown_harmlessly(tmp_path, name):
    write_jsonl(tmp_path / f"{name}.jsonl", prompts())

    run = analyze(tmp_path, f"{name}.jsonl", "--details")

    assert run.code == 0, run.err
    assert "\x1b[31m" not in run.out + run.err


# -- the sample data -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["sample_data", "sample_data/"])
def test_without_a_clone_the_sample_data_is_that_of_the_package(tmp_path, path):
    run = analyze(tmp_path, path)

    assert run.code == 0
    assert "there is no sample_data here: counting the one of the package" in run.err
    assert len(profile(tmp_path).datasets) == 6


def test_a_folder_called_sample_data_is_counted_itself(tmp_path):
    write_jsonl(tmp_path / "sample_data" / "a.jsonl", prompts())

    assert analyze(tmp_path, "sample_data").code == 0
    (dataset,) = profile(tmp_path).datasets
    assert dataset.rows == 3


# -- the model's tokenizer -------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        pytest.param(
            "llama-3.1-8b", "meta-llama/Llama-3.1-8B", id="a name of the table"
        ),
        pytest.param("m", "m", id="a folder"),
        pytest.param("m/config.json", "m", id="its config"),
        pytest.param("a/b", "a/b", id="a hub id"),
    ],
)
def test_a_models_tokenizer_is_found_by_its_name(place, monkeypatch, model, tokenizer):
    monkeypatch.chdir(place)
    (place / "m").mkdir()
    (place / "m" / "config.json").write_text("{}")

    assert tokenizer_of(model) == tokenizer


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [("lama-3.1-8b", "llama-3.1-8b"), ("qwen3-8b-instruct", "qwen3-8b")],
)
def test_a_mistyped_model_is_told_with_the_nearest(mistyped, meant):
    with pytest.raises(MissingError, match=mistyped) as raised:
        tokenizer_of(mistyped)

    assert f"did you mean {meant}" in raised.value.hint


@pytest.mark.parametrize("command", ["recommend", "prefixes", "simulate", "verify"])
def test_data_where_an_artefact_is_expected_is_told_apart(place, command):
    run = chunkscope(place, command, "data.jsonl")

    assert run.code == 3
    assert "data.jsonl" in run.err
    assert "hint: " in run.err
