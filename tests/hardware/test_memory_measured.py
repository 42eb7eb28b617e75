"""The memory model against a GPU it was not fitted to the numbers of.

Measured on 2026-11-15 on one NVIDIA H200 (139.80 GiB) with vLLM 0.24.0 and torch 2.11.0+cu130 by
tests/benchmarks/measure_memory.py: random bf16 weights, max_model_len 32768,
gpu_memory_utilization 0.9, eager, max_num_seqs 1024; one prompt of 32,704 tokens beside 32 of 400.
The activation peak is torch's max_memory_allocated while generating, over what was allocated
before. One run each.
"""

import pytest

from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.memory import Memory
from chunkscope.models import find_model
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import release

#  model               budget  weights GiB  activation GiB  KV tokens
MEASURED = [
    ("llama-3.1-8b", 8192, 15.00, 0.912, 898_784),
    ("qwen2.5-7b", 2048, 14.32, 0.271, 2_043_056),
    ("qwen2.5-7b", 16384, 14.32, 2.172, 2_041_280),
    ("mistral-7b-v0.3", 2048, 13.51, 0.228, 916_224),
    ("mistral-7b-v0.3", 16384, 13.51, 1.688, 904_128),
    ("qwen3-8b", 2048, 15.27, 0.248, 796_624),
    ("qwen3-8b", 16384, 15.27, 1.625, 791_312),
    ("llama-3.2-1b", 2048, 2.32, 0.117, 4_014_016),
    ("qwen3-30b-a3b", 2048, 56.88, 0.226, 725_680),
    ("qwen3-30b-a3b", 16384, 56.88, 1.407, 715_520),
]
DENSE_AND_LARGE = [row for row in MEASURED if row[1] >= 8192 and "a3b" not in row[0]]


def predicted(model: str, budget: int) -> Memory:
    gpu = find_gpu("h200")
    assert gpu is not None
    there = Deployment(shape=find_model(model), gpu=gpu, release=release("0.24"), cuda_graphs=False)
    engine = there.memory_model()
    return engine.memory(budget=budget, seqs=1024, utilization=0.9)


@pytest.mark.parametrize(("model", "budget", "_weights", "_activation", "tokens"), MEASURED)
def test_kv_cache_tokens_are_within_a_quarter_of_a_percent(
    model: str, budget: int, _weights: float, _activation: float, tokens: int
) -> None:
    assert predicted(model, budget).kv_cache_tokens == pytest.approx(tokens, rel=0.0025)


@pytest.mark.parametrize(("model", "budget", "weights", "_activation", "_tokens"), MEASURED)
def test_weights_are_within_one_percent(
    model: str, budget: int, weights: float, _activation: float, _tokens: int
) -> None:
    assert predicted(model, budget).line("weights").gib == pytest.approx(weights, rel=0.01)


@pytest.mark.parametrize(("model", "budget", "_weights", "activation", "_tokens"), DENSE_AND_LARGE)
def test_activation_peaks_of_dense_models_are_within_ten_percent(
    model: str, budget: int, _weights: float, activation: float, _tokens: int
) -> None:
    assert predicted(model, budget).line("activation").gib == pytest.approx(activation, rel=0.1)
