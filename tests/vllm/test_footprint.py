"""What fits a GPU without any data, and the check by vLLM's own parser."""

import json
import sys
from dataclasses import replace

import pytest

import chunkscope
from chunkscope.artefacts.note import Label
from chunkscope.errors import EngineError, MissingError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.models import find_model, known_model
from chunkscope.models.quantization import Quantization
from chunkscope.report.footprint import memory_table
from chunkscope.report.notes import sentence
from chunkscope.verification.options import VerifyOptions
from chunkscope.vllm.check import DRY, check, vllm_python
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Task
from chunkscope.vllm.flags import command_line, release
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, SHORT, plan


def memory(model="qwen3-8b", gpu="h100", vllm_version="0.24.0", **options):
    return chunkscope.memory(model, gpu, vllm_version=vllm_version, **options)


def codes(notes):
    return {note.code for note in notes}


# -- what fits -------------------------------------------------------------------------


def test_it_is_the_bill_that_a_plan_has():
    sizes = {
        "max_num_batched_tokens": 65_536,
        "max_num_seqs": 4_096,
        "max_model_len": 16_384,
        "gpu_memory_utilization": 0.8,
    }
    planned = plan(SHORT, model="qwen3-8b", gpu="h100").deployment

    bill = planned.memory(Settings(**sizes, tensor_parallel_size=2))

    assert memory(**sizes, tp=2).memory.lines == bill.lines


def longrope(version):
    """A model that was made for 4,096 tokens and asks for a KV cache of 8 bits."""
    shape = replace(
        find_model("qwen3-8b"),
        original=4_096,
        quantization=Quantization(kv_cache="fp8"),
    )
    return Engine(release=release(version), gpu=find_gpu("h100"), shape=shape)


def test_longrope_goes_no_further_than_its_original_context_and_says_so():
    engine = longrope("0.32.0")

    assert engine.complete().max_model_len == 4_096
    assert "unstretched" in codes(engine.notes())


def test_the_kv_cache_is_of_the_type_that_the_checkpoint_asks_for():
    complete = longrope("0.32.0").complete(Settings(kv_cache_dtype="auto"))

    assert complete.kv_cache_dtype == "fp8"


def test_a_threshold_bounds_what_logprobs_take():
    """Qwen2.5 keeps the first runner, which takes the logits of a whole chunk."""
    options = {
        "model": "qwen2.5-7b",
        "task": Task.LOGLIKELIHOOD,
        "max_num_batched_tokens": 8_192,
    }

    whole = memory(**options)
    cut = memory(**options, long_prefill_token_threshold=1_024)

    assert cut.memory.line("logprobs").gib < whole.memory.line("logprobs").gib / 7
    assert "refused_logprobs" in codes(whole.refusals)
    assert not cut.refusals


def test_a_context_longer_than_the_kv_cache_does_not_start():
    found = memory("llama-3.1-8b", "l4")

    (refusal,) = found.refusals

    assert refusal.code == "refused_kv_cache"
    assert refusal.values["max_model_len"] == 131_072
    assert not found.to_json()["starts"]


def test_a_context_as_long_as_the_kv_cache_starts():
    tokens = memory("llama-3.1-8b", "l4").memory.kv_cache_tokens

    assert not memory("llama-3.1-8b", "l4", max_model_len=tokens).refusals


def test_where_two_gpus_are_not_enough_none_are_promised():
    (refusal,) = memory("llama-3.1-8b", "l4").refusals

    fits = not memory("llama-3.1-8b", "l4", tp=2).refusals

    assert fits is (refusal.values["full_tp"] == 2)


def test_a_model_that_does_not_fit_says_on_how_many_gpus_it_would():
    found = memory("llama-3.1-70b")

    (refusal,) = found.refusals

    assert refusal.code == "refused_no_memory"
    assert (refusal.values["tp"], refusal.values["full_tp"]) == (2, 4)
    assert "--tp 2 would fit" in sentence(refusal), "as recommend says"
    assert set(found.requests.values()) == {0}
    total = memory_table(found.memory).rows[-1][1]
    assert total.text == "133.92", "as the lines add up"


def test_gpus_over_which_vllm_does_not_split_are_not_proposed():
    """phi-4 has 10 KV heads."""
    (refusal,) = memory("phi-4", "t4").refusals

    assert refusal.values["tp"] is None


