"""[gate.data]: each promise kept and broken, on the boundary."""

from dataclasses import replace

import pytest

from chunkscope.lengths.profile import DatasetProfile, Profile, Sample
from chunkscope.prefixes.reuse import PrefixReuse
from tests.build import TOKENIZER, dataset

ALL = "all together"


def test_the_longest_prompt_may_be_as_long_as_promised(place):
    place.save_profile(data=[10, 1000])
    verdict = place.one("[data]\nlongest_prompt = 1000")
    assert (verdict.kept, verdict.promised, verdict.found) == (
        True, "at most 1,000 tokens", "1,000 tokens",
    )  # fmt: skip
    assert verdict.subject == ALL


def test_one_token_more_breaks_it(place):
    place.save_profile(data=[10, 1001])
    verdict = place.one("[data]\nlongest_prompt = 1000")
    assert not verdict.kept
    assert (verdict.promised_value, verdict.found_value) == (1000, 1001)


@pytest.mark.parametrize(("key", "limit"), [("p50", 50), ("p95", 95), ("p99", 99)])
def test_a_percentile_is_kept_at_its_value_and_broken_below(place, key, limit):
    place.save_profile(data=range(101))
    assert place.one(f"[data]\n{key} = {limit}").kept
    assert not place.one(f"[data]\n{key} = {limit - 1}").kept


def test_a_percentile_between_two_numbers_is_not_rounded_in_its_favour(place):
    place.save_profile(data=[100, 101])
    verdict = place.one("[data]\np50 = 100")
    assert not verdict.kept
    assert verdict.found == "100.5 tokens"


def test_rows_may_not_become_fewer(place):
    place.save_profile(data=[1] * 10)
    assert place.one("[data]\nmin_rows = 10").kept
    broken = place.one("[data]\nmin_rows = 11")
    assert (broken.kept, broken.promised, broken.found) == (False, "at least 11", "10")


def test_bad_rows_are_counted(place):
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=(dataset("a", [5], skipped=2),)))
    assert place.one("[data]\nbad_rows = 2").kept
    assert not place.one("[data]\nbad_rows = 1").kept
    assert not place.one("[data]\nbad_rows = 0").kept


def test_a_dataset_must_be_there_and_have_rows(place):
    empty = (dataset("full", [5]), dataset("empty", []))
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=empty))
    assert place.one('[data]\ndatasets = ["full"]').kept
    broken = place.gate('[data]\ndatasets = ["empty", "fulll"]').verdicts
    assert [(v.subject, v.kept, v.found) for v in broken] == [
        ("empty", False, "0 rows"),
        ("fulll", False, "not in the profile"),
    ]
    assert "did you mean full?" in broken[1].note


def test_no_prompt_is_refused_at_exactly_its_length_and_the_output(place):
    place.save_profile(data=[10, 744])
    budget = "output_tokens = 256\n[data]\nmax_model_len = {}"
    assert place.one(budget.format(1000)).kept
    broken = place.one(budget.format(999))
    assert not broken.kept
    assert (broken.promised, broken.found) == (
        "none over 743 tokens", "1 of 2, longest 744 tokens",
    )  # fmt: skip


def test_the_output_is_the_plans_unless_the_budget_says_so(place):
    found = place.save_profile(data=[10, 744])
    place.save_plan(found, max_output=100)
    assert place.one("[data]\nmax_model_len = 844").kept
    assert not place.one("[data]\nmax_model_len = 843").kept
    assert place.one("output_tokens = 99\n[data]\nmax_model_len = 843").kept


def test_without_a_plan_the_usual_output_is_left_room_for(place):
    place.save_profile(data=[744])
    assert place.one("[data]\nmax_model_len = 1000").kept
    assert not place.one("[data]\nmax_model_len = 999").kept


