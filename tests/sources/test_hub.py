import json
import shutil

import fsspec
import pytest

from chunkscope.errors import InputError, MissingError
from chunkscope.sources import hub, remote
from chunkscope.sources.base import ReadOptions
from chunkscope.sources.find import discover
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
    """A dataset as `datasets` leaves it in its cache after loading it."""

    def build(splits, repo="org/mini_set"):
        datasets.disable_progress_bars()
        folder = tmp_path / "src" / repo.split("/")[1]
        folder.mkdir(parents=True)
        for split in splits:
            rows = [{"question": f"{split} {i}", "answer": i} for i in range(3)]
            (folder / f"{split}.jsonl").write_text(
                "".join(json.dumps(r) + "\n" for r in rows)
            )
        datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
        shutil.move(
            tmp_path / "cache" / folder.name,
            tmp_path / "cache" / repo.replace("/", "___"),
        )

    return build


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
    assert (
        run.dataset["path"]
        == f"hf:{run.dataset['name']}"
        == f"hf:org/mini_set@{chosen}"
    )


def test_a_local_folder_of_that_name_is_not_taken_for_the_dataset(
    cached, tmp_path, monkeypatch
):
    cached(["test"])
    (tmp_path / "org" / "mini_set").mkdir(parents=True)
    (tmp_path / "org" / "mini_set" / "test.jsonl").write_text('{"question": "local"}\n')
    monkeypatch.chdir(tmp_path)
    assert read("hf:org/mini_set@test").records[0]["question"] == "test 0"


def test_a_hub_out_of_reach_changes_no_setting_of_the_process(cached, monkeypatch):
    import huggingface_hub.constants

    cached(["test"])
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "hub_problem", lambda _: "no network")
    verbosity = datasets.logging.get_verbosity()

    assert len(read("hf:org/mini_set@test").records) == 3

    assert datasets.config.HF_HUB_OFFLINE is False
    assert huggingface_hub.constants.HF_HUB_OFFLINE is False
    assert datasets.logging.get_verbosity() == verbosity


class AnswerError(Exception):
    """As aiohttp says what a server answered."""


def behind(status, error):
    error.__cause__ = AnswerError()
    error.__cause__.status = status
    return error


@pytest.mark.parametrize(
    ("shown", "error", "kind", "hint"),
    [
        ("hf:org/name", ConnectionError("no route"), MissingError, "HF_TOKEN"),
        (
            "hf:org/name",
            OSError("x: LocalEntryNotFoundError: y"),
            MissingError,
            "HF_TOKEN",
        ),
        (
            "hf:org/name",
            datasets.exceptions.DatasetNotFoundError("x"),
            MissingError,
            "HF_TOKEN",
        ),
        ("hf:org/name", ValueError("Config name is missing"), InputError, "@split"),
        ("s3://bucket/x", ValueError("odd"), InputError, "fail"),
        ("s3://bucket/x", FileNotFoundError("x"), InputError, "name"),
        ("s3://bucket/x", behind(404, FileNotFoundError("x")), InputError, "name"),
        ("s3://bucket/x", behind(503, FileNotFoundError("x")), InputError, "fail"),
        ("s3://bucket/x", PermissionError("x"), InputError, "AWS_PROFILE"),
        ("s3://bucket/x", TimeoutError("slow"), InputError, "AWS_ENDPOINT_URL"),
        ("data/x", PermissionError(13, "Denied"), InputError, "ls -l data/x"),
        ("data/x", OSError("cut"), InputError, "damaged"),
    ],
)
def test_what_a_library_raises_becomes_one_of_our_errors(shown, error, kind, hint):
    explained = remote.explained(shown, error)
    assert (isinstance(explained, kind), hint in explained.hint) == (True, True), (
        explained.hint
    )
    assert shown in explained.message


@pytest.mark.parametrize("error", [PermissionError("x"), OSError("x")])
def test_a_place_that_does_not_answer_is_missing_before_it_is_read(error):
    with pytest.raises(MissingError), remote.explaining("s3://b/", is_search=True):
        raise error
    with pytest.raises(InputError), remote.explaining("s3://b/x"):
        raise error


def test_a_library_that_is_not_installed_is_named():
    with pytest.raises(MissingError, match="s3fs"), remote.explaining("s3://bucket/x"):
        raise ImportError("no s3fs")


@pytest.fixture
def bucket():
    """A folder of another machine, as fsspec shows it."""
    system = fsspec.filesystem("memory")
    names = (
        "few.csv",
        "more/few.csv",
        "more/.hidden/x.jsonl",
        "more/README.md",
        "more/deep/y.csv",
    )
    system.pipe({f"/evals/{name}": b"prompt\nhello there\n" for name in names})
    yield
    system.rm("/evals", recursive=True)


@pytest.mark.parametrize(
    ("addresses", "names", "groups"),
    [
        (["memory://evals/few.csv"], ["few"], [""]),
        (["memory://evals/*.csv"], ["few"], ["evals"]),
        (["memory://evals/**/few.csv"], ["few", "more/few"], ["evals", "evals/more"]),
        (["memory://evals/more"], ["deep/y", "few"], ["more/deep", "more"]),
        (["memory://evals/few.csv", "memory://evals/*.csv"], ["few"], [""]),
    ],
)
@pytest.mark.usefixtures("bucket")
def test_addresses_name_files_folders_and_globs(addresses, names, groups):
    sources, _ = discover(addresses, options=OFFLINE)
    assert [(source.name, source.group) for source in sources] == [
        *zip(names, groups, strict=True)
    ]
    assert {source.bytes for source in sources} == {19}
    assert read(sources[0]).records == [{"prompt": "hello there"}]
    for nothing in (
        "memory://nowhere/",
        "memory://evals/none.jsonl",
        "memory://evals/*.none",
    ):
        with pytest.raises(InputError, match=nothing.replace("*", r"\*")):
            discover([nothing], options=OFFLINE)
