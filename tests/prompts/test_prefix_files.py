"""`--prefix-file`: for all datasets, or for the one it names."""

from pathlib import Path

import pytest

from tests.commands.helpers import Run, analyze, write_jsonl
from tests.prompts.helpers import lengths


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Three datasets of one prompt each, and prefixes of 1, 2 and 3 words."""
    for name in "abc":
        write_jsonl(tmp_path / f"{name}.jsonl", [{"prompt": "So?"}])
    for name, words in {"one": 1, "two": 2, "three": 3, "shots=1": 1}.items():
        (tmp_path / f"{name}.txt").write_text(" yes" * words)
    return tmp_path


def longer(run: Run) -> list[int]:
    """By how many tokens the prompts of each dataset are longer than without a prefix."""
    assert run.code == 0, run.err
    return [max(lengths(dataset)) - 3 for dataset in run.profile["datasets"]]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        pytest.param(["two.txt"], [2, 2, 2], id="one is for all"),
        pytest.param(["b=three.txt"], [0, 3, 0], id="with a name, for that dataset"),
        pytest.param(
            ["b=three.txt", "one.txt"], [1, 3, 1], id="and one for the others"
        ),
        pytest.param(
            ["shots=1.txt", "b=shots=1.txt"], [1, 1, 1], id="names with an equals sign"
        ),
    ],
)
def test_each_dataset_has_its_prefix(
    place: Path, given: list[str], added: list[int]
) -> None:
    words = [word for file in given for word in ("--prefix-file", file)]
    assert longer(analyze(place, "a.jsonl", "b.jsonl", "c.jsonl")) == [0, 0, 0]
    run = analyze(place, "a.jsonl", "b.jsonl", "c.jsonl", *words)
    assert longer(run) == added
    recorded = run.profile["options"]["prefix_files"]
    assert [file["path"] for file in recorded] == [
        file.removeprefix("b=") for file in given
    ]
    assert all(len(file["sha256"]) == 64 and file["text"] is None for file in recorded)
    assert longer(analyze(place, "a.jsonl", "b.jsonl", "c.jsonl", *words)) == added
