"""[gate.drift]: lengths against a committed profile."""

from dataclasses import replace

import pytest

from chunkscope.errors import InputError
from chunkscope.lengths.profile import Profile, Sample
from tests.build import TOKENIZER, dataset
from tests.gating.helpers import profile

BASE = '[drift]\nbaseline = "baseline.json"\n'


def commit(place, found):
    found.save(place.folder / "baseline.json")


@pytest.mark.parametrize(
    ("key", "before", "kept", "broken"),
    [
        pytest.param("p50", [300] * 3, [330] * 3, [331] * 3, id="median up"),
        pytest.param("p95", [300] * 3, [270] * 3, [269] * 3, id="tail down"),
        pytest.param("max", [1, 1, 300], [1, 1, 330], [1, 1, 331], id="longest up"),
    ],
)
def test_a_figure_may_move_by_exactly_the_promised_share(place, key, before, kept, broken):
    commit(place, profile(data=before))
    budget = f'{BASE}{key} = "10%"'
    place.save_profile(data=kept)
    assert place.one(budget).kept
    place.save_profile(data=broken)
    verdict = place.one(budget)
    assert not verdict.kept
    assert f"300 -> {max(broken)}" in verdict.found
    assert verdict.found.startswith("+" if max(broken) > 300 else "-")


def test_each_dataset_is_looked_at_as_well_as_all_together(place):
    commit(place, profile(a=[100] * 9, b=[100]))
    place.save_profile(a=[100] * 9, b=[200])
    found = {v.subject: v.kept for v in place.gate(f'{BASE}p50 = "10%"').verdicts}
    assert found == {"all together": True, "a": True, "b": False}
    assert place.gate(f'{BASE}p50 = "10%"\neach_dataset = false').kept


def test_new_and_vanished_datasets_are_named(place):
    commit(place, profile(a=[1], gone=[1]))
    place.save_profile(a=[1], new=[1])
    for key, name in (("new_datasets", "new"), ("vanished_datasets", "gone")):
        assert place.one(f"{BASE}{key} = 1").kept
        broken = place.one(f"{BASE}{key} = 0")
        assert (broken.kept, broken.subject, broken.found) == (False, name, "1")


def test_a_change_from_nothing_is_not_known_and_breaks(place):
    commit(place, profile(data=[0]))
    place.save_profile(data=[5])
    verdict = place.one(f'{BASE}max = "900%"')
    assert not verdict.kept
    place.save_profile(data=[0])
    assert place.one(f'{BASE}max = "0%"').kept


@pytest.mark.parametrize("of", ["now", "before"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sample": Sample(rows=3, out_of=9, seed=0)}, "only 3 of 9 rows of a were counted"),
        ({"failure": "cut off"}, "a could not be read to its end: cut off"),
    ],
)
def test_figures_of_a_part_of_the_data_are_no_evidence(place, of, change, said):
    whole, part = (
        Profile(tokenizer=TOKENIZER, datasets=(dataset("a", [9] * 3, **more), dataset("b", [9])))
        for more in ({}, change)
    )
    commit(place, part if of == "before" else whole)
    place.save_profile(part if of == "now" else whole)
    broken = place.gate(f'{BASE}p50 = "10%"').broken
    assert [v.subject for v in broken] == ["all together", "a"]
    assert all(said in v.note for v in broken)
    assert place.gate(f'{BASE}p50 = "10%"\nallow_sample = true').kept is ("sample" in change)


def test_a_dataset_emptied_to_no_rows_has_vanished(place):
    commit(place, profile(a=[9], b=[9]))
    place.save_profile(a=[9], b=[])
    broken = place.one(f"{BASE}vanished_datasets = 0")
    assert (broken.kept, broken.subject) == (False, "b")
    commit(place, profile(a=[9], b=[]))
    place.save_profile(a=[9], b=[9])
    assert place.one(f"{BASE}new_datasets = 0").subject == "b"


def counted_by(**changes):
    return Profile(tokenizer=replace(TOKENIZER, **changes), datasets=(dataset("data", [5]),))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"digest": "1", "name": "qwen"}, "qwen there, test now", id="another"),
        pytest.param({"digest": "1"}, "their files differ", id="another of that name"),
        pytest.param({"chat_template": "1"}, "chat templates", id="another chat template"),
        pytest.param({"special_tokens_added": 1}, "special tokens", id="other special tokens"),
        pytest.param({"kind": "none"}, "brought its lengths", id="none at all"),
    ],
)
def test_a_baseline_of_another_tokenizer_is_an_error(place, changes, said):
    commit(place, counted_by(**changes))
    place.save_profile(counted_by())
    with pytest.raises(InputError, match="lengths are not comparable") as error:
        place.gate(f'{BASE}p95 = "900%"')
    assert said in error.value.message
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "no such file", id="missing"),
        pytest.param("{", "damaged", id="cut off"),
        pytest.param('{"schema": "chunkscope/profile/2"}', "reads version 1", id="from the future"),
        pytest.param('{"schema": "chunkscope/plan/2"}', "is a plan file", id="another artefact"),
        pytest.param('{"schema": "chunkscope/profile/2"}', "damaged", id="empty"),
        pytest.param("[1]", "damaged", id="a list"),
    ],
)
def test_a_baseline_that_cannot_be_read_is_an_error_that_names_it(place, text, said):
    place.save_profile(data=[5])
    if text is not None:
        place.write("baseline.json", text)
    with pytest.raises(InputError, match="baseline") as error:
        place.gate(f'{BASE}p95 = "10%"')
    assert "baseline.json" in error.value.message
    assert said in error.value.message
