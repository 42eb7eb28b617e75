"""The memory model against what was measured.

Source of the figures: section 11 of shared/docs/VLLM.md: one H200, vLLM 0.24.0, dummy bf16 weights,
a Llama-3.1-8B shape with max_model_len 32768 and gpu_memory_utilization 0.9; a Qwen2.5-7B shape for
the V1 runner.

Most constants were fitted to these very figures, so these tests keep the model from drifting away
from them; they are no evidence for another GPU or model. Not fitted: Qwen2.5-7B's weights and
plain activation peak.
"""

import pytest

from chunkscope.artefacts.note import Label
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.memory import Runner
from chunkscope.models import find_model, shape_from_config
from chunkscope.models.layers import KvKind
from chunkscope.report.words import sentence
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import release
from chunkscope.vllm.footprint import memory as footprint
from chunkscope.vllm.settings import Settings
from tests.hardware.kv_models import CONFIGS


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


@pytest.mark.parametrize(
    ("budget", "measured_tokens"),
    [(512, 905_264), (2_048, 903_968), (8_192, 898_784), (32_768, 878_048)],
)
def test_kv_tokens_are_the_measured_ones_within_2_percent(budget, measured_tokens):
    """Fitted: the overhead is what makes one of these right, the slope what makes all four."""
    memory = engine().memory(budget=budget, seqs=64, utilization=0.9)
    # V2 runner of 0.24: CUDA graphs are not taken off.
    assert memory.kv_cache_tokens == pytest.approx(measured_tokens, rel=0.001)


@pytest.mark.parametrize(
    ("model", "runner", "gib"), [("qwen2.5-7b", Runner.V1, 2.91), ("llama-3.1-8b", Runner.V2, 0.51)]
)
def test_prompt_logprobs_are_the_measured_ones_and_not_profiled(model, runner, gib):
    """Budget 2048; on the V2 runner in slices of 1024 tokens."""
    memory = engine(model, logprobs=True).memory(budget=2_048, seqs=64, utilization=0.9)
    line = memory.line("logprobs")
    assert (memory.runner, line.profiled) == (runner, False)
    assert line.gib == pytest.approx(gib, rel=0.10)


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


def test_every_line_says_where_it_comes_from():
    memory = engine(logprobs=True, tp=2).memory(budget=2_048, seqs=64, utilization=0.9)
    assert [line.name for line in memory.lines] == [
        "weights", "activation", "sampler", "overhead", "cuda_graphs", "logprobs",
    ]  # fmt: skip
    assert all(sentence(line.note) and line.label in Label for line in memory.lines)


# -- several GPUs, prefix caching, 8 bits --------------------------------------------------------

MOE = "qwen3-30b-a3b"


def spread(model, **options):
    return footprint(model, "h200", vllm_version="0.24", **options).memory


def test_replicas_of_a_dense_model_hold_all_of_it():
    one, four, both = (spread("qwen3-8b", **s) for s in ({}, {"dp": 4}, {"tp": 2, "dp": 2}))
    assert four.line("weights").gib == one.line("weights").gib
    assert both.line("weights").gib == pytest.approx(one.line("weights").gib / 2)
    assert 0.98 < four.kv_cache_tokens / one.kv_cache_tokens < 1, "buffers to talk to each other"


@pytest.mark.parametrize("ep", [False, True], ids=["parts of experts", "whole experts"])
def test_replicas_share_the_experts_and_nothing_else(ep):
    experts = find_model(MOE).bytes_of("experts") / 2**30
    others = spread(MOE).line("weights").gib - experts
    for options, share in (({"dp": 4}, others), ({"tp": 2, "dp": 2}, others / 2)):
        bill = spread(MOE, ep=ep, **options)
        assert bill.line("weights").gib == pytest.approx(share + experts / 4)


def test_the_experts_kernel_takes_the_tokens_of_all_replicas():
    one, four = (spread(MOE, dp=n, ep=n > 1, max_num_batched_tokens=4_096) for n in (1, 4))
    assert four.line("experts").gib == pytest.approx(4 * one.line("experts").gib)
    assert four.line("experts").label is Label.ASSUMED


@pytest.mark.parametrize(("caching", "blocks"), [(True, 2), (False, 1), (None, 2)])
def test_states_are_kept_twice_only_where_the_settings_cache_prefixes(caching, blocks):
    config = CONFIGS["qwen3-next"]
    shape = shape_from_config(config, name="hybrid", source="test")
    there = Deployment(shape=shape, gpu=find_gpu("h200"), release=release("0.32"))
    model = there.memory_model(Settings(enable_prefix_caching=caching))
    states = [g for g in model.kv_layout.groups if g.kind is KvKind.STATE]
    assert {group.state_blocks for group in states} == {blocks}


def test_eight_bits_hold_twice_as_many_tokens():
    plain, eight = (spread("gemma-2-9b", kv_cache_dtype=kind) for kind in ("auto", "fp8"))
    assert eight.kv_cache_tokens == pytest.approx(2 * plain.kv_cache_tokens, rel=1e-4)
