"""`chunkscope demo` as a user meets it, with torch and without."""

import json
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chunkscope.verification.result import EngineKind, Verification
from tests.commands.helpers import chunkscope


def with_torch(test: Any) -> Any:
    return pytest.mark.real(
        pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")(
            test
        )
    )


def test_without_torch_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    run = chunkscope(tmp_path, "demo")
    assert (run.code, run.out) == (4, "")
    assert "chunkscope[torch]" in run.err.partition("hint:")[2]


@with_torch
def test_the_command_as_it_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short requests are answered sooner with chunks, and all that is measured is kept."""
    monkeypatch.setenv("COLUMNS", "80")
    before = time.process_time()
    run = chunkscope(tmp_path, "demo")
    assert time.process_time() - before < 60, "two cores, half a minute"
    assert (run.code, "reports/demo" in run.err) == (0, True), run.err
    assert max(map(len, run.out.splitlines())) <= 80
    assert "2.0 M parameters" in run.out
    assert re.search(r"A 8\.3 % +B 8\.3 % +6 whole", run.out), "chunks in one batch"
    read = Verification.load(tmp_path / "reports" / "demo" / "verify.json")
    assert (read.model.dummy, read.machine.device, read.machine.vllm) == (
        True,
        "cpu",
        None,
    )
    assert read.measured is EngineKind.DEMO
    assert all(0 < r.activation_peak_gib < r.device_peak_gib for r in read.runs)
    whole, chunked = (run.figures for run in read.runs)
    assert (whole.chunks_max, chunked.chunks_max) == (1, 12)
    assert (whole.chunked_prompts, chunked.chunked_prompts) == (0, 2)
    assert whole.short.ttft_s.mean > 3 * chunked.short.ttft_s.mean
    assert (
        whole.itl_s.max > chunked.itl_s.max
    )  # one gap: three times, unless others take the core


@with_torch
def test_every_chunk_size_is_a_run(tmp_path: Path) -> None:
    words = ("--long", "300", "--chunk", "32,128,512,none")
    run = chunkscope(tmp_path, "demo", *words, "--json")
    assert run.code == 0, run.err
    runs = json.loads(run.out)["runs"]
    assert [run["figures"]["chunks_max"] for run in runs] == [10, 3, 1, 1]


@with_torch
def test_no_prompt_is_made_that_will_not_be_read(tmp_path: Path) -> None:
    """Making it would take all memory."""
    run = chunkscope(tmp_path, "demo", "--long", "999999999")
    assert (run.code, "999,999,999" in run.err) == (3, True)
    (tmp_path / "chunkscope.toml").write_text("[demo]\nlong = 0\n")
    assert chunkscope(tmp_path, "demo").code == 2
