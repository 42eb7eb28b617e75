"""The budget file: found, read, and every mistake in it an error with its place."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import InputError
from chunkscope.gating.budget_file import find_budget, parse_file, read_budget

OWN = "[gate.data]\np95 = 1000\n"
PROJECT = '[project]\nname = "x"\n\n[tool.chunkscope.gate.data]\np95 = 2000\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_chunkscope_toml_is_found(here):
    (here / "chunkscope.toml").write_text(OWN)
    assert find_budget().budget.data.p95 == 1000


def test_pyproject_toml_is_found(here):
    (here / "pyproject.toml").write_text(PROJECT)
    found = find_budget()
    assert found.budget.data.p95 == 2000
    assert found.path == Path("pyproject.toml")
    assert not found.notes


def test_of_both_the_own_file_is_read_and_that_is_said(here):
    (here / "chunkscope.toml").write_text(OWN)
    (here / "pyproject.toml").write_text(PROJECT)
    found = find_budget()
    assert found.budget.data.p95 == 1000
    assert "pyproject.toml has a [tool.chunkscope.gate] too: not read" in found.notes[0]


@pytest.mark.parametrize("other", ['[project]\nname = "x"\n', "not toml at all ["])
def test_another_projects_file_is_not_mentioned(here, other):
    (here / "chunkscope.toml").write_text(OWN)
    (here / "pyproject.toml").write_text(other)
    assert not find_budget().notes


def test_a_file_can_be_named(here):
    (here / "chunkscope.toml").write_text("[gate.data]\np95 = 1\n")
    (here / "strict.toml").write_text(OWN)
    assert find_budget(Path("strict.toml")).budget.data.p95 == 1000


def test_files_are_named_as_seen_from_the_budget(here):
    (here / "ci").mkdir()
    (here / "ci" / "chunkscope.toml").write_text(OWN)
    assert find_budget(Path("ci/chunkscope.toml")).folder == Path("ci")


@pytest.mark.parametrize(
    ("name", "data", "said", "hint"),
    [
        pytest.param("chunkscope.toml", None, "there is no chunkscope.toml", "--init", id="none"),
        pytest.param("chunkscope.toml", b"", "no [gate] table", "--init", id="empty"),
        pytest.param("chunkscope.toml", b"[gates]\n", "gates is no", "did you mean gate?",
                     id="misspelt table"),
        pytest.param("chunkscope.toml", b"gate = 1\n", "no [gate] table", "--init", id="no table"),
        pytest.param("chunkscope.toml", b"[gate]\np95 = \n", "line 2", None, id="broken TOML"),
        pytest.param("chunkscope.toml", b"[gate.data]\np95 = 1\np95 = 2\n", "line 3", None,
                     id="a key twice"),
        pytest.param("chunkscope.toml", b"\xff\xfe[", "not UTF-8", None, id="not UTF-8"),
        pytest.param("chunkscope.toml", bytes(range(32)), "no TOML", None, id="binary"),
        pytest.param("chunkscope.toml", b"a = " + b"[" * 10_000, "no TOML", None, id="deep"),
        pytest.param("chunkscope.toml", b"[gate.data]\np95 = " + b"9" * 5000, "no TOML", None,
                     id="thousands of digits"),
        pytest.param("pyproject.toml", b"[tool.chunkscope]\n", "no [tool.chunkscope.gate]",
                     "--init", id="half a table"),
        pytest.param("pyproject.toml", b"[tool.chunkscope.gat]\n", "tool.chunkscope.gat is no",
                     "did you mean gate?", id="misspelt in pyproject"),
        pytest.param("pyproject.toml", b"tool = [", "no TOML", None, id="broken pyproject"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_budget_is_an_error(here, name, data, said, hint):
    if data is not None:
        (here / name).write_bytes(data)
    with pytest.raises(InputError) as error:
        find_budget()
    assert said in error.value.message
    assert (hint or "") in (error.value.hint or "")
    assert len(error.value.message) < 300


def test_a_folder_or_a_locked_file_is_an_error(here):
    (here / "chunkscope.toml").mkdir()
    with pytest.raises(InputError, match=r"cannot read chunkscope\.toml: Is a directory"):
        find_budget()
    with pytest.raises(InputError, match="no such file"):
        read_budget(Path("nowhere.toml"))
    if os.geteuid() != 0:
        (here / "locked.toml").write_text(OWN)
        (here / "locked.toml").chmod(0)
        with pytest.raises(InputError, match="Permission denied"):
            read_budget(Path("locked.toml"))


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(here):
    (here / "chunkscope.toml").write_bytes(b"\xef\xbb\xbf[gate.data]\r\np95 = 1000\r\n")
    assert find_budget().budget.data.p95 == 1000


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("[gate.data]\nlongest_promt = 1", "longest_promt", "did you mean longest_prompt?"),
        ("[gate.dat]\np95 = 1", "gate.dat is no promise", "did you mean data?"),
        ("[gate]\nxyzzy = 1", "gate.xyzzy", "known here: output_tokens, data"),
        ("[gate.data.of.gsm8k]\npp95 = 1", "gate.data.of.gsm8k.pp95", "did you mean p95?"),
        ("[gate.data.of.p95]\npp95 = 1", "gate.data.of.p95.pp95", "did you mean p95?"),
        ("[gate.memory.predictd]\n", "gate.memory.predictd", "did you mean predicted?"),
        ("[gate.memory.predicted]\npeak = 1", "predicted.peak", "did you mean"),
        ("[gate.speed]\nttft_p90 = 1", "gate.speed.ttft_p90", "did you mean ttft_p"),
        ("[gate.speed.long]\nmakespan = 1", "gate.speed.long.makespan", "known here"),
        ("[gate.speed]\ncompare = ['ttft']", "no figure 'ttft'", "did you mean ttft_p"),
        ("[gate.drift]\np95 = '1%'", "gate.drift.baseline is missing", "baseline = ..."),
        ("[gate.settings]\nfile = 'a'\nmust_be = 'same'", "'same' is not one of", ""),
        ("[gate.settings]\nfile = ''", "gate.settings.file", ""),
        ("[gate.data]\np95 = '200ms'", "gate.data.p95: '200ms' has no unit known here; write", ""),
        ("[gate.speed]\nttft_p95 = 200", 'ttft_p95: 200 has no unit; write it like "200ms"', ""),
        ("[gate.speed]\nttft_p95 = '2GiB'", "(us, ms, s, min, h)", ""),
        ("[gate.memory.measured]\ndevice_peak = '80'", "(MiB, GiB, TiB, MB, GB)", ""),
        ("[gate.drift]\nbaseline = 'a'\np50 = 0.1", '"5%" (with the %)', ""),
        ("[gate.data]\np95 = nan", "no limit that could be kept", ""),
        ("[gate.data]\np95 = inf", "no limit that could be kept", ""),
        ("[gate.data]\np95 = 1e300", "no limit that could be broken", ""),
        ("[gate.data]\np95 = 100000000000000000000", "no limit that could be broken", ""),
        ("[gate.speed]\nttft_p95 = '999999999999h'", "no limit that could be broken", ""),
        ("[gate]\noutput_tokens = 0", "output_tokens", ""),
        ("[gate.data]\np95 = -1", "negative", ""),
        ("[gate.data]\nmin_rows = true", "no number", ""),
        ("[gate.data]\nmin_rows = 2026-01-01", "no number", ""),
        ("[gate.data]\ndatasets = 'a'", "gate.data.datasets", ""),
        ("[gate.data]\ndatasets = [1]", "gate.data.datasets.0", ""),
        ("[gate.freshness]\ndata = 'yes'", "gate.freshness.data", ""),
        ("[[gate.data]]\np95 = 1", "gate.data", ""),
        ("gate.data = 1", "gate.data", ""),
    ],
)  # fmt: skip
def test_a_mistake_names_its_key_and_what_would_be_right(text, said, hint):
    with pytest.raises(InputError) as error:
        parse_file(text, Path("chunkscope.toml"))
    assert error.value.message.startswith("chunkscope.toml: ")
    assert said in error.value.message
    assert hint in (error.value.hint or "")
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    "budget",
    ["", "[data]", "[data]\nallow_sample = true", "[data]\ndatasets = []", "[memory]",
     "[memory.predicted]", "[speed]\nsetting = 'off'", "[freshness]\ndata = false",
     "output_tokens = 5", "[speed.short]", "[drift]\nbaseline = 'reports/profile.json'",
     "[data]\np95 = 5\n[freshness]", "[data]\nmin_rows = 0",
     "[memory.predicted]\nkv_requests_of_p95 = 0", "[speed]\noutput_tokens_per_s = 0",
     "[speed]\nbaseline = 'reports/verify.json'\ntolerance = '100%'"],
)  # fmt: skip
def test_a_table_that_promises_nothing_is_an_error_and_no_pass(place, budget):
    place.save_plan(place.save_profile(data=[5]))
    place.save_verification()
    with pytest.raises(InputError, match="promises nothing"):
        place.gate(budget)


def test_a_key_is_found_by_its_line():
    table = "[tool.chunkscope.gate.data"
    text = f'[project]\n{table}]\n\np95 = 1 # x\n{table}.of."a b"]\np95=2'
    assert parse_file(text, Path("pyproject.toml")).lines() == {
        ("data",): 2,
        ("data", "p95"): 4,
        ("data", "of", "a b"): 5,
        ("data", "of", "a b", "p95"): 6,
    }


@given(st.text(max_size=80))
def test_no_text_is_more_than_an_error(text):
    with suppress(InputError):
        parse_file(text, Path("chunkscope.toml"))


@given(
    st.sampled_from(["data.p95", "data.datasets", "data.of", "drift.p50", "drift.baseline",
                     "settings.file", "memory.predicted", "speed.compare", "speed.ttft_p95",
                     "freshness.data", "output_tokens", "speed.tolerance", "data.of.x.p95"]),
    st.sampled_from(["1", "-1", "nan", "inf", "true", "'5%'", "''", "[]", "[1]", "[[]]", "{}",
                     "{a=1}", "{a={}}", "1e999", "0x10", "1979-05-27", "'1s'", "['x']"]),
)  # fmt: skip
def test_no_value_is_more_than_an_error(key, value):
    with suppress(InputError):
        parse_file(f"gate.{key} = {value}", Path("chunkscope.toml"))
