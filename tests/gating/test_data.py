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
from chunkscope.simulation.outputs import read_output
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
    assert not failed.passed
    assert (failed.limit, failed.value, failed.unit) == (limit - 1, limit, "tokens")


def test_a_dataset_must_be_there_and_have_rows(place):
    place.save_profile(of(dataset("full", [5]), dataset("empty", [])))
    assert place.one('[data]\ndatasets = ["full"]').passed
    failed = place.gate('[data]\ndatasets = ["empty", "fulll"]').failed
    assert [(check.subject, check.value) for check in failed] == [
        ("empty", 0),
        ("fulll", 0),
    ]


@pytest.mark.parametrize(("context", "refused"), [(1_000, 0), (999, 1)])
def test_a_prompt_needs_room_for_an_answer_of_256_tokens(place, context, refused):
    place.save_profile(data=[10, 744])
    check = place.one(f"[data]\nmax_model_len = {context}")
    assert (check.passed, check.value) == (refused == 0, refused)


@pytest.mark.parametrize(("context", "refused"), [(1_000, 0), (999, 1)])
def test_a_prompt_needs_room_for_the_answer_of_its_dataset(place, context, refused):
    plan = place.save_plan(place.save_profile(scored=[990], written=[700]))
    request = replace(
        plan.request, outputs={"scored": read_output(1), "written": read_output(300)}
    )
    replace(plan, request=request).save(place.reports / "plan.json")
    assert place.one(f"[data]\nmax_model_len = {context}").value == refused


OWN_LIMITS = '[data.of.{}]\nlongest_prompt = 4999\np95 = "5K"'


def test_a_dataset_can_have_limits_of_its_own(place):
    place.save_profile(short=[10], long=[5000])
    longest, p95 = place.gate(OWN_LIMITS.format("long")).checks
    assert (longest.place, longest.passed) == (
        ("data", "of", "long", "longest_prompt"),
        False,
    )
    assert (p95.place, p95.passed) == (("data", "of", "long", "p95"), True)
    assert longest.subject == p95.subject == "long"
    assert place.gate(OWN_LIMITS.format("short")).passed


def test_limits_of_a_dataset_that_is_not_there_fail(place):
    place.save_profile(short=[10])
    check = place.one(OWN_LIMITS.format("shirt"))
    assert (check.name, check.passed) == ("data.datasets", False)


REUSE = PrefixReuse(
    prompts=2,
    tokens=200,
    out_of_prompts=2,
    out_of_tokens=200,
    common_tokens=64,
    cached_tokens=50,
)
SHARED = '[data]\nprefix_hit_rate = "{}%"'


@pytest.mark.parametrize(
    ("other", "percent", "passed", "value"),
    [
        pytest.param([], 25, True, 0.25, id="as much"),
        pytest.param([], 26, False, 0.25, id="less"),
        pytest.param([5], 1, False, None, id="not known of all prompts"),
    ],
)
def test_what_prompts_share_has_a_limit(place, other, percent, passed, value):
    sharing = dataset("a", [100] * 2, prefixes=REUSE)
    place.save_profile(of(sharing, dataset("other", other)))
    check = place.one(SHARED.format(percent))
    assert (check.passed, check.value) == (passed, value)


@pytest.mark.parametrize(
    ("line", "passed"),
    [
        ("min_rows = 10", True),
        ("min_rows = 11", False),
        ("bad_rows = 2", True),
        ("bad_rows = 1", False),
    ],
)
def test_rows_may_not_become_fewer_and_bad_ones_not_more(place, line, passed):
    place.save_profile(of(dataset("a", [1] * 10, skipped=2)))
    assert place.one(f"[data]\n{line}").passed is passed


@pytest.mark.parametrize("line", ["p95 = 9000", "max_model_len = 9000"])
def test_a_sample_is_no_evidence_about_the_whole_unless_that_is_allowed(place, line):
    place.save_profile(of(dataset("a", [5], sample=Sample(rows=1, out_of=100, seed=0))))
    failed = place.one(f"[data]\n{line}")
    assert not failed.passed
    assert failed.reason.values == {"dataset": "a", "rows": 1, "out_of": 100}
    assert place.one(f"[data]\n{line}\nallow_sample = true").passed


