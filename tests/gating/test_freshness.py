"""[gate.freshness]: data, profile, plan and verify run belong to each other."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import chunkscope
from chunkscope.errors import InputError
from tests.gating.helpers import digest_of, run

ROWS = '{"prompt": "one two three"}\n{"prompt": "four"}\n'


@pytest.fixture
def analyzed(place, monkeypatch):
    """Data of every kind on disk: a file, one in an archive."""
    monkeypatch.chdir(place.folder)
    place.write("data/a.jsonl", ROWS)
    with zipfile.ZipFile(place.folder / "data/pack.zip", "w") as archive:
        archive.writestr("inner.jsonl", ROWS)
    place.save_profile(chunkscope.analyze("data"))
    return place


DATA = "[freshness]\ndata = true"


def test_data_that_has_not_changed_keeps_the_promise(analyzed):
    verdicts = analyzed.gate(DATA).verdicts
    assert [(v.subject, v.kept) for v in verdicts] == [("a", True), ("pack/inner", True)]


@pytest.mark.parametrize("reports", ["reports", "reports/of/today"])
def test_data_are_found_from_whatever_folder_the_gate_runs_in(analyzed, monkeypatch, reports):
    """Beside reports/, or beside the budget; a folder of the same name elsewhere is no matter."""
    file = analyzed.folder / reports / "profile.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    (analyzed.reports / "profile.json").rename(file)
    analyzed.reports = file.parent
    elsewhere = analyzed.write("elsewhere/data/a.jsonl", '{"prompt": "another"}\n').parents[1]
    monkeypatch.chdir(elsewhere)
    assert analyzed.gate(DATA).kept
    assert Path.cwd() == elsewhere
    (analyzed.folder / "data/a.jsonl").write_text(ROWS + "\n")
    assert [v.subject for v in analyzed.gate(DATA).broken] == ["a"]


def test_one_byte_more_breaks_it_for_that_dataset_alone(analyzed):
    (analyzed.folder / "data/a.jsonl").write_text(ROWS + "\n")
    verdicts = {v.subject: v for v in analyzed.gate(DATA).verdicts}
    assert not verdicts["a"].kept
    assert verdicts["a"].found == "changed since it was counted"
    assert verdicts["a"].note == "data/a.jsonl"
    assert verdicts["a"].promised_value != verdicts["a"].found_value
    assert verdicts["pack/inner"].kept


def test_another_archive_breaks_it_for_its_members(analyzed):
    with zipfile.ZipFile(analyzed.folder / "data/pack.zip", "a") as archive:
        archive.writestr("more.txt", "more")
    assert {v.subject: v.kept for v in analyzed.gate(DATA).verdicts} == {
        "a": True,
        "pack/inner": False,
        "data/pack.zip/more.txt": False,
    }


def test_a_file_that_is_gone_breaks_it(analyzed):
    (analyzed.folder / "data/a.jsonl").unlink()
    broken = analyzed.gate(DATA).broken
    assert [v.subject for v in broken] == ["a"]
    assert "not there" in broken[0].note


@pytest.mark.parametrize("path", ["data", "data/*", "data/**/*.jsonl"])
def test_a_file_added_to_what_was_analyzed_breaks_it(analyzed, path):
    analyzed.save_profile(chunkscope.analyze(path))
    assert analyzed.gate(DATA).kept
    analyzed.write("data/deeper/b.jsonl", ROWS)
    analyzed.write("elsewhere/c.jsonl", ROWS)
    analyzed.write("data/README.md", "about the data")
    (broken,) = analyzed.gate(DATA).broken
    assert (broken.subject, broken.found) == ("data/deeper/b.jsonl", "not in the profile")
    assert analyzed.gate(f'{DATA}\nnot_checked = ["deeper/b"]').kept


def test_files_that_were_named_have_no_neighbours(analyzed):
    analyzed.save_profile(chunkscope.analyze(["data/a.jsonl", "data/pack.zip"]))
    analyzed.write("data/b.jsonl", ROWS)
    assert analyzed.gate(DATA).kept


@pytest.mark.parametrize("paths", [None, [], [""], ["elsewhere"], ["data/pack.zip"], "data", [1]])
def test_a_profile_that_does_not_say_what_was_analyzed_is_not_fresh(analyzed, paths):
    profile = chunkscope.analyze("data")
    analyzed.save_profile(replace(profile, options={**profile.options, "paths": paths}))
    assert "a" in [v.subject for v in analyzed.gate(DATA).broken]


def test_what_has_no_digest_is_not_taken_for_fresh(analyzed):
    profile = chunkscope.analyze("data/a.jsonl")
    (known,) = profile.datasets
    unknown = replace(known, name="hf:some/set", path="hf:some/set", sha256=None)
    analyzed.save_profile(replace(profile, datasets=(known, unknown)))
    broken = analyzed.gate(DATA).broken
    assert [v.subject for v in broken] == ["hf:some/set"]
    assert "not_checked" in broken[0].note
    assert analyzed.gate(f'{DATA}\nnot_checked = ["hf:some/set"]').kept


def test_a_plan_belongs_to_the_profile_it_was_made_from(place):
    found = place.save_profile()
    place.save_plan(found)
    assert place.one("[freshness]\nplan = true").kept
    place.save_profile(data=[1, 2, 3])
    broken = place.one("[freshness]\nplan = true")
    assert not broken.kept
    assert broken.found_value == digest_of(found) != broken.promised_value
    assert broken.found == "made from another"
    assert broken.if_intended == "chunkscope recommend"


def test_a_verify_run_belongs_to_the_plan_it_measured(place):
    plan = place.save_plan(place.save_profile())
    import hashlib

    digest = hashlib.sha256((place.reports / "plan.json").read_bytes()).hexdigest()
    place.save_verification(run(), plan_digest=digest)
    assert place.one("[freshness]\nverification = true").kept
    replace(plan, created="2020-01-01T00:00:00+00:00").save(place.reports / "plan.json")
    broken = place.one("[freshness]\nverification = true")
    assert not broken.kept
    assert broken.found == "measured with another"
    assert broken.if_intended == "chunkscope verify"


def test_a_verify_run_without_a_plan_belongs_to_none(place):
    place.save_plan(place.save_profile())
    place.save_verification(run(), plan_digest=None)
    assert place.one("[freshness]\nverification = true").found == "does not say"


@pytest.mark.parametrize(
    ("key", "missing"), [("data", "profile"), ("plan", "profile"), ("verification", "plan")]
)
def test_nothing_to_compare_with_is_an_error(place, key, missing):
    if key == "plan":
        place.save_plan(place.save_profile())
        (place.reports / "profile.json").unlink()
    else:
        place.save_verification()
    with pytest.raises(InputError, match=rf"{missing}\.json, and it is not there"):
        place.gate(f"[freshness]\n{key} = true")
