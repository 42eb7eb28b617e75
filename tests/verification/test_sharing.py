"""Random prompts share what the data's prompts share, and not one block more."""

from itertools import combinations

import pytest

from chunkscope.verification.inside.chunkscope_prompts import SharingIds
from chunkscope.verification.inside.chunkscope_sessions import SentSession, SentTurn

# Two beginnings; the first goes on in two ways.
TREE = [(-1, 32), (0, 16), (0, 5), (-1, 40)]
ENDS = [0, 1, 1, 2, 2, 3, 3, -1, -1, 0]
DEPTHS = [32, 48, 37, 40]
BLOCK = 16
IDS = (100, 250)


def prompt(place: int | None, length: int = 60, seed: str = "0/0") -> list[int]:
    session = SentSession([SentTurn(length, 1)], place=place)
    return SharingIds(TREE, ENDS, IDS).texts(seed, session, number=7)[0]


def blocks_alike(ids: list[int], other: list[int]) -> int:
    """How many full blocks both begin with."""
    blocks = 0
    while ids[: BLOCK * (blocks + 1)] == other[: BLOCK * (blocks + 1)]:
        blocks += 1
    return blocks


def path(end: int) -> set[int]:
    """The stretches of a prompt that ends in one."""
    return {end, *path(TREE[end][0])} if end >= 0 else set()


def blocks_shared(place: int, other: int) -> int:
    """By the tree alone: the depth of the deepest stretch that both are in."""
    shared = path(ENDS[place]) & path(ENDS[other])
    return max((DEPTHS[stretch] for stretch in shared), default=0) // BLOCK


@pytest.mark.parametrize("seed", ["0/0", "0/1", "0/2"])
def test_prompts_share_their_stretches_and_not_one_block_more(seed):
    prompts = [prompt(place, seed=seed) for place in range(10)]
    for place, other in combinations(range(10), 2):
        alike = blocks_alike(prompts[place], prompts[other])
        assert alike == blocks_shared(place, other)


def test_prompts_have_their_length_and_ids_of_the_vocabulary():
    for place in range(10):
        assert len(prompt(place)) == 60
        assert all(IDS[0] <= token < IDS[1] for token in prompt(place))


def test_the_same_seed_makes_the_same_prompts_and_another_others():
    assert prompt(1) == prompt(1)
    assert blocks_alike(prompt(0), prompt(0, seed="0/1")) == 0


def test_a_prompt_that_is_shorter_than_its_stretches_ends_in_them():
    assert prompt(1, length=40) == prompt(1)[:40]


def test_a_prompt_without_a_place_shares_nothing():
    assert blocks_alike(prompt(None), prompt(0)) == 0


def test_a_turn_adds_what_it_does_not_keep():
    turns = [SentTurn(60, 4), SentTurn(100, 4, kept_tokens=64)]
    session = SentSession(turns, place=0)
    texts = SharingIds(TREE, ENDS, IDS).texts("0/0", session, number=0)
    assert [len(text) for text in texts] == [60, 36]
    assert texts[0] == prompt(0)
