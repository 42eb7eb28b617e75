"""The cache: quick where nothing changed, absent where anything did, and never in the way."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from chunkscope.artefacts import digests, folders
from chunkscope.lengths import cache, scan
from chunkscope.sources import opening
from tests.commands.helpers import (
    analyze,
    analyze_apart,
    command,
    engines_loaded,
    environment,
    prompts,
    write_jsonl,
)
from tests.processes import PATIENCE_S, started
from tests.tokenizers.helpers import bpe


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for this test alone, with the tokenizer in it already."""
    warm = tmp_path / "warm"
    write_jsonl(warm / "a.jsonl", prompts(1))
    for _ in range(2):  # the second time it is prepared
        analyze(warm, "a.jsonl", "--no-cache")
    folder = tmp_path / "cache"
    shutil.copytree(Path(os.environ["CHUNKSCOPE_CACHE_DIR"]) / "tokenizers", folder / "tokenizers")
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(folder))
    return folder


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "results").rglob("*.json"))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the datasets that are read from now on, and not taken from the cache."""
    paths: list[str] = []
    opening = scan.open_reader

    def note(source, *rest):  # type: ignore[no-untyped-def]
        paths.append(source.path)
        return opening(source, *rest)

    monkeypatch.setattr(scan, "open_reader", note)
    return paths


def test_a_second_run_loads_no_engine_and_says_the_same(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(20))
    assert engines_loaded(tmp_path, "a.jsonl", "-o", "first.json")
    assert engines_loaded(tmp_path, "a.jsonl", "-o", "second.json") == set()
    first, second = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("first", "second"))
    assert first["datasets"] == second["datasets"]
    assert first["overall"] == second["overall"]


def test_what_did_not_change_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        write_jsonl(tmp_path / f"{name}.jsonl", prompts(20, field="question"))
    write_jsonl(tmp_path / "b.jsonl", prompts(21, field="question"))
    analyze(tmp_path, "a.jsonl", "b.jsonl")
    read = counted(monkeypatch)
    analyze(tmp_path, "a.jsonl", "b.jsonl")
    assert read == []
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "copy.jsonl")
    run = analyze(tmp_path, "copy.jsonl")
    assert read == []  # the same content under another name
    assert (run.dataset["name"], run.dataset["path"]) == ("copy", "copy.jsonl")
    write_jsonl(tmp_path / "a.jsonl", prompts(19, field="question"))
    analyze(tmp_path, "a.jsonl", "b.jsonl")
    assert read == ["a.jsonl"]


@pytest.mark.parametrize(
    "words",
    [
        ["--field", "answer"],
        ["--template", "Q: {question}"],
        ["--output-field", "answer"],
        ["--choices", "options"],
        ["--prefix-file", "prefix.txt"],
        ["--no-special-tokens"],
        ["--apply-chat-template"],
        ["--sample", "5"],
        ["--sample", "5", "--seed", "1"],
        ["--encoding", "latin-1"],
        ["--no-chat-template"],
        ["--show-longest", "15"],
        ["--input-format", "text"],
        ["--no-cache"],
    ],
    ids=" ".join,
)
def test_another_option_is_another_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    rows = [{"question": f"{n} and {n}?", "answer": "two " * n} for n in range(20)]
    rows = [{**row, "options": ["one", "two"]} for row in rows]
    write_jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "prefix.txt").write_text("Answer this.\n\n")
    analyze(tmp_path, "a.jsonl")
    analyze(tmp_path, "a.jsonl", "--sample", "5", "--seed", "2")
    read = counted(monkeypatch)
    assert analyze(tmp_path, "a.jsonl", *words).code == 0
    assert read == ["a.jsonl"]


def test_another_tokenizer_is_another_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(5))
    tokenizer = next(iter(sorted((shared / "tokenizers").glob("*/tokenizer.json"))))
    mine = analyze(tmp_path, "a.jsonl").profile["tokenizer"]["digest"]
    read = counted(monkeypatch)
    other = analyze(tmp_path, "a.jsonl", "--tokenizer", tokenizer)
    assert other.code == 0, other.err
    assert read == ["a.jsonl"]
    assert other.profile["tokenizer"]["digest"] != mine


@pytest.mark.skipif(sys.platform == "win32", reason="there is no change time")
def test_an_edit_that_keeps_size_and_time_is_noticed(tmp_path: Path, own: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", [{"prompt": "one two three"}])
    hour_ago = time.time_ns() - 3600 * 10**9
    os.utime(file, ns=(hour_ago, hour_ago))
    time.sleep(2.1)  # until its digest is remembered at all
    first = analyze(tmp_path, "a.jsonl").dataset
    assert str(file) in (own / "digests.json").read_text()
    file.write_text(file.read_text().replace("one two three", "onetwothreexy"))
    os.utime(file, ns=(hour_ago, hour_ago))
    second = analyze(tmp_path, "a.jsonl").dataset
    assert first["bytes"] == second["bytes"]
    assert first["sha256"] != second["sha256"]
    assert first["histogram"] != second["histogram"]


def test_an_edit_between_hashing_and_reading_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the new content's lengths would be found under the old content's digest, for ever."""
    file = write_jsonl(tmp_path / "a.jsonl", [{"prompt": "one two three"}])
    old = file.read_text()
    usual = opening.open_raw

    def edit(*place, **how):  # type: ignore[no-untyped-def]
        file.write_text(old.replace("one two three", "onetwothreexy"))
        return usual(*place, **how)

    with monkeypatch.context() as patch:
        patch.setattr(opening, "open_raw", edit)
        edited = analyze(tmp_path, "a.jsonl").dataset
    file.write_text(old)
    assert analyze(tmp_path, "a.jsonl").dataset["histogram"] != edited["histogram"]


