"""How long a step takes by the roofline: near what an H200 measured, and scaled by reasons."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.parallel import Parallel
from chunkscope.hardware.step_time import (
    READ_AGAIN,
    WINDOW_SLOWNESS,
    AttentionWindow,
    StepModel,
    exchange,
    step_model,
)
from chunkscope.models import find_model, shape_from_config
from tests.h200 import FOLDER
from tests.hardware.kv_models import CONFIGS


def on(gpu: str, model: str, **spread: int) -> StepModel:
    step = step_model(find_model(model), find_gpu(gpu), Parallel(**spread))
    assert step is not None
    return step


@pytest.mark.parametrize(
    ("model", "fixed_ms", "token_us", "pair_ns", "context_ns"),
    [
        pytest.param("llama-3.1-8b", 5.07, 22.3, 0.814, 36.6, id="8 billion parameters"),
        pytest.param("qwen2.5-1.5b", 1.97, 4.16, 0.308, 7.2, id="1.5 billion parameters"),
    ],
)
def test_the_roofline_is_near_what_was_fitted_to_measured_steps(
    model, fixed_ms, token_us, pair_ns, context_ns
):
    """The long and the short workload of each model in reports/h200: one efficiency for both."""
    step = on("h200", model)
    assert step.fixed_s * 1e3 == pytest.approx(fixed_ms, rel=0.12)
    assert step.per_token_s * 1e6 == pytest.approx(token_us, rel=0.12)
    assert step.per_prefill_pair_s * 1e9 == pytest.approx(pair_ns, rel=0.12)
    assert step.per_decode_context_s * 1e9 == pytest.approx(context_ns, rel=0.12)


def test_the_host_is_slower_than_the_gpu_only_with_a_small_model():
    """1,024 decoding requests. Measured on the H200: 42 ms with 1.5 billion parameters, where the
    GPU's part is a sixth of it."""
    small, large = on("h200", "qwen2.5-1.5b"), on("h200", "qwen3-32b")
    host_s = sum(small.host_parts(1_024, 1_024, 0))
    assert host_s == pytest.approx(0.047, rel=0.05)
    assert small.gpu_s(1_024, 0, 190_000, 1_024) < host_s < large.gpu_s(1_024, 0, 190_000, 1_024)


def test_a_step_over_the_graphs_size_is_launched_by_the_host():
    step = on("h200", "qwen2.5-1.5b")
    more = sum(step.host_parts(513, 1, 1)) - sum(step.host_parts(512, 1, 1))
    assert more == pytest.approx(step.host.ungraphed_s)


@pytest.mark.parametrize(
    ("model", "launch_ms"),
    [
        pytest.param("qwen2.5-1.5b", 18.5, id="28 layers, measured"),
        pytest.param("qwen3-8b", 18.5, id="36 layers, measured"),
        pytest.param("llama-3.1-70b", 18.5 * 80 / 36, id="80 layers take longer"),
        pytest.param("qwen3-30b-a3b", 87, id="48 layers with experts, measured"),
        pytest.param("deepseek-v2-lite", 80, id="experts and latent attention, measured"),
        pytest.param("gpt-oss-20b", 56, id="4-bit experts, measured"),
    ],
)
def test_the_launch_of_a_large_step_grows_with_the_layers(model, launch_ms):
    assert on("h200", model).host.ungraphed_s * 1e3 == pytest.approx(launch_ms, rel=0.08)


@pytest.mark.parametrize(("gpu", "tokens"), [("h200", 84), ("l40s", 171), ("h20", 15)])
def test_tokens_hide_behind_reading_the_weights_by_the_gpus_flop_per_byte(gpu, tokens):
    assert on(gpu, "llama-3.1-8b").free_tokens == tokens


# -- shared beginnings, windows, experts -------------------------------------------------------


def decode_steps():
    """What 128 decode steps of Qwen3-8B took on the H200, with and without shared beginnings."""
    for line in (FOLDER / "shared-decode.jsonl").read_text().splitlines():
        case = json.loads(line)
        yield case, (min(case["tokens_129_s"]) - min(case["one_token_s"])) / 128


def decoding_s(step: StepModel, requests: int, context: int) -> float:
    gpu_s = step.gpu_s(requests, 0, context, requests)
    return max(gpu_s, sum(step.host_parts(requests, requests, 0)))


@pytest.mark.parametrize(("case", "took"), [*decode_steps()])
def test_decode_steps_took_what_the_model_says_with_and_without_shared_beginnings(case, took):
    """A step half way through, if neighbours read the same blocks as they were sent."""
    requests, prefix = case["requests"], case["prefix_tokens"]
    repeated = (requests - case["groups"]) * prefix if case["neighbours_share"] else 0
    context = requests * (prefix + case["own_tokens"] + 64)
    step = on("h200", "qwen3-8b").sharing(repeated / context)
    assert decoding_s(step, requests, context) == pytest.approx(took, rel=0.12)


