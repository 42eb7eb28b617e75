"""`gate --init`: a budget of today's figures, with a little room."""

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
    place.write("vllm.yaml", emit(plan, Target.VLLM_YAML).text)
    return place


def text_of(place):
    return starting_budget(load_findings(place.reports), place.folder, COMMENTS)


def failed_checks(place):
    file = parse_budget(text_of(place), place.folder / "chunkscope.toml")
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
        ("slo", "makespan", 0.5, "550ms"),
        ("slo", "makespan", 100.0, "110.0s"),
        ("memory.predicted", "device_peak", 100, "102.0GiB"),
        ("memory.measured", "activation_peak", 0.5, "0.55GiB"),
        ("outputs", "equal", 1.0, "99%"),
    ],
)
def test_a_limit_leaves_the_room_of_its_kind(table, key, value, limit):
    assert limit_of(table, key, value) == limit


def test_what_is_written_passes(full):
    assert failed_checks(full) == ()


def test_every_table_that_can_be_checked_is_written(full):
    tables = tomllib.loads(text_of(full))["gate"]
    names = {"data", "drift", "settings", "memory", "slo", "speed", "freshness"}
    assert tables.keys() == names


def test_a_limit_has_room_and_the_value_of_the_day_beside_it(full):
    line = "longest_prompt = 4400  # at most (today 4,000 tokens)\n"
    assert line in text_of(full)


def test_a_time_and_its_limit_are_written_in_one_unit(full):
    full.save_verification(run("plan", 0.5))
    assert 'ttft_p95 = "125ms"  # at most (today 100 ms)\n' in text_of(full)
    full.save_verification(run("plan", 1_500.0))
    assert 'ttft_p95 = "375.0s"  # at most (today 300 s)\n' in text_of(full)


def test_data_that_is_in_no_file_is_named(place):
    place.save_profile(piped=[5])
    assert 'not_checked = ["piped"]' in text_of(place)


def test_a_sample_is_allowed_where_there_is_one(place):
    made = place.save_profile()
    sampled = replace(made.datasets[0], sample=Sample(rows=50, out_of=99, seed=0))
    place.save_profile(replace(made, datasets=(sampled,)))
    assert "allow_sample = true" in text_of(place)


def test_a_dataset_of_any_name_is_written_as_toml(place):
    place.save_profile(**{'a "b" \\ ü \x7f': [5]})
    place.save_plan(place.save_profile(**{'a "b" \\ ü \x7f': [5]}))
    assert failed_checks(place) == ()


def test_results_without_a_profile_plan_or_measurement_are_an_error(place):
    place.reports.mkdir()
    findings = replace(load_findings_of_a_profile(place), profile=None)
    with pytest.raises(InputError, match=r"nothing in .* could be checked"):
        starting_budget(findings, place.folder, COMMENTS)


def load_findings_of_a_profile(place):
    place.save_profile()
    return load_findings(place.reports)


# -- a file that has other tables ------------------------------------------------------

OTHERS = "# mine\n[verify]\nseed = 3  # why\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{OTHERS}[gate.data]\np95 = 3\n", id="the gate last"),
        pytest.param(f"[gate.data]\np95 = 3\n{OTHERS}", id="the gate first"),
        pytest.param(f'{OTHERS}[gate.data.of."a.b"]\np95 = 3\n', id="a quoted name"),
        pytest.param(OTHERS, id="no gate"),
    ],
)
def test_only_the_gates_tables_are_taken_out(tmp_path, text):
    assert without_gate(text, tmp_path / "chunkscope.toml", "# head\n") == OTHERS


@pytest.mark.parametrize("text", ["gate.data.p95 = 3", "gate = {}", "[gate"])
def test_a_gate_that_is_written_otherwise_is_an_error(tmp_path, text):
    with pytest.raises(InputError, match=r"chunkscope\.toml"):
        without_gate(text, tmp_path / "chunkscope.toml", "# head\n")
