"""Models whose layers keep different parts of a request: what that takes of the KV cache."""

import random
from dataclasses import replace

import pytest

from chunkscope.errors import InputError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.kv_groups import KvGroup
from chunkscope.models import find_model
from chunkscope.models.layers import KvKind
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.simulation.common import STEP, Engine, simulate

FULL = KvGroup(kind=KvKind.FULL, layers=1, block_tokens=16)
SLIDING = KvGroup(kind=KvKind.SLIDING, layers=1, block_tokens=16, window=64)
STATE = KvGroup(kind=KvKind.STATE, layers=1, block_tokens=16, state_blocks=2)


def engine(*groups: KvGroup, blocks: int, **more) -> Engine:
    usual = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "enable_prefix_caching": False}
    pool = {"kv_cache_tokens": 16 * blocks, "kv_cache_blocks": blocks, "kv_groups": groups}
    return {**usual, **pool, **more}


def run(args: Engine, *requests: tuple[int, int], fast: bool = True):
    step = replace(STEP, per_decode_context_s=1e-4)
    return simulate(requests, args, step, fast=fast)


def test_a_window_holds_itself_and_the_chunk_that_is_read_however_long_the_prompt_is():
    long = run(engine(SLIDING, blocks=30), (1_600, 1))
    assert long.kv_peak_tokens == 16 * 8, "4 blocks of the window, 4 of the chunk"
    with pytest.raises(InputError):
        run(engine(FULL, blocks=30), (1_600, 1))


def test_all_groups_take_from_one_pool():
    alone = run(engine(FULL, blocks=100), (160, 1))
    both = run(engine(FULL, SLIDING, blocks=100), (160, 1))
    state = run(engine(FULL, STATE, blocks=100), (160, 1))
    assert alone.kv_peak_tokens == 16 * 10
    assert both.kv_peak_tokens == 16 * 16, "four blocks have left the window"
    assert state.kv_peak_tokens == 16 * 12, "two blocks, whatever its length"


def test_a_state_decides_how_many_run_at_once():
    requests = [(16, 4)] * 8
    assert run(engine(FULL, blocks=17), *requests).most_running == 8
    assert run(engine(FULL, STATE, blocks=17), *requests).most_running == 4


@pytest.mark.parametrize("seed", range(20))
def test_the_fast_scheduler_has_the_same_times_and_peak(seed):
    chance = random.Random(seed)
    requests = [(chance.randint(1, 400), chance.choice([1, 5, 90])) for _ in range(20)]
    groups = [FULL] * chance.randint(0, 2) + [SLIDING] * chance.randint(1, 3)
    args = engine(
        *groups,
        blocks=chance.choice([45, 60, 100, 400]) * len(groups),
        max_num_batched_tokens=chance.choice([16, 64, 500]),
        async_scheduling=seed % 2 == 1,
    )
    assert run(args, *requests) == run(args, *requests, fast=False)


def test_a_model_brings_its_groups_and_as_many_blocks_as_its_memory_has():
    there = Deployment(
        release=release("0.24"), shape=find_model("gemma-2-9b"), gpu=find_gpu("h200")
    )
    memory = there.memory()
    assert memory is not None
    pool = there.kv_pool(Settings(), memory.kv_cache_tokens)
    assert [group.kind for group in pool.groups] == [KvKind.FULL, KvKind.SLIDING]
    assert pool.num_blocks + 1 == memory.kv_cache_blocks
    plain = Deployment(
        release=release("0.24"), shape=find_model("llama-3.1-8b"), gpu=find_gpu("h200")
    )
    assert plain.kv_pool(Settings(), 16_000).groups == ()
