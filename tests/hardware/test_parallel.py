"""Several GPUs: what each holds. vLLM's own split is read in its code, not measured."""

import pytest

from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.parallel import Parallel
from chunkscope.hardware.step_time import step_model
from chunkscope.models import find_model
from chunkscope.vllm.footprint import memory

MOE, DENSE, H200, L4 = "qwen3-30b-a3b", "qwen3-8b", "h200", "l4"


def weights(model: str, **spread) -> float:
    return memory(model, H200, vllm_version="0.24", **spread).memory.line("weights").gib


def test_replicas_of_a_dense_model_hold_all_of_it():
    assert weights(DENSE, dp=4) == weights(DENSE)
    assert weights(DENSE, tp=2, dp=2) == pytest.approx(weights(DENSE) / 2)


@pytest.mark.parametrize("ep", [False, True], ids=["parts of experts", "whole experts"])
def test_replicas_share_the_experts_and_nothing_else(ep):
    shape = find_model(MOE)
    experts = shape.bytes_of("experts") / 2**30
    others = weights(MOE) - experts
    assert weights(MOE, dp=4, ep=ep) == pytest.approx(others + experts / 4)
    assert weights(MOE, tp=2, dp=2, ep=ep) == pytest.approx(others / 2 + experts / 4)


def test_each_replica_has_a_kv_cache_of_its_own_as_large_as_a_gpu_leaves():
    one, two = (memory(DENSE, H200, vllm_version="0.24", dp=n) for n in (1, 2))
    assert two.memory.kv_cache_tokens < one.memory.kv_cache_tokens, "buffers to talk to each other"
    assert two.memory.kv_cache_tokens > 0.98 * one.memory.kv_cache_tokens


def test_the_experts_kernel_takes_the_tokens_of_all_replicas():
    spread = {"vllm_version": "0.24", "max_num_batched_tokens": 4_096}
    one, four = (memory(MOE, H200, dp=n, ep=n > 1, **spread).memory for n in (1, 4))
    assert four.line("experts").gib == pytest.approx(4 * one.line("experts").gib)
    assert four.line("experts").label == "assumed"


def test_communication_takes_time_and_more_of_it_over_pcie():
    shape, takes = find_model(DENSE), {}
    for name in (H200, L4):
        gpu = find_gpu(name)
        assert gpu is not None
        step, per_token = Parallel(tensor=2).exchange_s(shape, gpu)
        assert step > 0
        takes[name] = per_token
        assert Parallel(data=2).exchange_s(shape, gpu) == (0, 0), "dense replicas do not talk"
    assert takes[L4] > 10 * takes[H200]


def test_two_gpus_are_faster_than_one_and_not_twice_as_fast():
    shape, gpu = find_model("llama-3.1-70b"), find_gpu(H200)
    one, two = (step_model(shape, gpu, Parallel(tensor=n)) for n in (1, 2))
    assert one.seconds(tokens=8_192) / 2 < two.seconds(tokens=8_192) < one.seconds(tokens=8_192)
    assert "several GPUs were never measured" in two.origin


def test_more_experts_are_read_where_the_tokens_of_all_replicas_choose_them():
    shape, gpu = find_model(MOE), find_gpu(H200)
    one, four = (step_model(shape, gpu, Parallel(data=n)) for n in (1, 4))
    assert four.experts_s == pytest.approx(one.experts_s / 4)
    assert four.expert_share == pytest.approx(1 - (1 - one.expert_share) ** 4)


def test_that_it_is_unmeasured_is_said():
    said = " ".join(memory(MOE, H200, tp=2, dp=2, ep=True).notes)
    assert "several GPUs were never measured: memory and times on 4" in said
    assert "several GPUs" not in " ".join(memory(MOE, H200).notes)


@pytest.mark.parametrize(
    ("model", "spread", "said"),
    [
        (DENSE, {"ep": True}, "has no experts"),
        (MOE, {"dp": 256, "ep": True}, "128 experts cannot be spread over 256"),
        (MOE, {"dp": 0}, "--dp must be at least 1"),
    ],
)
def test_what_cannot_be_spread_is_a_usage_error(model, spread, said):
    with pytest.raises(UsageError, match=said):
        memory(model, H200, **spread)
