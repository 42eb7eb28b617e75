"""The memory model against what was measured.

Source of the figures: section 11 of shared/docs/VLLM.md: one H200, vLLM 0.24.0, dummy bf16 weights,
a Llama-3.1-8B shape with max_model_len 32768 and gpu_memory_utilization 0.9; a Qwen2.5-7B shape for
the V1 runner.

Most constants were fitted to these very figures, so these tests keep the model from drifting away
from them; they are no evidence for another GPU or model. Not fitted: Qwen2.5-7B's weights and
plain activation peak.
"""

import pytest

from chunkscope.artefacts.labels import Label
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.memory import Runner
from chunkscope.models import find_model
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings


def engine(model="llama-3.1-8b", gpu="h200", version="0.24.0", tp=1, **more):
    there = Deployment(shape=find_model(model), gpu=find_gpu(gpu), release=release(version), **more)
    return there.memory_model(Settings(tensor_parallel_size=tp))


@pytest.mark.parametrize(("budget", "measured_gib"), [(8_192, 0.84), (32_768, 3.36)])
def test_activation_peaks_are_the_measured_ones_within_10_percent(budget, measured_gib):
    memory = engine().memory(budget=budget, seqs=64, utilization=0.9)
    assert memory.line("activation").gib == pytest.approx(measured_gib, rel=0.10)


@pytest.mark.parametrize(("budget", "measured_gib"), [(512, 0.07), (2_048, 0.29)])
def test_the_peak_of_a_small_budget_is_known_to_be_a_quarter_too_low(budget, measured_gib):
    """The same table's other two rows: 0.05 and 0.21 GiB predicted, 0.02 and 0.08 GiB too little.

    No constant floor explains that: the excess quadruples from 512 to 2048 tokens and is gone at
    8192. Another workload on the same engine peaked at 0.23 GiB with 2048 tokens (the next test).
    It costs no KV cache: vLLM's own profile is linear down to 512 tokens (the KV tokens below).
    """
    memory = engine().memory(budget=budget, seqs=64, utilization=0.9)
    assert memory.line("activation").gib / measured_gib == pytest.approx(0.75, abs=0.05)


def test_a_plain_generation_peak_at_2048_tokens_is_the_measured_one():
    """0.23 GiB (Llama-3.1-8B) and 0.26 GiB (Qwen2.5-7B), the plain half of the logprobs runs.

    The table's own 2048 row says 0.29 GiB for Llama, under another workload: see above.
    """
    for model, measured in (("llama-3.1-8b", 0.23), ("qwen2.5-7b", 0.26)):
        memory = engine(model).memory(budget=2_048, seqs=64, utilization=0.9)
        assert memory.line("activation").gib == pytest.approx(measured, rel=0.10)


@pytest.mark.parametrize(
    ("budget", "measured_tokens"),
    [(512, 905_264), (2_048, 903_968), (8_192, 898_784), (32_768, 878_048)],
)
def test_kv_tokens_are_the_measured_ones_within_2_percent(budget, measured_tokens):
    """Fitted: the overhead is what makes one of these right, the slope what makes all four."""
    memory = engine().memory(budget=budget, seqs=64, utilization=0.9)
    # V2 runner of 0.24: CUDA graphs are not taken off.
    assert memory.kv_cache_tokens == pytest.approx(measured_tokens, rel=0.02)
    assert memory.kv_cache_tokens == pytest.approx(measured_tokens, rel=0.001)


def test_prompt_logprobs_on_the_v1_runner_are_the_measured_ones():
    """Budget 2048: the peak rose to 2.91 GiB, none of it profiled."""
    memory = engine("qwen2.5-7b", logprobs=True).memory(budget=2_048, seqs=64, utilization=0.9)
    line = memory.line("logprobs")
    assert memory.runner is Runner.V1
    assert line.gib == pytest.approx(2.91, rel=0.10)
    assert not line.profiled


