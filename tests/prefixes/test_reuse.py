"""Prefix reuse: the same figures as the rule written out token by token, block by
block."""

from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.artefacts.artefact import Numbers
from chunkscope.prefixes import comparison
from chunkscope.prefixes.comparison import Measured, TextComparison, of_whole, sent_ids
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.prefixes.sharing import NOTHING, Sharing, depths, stretches_together
from chunkscope.prefixes.tree import PrefixTree, tree_of_prompts

Prompt = list[int]


def id_bytes(prompt: Prompt) -> bytes:
    return np.array(prompt, "<u4").tobytes()


def measured(prompts: list[Prompt], *, longest_first: bool = False) -> Measured:
    compared = TextComparison()
    compared.add([id_bytes(prompt) for prompt in prompts])
    found = compared.measured(longest_first=longest_first)
    assert found is not None
    return found


def reuse(prompts: list[Prompt]) -> PrefixReuse:
    return measured(prompts).reuse


def tree_of(prompts: list[Prompt], reads: list[bool] | None = None) -> PrefixTree:
    ids = [id_bytes(prompt) for prompt in prompts]
    return tree_of_prompts(ids, reads or [True] * len(prompts))


def chains(prompt: Prompt) -> list[tuple[int, ...]]:
    """Each full block with all that is before it."""
    return [tuple(prompt[: end + 16]) for end in range(0, len(prompt) - 15, 16)]


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
def test_a_cache_that_never_forgets_serves_what_the_rule_says(prompts, data):
    count = len(prompts)
    reads = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    order = data.draw(st.permutations(range(count)))
    sent = [prompts[place] for place in order]
    tree = tree_of(prompts, reads)
    assert tree.cached(order) == sum(
        brute_ideal(sent, [reads[place] for place in order])
    )
    assert tree.cached(order, all_read=True) == sum(brute_ideal(sent, [True] * count))


@given(families())
def test_all_figures_are_those_of_the_rule(prompts):
    found = reuse(prompts)
    assert found.cached_tokens == sum(brute_ideal(prompts, [True] * len(prompts)))
    assert found.tokens == sum(map(len, prompts))
    same = takewhile(lambda ids: len(set(ids)) == 1, zip(*prompts, strict=False))
    assert found.common_tokens == len([*same])


def few_shot(subject: int, question: int) -> Prompt:
    return [1] * 8 + [100 + subject] * 152 + [1000 + subject * 50 + question] * 20


def test_longest_first_is_an_order_of_its_own():
    prompts = [few_shot(n, n)[: 100 + 10 * n] for n in range(5)]
    sharing = measured(prompts, longest_first=True).sharing
    assert sharing.lengths == (140, 130, 120, 110, 100)
    assert reuse(prompts).cached_tokens == 0


