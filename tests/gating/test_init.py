"""`gate --init`: a budget that today's artefacts keep."""

import tomllib
from dataclasses import replace

import pytest

from chunkscope.errors import InputError
from chunkscope.findings import load_findings
from chunkscope.gating.budget import parse_budget
from chunkscope.gating.gate import judge
from chunkscope.gating.init import limit_of, starting_budget, without_gate
from chunkscope.lengths.profile import Sample
from chunkscope.planning.emit import emit
from chunkscope.report.gate import COMMENTS
from chunkscope.vllm.enums import Target
from tests.build import MIXED, run


@pytest.fixture
def full(place):
    """All artefacts, a baseline and committed settings."""
    made = place.save_profile(data=MIXED, more=[5, 9])
    plan = place.save_plan(made)
    place.save_verification(run("plan"), plan_digest=plan.digest())
    made.save(place.folder / "baseline" / "profile.json")
    settings = emit(plan, Target.VLLM_YAML).text + "\nenforce-eager: true\n"
    place.write("vllm.yaml", settings)
    return place


def start(place):
    return starting_budget(load_findings(place.reports), place.folder / "budget.toml")


def gate_tables(budget):
    return tomllib.loads(budget.text(COMMENTS))["gate"]


def failed_checks(place, text):
    file = parse_budget(text, place.folder / "chunkscope.toml")
    return judge(file, load_findings(place.reports)).failed


@pytest.mark.parametrize(
    ("table", "key", "value", "limit"),
    [
        ("data", "bad_rows", 3, 3),
        ("data", "min_rows", 10, 9),
        ("data", "min_rows", 1, 1),
        ("data", "min_rows", 0, None),
        ("data", "p95", 2_000.5, 2_201),
        ("data", "prefix_hit_rate", 0.5, "45%"),
        ("data", "prefix_hit_rate", 0.01, None),
        ("speed", "output_tokens_per_s", 100, 75),
        ("slo", "makespan", 1.0, "1100ms"),
        ("slo", "makespan", 100.0, "110.0s"),
        ("memory.predicted", "device_peak", 100, "102.0GiB"),
        ("memory.measured", "activation_peak", 0.5, "0.55GiB"),
        ("outputs", "equal", 1.0, "99%"),
    ],
)
def test_a_limit_leaves_the_room_of_its_kind(table, key, value, limit):
    assert limit_of(table, key, value) == limit


def test_what_is_written_passes(full):
    assert failed_checks(full, start(full).text(COMMENTS)) == ()


def test_every_table_that_can_be_checked_is_written(full):
    tables = gate_tables(start(full))
    assert [*tables] == [
        "data",
        "drift",
        "settings",
        "memory",
        "slo",
        "speed",
        "freshness",
    ]


def test_a_limit_has_room_and_the_value_of_the_day_beside_it(full):
    text = start(full).text(COMMENTS)
    assert "longest_prompt = 4400  # at most (today 4,000 tokens)\n" in text


def test_committed_arguments_that_nobody_judges_are_allowed_by_name(full):
    assert gate_tables(start(full))["settings"]["allow"] == ["enforce_eager"]


def test_committed_settings_that_are_worse_than_the_plan_are_left_out(full):
    full.write("vllm.yaml", "max-num-seqs: 2")
    budget = start(full)
    assert "settings" not in budget.tables
    assert {"settings.file", "settings.must_be"} <= {*budget.left_out}


def test_what_fails_today_is_left_out_and_named(place):
    place.save_profile()
    budget = start(place)
    assert budget.left_out == ["freshness.data"], "the profile is of no file"
    assert failed_checks(place, budget.text(COMMENTS)) == ()


def test_a_sample_is_allowed_where_there_is_one(place):
    made = place.save_profile()
    sampled = replace(made.datasets[0], sample=Sample(rows=50, out_of=99, seed=0))
    place.save_profile(replace(made, datasets=(sampled,)))
    assert gate_tables(start(place))["data"]["allow_sample"] is True


def test_a_dataset_of_any_name_is_written_as_toml(place):
    name = 'a "b" \\ ü \x7f'
    place.save_profile(**{name: [5]})
    budget = start(place)
    assert failed_checks(place, budget.text(COMMENTS)) == ()


def test_results_without_a_profile_plan_or_measurement_are_an_error(place):
    made = place.save_profile()
    place.save_plan(made, model=None, gpu=None)
    (place.reports / "profile.json").unlink()
    with pytest.raises(InputError, match=r"nothing in .* could be checked"):
        start(place)


# -- a file that has other tables ------------------------------------------------------

OTHERS = "# mine\n[verify]\nseed = 3  # why\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{OTHERS}[gate.data]\np95 = 3\n", id="the gate last"),
        pytest.param(f"[gate.data]\np95 = 3\n{OTHERS}", id="the gate first"),
        pytest.param(f'{OTHERS}[gate.data.of."a.b"]\np95 = 3\n', id="a quoted name"),
        pytest.param(f'{OTHERS}["gate".data]\np95 = 3\n', id="a quoted gate"),
        pytest.param(f"{OTHERS}[ gate ]\n[ gate.data ]\np95 = 3\n", id="blanks"),
    ],
)
def test_only_the_gates_tables_are_taken_out(tmp_path, text):
    kept = without_gate(text, tmp_path / "chunkscope.toml", "# head\n")
    assert tomllib.loads(kept) == {"verify": {"seed": 3}}
    assert "seed = 3  # why" in kept


def test_a_file_without_the_gate_is_left_as_it_is(tmp_path):
    assert without_gate(OTHERS, tmp_path / "chunkscope.toml", "# head\n") == OTHERS


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("gate.data.p95 = 3\n[verify]\nseed = 3", id="dotted keys"),
        pytest.param("gate = {data = {p95 = 3}}", id="an inline table"),
        pytest.param('[gate.data]\np95 = 3\n[a]\nb = """\n[gate]\n"""', id="in a text"),
    ],
)
def test_a_gate_that_is_written_otherwise_is_an_error(tmp_path, text):
    with pytest.raises(InputError, match=r"chunkscope\.toml"):
        without_gate(text, tmp_path / "chunkscope.toml", "# head\n")
