"""Random prompts share what the data's prompts share, and not one token more."""

from itertools import combinations

import pytest

from chunkscope.verification.inside.chunkscope_prompts import SharingIds

# Two beginnings; the first goes on in two ways.
TREE = [(-1, 32), (0, 16), (0, 5), (-1, 40)]
ENDS = [0, 1, 1, 2, 2, 3, 3, -1, -1, 0]
DEPTHS = [32, 48, 37, 40]
FEW = (1, 12)  # so few ids that random ones would often go on alike


@pytest.fixture
def sharing() -> SharingIds:
    return SharingIds(TREE, ENDS, FEW)


def alike(prompt: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    for number, (token, its) in enumerate(zip(prompt, other, strict=True)):
        if token != its:
            return number
    return len(prompt)


def path(end: int) -> set[int]:
    """The stretches of a prompt that ends in one."""
    return {end, *path(TREE[end][0])} if end >= 0 else set()


def tokens_shared(place: int, other: int) -> int:
    """By the tree alone: the depth of the deepest stretch that both are in."""
    shared = path(ENDS[place]) & path(ENDS[other])
    return max((DEPTHS[stretch] for stretch in shared), default=0)


@pytest.mark.parametrize("repeat", range(20))
def test_prompts_share_their_stretches_and_not_one_token_more(sharing, repeat):
    prompts = [sharing.prompt(f"0/{repeat}", place, 60) for place in range(10)]
    for place, other in combinations(range(10), 2):
        assert alike(prompts[place], prompts[other]) == tokens_shared(place, other)
    for prompt in prompts:
        assert len(prompt) == 60
        assert all(FEW[0] <= token < FEW[1] for token in prompt)


def test_the_same_seed_makes_the_same_prompts_and_another_others(sharing):
    again = SharingIds(TREE, ENDS, FEW)
    assert again.prompt("7/0", 1, 60) == sharing.prompt("7/0", 1, 60)
    assert sharing.prompt("7/0", 0, 60) != sharing.prompt("7/1", 0, 60)


def test_a_prompt_that_is_shorter_than_its_stretches_ends_in_them(sharing):
    assert sharing.prompt("0", 1, 40) == sharing.prompt("0", 1, 60)[:40]
