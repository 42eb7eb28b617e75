"""`chunkscope memory` as a user meets it."""

import json

import pytest

from tests.commands.test_recommend import chunkscope

ASKED = ("memory", "--model", "qwen3-8b", "--gpu", "h100", "--vllm-version", "0.24")


def test_it_says_where_every_gib_goes_and_what_fits(tmp_path):
    run = chunkscope(*ASKED, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    for word in ("weights", "activation", "KV cache", "requests that fit", "It runs"):
        assert word in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80
    assert not any(tmp_path.iterdir()), "nothing is written"


def test_json_answers_the_arguments(tmp_path):
    words = ("--max-num-batched-tokens", "32768", "--max-num-seqs", "64", "--max-model-len", "8192",
             "--long-prefill-token-threshold", "2048", "--tp", "2", "--task", "loglikelihood",
             "--entry", "llm", "--gpu-memory-utilization", "0.8", "--json")  # fmt: skip
    run = chunkscope(*ASKED, *words, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert said["settings"] == {
        "max_model_len": 8192,
        "max_num_batched_tokens": 32768,
        "long_prefill_token_threshold": 2048,
        "max_num_seqs": 64,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "gpu_memory_utilization": 0.8,
        "tensor_parallel_size": 2,
    }
    assert said["weights_gib"] > 7
    assert said["logprobs_gib"] > 0
    assert said["entry"] == "llm"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["--gpu", "h100"], 2, "--model", id="no model"),
        pytest.param(["-m", "no-such-model", "--gpu", "h100"], 4, "built in:", id="no such model"),
        pytest.param(["-m", "qwen3-8b", "--gpu", "h1000"], 2, "did you mean", id="no such GPU"),
        pytest.param(["-m", "qwen3-8b"], 4, "nvidia-smi", id="no GPU here"),
        pytest.param(["-m", "qwen3-8b", "--gpu", "h100", "--tp", "0"], 2, "--tp", id="no GPUs"),
    ],
)
def test_a_mistake_gets_a_sentence_and_its_exit_code(tmp_path, words, code, said):
    run = chunkscope("memory", *words, cwd=tmp_path)
    assert run.returncode == code, run.stderr
    assert said in run.stderr
    assert not run.stdout


def test_a_size_is_enough_of_a_gpu(tmp_path):
    run = chunkscope("memory", "-m", "qwen3-8b", "--gpu-memory", "48GiB", "--json", cwd=tmp_path)
    assert json.loads(run.stdout)["total_gib"] == pytest.approx(48)
