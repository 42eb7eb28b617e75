"""The committed example artefacts are what the commands make of the sample data today."""

import os
from pathlib import Path

import pytest

import chunkscope
from chunkscope.findings import load_findings
from chunkscope.planning.rule import decide
from chunkscope.report.page import render
from chunkscope.vllm.enums import Mode
from tests.conftest import REPOSITORY

EXAMPLE = REPOSITORY / "reports" / "example"
H200 = REPOSITORY / "reports" / "h200"
MEASURED = H200 / "llama-3.1-8b-long"
AGAIN = "run `python tests/make_examples.py`"


def test_the_example_profile_is_the_sample_datas_and_shows_all_three_modes() -> None:
    example = chunkscope.Profile.load(EXAMPLE / "profile.json")
    today = chunkscope.analyze(str(REPOSITORY / "sample_data"))
    assert {d.name: d.lengths for d in example.datasets} == {
        d.name: d.lengths for d in today.datasets
    }
    assert (today.overall.count, today.skipped, today.failures) == (850, 0, ())
    assert {decide(dataset.lengths).mode for dataset in today.datasets} == {*Mode}


def test_the_example_plan_follows_from_the_example_profile() -> None:
    profile = chunkscope.Profile.load(EXAMPLE / "profile.json")
    plan = chunkscope.recommend(profile, model="llama-3.1-8b", gpu="h200", vllm_version="0.32.0")
    assert chunkscope.Plan.load(EXAMPLE / "plan.json").settings.given() == plan.settings.given()


@pytest.mark.parametrize(("folder", "picture"), [(EXAMPLE, EXAMPLE), (MEASURED, H200)])
def test_a_report_shows_the_results_beside_it(folder: Path, picture: Path) -> None:
    made = (folder / "report.html").read_bytes()
    assert made == render(load_findings(folder)), AGAIN
    assert len(made) < 1_000_000
    assert (picture / "report.png").stat().st_size < 250_000


def test_the_examples_name_no_place_on_a_machine() -> None:
    files = (path for path in EXAMPLE.rglob("*") if path.is_file())
    for path in (*files, MEASURED / "report.html", H200 / "report.png"):
        assert os.fsencode(Path.home()) not in path.read_bytes()
        assert os.fsencode(REPOSITORY) not in path.read_bytes()
