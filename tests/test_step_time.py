import pytest

from chunkscope.hardware import find_gpu
from chunkscope.models import find_model
from chunkscope.step_time import step_model


def test_the_roofline_meets_the_step_model_it_was_fitted_to():
    """Section 11 of VLLM.md: 4.8 ms, 18 us, 1.1 ns and 38 ns on an H200 with Llama-3.1-8B."""
    step = step_model(find_model("llama-3.1-8b"), find_gpu("h200"))
    assert step.fixed_s == pytest.approx(4.8e-3, rel=0.05)
    assert step.per_token_s == pytest.approx(18e-6, rel=0.05)
    assert step.per_prefill_pair_s == pytest.approx(1.1e-9, rel=0.05)
    assert step.per_decode_context_s == pytest.approx(38e-9, rel=0.05)


def test_a_slower_gpu_takes_longer_and_more_gpus_less():
    model = find_model("llama-3.1-8b")
    fast, slow = (step_model(model, find_gpu(name)) for name in ("h200", "l4"))
    two = step_model(model, find_gpu("h200"), tp=2)
    assert two.seconds(tokens=2_048) < fast.seconds(tokens=2_048) < slow.seconds(tokens=2_048)


def test_a_gpu_of_unknown_speed_has_no_step_model():
    assert step_model(find_model("llama-3.1-8b"), find_gpu(None, memory="80GiB")) is None


def test_experts_that_are_not_chosen_cost_no_time_per_token():
    gpu = find_gpu("h200")
    sparse, dense = (step_model(find_model(m), gpu) for m in ("qwen3-30b-a3b", "qwen3-32b"))
    assert sparse.per_token_s < 0.15 * dense.per_token_s


def test_the_estimate_says_what_it_was_fitted_on():
    assert "H200" in step_model(find_model("gpt2"), find_gpu("l4")).origin
