"""Datasets one after the other: what they share among them, and what nobody keeps of them."""

import random
from dataclasses import replace

import pytest

import chunkscope
from chunkscope.errors import InputError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.prefixes.reuse import PrefixReuse
from chunkscope.prefixes.reuse_together import reuse_together
from tests.commands.helpers import write_jsonl
from tests.prefixes.test_prefixes import Prompt, brute_ideal, chains, collected, reuse

SYSTEM = [7] * 100


def dataset(seed: int, system: Prompt = SYSTEM, prompts: int = 12) -> list[Prompt]:
    chance = random.Random(seed)
    shots = [[*system, *[100 * seed + part] * 70] for part in range(3)]
    return [chance.choice(shots) + [1000 * seed + row] * 30 for row in range(prompts)]


def together(*datasets: list[Prompt]) -> PrefixReuse:
    return reuse_together([reuse(prompts) for prompts in datasets])


def test_what_datasets_begin_with_in_common_is_found_by_those_that_come_later():
    sets = [dataset(1), dataset(2), dataset(3)]
    every = [prompt for prompts in sets for prompt in prompts]
    found = together(*sets)
    assert found.cached_tokens == sum(brute_ideal(every, [True] * len(every)))
    assert found.cached_tokens == sum(reuse(s).cached_tokens for s in sets) + 2 * 96
    assert found.working_set_tokens == 16 * len({one for p in every for one in chains(p)})
    assert found.common_tokens == 96
    assert found.prompts == 36


def test_datasets_that_begin_otherwise_share_nothing():
    sets = [dataset(1), dataset(2, system=[8] * 100)]
    found = together(*sets)
    assert found.cached_tokens == sum(reuse(prompts).cached_tokens for prompts in sets)
    assert found.common_tokens == 0


def test_a_dataset_of_one_prompt_has_a_beginning_too():
    assert together(dataset(1), dataset(2, prompts=1)).cached_tokens == (
        reuse(dataset(1)).cached_tokens + 96
    )


def test_a_repeat_of_a_prompt_that_is_nothing_but_the_beginning_computes_its_last_block():
    exact = SYSTEM[:96]
    sets = [[exact, [*exact, *[3] * 40]], [exact, [*exact, *[4] * 40]]]
    every = [*sets[0], *sets[1]]
    assert together(*sets).cached_tokens <= sum(brute_ideal(every, [True] * 4))


def test_likelihood_requests_leave_something_for_others_and_find_nothing():
    scored, _ = collected(dataset(1), reads=False).measured()
    assert scored is not None
    asked = reuse(dataset(2))
    assert reuse_together([scored, asked]).cached_tokens == asked.cached_tokens + 96
    assert reuse_together([asked, scored]).cached_tokens == asked.cached_tokens


def test_so_much_is_kept_of_a_dataset_and_no_more():
    """Two long documents that many ask about: the first is enough to fill the space."""
    prompts = [[*SYSTEM, *[d] * 20_000, row] for d in (1, 2) for row in range(3)]
    found = reuse(prompts)
    assert len(found.beginnings) == 512 * 8 // 3 * 4 + 4
    assert together(prompts, prompts).cached_tokens >= 2 * found.cached_tokens + 500 * 16


def test_the_curve_of_all_is_there_where_each_has_one():
    sets = [reuse(dataset(1)), reuse(dataset(2))]
    found = reuse_together(sets)
    assert [at.kv_tokens for at in found.capacities] == [1 << 14]
    assert found.capacities[0].cached_tokens == found.cached_tokens
    assert reuse_together([replace(sets[0], capacities=()), sets[1]]).capacities == ()


def test_out_of_the_cache_and_after_saving_it_is_the_same(tmp_path):
    head = "You are a careful assistant and answer in one word. " * 10
    for name in ("a", "b"):
        rows = [{"prompt": f"{head}{name * 40} {n} things"} for n in range(9)]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    fresh = chunkscope.analyze(tmp_path, options=AnalyzeOptions(use_cache=False))
    chunkscope.analyze(tmp_path / "a.jsonl")
    mixed = chunkscope.analyze(tmp_path)
    mixed.save(tmp_path / "profile.json")
    loaded = chunkscope.Profile.load(tmp_path / "profile.json")
    figures = [reuse_together([d.prefixes for d in p.datasets]) for p in (fresh, mixed, loaded)]
    assert figures[0] == figures[1] == figures[2]
    alone = sum(dataset.prefixes.cached_tokens for dataset in fresh.datasets)
    assert figures[0].cached_tokens > alone


def test_a_damaged_profile_is_said_to_be_one():
    one = reuse(dataset(1))
    with pytest.raises(InputError, match="damaged"):
        reuse_together([replace(one, beginnings="AAA"), one])
