import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.parallel import Parallel
from chunkscope.hardware.step_time import READ_AGAIN, AttentionWindow, model_work, step_model
from chunkscope.models import find_model, shape_from_config
from tests.h200 import FOLDER
from tests.hardware.test_kv_groups import CONFIGS


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
    step = step_model(find_model(model), find_gpu("h200"))
    assert step.fixed_s * 1e3 == pytest.approx(fixed_ms, rel=0.12)
    assert step.per_token_s * 1e6 == pytest.approx(token_us, rel=0.12)
    assert step.per_prefill_pair_s * 1e9 == pytest.approx(pair_ns, rel=0.12)
    assert step.per_decode_context_s * 1e9 == pytest.approx(context_ns, rel=0.12)


def test_the_slower_of_gpu_and_host_counts():
    """1,024 decoding requests: the small model's GPU waits for the host, the large one's does not.

    Measured on the H200: 42 ms with 1.5 billion parameters, where the GPU's part is a sixth of it.
    """
    small, large = (
        step_model(find_model(m), find_gpu("h200")) for m in ("qwen2.5-1.5b", "qwen3-32b")
    )
    host = small.host_s(1_024, 1_024, 0)
    assert small.of(1_024, 0, 190_000, 1_024) == host == pytest.approx(0.047, rel=0.05)
    assert large.of(1_024, 0, 190_000, 1_024) == large.gpu_s(1_024, 0, 190_000, 1_024) > host


def test_a_step_over_the_graphs_size_is_launched_by_the_host():
    step = step_model(find_model("qwen2.5-1.5b"), find_gpu("h200"))
    more = step.host_s(513, 1, 1) - step.host_s(512, 1, 1)
    assert more == pytest.approx(step.host.ungraphed_s)


def test_a_slower_gpu_takes_longer_and_more_gpus_less():
    model = find_model("llama-3.1-8b")
    fast, slow = (step_model(model, find_gpu(name)) for name in ("h200", "l4"))
    two = step_model(model, find_gpu("h200"), Parallel(tensor=2))
    assert two.seconds(tokens=2_048) < fast.seconds(tokens=2_048) < slow.seconds(tokens=2_048)


def test_a_gpu_of_unknown_speed_has_no_step_model():
    assert step_model(find_model("llama-3.1-8b"), find_gpu(None, memory="80GiB")) is None


def test_experts_that_are_not_chosen_cost_no_time_per_token():
    gpu = find_gpu("h200")
    sparse, dense = (step_model(find_model(m), gpu) for m in ("qwen3-30b-a3b", "qwen3-32b"))
    assert sparse.per_token_s < 0.15 * dense.per_token_s


def test_the_estimate_says_what_it_was_fitted_on():
    assert "H200" in step_model(find_model("gpt2"), find_gpu("l4")).origin


def decode_steps():
    """What 128 decode steps of Qwen3-8B took on the H200, with and without shared beginnings."""
    for line in (FOLDER / "shared-decode.jsonl").read_text().splitlines():
        case = json.loads(line)
        took = (min(case["tokens_129_s"]) - min(case["one_token_s"])) / 128
        yield case, took


def in_the_model(case):
    """Seconds of a step half way through, if neighbours read the same blocks as they were sent."""
    requests, prefix = case["requests"], case["prefix_tokens"]
    repeated = (requests - case["groups"]) * prefix if case["neighbours_share"] else 0
    context = requests * (prefix + case["own_tokens"] + 64)
    step = step_model(find_model("qwen3-8b"), find_gpu("h200")).sharing(repeated / context)
    return step.of(requests, 0, context, requests)


@pytest.mark.parametrize(("case", "took"), [*decode_steps()])
def test_decode_steps_took_what_the_model_says_with_and_without_shared_beginnings(case, took):
    assert in_the_model(case) == pytest.approx(took, rel=0.12)


def test_what_a_neighbour_has_just_read_is_read_faster():
    """Of two batches that differ in that alone, by what the beginnings took."""
    took = {tuple(case.values())[:4]: seconds for case, seconds in decode_steps()}
    sizes = {(requests, prefix) for requests, prefix, _, groups in took if groups == 1}
    model = step_model(find_model("qwen3-8b"), find_gpu("h200"))
    shares = []
    for requests, prefix in sizes:
        alone = took.get((requests, prefix, 32, requests))
        if alone is not None:
            rest = model.of(requests, 0, requests * 96, requests)
            shares.append((took[requests, prefix, 32, 1] - rest) / (alone - rest))
    assert len(shares) == 5
    assert sum(shares) / len(shares) == pytest.approx(READ_AGAIN, abs=0.02)


@given(
    tokens=st.integers(1, 60),
    computed=st.integers(0, 60),
    window=st.integers(1, 80),
    share=st.floats(0, 1),
)
def test_a_window_bounds_what_each_token_looks_back_on(tokens, computed, window, share):
    seen = [computed + place for place in range(1, tokens + 1)]
    pairs = sum((1 - share) * n + share * min(n, window) for n in seen)
    reach = AttentionWindow(tokens=window, share=share, expanding=2.0)
    assert reach.pairs(tokens, computed) == pytest.approx(pairs + 2 * computed)
    last = (1 - share) * seen[-1] + share * min(seen[-1], window)
    assert reach.context(seen[-1]) == pytest.approx(last)


def test_a_step_of_few_tokens_reads_the_experts_that_they_choose():
    """8 of 128: one token reads a sixteenth, eight read two fifths, a hundred nearly all."""
    step = step_model(find_model("qwen3-30b-a3b"), find_gpu("h200"))
    read = [(step.gpu_s(n, 0, 0, 0) - step.fixed_s) / step.experts_s for n in (1, 8, 64)]
    assert read == pytest.approx([0.0625, 0.403, 0.984], abs=0.001)


def test_layers_that_borrow_keys_and_values_attend_as_well():
    """Gemma 4: of 12 layers the last 6 keep nothing, and every sixth has heads twice as wide."""
    own = shape_from_config(CONFIGS["gemma-4"], name="own", source="test")
    borrowing = shape_from_config(
        {**CONFIGS["gemma-4"], "num_kv_shared_layers": 6}, name="borrowing", source="test"
    )
    work, same = model_work(borrowing), model_work(own)
    assert same.pair_flops == 4 * 4 * (10 * 64 + 2 * 128)
    assert (work.pair_flops, work.kv_bytes_per_token) == (same.pair_flops, same.kv_bytes_per_token)
    assert 2 * borrowing.kv_bytes_per_token() == own.kv_bytes_per_token()
