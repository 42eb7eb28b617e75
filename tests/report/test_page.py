"""The page as bytes: self-contained and safe."""

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.findings import Findings
from chunkscope.report.folder import chapters
from chunkscope.report.page import render
from tests import build
from tests.report import examples


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return examples.folder(tmp_path_factory.mktemp("all"))


@pytest.fixture(scope="module")
def page(everything: Findings) -> str:
    return render(everything).decode()


def test_the_same_results_give_the_same_bytes(everything: Findings, page: str) -> None:
    assert render(everything).decode() == page


def test_nothing_is_loaded(page: str) -> None:
    assert not re.search(r"<(?:link|img|iframe)|src=|@import|url\(", page)
    assert "default-src &#39;none&#39;" in page


@pytest.mark.parametrize("tag", ["script", "style"])
def test_only_the_pages_own_code_may_run(page: str, tag: str) -> None:
    (code,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"{tag}-src &#39;sha256-{digest}&#39;" in page


def test_names_full_of_markup_stay_text(tmp_path: Path) -> None:
    examples.hostile().save(tmp_path / "profile.json")
    page = render(examples.load_findings(tmp_path)).decode()
    assert "<b>a|b" not in page
    assert "&lt;b&gt;a|b" in page


def test_a_link_leads_to_each_chapter_under_its_title(
    everything: Findings, page: str
) -> None:
    for chapter in chapters(everything):
        assert f'<a href="#{chapter.name}">{chapter.title}</a>' in page
        assert f'<section id="{chapter.name}"' in page
        assert f"<h2>{chapter.title}</h2>" in page


def test_a_run_that_failed_says_why(page: str) -> None:
    assert "out of memory" in page


def test_there_is_a_button_only_where_there_is_something_to_copy(
    everything: Findings,
) -> None:
    settings = build.Settings(max_num_seqs=64)
    plan = replace(everything.plan, settings=settings)
    measured_nothing = replace(everything, plan=plan, verification=None)
    assert b'id="copy"' in render(measured_nothing)
    nothing = replace(measured_nothing, plan=replace(plan, settings=build.Settings()))
    assert b'id="copy"' not in render(nothing)


@pytest.mark.parametrize("name", ["profile", "plan", "simulation", "verify", "doctor"])
def test_it_works_with_whatever_is_there(tmp_path: Path, name: str) -> None:
    assert b"<h1>" in render(examples.folder(tmp_path, name))


def test_many_datasets_are_a_short_list(tmp_path: Path) -> None:
    sets = {f"set {place}": [10, 20] for place in range(116)}
    build.profile(**sets, long=[30_000]).save(tmp_path / "profile.json")
    page = render(examples.load_findings(tmp_path)).decode()
    assert ">long</th>" in page
    assert ">107 more datasets</th>" in page
