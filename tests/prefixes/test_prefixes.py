"""Prefix reuse: the same figures as the rule written out token by token, block by block."""

from collections import OrderedDict, deque
from dataclasses import replace
from itertools import pairwise, takewhile

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chunkscope.prefixes import block_hashes
from chunkscope.prefixes.block_hashes import BlockHashes
from chunkscope.prefixes.kv_curve import ONE_BY_ONE, Load, found_share, lru_cached_tokens
from chunkscope.prefixes.measured_reuse import measure
from chunkscope.prefixes.prefixes import PrefixTree, PromptBlocks, ideal_cached_tokens, stretched
from chunkscope.prefixes.reuse import HowSent, PrefixGroup, PrefixReuse
from chunkscope.prefixes.stretches import sharing_of

Prompt = list[int]


def id_bytes(prompt: Prompt) -> bytes:
    return np.array(prompt, "<u4").tobytes()


def collected(prompts: list[Prompt], **kwargs: int) -> BlockHashes:
    hashes = BlockHashes()
    rows = range(1, len(prompts) + 1)
    hashes.add(rows, [*map(id_bytes, prompts)], **kwargs)
    return hashes


def reuse(prompts: list[Prompt], **kwargs: int) -> PrefixReuse:
    found, _ = collected(prompts, **kwargs).measured()
    assert found is not None
    return found


def chains(prompt: Prompt) -> list[tuple[int, ...]]:
    """Each full block with all that is before it."""
    return [tuple(prompt[: end + 16]) for end in range(0, len(prompt) - 15, 16)]


