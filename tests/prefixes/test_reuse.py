"""Prefix reuse: the same figures as the rule written out token by token, block by block."""

from collections import OrderedDict, deque
from dataclasses import replace
from itertools import pairwise, takewhile
from operator import eq
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chunkscope.artefacts.artefact import Numbers
from chunkscope.prefixes import cache_curve, comparison
from chunkscope.prefixes.cache_curve import lru_cached_tokens
from chunkscope.prefixes.comparison import Measured, TextComparison, measure
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.prefixes.sharing import NOTHING, Sharing, depths, stretches_together
from chunkscope.prefixes.tree import PromptTree, tree_of_blocks, tree_of_prompts
from chunkscope.report.words.data import shared

Prompt = list[int]


def id_bytes(prompt: Prompt) -> bytes:
    return np.array(prompt, "<u4").tobytes()


def measured(prompts: list[Prompt], **sent: Any) -> Measured:
    compared = TextComparison()
    compared.add([*map(id_bytes, prompts)])
    found = compared.measured(**sent)
    assert found is not None
    return found


def reuse(prompts: list[Prompt]) -> PrefixReuse:
    return measured(prompts)[0]


def chains(prompt: Prompt) -> list[tuple[int, ...]]:
    """Each full block with all that is before it."""
    return [tuple(prompt[: end + 16]) for end in range(0, len(prompt) - 15, 16)]


