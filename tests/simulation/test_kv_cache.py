"""Models whose layers keep different parts of a request: what that takes of the KV
cache."""

import pytest

from chunkscope.errors import InputError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.kv_groups import KvGroup
from chunkscope.models import find_model
from chunkscope.models.layers import KvKind
from chunkscope.simulation.kv_cache import KvCache
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.simulation.common import EngineArguments, arriving, simulate

FULL = KvGroup(kind=KvKind.FULL, layers=1, block_tokens=16)
SLIDING = KvGroup(kind=KvKind.SLIDING, layers=1, block_tokens=16, window=64)
STATE = KvGroup(kind=KvKind.STATE, layers=1, block_tokens=16, state_blocks=2)


def engine(*groups: KvGroup, blocks: int, caching: bool = False) -> EngineArguments:
    return {
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "enable_prefix_caching": caching,
        "kv_cache_tokens": 16 * blocks,
        "kv_cache_blocks": blocks,
        "kv_groups": groups,
    }


def most_blocks(
    setting: EngineArguments, *requests, **sent
) -> tuple[int, SimulatedRun]:
    """That were in use at once; and the run."""
    free, take = [], KvCache.get_new_blocks

    def counted(cache: KvCache, count: int) -> None:
        take(cache, count)
        free.append(cache.num_free)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KvCache, "get_new_blocks", counted)
        run = simulate(requests, setting, **sent)
    return run.pool.num_blocks - min(free), run


def test_a_window_holds_itself_and_the_chunk_that_is_read_however_long_the_prompt_is():
    used, _ = most_blocks(engine(SLIDING, blocks=30), (1_600, 1))

    assert used == 8, "4 blocks of the window, 4 of the chunk"


def test_layers_without_a_window_need_room_for_all_of_a_prompt():
    with pytest.raises(InputError, match="holds 464 of one"):
        simulate([(1_600, 1)], engine(FULL, blocks=30))


@pytest.mark.parametrize("version", ["0.18", "0.20"])
def test_a_window_beside_full_layers_is_let_in_with_what_it_holds(version):
    both = engine(FULL, SLIDING, blocks=130)

    assert most_blocks(both, (1_600, 1), vllm=version)[0] == 108


def test_0_19_reserves_as_if_a_window_kept_all():
    with pytest.raises(InputError, match="holds 1,024 of one"):
        simulate([(1_600, 1)], engine(FULL, SLIDING, blocks=130), vllm="0.19")


@pytest.mark.parametrize(
    ("groups", "blocks"),
    [
        pytest.param((FULL,), 10, id="full"),
        pytest.param((FULL, SLIDING), 16, id="four have left the window"),
        pytest.param((FULL, STATE), 12, id="a state takes two, whatever its length"),
    ],
)
def test_all_groups_take_from_one_pool(groups, blocks):
    assert most_blocks(engine(*groups, blocks=100), (160, 1))[0] == blocks


@pytest.mark.parametrize(("groups", "most"), [((FULL,), 8), ((FULL, STATE), 4)])
def test_a_state_decides_how_many_run_at_once(groups, most):
    run = simulate([(16, 4)] * 8, engine(*groups, blocks=17))

    assert run.most_running == most


def test_a_model_brings_its_groups_and_as_many_blocks_as_its_memory_has():
    there = Engine(
        release=release("0.24"), shape=find_model("gemma-2-9b"), gpu=find_gpu("h200")
    )
    memory = there.memory()

    pool = there.kv_pool(Settings(), memory.kv_cache_tokens)

    assert [group.kind for group in pool.groups] == [KvKind.FULL, KvKind.SLIDING]
    assert pool.num_blocks + 1 == memory.kv_cache_blocks


@pytest.mark.parametrize(
    ("version", "held"), [("0.25", 6_000), ("0.26", 5_690), ("0.32", 5_690)]
)
def test_since_0_26_a_window_reserves_two_steps(version, held):
    """`max_in_flight_tokens` of vLLM: what starts lets its longest request in."""
    there = Engine(
        release=release(version),
        shape=find_model("gemma-2-9b"),
        gpu=find_gpu("rtx-4090"),
    )

    layout = there.kv_layout()

    assert layout.tokens(714, context=5_698, step=1_024) == held


# -- what is found again -------------------------------------------------------


def test_a_prefix_that_two_requests_left_in_parts_is_held_once():
    """A scored request looks for nothing: it leaves the same blocks again, and more
    behind them."""
    used, run = most_blocks(
        engine(FULL, blocks=100, caching=True),
        *((70, 1), (140, 1), (150, 1)),
        shared_prefix=128,
        concurrency=1,
        scored=[1],
    )

    assert (used, run.cached_tokens) == (10, 128)


def test_a_beginning_is_found_where_its_window_is_still_cached():
    """Of the 96 shared tokens the 64 last are in the window of the next."""
    requests = arriving((110, 1, 0.0), (130, 1, 100.0))

    run = simulate(
        requests, engine(FULL, SLIDING, blocks=100, caching=True), shared_prefix=96
    )

    assert run.cached_tokens == 96


def test_a_beginning_whose_window_was_evicted_is_not_found():
    """A long prompt between takes the blocks that were given back first: those of the
    window."""
    requests = arriving((400, 1, 0.0), (1_300, 1, 100.0), (400, 1, 200.0))
    both = engine(FULL, SLIDING, blocks=130, caching=True)

    run = simulate(requests, both, shared_prefix=96, scored=[1])
    alone = simulate(requests[::2], both, shared_prefix=96)

    assert (run.cached_tokens, alone.cached_tokens) == (0, 96)
