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
from chunkscope.report.section import sections
from chunkscope.report.words import sentence
from chunkscope.verification.options import VerifyOptions
from chunkscope.vllm.check import DRY, check, vllm_python
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import Entry, Task
from chunkscope.vllm.flags import command_line, release
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, SHORT, plan


def memory(model="qwen3-8b", gpu="h100", **options):
    return chunkscope.memory(model, gpu, **{"vllm_version": "0.24.0", **options})


def test_it_is_the_bill_that_a_plan_has():
    there = plan(SHORT, model="qwen3-8b", gpu="h100").deployment
    asked = {
        "max_num_batched_tokens": 65_536,
        "max_num_seqs": 4_096,
        "max_model_len": 16_384,
    }
    settings = Settings(**asked, gpu_memory_utilization=0.8, tensor_parallel_size=2)
    found = memory(**asked, gpu_memory_utilization=0.8, tp=2).memory
    assert found.lines == there.memory(settings).lines


def test_what_nobody_sets_is_what_vllm_takes():
    served, offline = memory(), memory(entry=Entry.LLM)
    assert served.memory.kv_cache_tokens > offline.memory.kv_cache_tokens
    asking = replace(
        served.shape, original=4_096, quantization=Quantization(kv_cache="fp8")
    )
    for version, taken in {
        "0.32.0": (4_096, "fp8"),
        "0.11.0": (served.shape.limit, None),
    }.items():
        there = replace(served.deployment, shape=asking, release=release(version))
        own = there.effective(Settings(kv_cache_dtype="auto"))
        assert (own.max_model_len, own.kv_cache_dtype) == taken
        assert ("unstretched" in {note.code for note in there.notes()}) == (
            taken[0] == 4_096
        )


def test_llama_4_keeps_all_tokens_in_every_layer_until_vllm_0_14(tmp_path):
    config = {**known_model("llama-3.1-8b").config, "model_type": "llama4_text"}
    config |= {"architectures": ["Llama4ForCausalLM"], "attention_chunk_size": 8_192}
    (tmp_path / "config.json").write_text(json.dumps(config))
    old, new = (memory(tmp_path, "h200", vllm_version=v) for v in ("0.13", "0.14"))
    assert new.memory.kv_cache_tokens == pytest.approx(
        3.1 * old.memory.kv_cache_tokens, rel=0.1
    )
    assert "chunks_kept" in {n.code for n in old.notes} - {n.code for n in new.notes}


def test_a_threshold_bounds_what_logprobs_take():
    # Qwen2.5 keeps the first runner, which takes the logits of a whole chunk.
    options = {
        "model": "qwen2.5-7b",
        "task": Task.LOGLIKELIHOOD,
        "max_num_batched_tokens": 8_192,
    }
    whole = memory(**options)
    cut = memory(**options, long_prefill_token_threshold=1_024)
    assert cut.memory.line("logprobs").gib < whole.memory.line("logprobs").gib / 7
    assert "refused_logprobs" in {refusal.code for refusal in whole.refusals}
    assert not cut.refusals


def test_a_context_longer_than_the_kv_cache_does_not_start():
    found = memory("llama-3.1-8b", "l4")
    (why,) = found.refusals
    assert (why.code, why.values["max_model_len"]) == ("refused_kv_cache", 131_072)
    held = {tp: memory("llama-3.1-8b", "l4", tp=tp) for tp in (1, 2)}
    assert [not one.refusals for one in held.values()] == [
        False,
        why.values["full_tp"] == 2,
    ]
    assert not found.to_json()["starts"]
    assert not memory(
        "llama-3.1-8b", "l4", max_model_len=found.memory.kv_cache_tokens
    ).refusals


def test_a_model_that_does_not_fit_says_how_much_is_missing():
    (why,) = memory("llama-3.1-70b").refusals
    assert (why.code, why.values["tp"], why.values["full_tp"]) == (
        "refused_no_memory",
        2,
        4,
    )
    assert "--tp 2 would fit" in sentence(why), "as recommend says"
    assert not memory("llama-3.1-70b", tp=4).refusals
    (why,) = memory("phi-4", "t4").refusals
    assert why.values["tp"] is None, "vLLM does not split its 10 KV heads over 4 GPUs"
    assert set(memory("llama-3.1-70b").requests.values()) == {0}
    assert sections(memory("llama-3.1-70b"))[0].table.rows[-1][1] == "133.92", (
        "as the lines add up"
    )
    fits = memory(max_model_len=16_384)
    assert list(fits.requests) == [1_024, 4_096, 16_384]
    assert fits.requests[4_096] == fits.memory.kv_cache_tokens // 4_096


def test_what_is_said_is_of_what_was_asked():
    for share in (1.5, 1.0):  # the driver takes some, as the gate says
        (refused,) = memory(gpu_memory_utilization=share).refusals
        assert refused.code == "refused_utilization"
    for version, left_out in (("0.19.1", False), ("0.20", True)):  # CUDA 13 has no V100
        codes = [note.code for note in memory(gpu="v100", vllm_version=version).notes]
        assert ("volta" in codes) is left_out
    assert "over 2 GPUs" in sentence(memory(tp=2, dp=3).memory.line("weights").note)


def test_where_a_log_measured_less_every_setting_has_less_by_as_much():
    there = Deployment(
        release=release("0.24"), shape=find_model("gemma-2-9b"), gpu=find_gpu("h200")
    )
    logged = there.effective(Settings(max_model_len=8_192))
    fewer = there.memory(logged).kv_cache_tokens - 10_000
    fit = MeasuredFit(log="vllm.log", settings=logged, kv_cache_tokens=fewer)
    fitted = replace(there, measured=fit)
    assert fitted.memory(logged).kv_cache_tokens == pytest.approx(fewer, abs=32)
    for changed, label in (
        ({}, Label.MEASURED),
        ({"max_num_batched_tokens": 2_048}, None),
    ):
        settings = replace(logged, **changed)
        ours, theirs = fitted.memory(settings), there.memory(settings)
        off = theirs.kv_cache_bytes - ours.kv_cache_bytes
        assert (off, ours.kv_cache_label) == (
            round(ours.line("correction").gib * 2**30),
            label,
        )


def asked(made, *, python):
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
        asked(plan(MIXED), python=python)
    with pytest.raises(MissingError, match="model"):
        asked(plan(MIXED, model=None), python=python)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("sys.exit('RuntimeError: boom')", "boom"),
        ("print(); print('chunkscope-check:' + json.dumps(['0.28.0', 'Value error, no [type=b']))",
         r"vLLM 0\.28\.0 refuses the arguments: no$"),
    ],
    ids=["dies", "refuses"],
)  # fmt: skip
def test_a_check_that_dies_or_refuses_is_an_engine_error(tmp_path, answer, told):
    with pytest.raises(EngineError, match=told):
        asked(plan(MIXED), python=interpreter(tmp_path, answer))


def test_what_the_engine_ends_up_with_is_asked_about_a_folder_of_the_user(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps(known_model("llama-3.1-8b").config)
    )
    made = plan(MIXED, model=str(tmp_path))
    words = command_line({**made.effective.given(), "model": str(tmp_path), **DRY})
    echo = f"print('chunkscope-check:' + json.dumps([sys.argv[2:] == {words}, None]))"
    assert asked(made, python=interpreter(tmp_path, echo)) == "True"