def test_how_many_requests_fit_is_said_up_to_the_longest_let_in():
    found = memory(max_model_len=16_384)

    assert list(found.requests) == [1_024, 4_096, 16_384]
    assert found.requests[4_096] == found.memory.kv_cache_tokens // 4_096


@pytest.mark.parametrize("share", [1.5, 1.0])
def test_the_driver_takes_some_memory(share):
    (refusal,) = memory(gpu_memory_utilization=share).refusals

    assert refusal.code == "refused_utilization"


@pytest.mark.parametrize(("version", "left_out"), [("0.19.1", False), ("0.20", True)])
def test_cuda_13_has_no_v100(version, left_out):
    notes = memory(gpu="v100", vllm_version=version).notes

    assert ("volta" in codes(notes)) is left_out


# -- where a log measured the KV cache -------------------------------------------------

LESS = 10_000  # tokens


@pytest.fixture
def predicted():
    return Engine(
        release=release("0.24"), shape=find_model("gemma-2-9b"), gpu=find_gpu("h200")
    )


@pytest.fixture
def logged(predicted):
    return predicted.complete(Settings(max_model_len=8_192))


@pytest.fixture
def measured(predicted, logged):
    tokens = predicted.memory(logged).kv_cache_tokens - LESS
    fit = MeasuredFit(log="vllm.log", settings=logged, kv_cache_tokens=tokens)
    return replace(predicted, measured=fit)


def test_at_the_settings_of_a_log_the_kv_cache_is_the_measured_one(
    predicted, measured, logged
):
    bill = measured.memory(logged)

    tokens = predicted.memory(logged).kv_cache_tokens - LESS
    assert bill.kv_cache_tokens == pytest.approx(tokens, abs=32)
    assert bill.kv_cache_label is Label.MEASURED


def test_at_other_settings_it_is_less_by_as_much(predicted, measured, logged):
    settings = replace(logged, max_num_batched_tokens=2_048)
    at_log = measured.memory(logged).line("correction")

    bill = measured.memory(settings)

    off_bytes = predicted.memory(settings).kv_cache_bytes - bill.kv_cache_bytes
    assert off_bytes == round(at_log.gib * 2**30)
    assert bill.line("correction").gib == at_log.gib
    assert bill.kv_cache_label is None


# -- the check by vLLM -----------------------------------------------------------------


def asked(made, python):
    return check(made.deployment, made.settings, python=python)


def interpreter(tmp_path, body):
    """A "python" that ignores its program and answers as told."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nimport json, sys\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_an_empty_name_of_the_interpreter_is_none(monkeypatch):
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", "")

    assert vllm_python() == VerifyOptions().python == sys.executable


@pytest.mark.parametrize("python", [sys.executable, "/nowhere/python"])
def test_an_interpreter_without_vllm_is_something_missing(python):
    with pytest.raises(MissingError, match=python):
        asked(plan(MIXED), python)


def test_a_check_without_a_model_is_something_missing():
    with pytest.raises(MissingError, match="model"):
        asked(plan(MIXED, model=None), sys.executable)


ANSWER = (
    "print('chunkscope-check:' + json.dumps(['0.28.0', 'Value error, no [type=b']))"
)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param("sys.exit('RuntimeError: boom')", "boom", id="dies"),
        pytest.param(
            f"print(); {ANSWER}",
            r"vLLM 0\.28\.0 refuses the arguments: no$",
            id="refuses",
        ),
    ],
)
def test_a_check_that_dies_or_refuses_is_an_engine_error(tmp_path, answer, message):
    with pytest.raises(EngineError, match=message):
        asked(plan(MIXED), interpreter(tmp_path, answer))


def test_vllm_is_asked_with_the_sizes_that_it_would_choose_by_the_gpu(tmp_path):
    """About a model in a folder of the user."""
    config = json.dumps(known_model("llama-3.1-8b").config)
    (tmp_path / "config.json").write_text(config)
    made = plan(MIXED, model=str(tmp_path))
    arguments = made.settings.given()
    for name in ("max_model_len", "max_num_batched_tokens", "max_num_seqs"):
        arguments[name] = getattr(made.effective, name)
    ordered = Settings.of(arguments).given()
    words = command_line({**ordered, "model": str(tmp_path), **DRY})
    echo = f"print('chunkscope-check:' + json.dumps([sys.argv[2:] == {words}, None]))"

    assert asked(made, interpreter(tmp_path, echo)) == "True"