def test_the_first_prompts_are_compared_up_to_a_number_of_different_blocks(monkeypatch):
    monkeypatch.setattr(comparison, "MOST_BLOCKS", 100)
    compared = TextComparison()
    for start in range(0, 1_000, 20):
        rows = range(start, start + 20)
        compared.add([id_bytes([7, *[row // 2] * 40, row]) for row in rows])
    found = compared.measured(comparison.WholeDataset(lengths={42: 1_000}))
    assert found is not None
    assert found.reuse.prompts == len(found.sharing.lengths) == 99  # 2 blocks a pair
    assert found.reuse.is_partial
    assert found.reuse.common_tokens == 1  # of all prompts
    assert found.reuse.cached_tokens == 49 * 32


def test_no_prompts_share_nothing():
    assert TextComparison().measured() is None
    assert reuse([[1]]).hit_rate == 0.0


def test_special_tokens_stand_where_the_tokenizer_puts_them():
    """A prompt of 16 tokens with its </s> is no beginning of a longer one."""
    short, long = id_bytes([5] * 15), id_bytes([5] * 40)
    compared = TextComparison()
    for ids in (long, short + id_bytes([5]) * 30):
        sent = sent_ids(ids, 1, appended=1)
        assert sent is not None
        compared.add([sent])
    found = compared.measured()
    assert found is not None
    assert found.reuse.cached_tokens == 32  # of 40 tokens that are the same
    assert sent_ids(short, 2, appended=1) == b"\xff" * 4 + short + b"\xff" * 4
    assert sent_ids(short, 0, appended=1) == short
    assert sent_ids(short, 1, 3, appended=1) == id_bytes([5, 5]) + b"\xff" * 4
    assert sent_ids(17, 1) is None


# -- several datasets ------------------------------------------------------------------


def test_datasets_add_up():
    one, other = reuse([few_shot(1, n) for n in range(9)]), reuse([few_shot(2, 0)] * 4)
    both = reuse_together([one, other])
    for figure in ("prompts", "tokens", "cached_tokens", "out_of_tokens"):
        assert getattr(both, figure) == getattr(one, figure) + getattr(other, figure)
    assert both.common_tokens is None  # each begins alike, and they begin differently
    assert reuse_together([one]) is one


def test_a_dataset_of_which_a_part_was_compared_counts_by_all_its_prompts():
    """75 % of a large set shared in its first tenth, nothing in a small one."""
    nine = measured([few_shot(1, n) for n in range(9)])
    part = of_whole(nine.reuse, nine.sharing, {180: 90})
    rest = reuse([[n] * 180 for n in range(9)])
    both = reuse_together([part, rest])
    assert [one.is_partial for one in (part, rest, both)] == [True, False, True]
    assert both.tokens == 99 * 180
    assert both.cached_tokens == 10 * part.cached_tokens
    assert both.hit_rate == pytest.approx(part.hit_rate * 10 / 11)
    assert (both.prompts, both.out_of_prompts) == (18, 99)
    alone = reuse_together([part])
    assert alone.tokens == part.out_of_tokens
    assert alone.cached_tokens == 10 * part.cached_tokens


# -- prompt for prompt -----------------------------------------------------------------


def kept(
    lengths: list[int], ends: list[int], parents: list[int], tokens: list[int]
) -> Sharing:
    return Sharing(
        lengths=Numbers(lengths),
        ends=Numbers(ends),
        parents=Numbers(parents),
        tokens=Numbers(tokens),
    )


def paths(found: Sharing) -> list[list[int]]:
    """By prompt, the stretches that it begins with."""
    made = []
    for end in found.ends:
        path: list[int] = []
        stretch = end
        while stretch != NOTHING:
            path.insert(0, stretch)
            stretch = found.stretches[stretch].parent
        made.append(path)
    return made


@given(families())
def test_two_prompts_share_the_stretches_that_they_have_in_common(prompts):
    found = measured(prompts).sharing
    assert found.lengths == tuple(map(len, prompts))
    ways, reach = paths(found), depths(found.stretches)
    for place, mine in enumerate(prompts):
        for other, theirs in enumerate(prompts):
            if place == other:
                continue
            both = [stretch for stretch in ways[place] if stretch in ways[other]]
            same = len({*chains(mine)} & {*chains(theirs)})
            assert (reach[both[-1]] if both else 0) == 16 * same
    used = {stretch for way in ways for stretch in way}
    assert sorted(used) == [*range(len(found.stretches))]


def test_what_only_one_prompt_has_is_no_stretch():
    assert measured([[1] * 64, [2] * 64]).sharing.stretches == ()
    prompts = [[1] * 64 + [2] * 64, [1] * 64 + [3] * 64, [4] * 20]
    found = measured(prompts).sharing
    assert found == kept([128, 128, 20], [0, 0, NOTHING], [-1], [64])


def test_the_trees_of_several_datasets_stand_side_by_side():
    one = kept([9, 9], [1, 0], [-1, 0], [4, 2])
    stretches, starts = stretches_together([one, None, one])
    assert starts == [0, 2, 2]
    assert [stretch.parent for stretch in stretches] == [-1, 0, -1, 2]
    assert depths(stretches) == [4, 6, 4, 6]
