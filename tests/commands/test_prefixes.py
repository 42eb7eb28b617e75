"""`chunkscope prefixes`: what a profile says of shared beginnings, for people and for jq."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chunkscope.cli import app
from chunkscope.errors import InputError
from tests.commands.helpers import analyze, write_jsonl


@pytest.fixture
def place(tmp_path: Path) -> Path:
    shots = "The same examples come before every question. " * 40
    rows = [{"prompt": f"{shots} Question {n}: {'why ' * n}?"} for n in range(20)]
    write_jsonl(tmp_path / "shots.jsonl", rows)
    write_jsonl(tmp_path / "alone.jsonl", [{"prompt": f"{n} things differ"} for n in range(5)])
    return tmp_path


def prefixes(place: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["prefixes", str(place / "reports/profile.json"), *words])
    if done.exception:
        raise done.exception
    return done.stdout


def test_it_says_what_is_shared_and_what_is_found(place):
    assert analyze(place, ".").code == 0
    shown = prefixes(place)
    assert "vLLM's prefix cache would find" in shown
    assert "shots" in shown
    assert "full blocks of 16 tokens" in shown
    assert "all together" in shown


def test_as_json_it_has_the_figures_of_each_dataset(place):
    written = analyze(place, ".").profile["datasets"]
    figures = json.loads(prefixes(place, "--json"))["datasets"]
    assert [one["name"] for one in figures] == [dataset["name"] for dataset in written]
    shots = next(one for one in figures if one["name"] == "shots")
    assert shots["prompts"] == 20
    assert shots["common_tokens"] > 300
    assert shots["hit_rate"] == shots["cached_tokens"] / shots["tokens"] > 0.8
    # The first prompt writes what the others read.
    assert shots["cached_tokens"] == 19 * (shots["common_tokens"] // 16 * 16)


def test_a_profile_without_it_says_how_to_get_it(place):
    run = analyze(place, ".", "--no-prefixes")
    assert not any("prefixes" in dataset for dataset in run.profile["datasets"])
    with pytest.raises(InputError, match="does not say what its prompts share"):
        prefixes(place)
