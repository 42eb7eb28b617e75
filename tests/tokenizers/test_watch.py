"""Strangers' tokenizers that never end, or take all memory: a sentence and exit 3."""

import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from chunkscope.errors import OverLimit, StillRunning
from chunkscope.tokenizers import conformance, probe, watch
from chunkscope.tokenizers.engines import QUICK_TO_COUNT
from chunkscope.tokenizers.files import TokenizerFiles, TokenizerKind
from chunkscope.tokenizers.tokenizer import Tokenizer
from chunkscope.tokenizers.watch import Watch
from tests.commands.helpers import analyze, environment, write_jsonl
from tests.processes import PATIENCE_S
from tests.tokenizers.helpers import WORDS, document, save, splitting


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is given, and little memory."""
    monkeypatch.setattr(watch, "SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_job_that_does_not_end_is_given_up() -> None:
    ended, watched = threading.Event(), Watch("it")
    try:
        with pytest.raises(StillRunning, match="it takes longer than 0 s"):
            watched.call(ended.wait)
        job: Future[bool] = Future()  # that a pool would do
        with pytest.raises(StillRunning):
            watched.result(job, chars=0)
        assert watched.gave_up
    finally:
        ended.set()


def test_a_job_that_takes_much_memory_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MEMORY", 64 << 20)
    ended = threading.Event()

    def job() -> int:
        held = bytearray(b"x" * (256 << 20))
        ended.wait()
        return len(held)

    try:
        with pytest.raises(StillRunning, match=r"it takes more than 0\.1 GiB"):
            Watch("it").call(job)
    finally:
        ended.set()


def test_what_a_job_raises_comes_out() -> None:
    def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        Watch("it").call(fail)
    assert Watch("it").call(lambda: 5) == 5


_LIMITED = """
import sys, threading
from chunkscope import cli
from chunkscope.tokenizers import watch
from chunkscope.tokenizers.counting import Counting
{limits}
sys.argv = ["chunkscope", "analyze", "a.jsonl", "--no-cache", *sys.argv[1:]]
cli.main()
"""
NO_TIME = """
watch.SECONDS, watch.CHARS_A_SECOND = 0.0, 1e9
Counting.count = Counting.id_bytes = lambda *_: threading.Event().wait()
"""
LITTLE_MEMORY = "watch.MEMORY = 256 << 20"


def limited(place: Path, limits: str, *words: str | Path) -> str:
    """What a run with those limits says, in a process of its own: its threads go on."""
    run = subprocess.run(
        [sys.executable, "-c", _LIMITED.format(limits=limits), *words],
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert run.returncode == 3, run.stderr
    assert "Traceback" not in run.stderr
    return run.stderr


def test_a_run_whose_counting_never_ends_does_not_wait_for_it(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": "one"}, {"prompt": "two"}])
    loaded = analyze(tmp_path, "a.jsonl")  # so that only counting is stuck
    assert loaded.code == 0, loaded.err
    assert "takes longer than 0 s" in limited(tmp_path, NO_TIME)


def bomb(part: str, value: Any) -> dict[str, Any]:
    return {**document(splitting(WORDS)), part: value}


def test_a_tokenizer_that_grows_its_texts_without_end(tmp_path: Path) -> None:
    """Each of four replacements makes a thousand letters of one."""
    thousand = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    normalizer = {"type": "Sequence", "normalizers": [thousand] * 4}
    (tmp_path / "t.json").write_text(json.dumps(bomb("normalizer", normalizer)))
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": "a"}])
    assert "takes more than" in limited(tmp_path, LITTLE_MEMORY, "--tokenizer", "t.json")


def test_a_config_that_asks_for_endless_tokens(tmp_path: Path) -> None:
    config = {"tokenizer_class": "T5Tokenizer", "extra_ids": 10**10}
    save(splitting(WORDS), tmp_path / "t", **config)
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": "a"}])
    assert "takes more than" in limited(tmp_path, LITTLE_MEMORY, "--tokenizer", "t")


# -- loading ---------------------------------------------------------------------------------------


def raw(path: Path) -> TokenizerFiles:
    return TokenizerFiles(name="t", kind=TokenizerKind.RAW, files=(path,))


def large(file: Path) -> Path:
    many = [
        {"id": 300 + n, "content": f"{n}" * 500, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": True, "special": False}
        for n in range(600)
    ]  # fmt: skip
    file.write_text(json.dumps(bomb("added_tokens", many)))
    return file


def test_a_tokenizer_that_takes_long_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = large(tmp_path / "t.json")
    probe.prove_loadable(raw(file))
    monkeypatch.setattr(probe, "SECONDS", 0.01)
    monkeypatch.setattr(probe, "BYTES_A_SECOND", 1e12)
    with pytest.raises(OverLimit, match="the tokenizer t takes longer than"):
        probe.prove_loadable(raw(file))


def test_a_tokenizer_that_takes_much_memory_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = large(tmp_path / "t.json")
    monkeypatch.setattr(probe, "MEMORY", 40 << 20)
    monkeypatch.setattr(probe, "MEMORY_PER_BYTE", 1)
    with pytest.raises(OverLimit, match="the tokenizer t takes more than"):
        probe.prove_loadable(raw(file))


def test_a_vocabulary_that_takes_all_memory_to_be_written(tmp_path: Path) -> None:
    content = document(splitting(WORDS))
    content["model"]["vocab"]["a"] = 10**9
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(OverLimit, match="the tokenizer t takes"):
        probe.prove_loadable(raw(tmp_path / "t.json"))


def test_what_is_wrong_in_another_way_is_for_who_loads_it(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[" * 9)
    probe.prove_loadable(raw(tmp_path / "t.json"))


# -- an engine that is loaded beside the work ------------------------------------------------------

_LOADING = """
import threading
from chunkscope.tokenizers import counting
from chunkscope.tokenizers.engines import Loader
from chunkscope.tokenizers.tokenizer import Tokenizer

def load(compiled):
    threading.main_thread().join()  # until Python ends
    print("loaded")

counting.QUICK_TO_COUNT = Loader("late", "fastokens", load)
made = Tokenizer(expected_bytes=1 << 40).counting
made.expect(1 << 23, 1 << 23)
assert made.sample_agrees()
print("counted")
"""


def test_python_waits_for_an_engine_that_still_loads() -> None:
    """Native code that is asked for the interpreter's lock after the end aborts the process."""
    run = subprocess.run(
        [sys.executable, "-c", _LOADING],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (run.returncode, run.stdout.split()) == (0, ["counted", "loaded"]), run.stderr


def test_an_engine_that_comes_too_late_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Tokenizer().counting
    assert made.sample_agrees()
    monkeypatch.setattr(conformance, "known", lambda *_: None)
    judged: list[Any] = []
    monkeypatch.setattr(conformance, "judge", lambda *words: judged.append(words))
    made._choose((QUICK_TO_COUNT,))
    assert not judged
