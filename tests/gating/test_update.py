"""`gate --update`: limits follow today's figures, and what people wrote stays as it is."""

import difflib
import sys
from dataclasses import replace

import pytest

from chunkscope.errors import MissingError
from chunkscope.findings import load_findings
from chunkscope.gating.budget_file import parse_file
from chunkscope.gating.check import judge
from chunkscope.gating.refreshed_file import refreshed_text
from chunkscope.gating.starting_file import starting_text
from chunkscope.lengths.profile import Sample
from tests.build import MIXED, profile
from tests.gating.helpers import figures, run

HAND = """
# Agreed in spring, see the minutes.
[gate.drift]  # against what we released
baseline = "baseline/profile.json"
max = "50%"

[gate.data.of."a b"]
p99   =   9_000   # wide
"""


def changed(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def update(place, text: str, name: str = "chunkscope.toml"):
    """The new text, and what the gate says of it."""
    findings, path = load_findings(place.reports), place.folder / name
    new = refreshed_text(parse_file(text, path), findings)
    again = refreshed_text(parse_file(new, path), findings)
    assert again == new, "there is nothing left to move"
    return new, judge(parse_file(new, path), findings)


@pytest.fixture
def started(place):
    """Artefacts of every kind, and the file that `--init` writes."""
    place.save_plan(place.save_profile(data=MIXED))
    place.save_verification()
    place.write("chunkscope.toml", starting_text(load_findings(place.reports), place.folder / "x"))
    return place


def text_of(place) -> str:
    return (place.folder / "chunkscope.toml").read_text()


def test_nothing_moves_where_nothing_has_changed(started):
    before = text_of(started)
    assert update(started, before)[0] == before


def test_what_init_wrote_follows_the_figures_both_ways(started):
    started.save_plan(started.save_profile(data=[length // 2 for length in MIXED] * 3))
    started.save_verification(run(found=figures(ttft=0.1, rate=500.0)))
    before = text_of(started)
    after, result = update(started, before)
    assert result.kept, result.broken
    start = starting_text(load_findings(started.reports), started.folder / "chunkscope.toml")
    assert all("max_model_len" in line for line in changed(after, start)), "it is kept"
    assert len(changed(before, after)) > 10


def test_comments_tables_and_numbers_that_people_wrote_stay(started):
    started.write("baseline/profile.json", (started.reports / "profile.json").read_text())
    loose = text_of(started).replace("longest_prompt = ", "longest_prompt = 9")
    before = loose.replace("[gate.data]", "[gate.data] # mine").replace("min_rows", "  min_rows")
    before += HAND.replace('"a b"', "data")
    started.save_plan(started.save_profile(data=[*MIXED, 5_000] * 2))
    after, result = update(started, before)
    assert result.kept, result.broken
    moved = [line for line in changed(before, after) if line.startswith("-")]
    assert all(" today " in line or "max_model_len" in line for line in moved)
    longest = [line for line in after.splitlines() if line.startswith("longest_prompt")]
    assert longest == [longest[0]]
    assert longest[0].startswith("longest_prompt = 9")
    assert longest[0].endswith("today 5,000")
    assert after.endswith(HAND.replace('"a b"', "data"))
    assert "\n  min_rows = " in after
    assert "[gate.data] # mine\n" in after


def test_a_number_that_a_person_wrote_moves_where_it_is_broken(place):
    place.save_profile(profile(**{"a b": [10, 20, 30]}))
    before = '[gate.data]  # one\n[gate.data.of."a b"]\np99   =   "1k"   # two\np50 = 5 # three\n'
    after, result = update(place, before)
    assert result.kept
    assert after == before.replace("p50 = 5 #", "p50 = 22 #")


@pytest.mark.parametrize(
    ("budget", "moved"),
    [
        ("[gate.data]\nbad_rows = 0", "bad_rows = 3"),
        ("[gate.data]\nmin_rows = 9", "min_rows = 1"),
        ('[gate.data]\ndatasets = ["gone", "data"]', 'datasets = ["data"]'),
        ('[gate.speed.long]\nitl_p99 = "1us"', None),
        ('[gate.speed.short]\nitl_p99 = "1us"', 'itl_p99 = "25ms"'),
        ('[gate.memory.measured]\nactivation_peak = "1MiB"', 'activation_peak = "0.93GiB"'),
    ],
)
def test_every_kind_of_limit_moves(place, budget, moved):
    found = place.save_profile(data=[5, 6])
    place.save_profile(replace(found, datasets=(replace(found.datasets[0], skipped=3),)))
    place.save_verification()
    after, result = update(place, budget + " # why\n")
    assert result.kept is (moved is not None)
    assert after == (f"{budget.splitlines()[0]}\n{moved} # why\n" if moved else f"{budget} # why\n")


def test_how_settings_must_be_is_never_loosened(place):
    """Only what nobody judges is allowed by name."""
    plan = place.save_plan(place.save_profile())
    assert plan.settings.max_num_seqs is None
    place.write("vllm.yaml", "max-num-seqs: 7\nenforce-eager: true\nquantization: fp8\n")
    before = '[gate.settings]\nfile = "vllm.yaml"\nmust_be = "equal"  # exactly\n'
    after, result = update(place, before)
    assert after == before + 'allow = ["enforce_eager", "quantization"]\n'
    assert "max_num_seqs" in [verdict.subject for verdict in result.broken]


def test_figures_of_a_stale_plan_or_of_a_sample_are_not_taken(place):
    found = place.save_profile(data=MIXED)
    place.save_plan(found)
    sampled = replace(found.datasets[0], sample=Sample(rows=2, out_of=99, seed=0))
    place.save_profile(replace(found, datasets=(sampled,)))
    before = '[gate.data]\nlongest_prompt = 1\n[gate.memory.predicted]\ndevice_peak = "1GiB"\n'
    after, result = update(place, before)
    assert after == before
    assert len(result.broken) == 2


def test_pyproject_keeps_all_that_is_not_ours(place):
    place.save_profile(data=[100])
    before = (
        '[project]\nname = "x"  # and\r\nkeywords = [\n  "a",  # b\n]\n\n'
        "[tool.chunkscope.gate.data]\nlongest_prompt = 5\n\n[tool.ruff]\nline-length=100"
    )
    after, result = update(place, before, "pyproject.toml")
    assert result.kept
    assert after == before.replace("longest_prompt = 5", "longest_prompt = 120")


def test_without_tomlkit_it_says_what_to_install(place, monkeypatch):
    place.save_profile(data=[100])
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    with pytest.raises(MissingError, match="--update needs tomlkit"):
        update(place, "[gate.data]\nlongest_prompt = 5\n")


@pytest.mark.parametrize(
    "text",
    [
        'gate.data.longest_prompt = 5  # why\ngate.data.datasets = ["data"]\n',
        "gate = {data = {longest_prompt = 5, min_rows = 1}} # all of it\n",
        "[gate]\noutput_tokens = 3\ndata = {longest_prompt = 5} # here\n",
        "[gate.data]\r\n# one\r\nlongest_prompt = 5 # two\r\n\r\n",
        "[gate.drift]\nbaseline='b.json'\nmax='0%'\n[gate.data.of.data]\nlongest_prompt=5\n"
        "[gate.data]\nmin_rows = 1",
    ],
)
def test_every_way_to_write_a_table_stays_as_it_was(place, text):
    place.save_profile(data=[100])
    place.write("b.json", (place.reports / "profile.json").read_text())
    after, result = update(place, text)
    assert result.kept
    assert after == text.replace("longest_prompt = 5", "longest_prompt = 120").replace(
        "longest_prompt=5", "longest_prompt=120"
    )
