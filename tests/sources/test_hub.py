import json
import shutil

import pytest

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.sources import remote
from chunkscope.sources.base import ReadOptions
from chunkscope.sources.discovery import discover
from tests.commands.helpers import analyze
from tests.sources.helpers import read

datasets = pytest.importorskip("datasets")
OFFLINE = ReadOptions()


@pytest.fixture(autouse=True)
def _without_a_network(monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cached(tmp_path):
    """A dataset as `datasets` leaves it in its cache after it was loaded from the hub."""

    def build(splits, repo="org/mini_set"):
        datasets.disable_progress_bars()
        folder = tmp_path / "src" / repo.split("/")[1]
        folder.mkdir(parents=True)
        for split in splits:
            rows = [{"question": f"{split} {i}", "answer": i} for i in range(3)]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
        shutil.move(tmp_path / "cache" / folder.name, tmp_path / "cache" / repo.replace("/", "___"))

    return build


@pytest.mark.parametrize("text", ["hf:", "hf:/etc/passwd", "hf:a/b/c", "hf:org/name:", "hf:../x/y"])
def test_what_is_no_hub_name_is_a_usage_error(text):
    with pytest.raises(UsageError):
        discover([text], options=OFFLINE)


def test_a_cached_dataset_is_read_without_a_network(cached):
    cached(["train"])
    rows = [{"question": f"train {i}", "answer": i} for i in range(3)]
    result = read("hf:org/mini_set@train")
    assert (result.error, result.records, result.positions) == (None, rows, [1, 2, 3])
    some = read("hf:org/mini_set@train", columns=["answer"])
    assert some.records == [{"answer": i} for i in range(3)]
    error = read("hf:org/mini_set@nope").error
    assert isinstance(error, InputError)
    assert "train" in error.message, "the splits are listed"


@pytest.mark.parametrize(
    ("splits", "chosen"),
    [
        (["train", "test", "validation"], "test"),
        (["train", "validation"], "validation"),
        (["train"], "train"),
    ],
)
def test_analyze_counts_the_split_that_it_names(cached, tmp_path, splits, chosen):
    cached(splits)
    run = analyze(tmp_path, "hf:org/mini_set")
    assert (run.code, run.dataset["rows"]) == (0, 3), run.err
    assert run.dataset["path"] == f"hf:{run.dataset['name']}" == f"hf:org/mini_set@{chosen}"


def test_a_local_folder_of_that_name_is_not_taken_for_the_dataset(cached, tmp_path, monkeypatch):
    cached(["test"])
    (tmp_path / "org" / "mini_set").mkdir(parents=True)
    (tmp_path / "org" / "mini_set" / "test.jsonl").write_text('{"question": "local"}\n')
    monkeypatch.chdir(tmp_path)
    assert read("hf:org/mini_set@test").records[0]["question"] == "test 0"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionError("no route"), MissingError),
        (TimeoutError("slow"), MissingError),
        (FileNotFoundError("Couldn't find it either: LocalEntryNotFoundError: x"), MissingError),
        (datasets.exceptions.DatasetNotFoundError("Dataset 'x' doesn't exist"), MissingError),
        (datasets.exceptions.DatasetNotFoundError("Dataset 'x' is a gated dataset"), MissingError),
        (ValueError("Config name is missing"), InputError),
        (RuntimeError("Dataset scripts are no longer supported"), InputError),
    ],
)
def test_what_the_library_raises_becomes_one_of_our_errors(error, kind):
    explained = remote.explained("hf:org/name", error)
    assert isinstance(explained, kind)
    assert explained.hint
