"""Models whose layers keep different parts of a request: what that takes of the KV cache."""

import pytest

from chunkscope.errors import InputError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.kv_groups import KvGroup
from chunkscope.models import find_model
from chunkscope.models.layers import KvKind
from chunkscope.simulation.kv_cache import KvCache
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.simulation.common import Engine, simulate

FULL = KvGroup(kind=KvKind.FULL, layers=1, block_tokens=16)
SLIDING = KvGroup(kind=KvKind.SLIDING, layers=1, block_tokens=16, window=64)
STATE = KvGroup(kind=KvKind.STATE, layers=1, block_tokens=16, state_blocks=2)


def engine(*groups: KvGroup, blocks: int, **more) -> Engine:
    usual = {
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "enable_prefix_caching": False,
    }
    pool = {
        "kv_cache_tokens": 16 * blocks,
        "kv_cache_blocks": blocks,
        "kv_groups": groups,
    }
    return {**usual, **pool, **more}


def run(args: Engine, *requests: tuple[int, int], **sent):
    """And the most blocks that were in use at once."""
    free, take = [], KvCache.get_new_blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            KvCache, "get_new_blocks", lambda *a: take(*a) or free.append(a[0].num_free)
        )
        done = simulate(requests, args, **sent)
    return done, done.pool.num_blocks - min(free)


def test_a_window_holds_itself_and_the_chunk_that_is_read_however_long_the_prompt_is():
    _, used = run(engine(SLIDING, blocks=30), (1_600, 1))
    assert used == 8, "4 blocks of the window, 4 of the chunk"
    with pytest.raises(InputError, match="holds 464 of one"):
        run(engine(FULL, blocks=30), (1_600, 1))
    both = engine(FULL, SLIDING, blocks=130)
    assert (
        run(both, (1_600, 1), vllm="0.18")[1]
        == run(both, (1_600, 1), vllm="0.20")[1]
        == 108
    )
    with pytest.raises(
        InputError, match="holds 1,024 of one"
    ):  # as if the window kept all
        run(both, (1_600, 1), vllm="0.19")


def test_all_groups_take_from_one_pool():
    groups = [(FULL,), (FULL, SLIDING), (FULL, STATE)]
    used = [run(engine(*some, blocks=100), (160, 1))[1] for some in groups]
    assert used == [10, 16, 12], "four have left the window; two, whatever its length"


def test_a_state_decides_how_many_run_at_once():
    requests = [(16, 4)] * 8
    assert run(engine(FULL, blocks=17), *requests)[0].most_running == 8
    assert run(engine(FULL, STATE, blocks=17), *requests)[0].most_running == 4


def test_a_model_brings_its_groups_and_as_many_blocks_as_its_memory_has():
    there, plain = (
        Deployment(
            release=release("0.24"), shape=find_model(name), gpu=find_gpu("h200")
        )
        for name in ("gemma-2-9b", "llama-3.1-8b")
    )
    memory = there.memory()
    pool = there.kv_pool(Settings(), memory.kv_cache_tokens)
    assert [group.kind for group in pool.groups] == [KvKind.FULL, KvKind.SLIDING]
    assert pool.num_blocks + 1 == memory.kv_cache_blocks
    assert plain.kv_pool(Settings(), 16_000).groups == ()


def test_since_0_26_a_window_reserves_two_steps_so_what_starts_lets_its_longest_request_in():
    """`max_in_flight_tokens` of vLLM; 5,698 tokens were planned and could never be served."""
    shape, gpu, context = find_model("gemma-2-9b"), find_gpu("rtx-4090"), 5_698
    for version, held in (("0.25", 6_000), ("0.26", 5_690), ("0.32", 5_690)):
        there = Deployment(release=release(version), shape=shape, gpu=gpu)
        layout = there.memory_model().kv_layout
        assert layout.tokens(714, context=context, step=1_024) == held


def test_a_prefix_that_two_requests_left_in_parts_is_held_once():
    """A scored request looks for nothing: it leaves the same blocks again, and more behind them."""
    requests = [(70, 1), (140, 1), (150, 1)]
    sent = {"shared_prefix": 128, "concurrency": 1, "scored": frozenset({1})}
    last, used = run(
        engine(FULL, blocks=100, enable_prefix_caching=True), *requests, **sent
    )
    assert (used, last.cached_tokens) == (10, 128)