def test_what_a_neighbour_has_just_read_is_read_faster():
    """Of two batches that differ in that alone, by what the beginnings took."""
    took = {tuple(case.values())[:4]: seconds for case, seconds in decode_steps()}
    sizes = {(requests, prefix) for requests, prefix, _, groups in took if groups == 1}
    shares = []
    for requests, prefix in sizes:
        alone = took.get((requests, prefix, 32, requests))
        if alone is not None:
            rest = decoding_s(on("h200", "qwen3-8b"), requests, requests * 96)
            shares.append((took[requests, prefix, 32, 1] - rest) / (alone - rest))
    assert len(shares) == 5
    assert sum(shares) / len(shares) == pytest.approx(READ_AGAIN, abs=0.02)


@given(
    tokens=st.integers(1, 60),
    computed=st.integers(0, 60),
    size=st.integers(1, 80),
    share=st.floats(0, 1),
)
def test_a_window_bounds_what_each_token_looks_back_on(tokens, computed, size, share):
    seen = [computed + place for place in range(1, tokens + 1)]
    pairs = sum((1 - share) * n + share * min(n, size) for n in seen)
    window = AttentionWindow(tokens=size, share=share, expanding=2.0)
    assert window.pairs(tokens, computed) == pytest.approx(pairs + 2 * computed)
    last = (1 - share) * seen[-1] + WINDOW_SLOWNESS * share * min(seen[-1], size)
    assert window.context(seen[-1]) == pytest.approx(last)


def test_a_step_of_few_tokens_reads_the_experts_that_they_choose():
    """8 of 128: one token reads a sixteenth, eight read two fifths, 64 nearly all."""
    step = on("h200", "qwen3-30b-a3b")
    read = [(step.gpu_s(n, 0, 0, 0) - step.fixed_s) / step.experts_s for n in (1, 8, 64)]
    assert read == pytest.approx([0.0625, 0.403, 0.984], abs=0.001)
    assert step.per_token_s < 0.15 * on("h200", "qwen3-32b").per_token_s


def test_layers_that_borrow_keys_and_values_attend_as_well():
    """Gemma 4: of 12 layers the last 6 keep nothing, and every sixth has heads twice as wide."""
    config = CONFIGS["gemma-4"]
    plain = shape_from_config(config, name="plain", source="test")
    borrowing = shape_from_config(
        {**config, "num_kv_shared_layers": 6}, name="borrowing", source="test"
    )
    steps = [step_model(shape, find_gpu("h200")) for shape in (borrowing, plain)]
    for name in ("per_prefill_pair_s", "per_decode_context_s"):
        assert getattr(steps[0], name) == getattr(steps[1], name) > 0
    assert 2 * borrowing.kv_bytes_per_token() == plain.kv_bytes_per_token()


# -- several GPUs ------------------------------------------------------------------------------


def per_token_s(gpu: str, **spread: int) -> float:
    return exchange(find_model("qwen3-8b"), find_gpu(gpu), Parallel(**spread))[1]


@pytest.mark.parametrize("gpu", ["rtx-4090", "h100-pcie"])
def test_cards_without_nvlink_exchange_ten_times_slower(gpu):
    assert per_token_s(gpu, tensor=2) > 10 * per_token_s("h200", tensor=2)


def test_dense_replicas_do_not_talk():
    assert per_token_s("h200", tensor=2) > per_token_s("h200", data=2) == 0


def test_more_experts_are_read_where_the_tokens_of_all_replicas_choose_them():
    one, four = (on("h200", "qwen3-30b-a3b", data=n) for n in (1, 4))
    assert four.experts_s == pytest.approx(one.experts_s / 4)
    assert four.expert_share == pytest.approx(1 - (1 - one.expert_share) ** 4)


@pytest.mark.parametrize(
    ("model", "spread"),
    [
        pytest.param("qwen3-8b", {"by_expert": True}, id="no experts"),
        pytest.param("qwen3-30b-a3b", {"data": 256, "by_expert": True}, id="too few experts"),
        pytest.param("qwen3-30b-a3b", {"data": 0}, id="no replica"),
        pytest.param("llama-3.1-8b", {"tensor": 3}, id="heads are not split"),
    ],
)
def test_what_cannot_be_spread_is_a_usage_error(model, spread):
    with pytest.raises(UsageError):
        Parallel(**spread).check(find_model(model))
