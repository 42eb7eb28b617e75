"""chunkscope.toml: defaults of options, and options of single datasets."""

import json
from pathlib import Path

import pytest

import chunkscope as python
from tests import build
from tests.commands.helpers import analyze, chunkscope


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data.csv").write_text("question;answer\none two three;yes\n")
    return tmp_path


def counted_field(place: Path) -> str:
    profile = python.Profile.load(place / "reports" / "profile.json")
    (dataset,) = profile.datasets
    return dataset.field


def test_an_option_in_chunkscope_toml_is_a_default(place):
    (place / "chunkscope.toml").write_text('[analyze]\nfield = "answer"\n')

    assert analyze(place, "data.csv").code == 0
    assert counted_field(place) == "answer"


def test_the_command_line_wins_over_chunkscope_toml(place):
    (place / "chunkscope.toml").write_text('[analyze]\nfield = "answer"\n')

    assert analyze(place, "data.csv", "--field", "question").code == 0
    assert counted_field(place) == "question"


def test_chunkscope_toml_wins_over_pyproject_toml(place):
    (place / "chunkscope.toml").write_text('[analyze]\nfield = "answer"\n')
    (place / "pyproject.toml").write_text(
        '[tool.chunkscope.analyze]\nfield = "question"\n'
    )

    assert analyze(place, "data.csv").code == 0
    assert counted_field(place) == "answer"


def test_a_chunkscope_toml_without_the_table_does_not_hide_pyproject_toml(place):
    (place / "chunkscope.toml").write_text("[gate.data]\np95 = 100\n")
    (place / "pyproject.toml").write_text(
        '[tool.chunkscope.analyze]\nfield = "answer"\n'
    )

    assert analyze(place, "data.csv").code == 0
    assert counted_field(place) == "answer"


def test_chunkscope_config_names_another_file(place, monkeypatch):
    (place / "ci.toml").write_text('[analyze]\nfield = "answer"\n')
    monkeypatch.setenv("CHUNKSCOPE_CONFIG", "ci.toml")

    assert analyze(place, "data.csv").code == 0
    assert counted_field(place) == "answer"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("max_num_seqs = 64", id="as in Python"),
        pytest.param("max-num-seqs = 64", id="as it is typed"),
        pytest.param('max_num_seqs = "64"', id="as text"),
    ],
)
def test_an_option_may_be_written_as_in_python_or_as_it_is_typed(tmp_path, line):
    table = f'[memory]\nmodel = "qwen3-8b"\ngpu = "h100"\n{line}\n'
    (tmp_path / "chunkscope.toml").write_text(table)

    run = chunkscope(tmp_path, "memory", "--json")

    assert json.loads(run.out)["settings"]["max_num_seqs"] == 64


def test_a_file_gives_the_answer_that_typed_options_give(tmp_path):
    build.profile(a=build.SHORT).save(tmp_path / "reports" / "profile.json")
    machine = ("--model", "qwen3-8b", "--gpu", "h100")
    work = ("--slo", "ttft_p95=100s", "--max-output", "50")
    typed = chunkscope(tmp_path, "recommend", *machine, *work)
    (tmp_path / "chunkscope.toml").write_text(
        '[recommend]\nmodel = "qwen3-8b"\ngpu = "h100"\nslo = "ttft_p95=100s"\n'
        "max_output = 50\n"
    )

    run = chunkscope(tmp_path, "recommend")

    assert run.code == 0, run.err
    assert run.out == typed.out


def test_a_dataset_has_options_of_its_own(place):
    (place / "chunkscope.toml").write_text('[datasets."dat*"]\nfield = "answer"\n')

    assert analyze(place, "data.csv").code == 0
    assert counted_field(place) == "answer"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            '[analyze]\ndelimeter = ";"\n',
            ["chunkscope.toml: [analyze] has no option delimeter", "mean delimiter?"],
            id="a mistyped option",
        ),
        pytest.param(
            "[analyze]\nheader = [1]\n",
            ["chunkscope.toml: [analyze] header: it is a list"],
            id="a list for a switch",
        ),
        pytest.param(
            "[analyze]\nsample = 2.5\n",
            ["chunkscope.toml: [analyze] sample: '2.5' is not a valid int"],
            id="half a row",
        ),
        pytest.param(
            f"[analyze]\nsample = {10**30}\n",
            ["chunkscope.toml: [analyze] sample: "],
            id="a number over 64 bits",
        ),
        pytest.param(
            '[analyze]\ntask = "chat"\n',
            ["chunkscope.toml: [analyze] task: 'chat' is not one of"],
            id="a choice that is not there",
        ),
        pytest.param(
            "[analyze]\nfield = {a = 1}\n",
            ["chunkscope.toml: [analyze] field: it is a table"],
            id="a table for an option",
        ),
        pytest.param(
            "analyze = 1\n", ["chunkscope.toml: analyze is not a table"], id="no table"
        ),
        pytest.param(
            '[analize]\ndelimiter = ";"\n',
            ["chunkscope.toml: unknown table analize", "mean analyze?"],
            id="a mistyped table",
        ),
        pytest.param("[analyze\n", ["chunkscope.toml is not valid TOML"], id="no TOML"),
        pytest.param(
            '[datasets.data]\nfeild = "question"\n',
            ['[datasets."data"] has no option feild', "mean field?"],
            id="a mistyped option of a dataset",
        ),
        pytest.param(
            "[datasets.data]\nfield = 3\n",
            ["field is 3, not text"],
            id="a number for a field of a dataset",
        ),
        pytest.param(
            '[datasets.dada]\nfield = "question"\n',
            ["mean data?"],
            id="no such dataset",
        ),
        pytest.param(
            '[datasets]\ndata = "question"\n',
            ["is not a table"],
            id="an option where a dataset is expected",
        ),
    ],
)
def test_a_mistake_in_the_file_names_file_table_and_option(place, text, told):
    (place / "chunkscope.toml").write_text(text)

    run = analyze(place, "data.csv")

    assert run.code == 3, run.err
    for words in told:
        assert words in run.err


def test_help_is_shown_whatever_is_in_the_file(place):
    (place / "chunkscope.toml").write_text("[analyze\n")

    assert analyze(place, "--help").code == 0