def test_a_sample_does_not_make_the_data_smaller(place):
    place.save_profile(of(dataset("a", [5], sample=Sample(rows=1, out_of=100, seed=0))))
    assert place.one("[data]\nmin_rows = 100").passed


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


@pytest.fixture
def changed_datasets(place):
    """One dataset is new; one is gone, and one has no rows any more."""
    commit(place, profile(a=[1], gone=[1], empty=[1]))
    place.save_profile(a=[1], new=[1], empty=[])
    return place


def test_new_datasets_are_named(changed_datasets):
    check = changed_datasets.one(f"{BASE}new_datasets = 0")
    assert (check.passed, check.subject) == (False, "new")


def test_vanished_datasets_are_counted_and_named(changed_datasets):
    failed = changed_datasets.one(f"{BASE}vanished_datasets = 1")
    assert (failed.passed, failed.subject, failed.value) == (False, "gone, empty", 2)
    assert changed_datasets.one(f"{BASE}vanished_datasets = 2").passed


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


@pytest.mark.parametrize(
    "tokenizer",
    [
        pytest.param(replace(TOKENIZER, digest="1"), id="digest"),
        pytest.param(replace(TOKENIZER, chat_template="1"), id="chat_template"),
        pytest.param(replace(TOKENIZER, special_tokens_added=1), id="special_tokens"),
        pytest.param(replace(TOKENIZER, kind="none"), id="kind"),
    ],
)
def test_a_baseline_of_another_tokenizer_is_an_error_that_names_it(place, tokenizer):
    made = place.save_profile(data=[5])
    commit(place, replace(made, tokenizer=tokenizer))
    with pytest.raises(InputError, match=r"baseline\.json was counted with another"):
        place.gate(f'{BASE}p95 = "900%"')


@pytest.mark.parametrize("text", ["{", '{"schema": "chunkscope/plan/1"}', "[1]"])
def test_a_baseline_that_is_no_profile_is_an_error_and_not_replaced(place, text):
    place.save_profile(data=[5])
    place.write("baseline.json", text)
    with pytest.raises(InputError, match=r"baseline\.json") as error:
        place.gate(f'{BASE}p95 = "900%"')
    assert "cp " not in error.value.hint


def test_a_missing_baseline_is_an_error_with_the_command_that_makes_it(place):
    place.save_profile(data=[5])
    with pytest.raises(InputError, match=r"baseline\.json") as error:
        place.gate(f'{BASE}p95 = "900%"')
    assert "cp " in error.value.hint


def test_todays_profile_is_no_baseline(place):
    place.save_profile(data=[5])
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
    assert failed_subjects(analyzed, DATA) == ["a", "pack/inner", "pack/more"]


@pytest.mark.parametrize("path", ["data", "data/*", "data/**/*.jsonl"])
def test_a_file_added_to_what_was_analyzed_fails(analyzed, path):
    analyzed.save_profile(chunkscope.analyze(path))
    assert analyzed.gate(DATA).passed
    analyzed.write("data/deeper/b.jsonl", LINES)
    analyzed.write("elsewhere/c.jsonl", LINES)
    assert failed_subjects(analyzed, DATA) == ["deeper/b"]
    assert analyzed.gate(f'{DATA}\nnot_checked = ["deeper/b"]').passed


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        pytest.param(LINES, True, id="the same content"),
        pytest.param(LINES * 2, False, id="other content"),
    ],
)
def test_data_analyzed_by_an_absolute_path_is_found_on_another_machine(
    analyzed, text, passed
):
    made = chunkscope.analyze(analyzed.folder / "data/a.jsonl")
    elsewhere = "/home/ann/checkout/data/a.jsonl"
    moved = replace(made.datasets[0], path=elsewhere)
    analyzed.save_profile(replace(made, datasets=(moved,), paths=(elsewhere,)))
    analyzed.write("data/a.jsonl", text)
    assert analyzed.one(DATA).passed is passed


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
