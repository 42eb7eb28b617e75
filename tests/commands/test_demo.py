"""`chunkscope demo` as a user meets it, with torch and without."""

import json
import re
import resource
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.commands.helpers import Run, chunkscope

with_torch = [
    pytest.mark.real,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    run = chunkscope(tmp_path, "demo")
    assert (run.code, run.out) == (4, "")
    assert "chunkscope[torch]" in run.err.partition("hint:")[2]


@pytest.mark.parametrize("sizes", ["0", "-5", "99999999999999999999", "32,,none", "x", "1.5"])
def test_a_chunk_is_at_least_one_token(tmp_path: Path, sizes: str) -> None:
    run = chunkscope(tmp_path, "demo", f"--chunk={sizes}")
    assert (run.code, run.out) == (2, "")
    assert "--chunk" in run.err


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any], float]:
    """The command as it is typed; what it wrote, and how long the processor was at it."""
    place = tmp_path_factory.mktemp("demo")
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        run = chunkscope(place, "demo")
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert run.code == 0, run.err
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return run, json.loads((place / "reports" / "demo" / "verify.json").read_text()), taken


class TestTheCommandAsItIsTyped:
    pytestmark = with_torch

    def test_it_prints_steps_requests_and_what_chunks_did(
        self, shown: tuple[Run, dict[str, Any], float]
    ) -> None:
        text = shown[0].out
        assert max(map(len, text.splitlines())) <= 80
        assert "2.0 M parameters" in text
        assert re.search(r"step +start +took +decodes", text)
        assert re.search(r"A 8\.3 % +B 8\.3 % +6 whole", text), "chunks in one batch"
        assert "reports/demo" in shown[0].err

    def test_short_requests_are_answered_three_times_sooner(
        self, shown: tuple[Run, dict[str, Any], float]
    ) -> None:
        whole, chunked = (run["figures"] for run in shown[1]["runs"])
        assert whole["short"]["ttft_s"]["mean"] > 3 * chunked["short"]["ttft_s"]["mean"]
        assert whole["itl_s"]["max"] > 3 * chunked["itl_s"]["max"]

    def test_it_takes_two_cores_less_than_half_a_minute(
        self, shown: tuple[Run, dict[str, Any], float]
    ) -> None:
        assert shown[2] < 60

    def test_everything_measured_is_in_the_artefact(
        self, shown: tuple[Run, dict[str, Any], float]
    ) -> None:
        from chunkscope.verification.result import EngineKind, Verification

        document = shown[1]
        read = Verification.from_json(document)
        assert read.model.dummy
        assert read.machine
        assert (read.machine.device, read.machine.vllm) == ("cpu", None)
        assert read.measured is EngineKind.DEMO
        for run in read.runs:
            if sys.platform == "linux":
                assert 0 < run.activation_peak_gib < run.device_peak_gib
        whole, chunked = (run.figures for run in read.runs)
        assert (whole.chunks_max, chunked.chunks_max) == (1, 12)
        assert (whole.chunked_prompts, chunked.chunked_prompts) == (0, 2)


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
    (place / "others" / "config.json").write_text(json.dumps({**config, "vocab_size": 64}))
    _bart().save_pretrained(place / "bart")
    return place


def _bart() -> Any:
    """It counts positions by its cache alone, so that another request before it moves them."""
    from transformers import BartConfig, BartForCausalLM

    layers = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
    sizes = {"d_model": 16, "vocab_size": 128, "max_position_embeddings": 4_096, "init_std": 0.2}
    return BartForCausalLM(BartConfig(**layers, **sizes))


class TestAModelOfOnesOwn:
    pytestmark = with_torch

    def test_it_is_compared_with_every_chunk(self, folders: Path, tmp_path: Path) -> None:
        words = ("--model", folders / "good", "--long", "300", "--chunk", "32,128,512,none")
        run = chunkscope(tmp_path, "demo", *words, "--json")
        assert run.code == 0, run.err
        document = json.loads(run.out)
        assert document["model"]["name"] == "good"
        assert [r["setting"] for r in document["runs"]] == [
            "with chunks of 32",
            "with chunks of 128",
            "with chunks of 512",
            "without chunks",
        ]
        assert [r["figures"]["chunks_max"] for r in document["runs"]] == [10, 3, 1, 1]

    def test_no_prompt_is_made_that_will_not_be_read(self, tmp_path: Path) -> None:
        """Making it would take all memory."""
        run = chunkscope(tmp_path, "demo", "--long", "1000000000000")
        assert run.code == 3
        assert "1,000,000,000,000" in run.err

    @pytest.mark.parametrize(
        ("model", "code", "said"),
        [
            ("nowhere", 4, "nowhere"),
            ("bare", 4, "bare"),
            ("damaged", 3, "damaged"),
            ("others", 3, "others"),
            ("bart", 3, "BartForCausalLM"),
            ("good", 3, "1,024"),
        ],
    )
    def test_one_that_cannot_be_used_is_a_sentence(
        self, folders: Path, tmp_path: Path, model: str, code: int, said: str
    ) -> None:
        run = chunkscope(tmp_path, "demo", "--model", folders / model)
        assert (run.code, run.out) == (code, "")
        assert run.err.startswith("error: ")
        assert said in run.err
        assert not list(tmp_path.iterdir()), "nothing is written"