def test_a_pipe_is_counted_once_and_never_remembered(tmp_path: Path, own: Path) -> None:
    """Hashing it first would use it up, and keep "no rows" for the file with that content."""
    file = write_jsonl(tmp_path / "a.jsonl", prompts(7))
    line = f"'{sys.executable}' -m chunkscope analyze <(cat '{file}')"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"7 prompts" in done.stdout
    assert entries(own) == []
    assert analyze(tmp_path, "a.jsonl").dataset["rows"] == 7


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut off"),
        pytest.param(lambda data: data.replace(b'"rows":5', b'"rows":6'), id="changed"),
        pytest.param(lambda data: os.urandom(len(data)), id="noise"),
        pytest.param(lambda _: b"[]", id="another value"),
        pytest.param(lambda _: b'{"histogram": []}', id="another shape"),
    ],
)
def test_a_damaged_entry_is_counted_anew(tmp_path: Path, own: Path, damage) -> None:  # type: ignore[no-untyped-def]
    write_jsonl(tmp_path / "a.jsonl", prompts(5))
    good = analyze(tmp_path, "a.jsonl").dataset
    (entry,) = entries(own)
    sound = entry.read_bytes()
    entry.write_bytes(damage(sound))
    again = analyze(tmp_path, "a.jsonl")
    assert (again.code, again.dataset) == (0, good)
    assert entry.read_bytes() == sound


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b'{"x": 1}', b"{", b'{"PATH": 5}', b'{"PATH": [1, 2, 3, 4]}']
)
def test_damaged_digests_are_made_again(tmp_path: Path, own: Path, content: bytes) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", prompts(5))
    (own / "digests.json").write_bytes(content.replace(b"PATH", os.fsencode(file)))
    assert analyze(tmp_path, "a.jsonl").code == 0


def test_a_damaged_prepared_tokenizer_is_made_again(tmp_path: Path, own: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(5))
    good = analyze(tmp_path, "a.jsonl").dataset["histogram"]
    for facts in own.rglob("facts.json"):
        facts.write_bytes(b'{"half": ')
    again = analyze(tmp_path, "a.jsonl", "--no-cache")
    assert (again.code, again.dataset["histogram"]) == (0, good)


def test_bad_rows_from_the_cache_are_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "fine"}\noops\n')
    first = analyze(tmp_path, "a.jsonl")
    read = counted(monkeypatch)
    again = analyze(tmp_path, "a.jsonl")
    assert read == []
    assert first.code == again.code == 3
    assert "bad row: a.jsonl line 2: " in again.err
    assert analyze(tmp_path, "a.jsonl", "--skip-bad-rows").code == 0


def test_a_file_that_failed_is_tried_again(tmp_path: Path, own: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_text("no gzip")
    write_jsonl(tmp_path / "b.jsonl", prompts())
    for _ in range(2):
        run = analyze(tmp_path, "a.jsonl.gz", "b.jsonl")
        assert run.code == 3
        assert "is not gzip data" in run.err
    assert len(entries(own)) == 1


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path, own: Path) -> None:
    """A file where a folder should be stops root too."""
    (own / "results").write_text("in the way")
    (own / "digests.json").mkdir()
    write_jsonl(tmp_path / "a.jsonl", prompts(5))
    for _ in range(2):
        run = analyze(tmp_path, "a.jsonl")
        assert (run.code, run.dataset["rows"]) == (0, 5)
        assert "nothing is kept for the next run" in run.err


