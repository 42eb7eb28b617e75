"""chunkscope.toml: options that few need, read beside the gate's budget; the command line wins."""

import json
import re
from pathlib import Path

import pytest

import chunkscope as python
from chunkscope.commands.api import option_types
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.planning.predict import SimulateOptions
from chunkscope.verification.options import VerifyOptions
from chunkscope.vllm.settings import NAMES
from tests.commands.helpers import analyze, chunkscope, prompts, write_jsonl


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data.csv").write_text("question;answer\none two three;yes\n")
    return tmp_path


def fields(place: Path) -> list[str]:
    profile = python.Profile.load(place / "reports" / "profile.json")
    return [dataset.field for dataset in profile.datasets]


def test_the_command_line_wins_over_chunkscope_toml_and_that_over_pyproject(
    place,
) -> None:
    (place / "pyproject.toml").write_text(
        '[tool.chunkscope.analyze]\nfield = "answer"\n'
    )
    assert analyze(place, "data.csv").code == 0
    assert fields(place) == ["answer"]
    assert chunkscope(place, "gate", "--init").code == 0
    assert analyze(place, "data.csv").code == 0
    assert fields(place) == ["answer"], (
        "a chunkscope.toml with the gate's tables alone hides none"
    )
    (place / "chunkscope.toml").write_text('[analyze]\nfield = ["answer"]\n')
    assert analyze(place, "data.csv", "--field", "question").code == 0
    assert fields(place) == ["question"]


def test_flags_of_a_command_may_stand_there_too(tmp_path) -> None:
    table = '[memory]\nmodel = "qwen3-8b"\ngpu = "h100"\nmax_num_seqs = 64\n'
    (tmp_path / "chunkscope.toml").write_text(table)
    run = chunkscope(tmp_path, "memory", "--json")
    assert json.loads(run.out)["settings"]["max_num_seqs"] == 64, run.err


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[analyze]\ndelimeter = ";"\n', "delimiter"),
        ("[analyze]\nheader = [1]\n", "header"),
        (f"[analyze]\nsample = {10**30}\n", "sample"),
        ("analyze = 1\n", "analyze"),
        ('[analize]\ndelimiter = ";"\n', "did you mean analyze?"),
        ("[analyze]\nreturn = 1\n", "no option return"),
        ("[analyze]\njson = true\n", "no option json"),  # was read and forgotten
        ("[analyze\n", "chunkscope.toml"),
        ('[datasets.data]\nfeild = "question"\n', "did you mean field?"),
        ("[datasets.data]\nfield = 3\n", "field is 3, not text"),
        ('[datasets.dada]\nfield = "question"\n', "did you mean data?"),
        ('[datasets]\ndata = "question"\n', "is not a table"),
        ("datasets = 3\n", "datasets is not a table"),
    ],
)
def test_a_mistake_in_it_names_the_file_and_the_option(
    place, text: str, named: str
) -> None:
    (place / "chunkscope.toml").write_text(text)
    run = analyze(place, "data.csv")
    assert run.code == 3, run.err
    assert "chunkscope.toml" in run.err or "[datasets" in run.err
    assert named in run.err


def test_flags_are_written_as_they_are_typed(tmp_path) -> None:
    """A model, a GPU and limits were refused: Python takes them as values, too."""
    words = [
        "--model",
        "qwen3-8b",
        "--gpu",
        "h100",
        "--slo",
        "ttft_p95=100s",
        "--max-output",
        "50",
    ]
    table = '[recommend]\nmodel = "qwen3-8b"\ngpu = "h100"\nslo = "ttft_p95=100s"\nmax_output = '
    write_jsonl(tmp_path / "a.jsonl", prompts())
    assert analyze(tmp_path, "a.jsonl").code == 0
    typed = chunkscope(tmp_path, "recommend", *words)
    assert typed.code == 0, typed.err
    for most in (50, '"50"'):
        (tmp_path / "chunkscope.toml").write_text(f"{table}{most}\n")
        run = chunkscope(tmp_path, "recommend")
        assert (run.code, run.out) == (0, typed.out), run.err
    (tmp_path / "chunkscope.toml").write_text('[simulate]\nslo = "ttft_p95=1ms"\n')
    assert "over the limit of 1.00 ms" in chunkscope(tmp_path, "simulate").out


