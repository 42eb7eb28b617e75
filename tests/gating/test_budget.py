"""The budget file: found, read, written by --init, moved by --update; mistakes name their place."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.errors import InputError
from chunkscope.findings import load_findings
from chunkscope.gating.budget import find_budget, parse_budget
from chunkscope.gating.check import Check, GateResult
from chunkscope.gating.gate import judge
from chunkscope.gating.init import limit_of, starting_text, updated_text
from chunkscope.lengths.profile import Sample
from chunkscope.planning.emit import emit
from chunkscope.report.words.gate import COMMENTS
from chunkscope.vllm.enums import Target
from tests.build import MIXED, run

TABLE = "[gate.data]\np95 = 1000\n"


def test_the_own_file_comes_before_the_projects(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"chunkscope\.toml"):
        find_budget()
    Path("pyproject.toml").write_text("[tool.chunkscope.gate.data]\np95 = 5\n")
    assert find_budget().budget.data.p95 == 5
    Path("chunkscope.toml").write_text(TABLE)
    assert find_budget().budget.data.p95 == 1000
    Path("pyproject.toml").write_text("[")
    assert find_budget().budget.data.p95 == 1000, (
        "a damaged file that is not read is no matter"
    )
    Path("chunkscope.toml").unlink()
    with pytest.raises(InputError, match=r"pyproject\.toml"):
        find_budget()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[gate.data]\nfoo = 1", "gate.data.foo"),
        ("[gate.data]\np95 = 1\n[gates.drift]\np95 = 1", "gates is not known"),
        ("[gate.date]\np95 = 1", "gate.date"),
        ("[gate.memory]\ndevice_peak = 1", "gate.memory.device_peak"),
        ("[gate]\ndata = 1", "gate.data: it has to be a table"),
        ("[gate.data]\ndatasets = 'a'", "gate.data.datasets: it has to be a list"),
        ('[gate.data]\np95 = "many"', "gate.data.p95"),
        ("[gate.data]\np95 = { limit = 9, today = nan }", "gate.data.p95"),
        ("[gate.data]\np95 = { limit = 9, yesterday = 9 }", "gate.data.p95"),
        ("[gate.drift]\np95 = '5%'", "gate.drift.baseline"),
        ("[gate.drift]\nbaseline = 'b'\np95 = 5", "gate.drift.p95"),
        ("[gate.speed]\nttft_p95 = 3", "gate.speed.ttft_p95"),
        ("[gate", "TOML"),
        ("p95 = 3", "[gate]"),
    ],
)
def test_a_mistake_is_an_error_that_names_its_place(tmp_path, text, place):
    with pytest.raises(InputError) as error:
        parse_budget(text, tmp_path / "chunkscope.toml")
    assert place in error.value.message
    assert "form" not in (error.value.hint or ""), "a key of another table"
    assert place not in (error.value.hint or ""), "nothing is told to be itself"
    assert error.value.exit_code == 3


def test_an_annotation_stands_at_the_line_of_its_key_or_table():
    text = '# a\n[gate.data]\np95 = 1\n\n[gate.data.of."a b"]\np50 = 2\n'
    result = GateResult(budget=Path("b"), folder=Path("r"), checks=(), text=text)
    places = [
        ("data", "p95"),
        ("data", "max"),
        ("data", "of", "a b", "p50"),
        ("drift", "p50"),
    ]
    lines = [
        result.line_of(Check(name="x", passed=False, key=place)) for place in places
    ]
    assert lines == [3, 2, 6, None]


@pytest.mark.parametrize(
    "budget", ["[data]", "[speed]", "[freshness]\ndata = false", ""]
)
def test_a_gate_that_checks_nothing_is_an_error(place, budget):
    place.save_profile()
    place.save_verification()
    with pytest.raises(InputError):
        place.gate(budget)


@pytest.fixture
def full(place):
    """All artefacts, a baseline and committed arguments."""
    made = place.save_profile(data=MIXED, more=[5, 9])
    plan = place.save_plan(made)
    place.save_verification(run("plan"), plan_digest=plan.digest())
    made.save(place.folder / "baseline" / "profile.json")
    place.write(
        "vllm.yaml", emit(plan, Target.VLLM_YAML).text + "\nenforce-eager: true\n"
    )
    return place


def start(place):
    path = place.folder / "chunkscope.toml"
    path.write_text(starting_text(load_findings(place.reports), path, COMMENTS)[0])
    return path


def result_of(place, path):
    return judge(parse_budget(path.read_text(), path), load_findings(place.reports))


def test_a_limit_leaves_the_room_of_its_kind():
    for key, value, limit in (
        (("data", "bad_rows"), 3, 3),
        (("data", "min_rows"), 10, 9),
        (("data", "min_rows"), 1, 1),
        (("data", "min_rows"), 0, None),
        (("data", "p95"), 2_000.5, 2_201),
        (("data", "prefix_hit_rate"), 0.5, "45%"),
        (("data", "prefix_hit_rate"), 0.01, None),
        (("speed", "output_tokens_per_s"), 100, 75),
        (("slo", "makespan"), 1.0, "1100ms"),
        (("memory.predicted", "device_peak"), 100, "102.0GiB"),
        (("memory.measured", "activation_peak"), 0.5, "0.55GiB"),
        (("outputs", "equal"), 1.0, "99%"),
    ):
        assert limit_of(key, value) == limit, (key, value)


def test_what_init_writes_passes_and_says_the_value_of_its_day(full):
    path = start(full)
    gate = tomllib.loads(path.read_text())["gate"]
    assert gate["data"]["longest_prompt"] == {"limit": 4400, "today": 4000}
    assert gate["settings"]["allow"] == ["enforce_eager"]
    assert {*gate} == {
        "data",
        "drift",
        "settings",
        "memory",
        "slo",
        "speed",
        "freshness",
    }
    failed = [check.title for check in result_of(full, path).failed]
    assert failed == []


def test_what_fails_today_is_left_out_and_named(place):
    made = place.save_profile()
    path = start(place)
    _, left_out = starting_text(load_findings(place.reports), path, COMMENTS)
    assert left_out == ["freshness.data"], "the profile is of no file"
    assert result_of(place, path).passed
    sample = replace(made.datasets[0], sample=Sample(rows=50, out_of=99, seed=0))
    place.save_profile(replace(made, datasets=(sample,)))
    assert (
        tomllib.loads(start(place).read_text())["gate"]["data"]["allow_sample"] is True
    )
    (place.reports / "profile.json").unlink()
    with pytest.raises(InputError):
        start(place)


def test_update_moves_what_init_wrote_and_what_fails_and_leaves_the_rest(place):
    place.save_profile(data=[10, 1000])
    path = start(place)
    chosen = path.read_text().replace(
        "min_rows = { limit = 1, today = 2 }", "min_rows = 2  # mine"
    )
    path.write_text(
        f"# my words\n{chosen}".replace("bad_rows", "p50 = 600  # moved\nbad_rows")
    )
    place.save_profile(data=[10, 500, 2000])
    file = parse_budget(path.read_text(), path)
    text = updated_text(file, load_findings(place.reports))
    gate = tomllib.loads(text)["gate"]["data"]
    assert gate["longest_prompt"] == {"limit": 2200, "today": 2000}
    assert (gate["min_rows"], "# mine" in text, "# my words" in text) == (2, True, True)
    assert (gate["p50"], "p50 = 600  # moved" in text) == (600, True), (
        "500 tokens keep it"
    )
    path.write_text(text)
    assert result_of(place, path).passed
    again = updated_text(parse_budget(text, path), load_findings(place.reports))
    assert again == text, "nothing is left to move"


def test_update_no_longer_asks_for_a_dataset_that_is_gone(place):
    place.save_profile(stays=[10], goes=[10])
    path = start(place)
    path.write_text(path.read_text() + "[gate.data.of.goes]\np95 = 10\n")
    place.save_profile(stays=[10])
    text = updated_text(
        parse_budget(path.read_text(), path), load_findings(place.reports)
    )
    data = tomllib.loads(text)["gate"]["data"]
    assert (data["datasets"], data.get("of", {})) == (["stays"], {})


def test_a_command_is_offered_only_where_it_helps(full):
    budget = (
        '[data]\nmax_model_len = 9\n[slo]\nmakespan = "1ms"\n[outputs]\nequal = "99%"'
    )
    length, slo, outputs = (check.remedy for check in full.gate(budget).failed)
    assert (length, outputs, slo.split()[:3]) == (
        "",
        "",
        ["chunkscope", "gate", "--update"],
    )


def test_update_does_not_take_figures_of_other_data(place):
    made = place.save_profile(data=MIXED)
    place.save_plan(made)
    kept = 'device_peak = { limit = "204.0GiB", today = 200 }'  # as --init wrote it
    limits = f'[gate.memory.predicted]\nactivation_peak = "1MiB"\n{kept}\n'
    path = place.write("chunkscope.toml", limits)
    place.save_profile(replace(made, datasets=made.datasets[:0]))
    text = updated_text(
        parse_budget(path.read_text(), path), load_findings(place.reports)
    )
    assert text == path.read_text()
