"""[gate.data], [gate.drift], [gate.freshness]: each check on its boundary."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import chunkscope
from chunkscope.errors import InputError
from chunkscope.lengths.profile import Profile, Sample
from chunkscope.prefixes.reuse import PrefixReuse
from tests.build import TOKENIZER, dataset, profile


def of(*datasets) -> Profile:
    return Profile(tokenizer=TOKENIZER, datasets=datasets)


@pytest.mark.parametrize(
    ("key", "limit"), [("p50", 50), ("p95", 95), ("p99", 99), ("longest_prompt", 100)]
)
def test_a_length_passes_at_its_value_and_fails_below(place, key, limit):
    place.save_profile(data=range(101))
    assert place.one(f"[data]\n{key} = {limit}").passed
    failed = place.one(f"[data]\n{key} = {limit - 1}")
    assert (failed.limit, failed.value, failed.unit) == (limit - 1, limit, "tokens")
    place.save_profile(data=[limit - 1, limit, limit])
    assert not place.one(f"[data]\n{key} = {limit - 1}").passed, (
        "nothing is rounded in its favour"
    )


def test_rows_may_not_become_fewer_and_bad_ones_not_more(place):
    place.save_profile(of(dataset("a", [1] * 10, skipped=2)))
    assert place.gate("[data]\nmin_rows = 10\nbad_rows = 2").passed
    assert len(place.gate("[data]\nmin_rows = 11\nbad_rows = 1").failed) == 2


def test_a_dataset_must_be_there_and_have_rows(place):
    place.save_profile(of(dataset("full", [5]), dataset("empty", [])))
    assert place.one('[data]\ndatasets = ["full"]').passed
    failed = place.gate('[data]\ndatasets = ["empty", "fulll"]').failed
    assert [(check.subject, check.value) for check in failed] == [
        ("empty", 0),
        ("fulll", 0),
    ]


def test_no_prompt_is_refused_at_exactly_its_length_and_the_output_of_its_dataset(
    place,
):
    place.save_profile(data=[10, 744])
    assert place.one("[data]\nmax_model_len = 1000").passed, (
        "256 tokens unless a plan says"
    )
    failed = place.one("[data]\nmax_model_len = 999")
    assert (failed.passed, failed.value) == (False, 1)
    plan = place.save_plan(place.save_profile(scored=[990], written=[700]))
    request = replace(plan.request, max_outputs={"scored": 1, "written": 300})
    replace(plan, request=request).save(place.reports / "plan.json")
    assert place.one("[data]\nmax_model_len = 1000").passed
    assert place.one("[data]\nmax_model_len = 999").value == 1


def test_a_dataset_can_have_limits_of_its_own(place):
    place.save_profile(short=[10], long=[5000])
    budget = '[data.of.{}]\nlongest_prompt = 4999\np95 = "5K"'
    checks = place.gate(budget.format("long")).checks
    assert [(c.place[-1], c.passed) for c in checks] == [
        ("longest_prompt", False),
        ("p95", True),
    ]
    assert {(c.place[:-1], c.subject) for c in checks} == {
        (("data", "of", "long"), "long")
    }
    assert place.gate(budget.format("short")).passed
    assert not place.one(budget.format("lung")).passed


def test_what_prompts_share_has_limits_where_it_is_known_of_all(place):
    sizes = {"prompts": 2, "tokens": 200, "out_of_prompts": 2, "out_of_tokens": 200}
    reuse = PrefixReuse(**sizes, common_tokens=64, cached_tokens=50)
    same = dataset("a", [100] * 2, prefixes=reuse)
    place.save_profile(of(same, dataset("empty", [])))
    budget = '[data]\nprefix_hit_rate = "{}%"\nshared_prefix_tokens = {}'
    assert place.gate(budget.format(25, 64)).passed
    assert [c.value for c in place.gate(budget.format(26, 65)).failed] == [0.25, 64]
    place.save_profile(of(same, dataset("b", [5])))
    assert [c.value for c in place.gate(budget.format(1, 1)).failed] == [None, None]


@pytest.mark.parametrize("line", ["p95 = 9000", "max_model_len = 9000"])
def test_a_sample_is_no_evidence_about_the_whole_unless_that_is_allowed(place, line):
    place.save_profile(of(dataset("a", [5], sample=Sample(rows=1, out_of=100, seed=0))))
    failed = place.one(f"[data]\n{line}")
    assert not failed.passed
    assert failed.reason.values == {"dataset": "a", "rows": 1, "out_of": 100}
    assert place.one(f"[data]\n{line}\nallow_sample = true").passed
    assert place.one("[data]\nmin_rows = 100").passed, (
        "a sample does not make the data smaller"
    )


BASE = '[drift]\nbaseline = "baseline.json"\n'


def commit(place, made):
    made.save(place.folder / "baseline.json")


@pytest.mark.parametrize(
    ("key", "before", "passes", "fails"),
    [
        ("p50", [300] * 3, [330] * 3, [331] * 3),
        ("p95", [300] * 3, [270] * 3, [269] * 3),
        ("max", [1, 1, 300], [1, 1, 330], [1, 1, 331]),
    ],
)
def test_a_figure_may_move_by_exactly_the_share(place, key, before, passes, fails):
    commit(place, profile(data=before))
    budget = f'{BASE}{key} = "10%"'
    place.save_profile(data=passes)
    assert place.one(budget).passed
    place.save_profile(data=fails)
    failed = place.one(budget)
    assert not failed.passed
    assert failed.reason.values == {"before": 300, "now": max(fails)}
    assert (failed.value > 0) is (max(fails) > 300)


def test_each_dataset_is_looked_at_as_well_as_all_together(place):
    commit(place, profile(a=[100] * 9, b=[100]))
    place.save_profile(a=[100] * 9, b=[200])
    passed = {c.subject: c.passed for c in place.gate(f'{BASE}p50 = "10%"').checks}
    assert passed == {"all together": True, "a": True, "b": False}


def test_new_and_vanished_datasets_are_named(place):
    commit(place, profile(a=[1], gone=[1], empty=[1]))
    place.save_profile(a=[1], new=[1], empty=[])
    assert not place.one(f'{BASE}content = "same"').passed, "content that nobody knows"
    assert place.one(f"{BASE}new_datasets = 0").subject == "new"
    failed = place.one(f"{BASE}vanished_datasets = 1")
    assert (failed.passed, failed.subject, failed.value) == (False, "gone, empty", 2)
    assert place.one(f"{BASE}vanished_datasets = 2").passed


ROWS = [{"prompt": f"question {n}", "answer": n} for n in range(4)]


def count(place, rows, name="rows.jsonl"):
    path = place.write(name, "".join(json.dumps(row) + "\n" for row in rows))
    return place.save_profile(chunkscope.analyze(path))


ANOTHER_ANSWER = [*ROWS[:3], {"prompt": "question 3", "answer": 9}]


@pytest.mark.parametrize(
    ("rows", "same"),
    [
        pytest.param(ROWS[::-1], True, id="another order"),
        pytest.param(ANOTHER_ANSWER, False, id="another answer"),
        pytest.param([*ROWS, ROWS[0]], False, id="a row twice"),
        pytest.param(ROWS[:3], False, id="a row less"),
    ],
)
def test_changed_rows_fail_whatever_their_lengths(place, rows, same):
    commit(place, count(place, ROWS))
    count(place, rows)
    check = place.one(f'{BASE}content = "same"')
    assert check.passed is same
    assert check.value == ("same" if same else "changed")
    assert check.reason.values == {"before": 4, "now": len(rows)}


def test_changed_rows_are_accepted_where_any_content_is(place):
    commit(place, count(place, ROWS))
    count(place, ANOTHER_ANSWER)
    assert place.gate(f'{BASE}content = "any"\np50 = "900%"').passed


@pytest.mark.parametrize(
    "baseline",
    [
        *(
            {"digest": "1"},
            {"chat_template": "1"},
            {"special_tokens_added": 1},
            {"kind": "none"},
        ),
        *(None, "{", '{"schema": "chunkscope/plan/1"}', "[1]"),
    ],
)
def test_a_baseline_of_another_tokenizer_or_none_is_an_error_that_names_it(
    place, baseline
):
    made = place.save_profile(data=[5])
    if isinstance(baseline, dict):
        commit(place, replace(made, tokenizer=replace(TOKENIZER, **baseline)))
    elif baseline:
        place.write("baseline.json", baseline)
    with pytest.raises(InputError, match=r"baseline\.json") as error:
        place.gate(f'{BASE}p95 = "900%"')
    assert ("cp " in error.value.hint) == (baseline is None), (
        "nothing that is there is replaced"
    )
    with pytest.raises(InputError, match="today's profile"):
        place.gate('[drift]\nbaseline = "reports/profile.json"\np95 = "10%"')


LINES = (
    '{"prompt": "one two three", "answer": "a"}\n{"prompt": "four", "answer": "b"}\n'
)
DATA = "[freshness]\ndata = true"


@pytest.fixture
def analyzed(place, monkeypatch):
    """Data on disk: a file, and one in an archive."""
    monkeypatch.chdir(place.folder)
    place.write("data/a.jsonl", LINES)
    with zipfile.ZipFile(place.folder / "data/pack.zip", "w") as archive:
        archive.writestr("inner.jsonl", LINES)
    place.save_profile(chunkscope.analyze("data"))
    return place


def failed_subjects(place, budget):
    return [check.subject for check in place.gate(budget).failed]


def test_data_that_has_not_changed_passes_from_whatever_folder(analyzed, monkeypatch):
    checks = analyzed.gate(DATA).checks
    assert [(c.subject, c.passed) for c in checks] == [
        ("a", True),
        ("pack/inner", True),
    ]
    elsewhere = analyzed.write(
        "elsewhere/data/a.jsonl", '{"prompt": "another"}\n'
    ).parents[1]
    monkeypatch.chdir(elsewhere)
    assert analyzed.gate(DATA).passed
    assert Path.cwd() == elsewhere


def test_what_changed_is_gone_or_is_new_fails_by_its_name(analyzed):
    (analyzed.folder / "data/a.jsonl").write_text(LINES + "\n")
    assert failed_subjects(analyzed, DATA) == ["a"]
    (analyzed.folder / "data/a.jsonl").unlink()
    assert failed_subjects(analyzed, DATA) == ["a"]
    with zipfile.ZipFile(analyzed.folder / "data/pack.zip", "a") as archive:
        archive.writestr("more.txt", "more")
    assert failed_subjects(analyzed, DATA) == [
        "a",
        "pack/inner",
        "data/pack.zip/more.txt",
    ]


@pytest.mark.parametrize("path", ["data", "data/*", "data/**/*.jsonl"])
def test_a_file_added_to_what_was_analyzed_fails(analyzed, path):
    analyzed.save_profile(chunkscope.analyze(path))
    assert analyzed.gate(DATA).passed
    analyzed.write("data/deeper/b.jsonl", LINES)
    analyzed.write("elsewhere/c.jsonl", LINES)
    assert failed_subjects(analyzed, DATA) == ["data/deeper/b.jsonl"]
    assert analyzed.gate(f'{DATA}\nnot_checked = ["deeper/b"]').passed


def test_a_profile_that_does_not_say_what_was_analyzed_is_not_fresh(analyzed):
    for paths in ((), ("",), ("elsewhere",), ("data/pack.zip",)):
        analyzed.save_profile(replace(chunkscope.analyze("data"), paths=paths))
        assert "a" in failed_subjects(analyzed, DATA)

    made = chunkscope.analyze("data/a.jsonl")
    (one,) = made.datasets
    unknown = replace(one, name="hf:some/set", path="hf:some/set", digest=None)
    analyzed.save_profile(replace(made, datasets=(one, unknown)))
    assert failed_subjects(analyzed, DATA) == ["hf:some/set"]
    assert analyzed.gate(f'{DATA}\nnot_checked = ["hf:some/set"]').passed


def test_a_plan_belongs_to_its_profile_whenever_that_was_counted(place):
    made = place.save_profile()
    place.save_plan(made)
    assert place.one("[freshness]\nplan = true").passed
    place.save_profile(replace(made, created="2030-01-01T00:00:00+00:00"))
    assert place.one("[freshness]\nplan = true").passed, (
        "the same content, counted again"
    )
    place.save_profile(data=[1, 2, 3])
    failed = place.one("[freshness]\nplan = true")
    assert (failed.passed, failed.value) == (False, "another")
    assert failed.remedy.startswith("chunkscope recommend")
