"""`--prefix-file`, and `prefix_file` of single datasets in chunkscope.toml."""

from pathlib import Path

import pytest

from tests.commands.helpers import Run, analyze, write_jsonl
from tests.prompts.helpers import lengths

DATA = ("a.jsonl", "b.jsonl", "c.jsonl")
FOR_B = '[datasets.b]\nprefix_file = "three.txt"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Three datasets of one prompt each, and prefixes of 1, 2 and 3 words."""
    for name in DATA:
        write_jsonl(tmp_path / name, [{"prompt": "So?"}])
    for name, words in {"one": 1, "two": 2, "three": 3}.items():
        (tmp_path / f"{name}.txt").write_text(" yes" * words)
    return tmp_path


def added_tokens(run: Run) -> list[int]:
    """How many tokens the prompts of each dataset have beyond their own 3."""
    assert run.code == 0, run.err
    return [max(lengths(dataset)) - 3 for dataset in run.profile["datasets"]]


@pytest.mark.parametrize(
    ("words", "tables", "added"),
    [
        pytest.param([], "", [0, 0, 0], id="none"),
        pytest.param(["two.txt"], "", [2, 2, 2], id="one is for all"),
        pytest.param([], FOR_B, [0, 3, 0], id="one for a dataset"),
        pytest.param(["one.txt"], FOR_B, [1, 3, 1], id="and one for the others"),
    ],
)
def test_each_dataset_has_its_prefix(place, words, tables, added) -> None:
    (place / "chunkscope.toml").write_text(tables)
    options = ["--prefix-file", *words] if words else []

    assert added_tokens(analyze(place, *DATA, *options)) == added
    # The second time, it is what was kept from the first.
    assert added_tokens(analyze(place, *DATA, *options)) == added


def test_a_profile_records_the_file_and_its_digest_but_no_text(place: Path) -> None:
    (place / "chunkscope.toml").write_text(FOR_B)
    run = analyze(place, *DATA, "--prefix-file", "one.txt")

    options = run.profile["options"]
    for file, name in [
        (options["prefix_file"], "one.txt"),
        (options["datasets"]["b"]["prefix_file"], "three.txt"),
    ]:
        assert file["path"] == name
        assert len(file["sha256"]) == 64
        assert file["text"] is None
