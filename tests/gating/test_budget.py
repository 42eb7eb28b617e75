"""The budget file: found, read, and its mistakes; what a gate without checks says."""

from pathlib import Path

import pytest

from chunkscope.artefacts.figures import BY_PROMISE
from chunkscope.errors import InputError
from chunkscope.gating.budget import (
    MemoryLimits,
    SpeedLimits,
    find_budget,
    parse_budget,
)
from chunkscope.gating.check import Check, GateResult, Relation

TABLE = "[gate.data]\np95 = 1000\n"


# -- which file ------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the command is run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_missing_budget_is_an_error_that_names_chunkscope_toml():
    with pytest.raises(InputError, match=r"chunkscope\.toml"):
        find_budget()


def test_the_projects_file_is_read_where_there_is_no_other(folder):
    text = "[tool.chunkscope.gate.data]\np95 = 5\n"
    (folder / "pyproject.toml").write_text(text)
    assert find_budget().budget.data.p95 == 5


def test_chunkscope_toml_comes_before_the_projects_file_even_a_damaged_one(folder):
    (folder / "pyproject.toml").write_text("[")
    (folder / "chunkscope.toml").write_text(TABLE)
    assert find_budget().budget.data.p95 == 1000


def test_a_damaged_project_file_is_an_error_that_names_it(folder):
    (folder / "pyproject.toml").write_text("[")
    with pytest.raises(InputError, match=r"pyproject\.toml"):
        find_budget()


# -- what it may hold ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[gate.data]\nfoo = 1", "gate.data.foo"),
        ("[gate.data]\np95 = 1\n[gates.drift]\np95 = 1", "gates is not known"),
        ("[gate.date]\np95 = 1", "gate.date"),
        ("[gate.memory]\ndevice_peak = 1", "gate.memory.device_peak"),
        ("[gate]\ndata = 1", "gate.data: it has to be a table"),
        ("[gate.data]\ndatasets = 'a'", "gate.data.datasets: it has to be a list"),
        (
            "[gate.data]\nallow_sample = 1",
            "gate.data.allow_sample: it has to be true or",
        ),
        ("[gate.settings]\nfile = 1", "gate.settings.file: it has to be text"),
        ('[gate.data]\np95 = "many"', "gate.data.p95"),
        ("[gate.data]\np95 = { limit = 9, today = 8 }", "gate.data.p95"),
        ("[gate.data]\nmin_rows = 0", "gate.data.min_rows: at least 0 is always true"),
        ("[gate.data]\nmax_model_len = 'x'", "gate.data.max_model_len"),
        ("[gate.drift]\np95 = '5%'", "gate.drift.baseline"),
        ("[gate.drift]\nbaseline = 'b'\np95 = 5", "gate.drift.p95"),
        ("[gate.speed]\nttft_p95 = 3", "gate.speed.ttft_p95"),
        ("[gate", "TOML"),
        ("p95 = 3", "[gate]"),
        ("gate = 3", "[gate]"),
    ],
)
def test_a_mistake_is_an_error_that_names_its_place(tmp_path, text, place):
    with pytest.raises(InputError) as error:
        parse_budget(text, tmp_path / "chunkscope.toml")
    assert place in error.value.message
    assert place not in (error.value.hint or ""), "nothing is told to be itself"
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[gate.data]\nlongst_prompt = 1", "did you mean longest_prompt?"),
        ("[gate.dat]\np95 = 1", "did you mean data?"),
        ("[gate.data]\nunheard = 1", "see `chunkscope help gate`"),
    ],
)
def test_a_key_that_is_misspelled_or_misplaced_is_named(tmp_path, text, hint):
    with pytest.raises(InputError) as error:
        parse_budget(text, tmp_path / "chunkscope.toml")
    assert error.value.hint == hint


def test_every_figure_that_may_be_promised_has_a_limit_of_its_unit_and_direction():
    limits = SpeedLimits.possible_limits() | MemoryLimits.possible_limits()
    del limits["kv_requests_of_p95"]  # which no run measures
    assert limits.keys() == BY_PROMISE.keys()
    for key, figure in BY_PROMISE.items():
        relation = Relation.AT_MOST if figure.less_is_better else Relation.AT_LEAST
        assert (limits[key].unit, limits[key].relation) == (figure.unit, relation), key


# -- what it is for --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "line"),
    [
        pytest.param(("data", "p95"), 3, id="its key"),
        pytest.param(("data", "max"), 2, id="its table"),
        pytest.param(("data", "of", "a b", "p50"), 6, id="a table with a quoted name"),
        pytest.param(("drift", "p50"), None, id="nowhere"),
    ],
)
def test_an_annotation_stands_at_the_line_of_its_key_or_table(place, line):
    text = '# a\n[gate.data]\np95 = 1\n\n[gate.data.of."a b"]\np50 = 2\n'
    result = GateResult(budget=Path("b"), folder=Path("r"), checks=(), text=text)
    assert result.line_of(Check(name="x", passed=False, key=place)) == line


@pytest.mark.parametrize(
    "budget", ["[data]", "[speed]", "[freshness]\ndata = false", ""]
)
def test_a_gate_that_checks_nothing_is_an_error(place, budget):
    place.save_profile()
    place.save_verification()
    with pytest.raises(InputError, match="checks nothing"):
        place.gate(budget)


def test_one_table_without_checks_is_an_error_beside_others_that_have_some(place):
    place.save_profile()
    with pytest.raises(InputError, match=r"\[gate\.freshness\] in .* checks nothing"):
        place.gate("[data]\np95 = 9000\n[freshness]")
