"""What prompts share, prompt for prompt: against comparing every prompt with every other."""

from hypothesis import given

from chunkscope.artefacts.artefact import Numbers, built, plain
from chunkscope.prefixes.sharing import NOTHING, Sharing, depths, stretches_together
from tests.prefixes.test_reuse import Prompt, families, measured


def sharing(prompts: list[Prompt]) -> Sharing:
    return measured(prompts)[1]


def kept(lengths: list[int], ends: list[int], parents: list[int], tokens: list[int]) -> Sharing:
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


def common_blocks(one: Prompt, other: Prompt) -> int:
    same = 0
    for size in range(16, min(len(one), len(other)) + 1, 16):
        if one[:size] != other[:size]:
            break
        same = size
    return same


@given(families())
def test_two_prompts_share_the_stretches_that_they_have_in_common(prompts):
    found = sharing(prompts)
    assert found.lengths == tuple(map(len, prompts))
    ways, reach = paths(found), depths(found.stretches)
    for one, mine in zip(ways, prompts, strict=True):
        for other, theirs in zip(ways, prompts, strict=True):
            both = [stretch for stretch in one if stretch in other]
            if mine is not theirs:
                assert (reach[both[-1]] if both else 0) == common_blocks(mine, theirs)
    assert sorted({stretch for way in ways for stretch in way}) == [*range(len(found.stretches))]


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


def test_it_is_written_as_four_lines_and_read_back():
    found = sharing([[1] * 64 + [2] * 64, [1] * 64 + [3] * 64, [4] * 20, [1] * 99])
    written = plain(found)
    assert all(isinstance(line, str) for line in written.values())
    assert built(Sharing, written) == found