def test_prompt_logprobs_on_the_v2_runner_are_the_measured_ones():
    """Budget 2048: the peak rose to 0.51 GiB, slices of 1024 tokens."""
    memory = engine(logprobs=True).memory(budget=2_048, seqs=64, utilization=0.9)
    assert memory.runner is Runner.V2
    assert memory.line("logprobs").gib == pytest.approx(0.51, rel=0.10)


def test_weights_are_what_vllm_loaded():
    """14.29 GiB by vLLM's own profile of the Qwen2.5-7B shape."""
    memory = engine("qwen2.5-7b").memory(budget=2_048, seqs=64, utilization=0.9)
    assert memory.line("weights").gib == pytest.approx(14.29, rel=0.01)


def test_logits_bound_by_the_chunk_not_by_the_budget():
    v1 = engine("qwen2.5-7b", logprobs=True)
    small = v1.memory(budget=16_384, seqs=64, utilization=0.9, chunk=1_024).line("logprobs")
    large = v1.memory(budget=16_384, seqs=64, utilization=0.9).line("logprobs")
    assert large.gib == pytest.approx(16 * small.gib)


def test_the_bill_adds_up_to_what_vllm_asks_for():
    memory = engine("qwen2.5-7b").memory(budget=4_096, seqs=256, utilization=0.9)
    paid = sum(line.gib for line in memory.lines if line.profiled)
    assert paid + memory.kv_cache_gib == pytest.approx(0.9 * memory.total_gib)


def test_a_smaller_budget_becomes_kv_cache():
    small = engine().memory(budget=2_048, seqs=64, utilization=0.9)
    large = engine().memory(budget=32_768, seqs=64, utilization=0.9)
    freed = large.line("activation").gib - small.line("activation").gib
    assert small.kv_cache_gib - large.kv_cache_gib == pytest.approx(freed)


def test_the_sampler_is_a_floor_that_the_budget_does_not_lower():
    bills = [engine("qwen2.5-7b").memory(budget=b, seqs=512, utilization=0.9) for b in (512, 2_048)]
    peaks = [bill.line("activation").gib + bill.line("sampler").gib for bill in bills]
    assert peaks[0] == pytest.approx(peaks[1])
    assert bills[0].line("sampler").label is Label.ASSUMED


@pytest.mark.parametrize(
    ("version", "model", "profiled"),
    [
        ("0.19.0", "qwen2.5-7b", False),
        ("0.20.0", "qwen2.5-7b", True),
        ("0.24.0", "llama-3.1-8b", False),
        ("0.32.0", "llama-3.1-8b", True),
    ],
)
def test_cuda_graphs_come_off_the_kv_cache_only_in_some_versions(version, model, profiled):
    memory = engine(model, version=version).memory(budget=2_048, seqs=64, utilization=0.9)
    assert memory.line("cuda_graphs").profiled is profiled


def test_tensor_parallel_splits_weights_and_kv_and_costs_communication():
    one = engine().memory(budget=2_048, seqs=64, utilization=0.9)
    two = engine(tp=2).memory(budget=2_048, seqs=64, utilization=0.9)
    assert two.line("weights").gib == pytest.approx(one.line("weights").gib / 2)
    assert two.line("overhead").gib > one.line("overhead").gib
    assert two.kv_cache_tokens > 2 * one.kv_cache_tokens


def test_a_model_larger_than_the_gpu_leaves_nothing():
    memory = engine("llama-3.1-70b", gpu="l4").memory(budget=512, seqs=8, utilization=0.9)
    assert memory.kv_cache_tokens == 0
    assert memory.kv_cache_bytes < 0
    assert not memory.holds(1)


def test_every_line_says_where_it_comes_from():
    memory = engine(logprobs=True, tp=2).memory(budget=2_048, seqs=64, utilization=0.9)
    assert [line.name for line in memory.lines] == [
        "weights", "activation", "sampler", "overhead", "cuda_graphs", "logprobs",
    ]  # fmt: skip
    assert all(line.note and line.label in Label for line in memory.lines)
