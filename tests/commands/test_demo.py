"""`chunkscope demo` as a user meets it, with torch and without."""

import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chunkscope.verification.result import EngineKind, Verification
from tests.commands.helpers import Run, chunkscope


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
    assert "pip install '.[torch]'" in run.err.partition("hint:")[2]


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Verification]:
    """What the command says, and what it measured."""
    place = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        run = chunkscope(place, "demo")
    assert run.code == 0, run.err
    return run, Verification.load(place / "reports" / "demo" / "verify.json")


@with_torch
def test_it_takes_less_than_a_minute_of_cpu(tmp_path: Path) -> None:
    before = time.process_time()

    chunkscope(tmp_path, "demo", "--long", "1024")

    assert time.process_time() - before < 60


@with_torch
def test_the_answer_fits_80_columns_and_names_the_model(demonstrated) -> None:
    run, _ = demonstrated

    assert max(map(len, run.out.splitlines())) <= 80
    assert "2.0 M parameters" in run.out


@with_torch
def test_what_is_measured_is_a_verification_of_the_demo(demonstrated) -> None:
    _, verification = demonstrated

    assert verification.measured is EngineKind.DEMO
    assert verification.machine.device == "cpu"
    assert verification.machine.vllm is None
    for run in verification.runs:
        assert 0 < run.activation_peak_gib < run.device_peak_gib


@with_torch
def test_long_prompts_are_cut_into_chunks(demonstrated) -> None:
    _, verification = demonstrated
    whole, chunked = (run.figures for run in verification.runs)

    assert (whole.chunks_max, chunked.chunks_max) == (1, 12)
    assert (whole.chunked_prompts, chunked.chunked_prompts) == (0, 2)


@with_torch
def test_short_requests_are_answered_sooner_with_chunks(demonstrated) -> None:
    _, verification = demonstrated
    whole, chunked = (run.figures for run in verification.runs)

    assert whole.short.ttft_s.mean > 3 * chunked.short.ttft_s.mean
    assert whole.itl_s.max > chunked.itl_s.max


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
    assert chunkscope(tmp_path, "demo").code == 3