def test_a_full_disk_for_the_cache_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From nothing: the tokenizer is made ready elsewhere, and the run ends as it would have."""
    full = tmp_path / "full"
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(full))
    monkeypatch.setattr(folders, "_instead", {})
    making = tempfile.mkstemp

    def no_room(dir: Path, prefix: str) -> tuple[int, str]:  # noqa: A002
        if dir.is_relative_to(full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return making(dir=dir, prefix=prefix)

    monkeypatch.setattr(tempfile, "mkstemp", no_room)
    write_jsonl(tmp_path / "a.jsonl", prompts(5))
    run = analyze(tmp_path, "a.jsonl")
    assert (run.code, run.dataset["rows"]) == (0, 5)
    assert "No space left on device; going on without the cache" in run.err
    assert "--output" not in run.err


def test_runs_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    """From nothing: all four compile the tokenizer, hash, count and store at once."""
    bpe("t h", "th e").save(str(tmp_path / "export.json"))  # which is prepared at once
    asked = ("data", "--tokenizer", "export.json")
    for name in "abcd":
        write_jsonl(tmp_path / "data" / f"{name}.jsonl", prompts(50 + ord(name)))
    folder = tmp_path / "cache"
    env = environment(CHUNKSCOPE_CACHE_DIR=str(folder))
    with ExitStack() as running:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        words = [command(*asked, "-o", f"{n}.json") for n in range(4)]
        runs = [running.enter_context(started(w, cwd=tmp_path, env=env, **pipes)) for w in words]
        for run in runs:
            _, err = run.communicate(timeout=PATIENCE_S)
            assert run.returncode == 0, err.decode()
    found = [json.loads((tmp_path / f"{n}.json").read_text())["datasets"] for n in range(4)]
    assert found[0] == found[1] == found[2] == found[3]
    assert len(entries(folder)) == 4
    assert not [*folder.rglob(".chunkscope-*")]
    again = analyze_apart(tmp_path, *asked, env={"CHUNKSCOPE_CACHE_DIR": str(folder)})
    assert again.profile["datasets"] == found[0]


def test_a_tsv_and_a_csv_of_the_same_bytes_are_two_questions(tmp_path: Path, own: Path) -> None:
    """The suffix decides where both delimiters would do."""
    text = "prompt\tid,\nhow far is it\t7,\n"
    keys = set()
    for name in ("a.csv", "a.tsv"):
        (tmp_path / name).write_text(text)
        analyze(tmp_path, name)
        keys |= {*entries(own)}
    assert len(keys) == 2


def test_the_key_takes_any_option_there_is() -> None:
    from chunkscope.sources.base import Source

    source = Source(name="a", group="", path="a\udcff", format="jsonl", file=None, member="\udcff")
    assert len(cache.key(source, "0" * 64, "1" * 64, {"seed": 10**40, "field": "\udcff"})) == 64


DAY_S = 24 * 3600


def age(path: Path, days: float) -> None:
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))


def test_what_nobody_used_for_months_goes(tmp_path: Path, own: Path) -> None:
    write_jsonl(tmp_path / "old.jsonl", prompts(5))
    write_jsonl(tmp_path / "used.jsonl", prompts(6))
    analyze(tmp_path, "old.jsonl")
    (old,) = entries(own)
    analyze(tmp_path, "used.jsonl")
    (used,) = {*entries(own)} - {old}
    for entry in (old, used, own / "results" / ".pruned"):
        age(entry, 100)
    analyze(tmp_path, "used.jsonl")  # from the cache: that is a use, and nothing is tidied
    assert entries(own) == sorted([old, used])
    write_jsonl(tmp_path / "new.jsonl", prompts(7))
    analyze(tmp_path, "new.jsonl")
    assert not old.exists()
    assert used.exists()
    assert len(entries(own)) == 2


def test_the_oldest_of_too_much_goes(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    for days in (30, 20, 10):
        write_jsonl(tmp_path / f"{days}.jsonl", prompts(days))
        analyze(tmp_path, f"{days}.jsonl")
        made += {*entries(own)} - {*made}
        age(made[-1], days)
    age(own / "results" / ".pruned", 2)
    write_jsonl(tmp_path / "now.jsonl", prompts(40))
    monkeypatch.setattr(cache, "_MOST_BYTES", 3 * made[-1].stat().st_size)
    analyze(tmp_path, "now.jsonl")
    assert [entry.exists() for entry in made] == [False, False, True]


def test_the_cache_is_tidied_once_a_day(tmp_path: Path, own: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(5))
    analyze(tmp_path, "a.jsonl")
    (old,) = entries(own)
    age(old, 100)
    write_jsonl(tmp_path / "b.jsonl", prompts(6))
    analyze(tmp_path, "b.jsonl")
    assert old.exists()


def test_another_release_of_the_package_keeps_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the layout's own number says that old entries no longer count."""
    write_jsonl(tmp_path / "a.jsonl", prompts(5))
    analyze(tmp_path, "a.jsonl")
    read = counted(monkeypatch)
    monkeypatch.setattr("chunkscope._version.__version__", "99.0")
    monkeypatch.setattr(cache, "__version__", "99.0", raising=False)
    analyze(tmp_path, "a.jsonl")
    assert read == []
    monkeypatch.setattr(cache, "_LAYOUT", cache._LAYOUT + 1)
    analyze(tmp_path, "a.jsonl")
    assert read == ["a.jsonl"]


def test_only_so_many_digests_are_kept(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_MOST_KEPT", 2)
    monkeypatch.setattr(digests, "_SETTLED_NS", -(10**12))  # fresh files too
    for name in "abc":
        write_jsonl(tmp_path / f"{name}.jsonl", prompts(2))
        analyze(tmp_path, f"{name}.jsonl", "--no-cache")
    kept = [Path(path).name for path in json.loads((own / "digests.json").read_bytes())]
    assert len(kept) == 2  # the tokenizer's may be among them
    assert "a.jsonl" not in kept
    assert kept[-1] == "c.jsonl"
