"""`chunkscope demo` as a user meets it, with torch and without."""

import json
import shutil
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


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models on disk: one that works, and some that do not."""
    pytest.importorskip("torch")
    from tests.reference.small_models import model_of

    place = tmp_path_factory.mktemp("models")
    model_of("GPT-2").save_pretrained(place / "good")
    for name in ("bare", "damaged", "others"):
        shutil.copytree(place / "good", place / name)
    (place / "bare" / "model.safetensors").unlink()
    (place / "damaged" / "model.safetensors").write_bytes(b"not a tensor in sight")
    config = json.loads((place / "others" / "config.json").read_text())
    (place / "others" / "config.json").write_text(
        json.dumps({**config, "vocab_size": 64})
    )
    _bart().save_pretrained(place / "bart")
    return place


def _bart() -> Any:
    """It counts positions by its cache, so that a request before it moves them."""
    from transformers import BartConfig, BartForCausalLM

    layers = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
    sizes = {
        "d_model": 16,
        "vocab_size": 128,
        "max_position_embeddings": 4_096,
        "init_std": 0.2,
    }
    return BartForCausalLM(BartConfig(**layers, **sizes))


@with_torch
def test_a_model_of_ones_own_is_compared_with_every_chunk(
    folders: Path, tmp_path: Path
) -> None:
    words = ("--model", folders / "good", "--long", "300", "--chunk", "32,128,512,none")
    run = chunkscope(tmp_path, "demo", *words, "--json")
    assert run.code == 0, run.err
    document = json.loads(run.out)
    assert document["model"]["name"] == "good"
    assert [r["setting"].split()[-1] for r in document["runs"]] == [
        "32",
        "128",
        "512",
        "chunks",
    ]
    assert [r["figures"]["chunks_max"] for r in document["runs"]] == [10, 3, 1, 1]


@with_torch
def test_no_prompt_is_made_that_will_not_be_read(tmp_path: Path) -> None:
    """Making it would take all memory."""
    run = chunkscope(tmp_path, "demo", "--long", "999999999")
    assert (run.code, "999,999,999" in run.err) == (3, True)
    (tmp_path / "chunkscope.toml").write_text("[demo]\nlong = 0\n")
    assert chunkscope(tmp_path, "demo").code == 2


@with_torch
@pytest.mark.parametrize(
    ("model", "code", "named"),
    [
        ("nowhere", 4, "nowhere"),
        ("bare", 4, "bare"),
        ("damaged", 3, "damaged"),
        ("others", 3, "others"),
        ("bart", 3, "BartForCausalLM"),
        ("good", 3, "1,024"),
    ],
)
def test_a_model_that_cannot_be_used_is_a_sentence(
    folders, tmp_path, model, code, named
) -> None:
    run = chunkscope(tmp_path, "demo", "--model", folders / model)
    assert (run.code, run.out) == (code, "")
    assert run.err.startswith("error: ")
    assert named in run.err
    assert not list(tmp_path.iterdir()), "nothing is written"