INSIDE = {
    "fields",
    "datasets",
    "command",
    *NAMES,
}  # not written by people
OPTIONS = {
    "analyze": AnalyzeOptions,
    "simulate": SimulateOptions,
    "verify": VerifyOptions,
}


@pytest.mark.parametrize("command", OPTIONS)
def test_the_manual_lists_the_options_without_a_flag(command: str, tmp_path) -> None:
    page = chunkscope(tmp_path, "help", "config").out
    table = page.partition(f"| `{command}` |")[2].partition("\n| `")[0]
    cells = [row.split("|")[-3] for row in table.splitlines() if row.endswith("|")]
    listed = {name for cell in cells for name in re.findall("`([a-z_]+)`", cell)}
    flags = re.findall(r"--([a-z-]+)", chunkscope(tmp_path, command, "--help").out)
    names = set(option_types(OPTIONS[command])) - {
        flag.replace("-", "_") for flag in flags
    }
    assert names - INSIDE == listed


@pytest.fixture
def two_sets(tmp_path: Path) -> Path:
    """Two datasets of which the guess takes `question`."""
    row = {"question": "Why not this one?", "other": "No.", "a": "b c"}
    write_jsonl(tmp_path / "quiz.jsonl", [row])
    write_jsonl(tmp_path / "texts.jsonl", [row])
    return tmp_path


def fields_by_dataset(place: Path) -> dict[str, str | None]:
    loaded = python.Profile.load(place / "reports" / "profile.json")
    return {dataset.name: dataset.field for dataset in loaded.datasets}


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        pytest.param(
            '[datasets.quiz]\nfield = "other"\n',
            {"quiz": "other", "texts": "question"},
            id="by name",
        ),
        pytest.param(
            '[datasets."qu*"]\nfield = ["other"]\n',
            {"quiz": "other", "texts": "question"},
            id="by pattern",
        ),
        pytest.param(
            '[datasets."*"]\nfield = "other"\n[datasets.quiz]\nfield = "a"\n',
            {"quiz": "a", "texts": "other"},
            id="the last one that matches",
        ),
        pytest.param(
            '[analyze]\nfield = "a"\n[datasets.quiz]\ntemplate = "{{ other }}"\n',
            {"quiz": "template", "texts": "a"},
            id="a template instead of the field of all",
        ),
    ],
)
def test_a_table_is_for_the_datasets_it_names(two_sets, tables, expected) -> None:
    (two_sets / "chunkscope.toml").write_text(tables)

    run = analyze(two_sets, "quiz.jsonl", "texts.jsonl")

    assert run.code == 0, run.err
    assert fields_by_dataset(two_sets) == expected


def test_an_option_of_one_dataset_leaves_its_others_to_the_command_line(
    two_sets,
) -> None:
    (two_sets / "chunkscope.toml").write_text('[datasets.quiz]\noutput-field = "a"\n')

    run = analyze(two_sets, "quiz.jsonl", "texts.jsonl", "--field", "other")

    assert run.code == 0, run.err
    loaded = python.Profile.load(two_sets / "reports" / "profile.json")
    quiz, texts = loaded.datasets
    assert (quiz.field, quiz.output_field) == ("other", "a")
    assert (texts.field, texts.output_field) == ("other", None)


def test_python_takes_the_same_tables(two_sets) -> None:
    profile = python.analyze(two_sets, datasets={"quiz": {"field": "other"}})

    assert {one.name: one.field for one in profile.datasets} == {
        "quiz": "other",
        "texts": "question",
    }