def as_blocks(prompts: list[Prompt], reads: list[bool] | None = None) -> PromptBlocks:
    numbers: dict[tuple[int, ...], int] = {}
    blocks = [numbers.setdefault(one, len(numbers)) for p in prompts for one in chains(p)]
    return PromptBlocks(
        tokens=np.array([*map(len, prompts)], np.int64),
        full=np.array([len(p) // 16 for p in prompts], np.int64),
        reads=np.array(reads or [True] * len(prompts)),
        blocks=np.array(blocks, np.int64),
    )


def brute_ideal(prompts: list[Prompt], reads: list[bool]) -> list[int]:
    known: set[tuple[int, ...]] = set()
    cached = []
    for prompt, may_read in zip(prompts, reads, strict=True):
        found = 0
        while may_read and found + 16 < len(prompt) and tuple(prompt[: found + 16]) in known:
            found += 16
        cached.append(found)
        known.update(chains(prompt))
    return cached


def brute_lru(prompts: list[Prompt], kv_blocks: int, load: Load = ONE_BY_ONE) -> list[int]:
    """Block by block, the longest unused first and of one prompt the last first."""
    unused: OrderedDict[tuple[int, ...], None] = OrderedDict()
    running: deque[list[tuple[int, ...]]] = deque()
    cached = []

    def held(more: list[tuple[int, ...]]) -> int:
        return len({one for blocks in (*running, more) for one in blocks})

    for number, prompt in enumerate(prompts):
        sequence = prompt + [-1 - number] * (load.output_tokens - 1)
        mine = chains(sequence)
        if -(-len(sequence) // 16) > kv_blocks:
            cached.append(0)
            continue
        known = {*unused, *(one for blocks in running for one in blocks)}
        found = 0
        while found + 16 < len(prompt) and mine[found // 16] in known:
            found += 16
        cached.append(found)
        whole = [*mine, (-1, number)] if len(sequence) % 16 else mine  # the last is only its own
        for one in whole:
            unused.pop(one, None)
        while held(whole) > kv_blocks or len(running) >= load.running:
            ended = running.popleft()
            rest = {one for blocks in (*running, whole) for one in blocks}
            free = [one for one in reversed(ended) if one not in rest and one[0] != -1]
            unused.update(dict.fromkeys(free))
        running.append(whole)
        while len(unused) + held([]) > kv_blocks:
            unused.popitem(last=False)
    return cached


@st.composite
def families(draw: st.DrawFn) -> list[Prompt]:
    """Prompts that begin alike: each goes on from somewhere in an earlier one."""
    prompts: list[Prompt] = [[]]
    for number in range(draw(st.integers(1, 14))):
        earlier = prompts[draw(st.integers(0, number))]
        kept = draw(st.integers(0, len(earlier)))
        own = draw(st.integers(0, 70))
        prompts.append(earlier[:kept] + [draw(st.integers(0, 2))] * own)
    return draw(st.permutations([prompt for prompt in prompts if prompt] or [[1]]))


@given(families(), st.data())
def test_what_a_cache_finds_that_never_forgets(prompts, data):
    reads = data.draw(st.lists(st.booleans(), min_size=len(prompts), max_size=len(prompts)))
    found = ideal_cached_tokens(as_blocks(prompts, reads))
    assert found.tolist() == brute_ideal(prompts, reads)


@given(families(), st.integers(1, 40))
def test_what_a_small_cache_finds(prompts, kv_blocks):
    blocks = as_blocks(prompts)
    found = lru_cached_tokens(blocks, PrefixTree(blocks).shared_paths(), kv_blocks).tolist()
    assert found == brute_lru(prompts, kv_blocks)


# A prompt that does not fit does not run, so another one goes on.
@example([[1] * 16, [0] * 95, [0] * 127, [0], [1] * 17], 8, 2, 3)
@given(families(), st.integers(1, 40), st.integers(1, 5), st.integers(1, 40))
def test_what_a_small_cache_finds_while_others_run(prompts, kv_blocks, running, output_tokens):
    load = Load(running=running, output_tokens=output_tokens)
    blocks = as_blocks(prompts)
    paths = PrefixTree(blocks).shared_paths()
    assert lru_cached_tokens(blocks, paths, kv_blocks, load).tolist() == brute_lru(
        prompts, kv_blocks, load
    )


@given(families())
def test_hashed_blocks_are_the_same_as_blocks_compared(prompts):
    found = reuse(prompts)
    assert found.cached_tokens == sum(brute_ideal(prompts, [True] * len(prompts)))
    assert found.working_set_tokens == 16 * len({one for p in prompts for one in chains(p)})
    assert found.tokens == sum(map(len, prompts))
    same = takewhile(lambda ids: len(set(ids)) == 1, zip(*prompts, strict=False))
    assert found.common_tokens == len([*same])


@given(families())
def test_the_best_order_needs_a_cache_of_two_prompts(prompts):
    blocks = as_blocks(prompts)
    order = PrefixTree(blocks).depth_first().tolist()
    assert sorted(order) == list(range(len(prompts)))
    best = [prompts[place] for place in order]
    two = max((-(-len(a) // 16) - (-len(b) // 16) for a, b in pairwise(best)), default=99)
    found = sum(brute_lru(best, two))
    assert found == sum(brute_ideal(best, [True] * len(best)))
    # Only a prompt that is a beginning of another can find a block less in another order.
    assert sum(brute_ideal(prompts, [True] * len(best))) <= found + 16 * len(prompts)


def few_shot(subject: int, question: int) -> Prompt:
    return [1] * 8 + [100 + subject] * 152 + [1000 + subject * 50 + question] * 20


def test_groups_are_the_branches_that_save_most():
    prompts = [few_shot(i % 2, i) for i in range(9)]
    found = reuse(prompts)
    assert found.common_tokens == 8
    assert found.common_block_tokens == 0
    assert found.groups == (
        PrefixGroup(prompts=5, shared_tokens=160, position=1),
        PrefixGroup(prompts=4, shared_tokens=160, position=2),
    )
    assert found.cached_tokens == 7 * 160
    assert found.hit_rate == 7 * 160 / (9 * 180)


def test_sorting_helps_where_the_cache_is_small():
    """A thousand subjects in turn: a cache of 16K tokens has forgotten each when it comes again."""
    prompts = [few_shot(i % 1000, i // 1000) for i in range(3000)]
    found = reuse(prompts)
    assert found.cached_tokens == found.best_order_cached_tokens == 2000 * 160
    assert [(at.kv_tokens, at.cached_tokens) for at in found.capacities] == [
        (1 << 14, 0), (1 << 15, 0), (1 << 16, 0), (1 << 17, 0), (1 << 18, 320_000),
    ]  # fmt: skip
    assert {at.best_order_cached_tokens for at in found.capacities} == {320_000}


def test_longest_first_is_an_order_of_its_own():
    """Two subjects whose questions alternate in length: longest first they alternate too."""
    prompts = [few_shot(i % 2, 0)[:160] + [2000 + i] * (400 - i) for i in range(300)]
    found, _ = collected(sorted(prompts)).measured(HowSent(longest_first=True))
    assert found is not None
    assert found.sent_order_cached_tokens == found.cached_tokens == found.best_order_cached_tokens
    assert found.capacities[0].sent_order_cached_tokens is not None
    without, _ = collected(sorted(prompts)).measured()
    assert without is not None
    assert without.sent_order_cached_tokens is None
    assert {at.sent_order_cached_tokens for at in without.capacities} == {None}


def test_an_exact_repeat_computes_its_last_block_again():
    assert reuse([[3] * 128] * 2).cached_tokens == 112
    assert reuse([[3] * 129] * 2).cached_tokens == 128


def test_special_tokens_shift_the_blocks():
    assert reuse([[3] * 31, [3] * 31 + [4]]).cached_tokens == 16
    assert reuse([[3] * 31, [3] * 31 + [4]], special_tokens=1).cached_tokens == 32


def test_a_prompt_cut_from_the_left_shares_what_is_left_of_it():
    prompts = [[1] * n + [2] * 40 for n in (5, 9, 30)]
    found = reuse(prompts, special_tokens=1, most_tokens=40)
    assert (found.tokens, found.common_tokens, found.cached_tokens) == (120, 40, 64)


def test_memory_ends_at_so_many_blocks_and_the_prompts_say_so(monkeypatch):
    monkeypatch.setattr(block_hashes, "MOST_BLOCKS", 10)
    hashes = BlockHashes()
    for row in range(20):
        hashes.add([row], [id_bytes([row] * 64)])
    assert hashes.is_full
    found, sharing = hashes.measured()
    assert found is not None
    assert sharing is not None
    assert found.prompts == len(sharing.lengths) == 3


def test_no_prompts_share_nothing():
    assert BlockHashes().measured() == (None, None)
    assert reuse([[1]]).hit_rate == 0.0


@given(families(), st.integers(10, 40), st.integers(1, 5))
def test_what_the_profile_keeps_of_prompts_finds_the_same(prompts, kv_blocks, running):
    _, sharing = collected(prompts).measured()
    assert sharing is not None
    load = Load(running=running, output_tokens=3)
    found = sum(brute_lru(prompts, kv_blocks, load)) / sum(map(len, prompts))
    assert found_share(sharing, 16 * kv_blocks, load) == pytest.approx(found)


@given(families())
def test_blocks_that_one_prompt_alone_has_need_no_numbers(prompts):
    """As many as there are of a prompt's own behind the first one change no figure."""
    whole = as_blocks(prompts)
    members = np.bincount(whole.blocks, minlength=whole.distinct)
    starts = np.cumsum(whole.full) - whole.full
    alone = [
        next((n for n in range(full) if members[whole.blocks[start + n]] == 1), full - 1) + 1
        for start, full in zip(starts.tolist(), whole.full.tolist(), strict=True)
    ]
    listed = np.minimum(alone, whole.full)
    blocks = whole.blocks[stretched(starts, listed)]
    short = replace(
        whole,
        full=listed,
        blocks=np.unique(blocks, return_inverse=True)[1],
        left_out=whole.full - listed,
    )
    rows = range(len(prompts))
    figures = [
        measure(one, PrefixTree(one), positions=rows, common_tokens=0) for one in (whole, short)
    ]
    assert figures[0] == figures[1]
    assert sharing_of(whole) == sharing_of(short)
    assert PrefixTree(whole).depth_first().tolist() == PrefixTree(short).depth_first().tolist()


def test_the_curve_is_left_out_where_next_to_nothing_can_be_found():
    prompts = [[n] * 32 for n in range(1500)]
    assert reuse([*prompts, prompts[0]]).capacities == ()
    assert reuse([*prompts[:100], prompts[0]]).capacities != ()


@given(families(), st.booleans())
def test_prompts_that_begin_differently_are_measured_without_hashes(prompts, longest_first):
    sent = HowSent(longest_first=longest_first, output_tokens=3)
    different = [[1000 + number, *prompt] for number, prompt in enumerate(prompts)]
    quick, slow = collected(different), collected(different)
    slow._any_alike = True
    found, sharing = quick.measured(sent)
    assert (found, sharing) == slow.measured(sent)
    assert quick.best_order() == slow.best_order()