def tree_of(prompts: list[Prompt], reads: list[bool] | None = None) -> PromptTree:
    numbers: dict[tuple[int, ...], int] = {}
    blocks = [
        numbers.setdefault(one, len(numbers)) for p in prompts for one in chains(p)
    ]
    return tree_of_blocks(
        np.array(blocks, np.int64),
        np.array([len(p) // 16 for p in prompts], np.int64),
        np.array([*map(len, prompts)], np.int64),
        reads or [True] * len(prompts),
    )


def brute_ideal(prompts: list[Prompt], reads: list[bool]) -> list[int]:
    known: set[tuple[int, ...]] = set()
    cached = []
    for prompt, may_read in zip(prompts, reads, strict=True):
        found = 0
        while (
            may_read
            and found + 16 < len(prompt)
            and tuple(prompt[: found + 16]) in known
        ):
            found += 16
        cached.append(found)
        known.update(chains(prompt))
    return cached


def brute_lru(
    prompts: list[Prompt], kv_blocks: int, most_running: int = 1, output_tokens: int = 1
) -> list[int]:
    """Block by block, the longest unused first and of one prompt the last first."""
    unused: OrderedDict[tuple[int, ...], None] = OrderedDict()
    running: deque[list[tuple[int, ...]]] = deque()
    cached = []

    def held(more: list[tuple[int, ...]]) -> int:
        return len({one for blocks in (*running, more) for one in blocks})

    for number, prompt in enumerate(prompts):
        sequence = prompt + [-1 - number] * (output_tokens - 1)
        mine = chains(sequence)
        if -(-len(sequence) // 16) > kv_blocks:
            cached.append(0)
            continue
        known = {*unused, *(one for blocks in running for one in blocks)}
        found = 0
        while found + 16 < len(prompt) and mine[found // 16] in known:
            found += 16
        cached.append(found)
        whole = (
            [*mine, (-1, number)] if len(sequence) % 16 else mine
        )  # the last is only its own
        for one in whole:
            unused.pop(one, None)
        while held(whole) > kv_blocks or len(running) >= most_running:
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
    reads = data.draw(
        st.lists(st.booleans(), min_size=len(prompts), max_size=len(prompts))
    )
    assert tree_of(prompts, reads).ideal.tolist() == brute_ideal(prompts, reads)


# A prompt that does not fit does not run, so another one goes on.
@example([[1] * 16, [0] * 95, [0] * 127, [0], [1] * 17], 8, 2, 3)
@given(families(), st.integers(1, 40), st.integers(1, 5), st.sampled_from([1, 3, 40]))
def test_what_a_small_cache_finds_while_others_run(
    prompts, kv_blocks, running, output_tokens
):
    found = lru_cached_tokens(
        tree_of(prompts), kv_blocks, running, output_tokens
    ).tolist()
    assert found == brute_lru(prompts, kv_blocks, running, output_tokens)


@given(families())
def test_hashed_blocks_are_the_same_as_blocks_compared(prompts):
    found = reuse(prompts)
    assert found.cached_tokens == sum(brute_ideal(prompts, [True] * len(prompts)))
    assert found.tokens == sum(map(len, prompts))
    same = takewhile(lambda ids: len(set(ids)) == 1, zip(*prompts, strict=False))
    assert found.common_tokens == len([*same])


@given(families())
def test_the_best_order_needs_a_cache_of_two_prompts(prompts):
    order = tree_of(prompts).depth_first().tolist()
    assert sorted(order) == list(range(len(prompts)))
    best = [prompts[place] for place in order]
    two = max(
        (-(-len(a) // 16) - (-len(b) // 16) for a, b in pairwise(best)), default=99
    )
    found = sum(brute_lru(best, two))
    assert found == sum(brute_ideal(best, [True] * len(best)))
    # Only a prompt that is a beginning of another can find a block less in another order.
    assert sum(brute_ideal(prompts, [True] * len(best))) <= found + 16 * len(prompts)


def few_shot(subject: int, question: int) -> Prompt:
    return [1] * 8 + [100 + subject] * 152 + [1000 + subject * 50 + question] * 20


def test_sorting_helps_where_the_cache_is_small():
    """A thousand subjects in turn: a cache of 16K tokens has forgotten each when it comes again."""
    prompts = [few_shot(i % 1000, i // 1000) for i in range(3000)]
    found = reuse(prompts)
    assert (found.cached_tokens, found.hit_rate) == (
        2000 * 160,
        2000 * 160 / (3000 * 180),
    )
    assert [(at.kv_tokens, at.cached_tokens) for at in found.capacities] == [
        (1 << 14, 0), (1 << 15, 0), (1 << 16, 0), (1 << 17, 0), (1 << 18, 320_000),
    ]  # fmt: skip
    assert {at.best_order_cached_tokens for at in found.capacities} == {320_000}


def test_longest_first_is_an_order_of_its_own():
    """A long and a short question of each subject: longest first they are far apart."""
    pairs = [(subject, more) for subject in range(200) for more in (640, 240)]
    prompts = [few_shot(s, 0)[:160] + [9000 + 9 * s + more] * more for s, more in pairs]
    found, sharing = measured(prompts, longest_first=True)
    in_file = reuse(prompts)
    assert found.cached_tokens == in_file.cached_tokens == 200 * 160
    assert (found.capacities[0].cached_tokens, in_file.capacities[0].cached_tokens) == (
        0,
        32_000,
    )
    assert found.capacities[0].best_order_cached_tokens == 32_000
    assert sharing.lengths == tuple(sorted(map(len, prompts), reverse=True))


def test_of_very_many_prompts_runs_of_neighbours_are_compared_all_over_the_dataset(
    monkeypatch,
):
    monkeypatch.setattr(comparison, "MOST_BLOCKS", 400)
    compared = TextComparison()
    for start in range(0, 1_000, 20):
        rows = range(start, start + 20)
        compared.add([id_bytes([7, *[row // 2] * 40, row]) for row in rows])
    found = compared.measured()
    assert found is not None
    part, sharing = found
    assert part.prompts == len(sharing.lengths) == 150  # 2 blocks each, in runs of 50
    assert part.common_tokens == 1  # of all prompts
    assert all(end >= 0 for end in sharing.ends)
    assert part.cached_tokens == 75 * 32


def test_the_curve_of_many_prompts_is_that_of_the_first_ones_to_scale(monkeypatch):
    prompts = [few_shot(i % 100, i // 100) for i in range(2000)]
    whole = reuse(prompts)
    monkeypatch.setattr(cache_curve, "MOST_PROMPTS", 500)
    part = reuse(prompts)
    assert part.cached_tokens == whole.cached_tokens
    for one, other in zip(part.capacities, whole.capacities, strict=True):
        assert one.cached_tokens == pytest.approx(other.cached_tokens, rel=0.1)


def test_no_prompts_share_nothing():
    assert TextComparison().measured() is None
    assert reuse([[1]]).hit_rate == 0.0


@given(families(), st.integers(10, 40), st.integers(1, 5))
def test_what_the_profile_keeps_of_prompts_finds_the_same(prompts, kv_blocks, running):
    _, sharing = measured(prompts)
    found = sum(brute_lru(prompts, kv_blocks, running, 3)) / sum(map(len, prompts))
    tree = replace(
        tree_of(prompts),
        ends=np.array(sharing.ends, np.int64),
        parents=list(sharing.parents),
        depths=[depth // 16 for depth in depths(sharing.stretches)],
    )
    cached = lru_cached_tokens(tree, kv_blocks, running, 3).sum()
    assert cached / tree.tokens.sum() == pytest.approx(found)


def test_the_curve_is_left_out_where_next_to_nothing_can_be_found():
    prompts = [[n] * 32 for n in range(1500)]
    assert reuse([*prompts, prompts[0]]).capacities == ()
    assert reuse([*prompts[:100], prompts[0]]).capacities != ()


@given(families(), st.booleans())
def test_prompts_that_begin_differently_are_measured_without_hashes(
    prompts, longest_first
):
    different = [[1000 + number, *prompt] for number, prompt in enumerate(prompts)]
    compared = TextComparison()
    compared.add([*map(id_bytes, different)])
    tree = tree_of_prompts([*map(id_bytes, different)], [True] * len(prompts))
    common = len(different[0]) if len(different) == 1 else 0
    with_hashes = measure(tree, longest_first, common_tokens=common, output_tokens=3)
    assert with_hashes == compared.measured(
        longest_first=longest_first, output_tokens=3
    )


# -- several datasets ------------------------------------------------------------------------------


def test_datasets_add_up():
    one, other = reuse([few_shot(1, n) for n in range(9)]), reuse([few_shot(2, 0)] * 4)
    both = reuse_together([one, other])
    for figure in ("prompts", "tokens", "cached_tokens", "out_of_tokens"):
        assert getattr(both, figure) == getattr(one, figure) + getattr(other, figure)
    assert both.common_tokens is None  # each begins alike, and they begin differently
    assert both.capacities[-1].cached_tokens == both.cached_tokens
    assert reuse_together([one]) is one


def test_a_dataset_of_which_a_part_was_compared_counts_by_all_its_tokens():
    """75 % of a large set shared in its first tenth, nothing in a small one that was compared."""
    part = replace(
        reuse([few_shot(1, n) for n in range(9)]),
        out_of_prompts=90,
        out_of_tokens=9 * 180 * 10,
    )
    rest = reuse([[n] * 180 for n in range(9)])
    both = reuse_together([part, rest])
    assert part.is_partial
    assert both.is_partial
    assert not rest.is_partial
    assert both.tokens == 99 * 180
    assert both.cached_tokens == 10 * part.cached_tokens
    assert both.hit_rate == pytest.approx(part.hit_rate * 10 / 11)
    assert (both.prompts, both.out_of_prompts) == (18, 99)
    alone = reuse_together([part])
    assert (alone.tokens, alone.cached_tokens) == (
        part.out_of_tokens,
        10 * part.cached_tokens,
    )
    assert "9 of 90" in shared(alone)
    assert "judged by" not in shared(rest)
    apart = [reuse([[*range(64), n]]) for n in range(2)]  # which begin alike
    assert "of an earlier one in its dataset." in shared(reuse_together(apart))
    assert "the first 16 tokens of an earlier one." in shared(apart[0])
    trace = [
        replace(one, block_size=512) for one in apart
    ]  # whose shorter starts are not known
    assert "the first 512 tokens of" in shared(reuse_together(trace))
    assert reuse_together([]).block_size == 16


# -- prompt for prompt -----------------------------------------------------------------------------


def sharing(prompts: list[Prompt]) -> Sharing:
    return measured(prompts)[1]


def kept(
    lengths: list[int], ends: list[int], parents: list[int], tokens: list[int]
) -> Sharing:
    lists = {"lengths": lengths, "ends": ends, "parents": parents, "tokens": tokens}
    return Sharing(**{name: Numbers(numbers) for name, numbers in lists.items()})


def paths(found: Sharing) -> list[list[int]]:
    """By prompt, the stretches that it begins with."""
    made = []
    for end in found.ends:
        path: list[int] = []
        while end != NOTHING:
            path.insert(0, end)
            end = found.stretches[end].parent
        made.append(path)
    return made


@given(families())
def test_two_prompts_share_the_stretches_that_they_have_in_common(prompts):
    found = sharing(prompts)
    assert found.lengths == tuple(map(len, prompts))
    ways, reach = paths(found), depths(found.stretches)
    for one, mine in zip(ways, prompts, strict=True):
        for other, theirs in zip(ways, prompts, strict=True):
            both = [stretch for stretch in one if stretch in other]
            if mine is not theirs:
                same = sum(map(eq, chains(mine), chains(theirs)))
                assert (reach[both[-1]] if both else 0) == 16 * same
    assert sorted({stretch for way in ways for stretch in way}) == [
        *range(len(found.stretches))
    ]


def test_what_only_one_prompt_has_is_no_stretch():
    assert sharing([[1] * 64, [2] * 64]).stretches == ()
    found = sharing([[1] * 64 + [2] * 64, [1] * 64 + [3] * 64, [4] * 20])
    assert found == kept([128, 128, 20], [0, 0, NOTHING], [-1], [64])


def test_the_trees_of_several_datasets_stand_side_by_side():
    one = kept([9, 9], [1, 0], [-1, 0], [4, 2])
    stretches, starts = stretches_together([one, None, one])
    assert starts == [0, 2, 2]
    assert [stretch.parent for stretch in stretches] == [-1, 0, -1, 2]
    assert depths(stretches) == [4, 6, 4, 6]