def test_a_dataset_can_have_limits_of_its_own(place):
    place.save_profile(short=[10], long=[5000])
    budget = '[data.of.{}]\nlongest_prompt = 4999\nmin_rows = 1\nbad_rows = 0\np95 = "5K"'
    verdicts = place.gate(budget.format("long")).verdicts
    assert [(v.promise, v.subject, v.kept) for v in verdicts] == [
        ("data.longest_prompt", "long", False),
        ("data.p95", "long", True),
        ("data.min_rows", "long", True),
        ("data.bad_rows", "long", True),
    ]
    assert place.gate(budget.format("short")).kept
    gone = place.one(budget.format("lung"))
    assert (gone.kept, gone.found, gone.note) == (False, "not in the profile", "did you mean long?")


@pytest.mark.parametrize(
    "promise", ["longest_prompt = 9000", "p95 = 9000", "bad_rows = 0", "max_model_len = 9000"]
)
def test_a_sample_keeps_no_promise_about_the_whole_unless_that_is_allowed(place, promise):
    part = dataset("a", [5], sample=Sample(rows=1, out_of=100, seed=0))
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=(part,)))
    broken = place.one(f"[data]\n{promise}")
    assert not broken.kept
    assert "1 of 100 rows" in broken.note
    assert place.one(f"[data]\n{promise}\nallow_sample = true").kept


def test_a_sample_does_not_make_the_data_smaller(place):
    part = dataset("a", [5], sample=Sample(rows=1, out_of=100, seed=0))
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=(part,)))
    assert place.one("[data]\nmin_rows = 100").kept
    assert not place.one("[data]\nmin_rows = 101").kept


def test_a_dataset_that_failed_keeps_no_promise(place):
    failed = replace(dataset("a", [5]), failure="line 2 is not JSON")
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=(failed,)))
    for promise in ("longest_prompt = 9000", "bad_rows = 5"):
        broken = place.one(f"[data]\n{promise}\nallow_sample = true")
        assert not broken.kept
        assert "line 2 is not JSON" in broken.note


def shared(name: str, *, common: int, cached: int) -> DatasetProfile:
    """Ten prompts of a hundred tokens."""
    reuse = PrefixReuse(
        prompts=10,
        tokens=1000,
        common_tokens=common,
        cached_tokens=cached,
        best_order_cached_tokens=cached,
        working_set_tokens=1000 - cached,
    )
    return dataset(name, [100] * 10, prefixes=reuse)


def test_so_much_has_to_be_shared(place):
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=(shared("a", common=48, cached=600),)))
    assert place.one('[data]\nprefix_hit_rate = "60%"').kept
    broken = place.one('[data]\nprefix_hit_rate = "60.1%"')
    assert (broken.kept, broken.promised, broken.found) == (False, "at least 60.1 %", "60 %")
    assert place.one("[data]\nshared_prefix_tokens = 48").kept
    assert not place.one("[data]\nshared_prefix_tokens = 49").kept
    assert place.one('[data.of.a]\nprefix_hit_rate = "60%"').subject == "a"


def test_all_together_share_what_they_share(place):
    sets = (shared("a", common=48, cached=600), shared("b", common=32, cached=200))
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=sets))
    assert place.one('[data]\nprefix_hit_rate = "40%"').kept
    assert not place.one('[data]\nprefix_hit_rate = "41%"').kept
    assert place.one('[data.of.b]\nprefix_hit_rate = "20%"').kept


@pytest.mark.parametrize("promise", ['prefix_hit_rate = "1%"', "shared_prefix_tokens = 1"])
def test_what_was_not_measured_keeps_no_promise(place, promise):
    sets = (shared("a", common=48, cached=600), dataset("b", [7]))
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=sets))
    assert not place.one(f"[data]\n{promise}").kept
    assert place.one(f"[data.of.a]\n{promise}").kept


def test_of_a_sample_it_is_no_evidence(place):
    sample = replace(shared("a", common=48, cached=600), sample=Sample(rows=10, out_of=99, seed=0))
    place.save_profile(Profile(tokenizer=TOKENIZER, datasets=(sample,)))
    assert not place.one('[data]\nprefix_hit_rate = "5%"').kept
