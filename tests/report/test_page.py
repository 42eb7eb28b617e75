"""The page as bytes: self-contained and safe; what changed in it."""

import base64
import hashlib
import re
from dataclasses import replace

import orjson
import pytest
from chunkscope.report.section import Cell, sections

from chunkscope.findings import Findings
from chunkscope.lengths.content import Content
from chunkscope.report.folder import arguments, chapters, compare, first_screen
from chunkscope.report.markdown import markdown
from chunkscope.report.page import HERE, LIBRARIES, render
from chunkscope.vllm.enums import Entry
from tests import build
from tests.report import examples

# As published on npm: d3 7.9.0 and @observablehq/plot 0.6.17, files of their dist folders.
PUBLISHED = {
    "d3.min.js": "f2094bbf6141b359722c4fe454eb6c4b0f0e42cc10cc7af921fc158fceb86539",
    "plot.umd.min.js": "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
}


@pytest.fixture(scope="module")
def findings(tmp_path_factory) -> Findings:
    return examples.folder(tmp_path_factory.mktemp("all"))


def test_nothing_is_loaded_and_only_the_pages_own_scripts_may_run(findings) -> None:
    page = render(findings).decode()
    assert not re.search(r"<(?:link|img|iframe)|src=|@import", page.split("<script")[0])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == 3
    assert "default-src &#39;none&#39;" in policy
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy


def test_the_libraries_are_as_published_and_bring_their_licences(findings) -> None:
    page = render(findings).decode()
    for library, licence in LIBRARIES:
        assert (HERE / "vendor" / licence).read_text() in page
        data = (HERE / "vendor" / library).read_bytes()
        assert hashlib.sha256(data).hexdigest() == PUBLISHED[library]


def test_names_full_of_markup_stay_text(tmp_path) -> None:
    examples.hostile().save(tmp_path / "profile.json")
    page = render(examples.load_findings(tmp_path)).decode()
    assert "<b>a|b" not in page  # nor in the data that scripts read
    assert "&lt;b&gt;a|b" in page


def test_every_chart_has_data_and_every_chapter_a_place(findings) -> None:
    page = render(findings).decode()
    assert "out of memory" in page, "a run that failed"
    (data,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page, re.S
    )
    names = re.findall(r'data-chart="([^"]+)"', page)
    assert set(names) == orjson.loads(data).keys()
    assert {"lengths", "measured"} == set(names)
    for chapter in chapters(findings):
        assert f'id="{chapter.id}"' in page
        assert f'href="#{chapter.id}"' in page


def test_the_first_screen_says_it_once(findings) -> None:
    top = first_screen(findings)
    shown = [section for chapter in chapters(findings) for section in chapter.sections]
    said = [text for section in shown for text in section.sentences]
    assert not set(top.sentences) & set(said)
    assert " ".join(findings.plan.cli_args()) not in said  # what to copy stands on top
    notes = [note for section in shown for note in section.notes]
    assert len(notes) == len(set(notes))


def test_there_is_a_copy_button_only_over_settings_that_can_be_used(findings) -> None:
    assert arguments(findings)
    assert b'id="copy"' in render(findings)
    called = replace(
        findings.plan, deployment=replace(findings.plan.deployment, entry=Entry.LLM)
    )
    assert re.fullmatch(
        r"(\w+=\w+, )*\w+=\w+", arguments(replace(findings, plan=called))
    )
    nothing = replace(findings.plan, settings=build.Settings())
    for plan in (examples.limits_broken(), nothing):
        unusable = replace(findings, plan=plan, verification=None)
        assert not arguments(unusable)
        assert b'id="copy"' not in render(unusable)


def test_results_of_different_data_are_called_out(tmp_path) -> None:
    examples.folder(tmp_path, "profile", "plan")
    build.profile(other=[5]).save(tmp_path / "profile.json")
    notes = first_screen(examples.load_findings(tmp_path)).notes
    assert [note for note in notes if "chunkscope recommend" in note]


@pytest.mark.parametrize("name", ["profile", "plan", "simulation", "verify", "doctor"])
def test_the_page_works_with_whatever_is_there(tmp_path, name: str) -> None:
    findings = examples.folder(tmp_path, name)
    assert first_screen(findings).sentences[0]
    assert b"<h1>" in render(findings)


def test_a_page_of_116_datasets_has_a_line_for_each_folder(tmp_path) -> None:
    folders = [f"{part}/{number}" for part in ("dev", "test") for number in range(57)]
    sets = {**{name: [10, 20] for name in folders}, "long": [30_000], "short": [5]}
    build.profile(**sets).save(tmp_path / "profile.json")
    findings = examples.load_findings(tmp_path)
    assert len(findings.profile.datasets) == 116
    assert b">long</th>" in render(findings)


# -- what changed between two folders --------------------------------------------------------------


def test_a_folder_does_not_differ_from_itself(tmp_path) -> None:
    findings = examples.folder(tmp_path)
    comparison = compare(findings, findings)
    assert not comparison.moved
    assert not comparison.to_json()["notes"]
    assert markdown(comparison)


def moved(comparison) -> dict[tuple[str, str], object]:
    return {
        (c.name.removeprefix("drift."), c.subject): c.value for c in comparison.moved
    }


def test_lengths_and_settings_that_changed_are_listed(tmp_path) -> None:
    old = examples.folder(tmp_path, "profile", "plan")
    grown = build.profile(short=build.SHORT, mixed=(*build.MIXED, 9_000), new=[5])
    plan = replace(old.plan, settings=replace(old.plan.settings, max_num_seqs=7))
    comparison = compare(old, replace(old, profile=grown, plan=plan))
    changes = moved(comparison)
    assert changes["max", "mixed"] == 1.25
    assert changes["new_datasets", "new"] == 1
    assert not [subject for _, subject in changes if subject == "short"]
    assert "max_num_seqs 7" in str(sections(comparison)[1].table.rows)


def profile_of(**rows):
    """Datasets of these records."""
    datasets = []
    for name, records in rows.items():
        lengths = [len(str(record)) for record in records]
        datasets.append(build.dataset(name, lengths, content=Content.of(records)))
    return replace(build.profile(), datasets=tuple(datasets))


def compared(old, new, place):
    findings = replace(examples.folder(place, "profile"), profile=old)
    return compare(findings, replace(findings, profile=new))


def test_rows_that_changed_are_seen_whatever_their_lengths(tmp_path) -> None:
    before = profile_of(
        same=["a", "b"], edited=["a", "b"], grown=["a"], gone=["a", "b"]
    )
    now = profile_of(
        same=["b", "a"], edited=["a", "c"], grown=["a", "b", "c"], fresh=["a"]
    )
    comparison = compared(before, now, tmp_path)
    changed = {
        c.subject: c.reason.values
        for c in comparison.moved
        if c.name == "drift.content"
    }
    assert changed == {
        "edited": {"before": 2, "now": 2},
        "grown": {"before": 1, "now": 3},
    }
    assert {("new_datasets", "fresh"), ("vanished_datasets", "gone")} <= moved(
        comparison
    ).keys()
    assert comparison.to_json()["data"]


def test_data_that_is_the_same_is_called_so_only_where_that_is_known(tmp_path) -> None:
    known, unknown = profile_of(same=["a"]), build.profile(same=[1])
    assert compared(known, known, tmp_path).data == ()
    same = compared(unknown, unknown, tmp_path)
    assert same.data
    assert not same.moved


def test_lengths_of_another_tokenizer_are_not_compared(tmp_path) -> None:
    tokenizer = replace(build.TOKENIZER, digest="1", name="other")
    other = replace(build.profile(short=[1]), tokenizer=tokenizer)
    comparison = compared(build.profile(short=[2]), other, tmp_path)
    assert not comparison.moved
    assert comparison.to_json()["notes"]


def test_measured_figures_are_better_worse_or_a_tie(tmp_path) -> None:
    old = examples.folder(tmp_path, "verify")
    runs = (build.run("plan", 5.0, 5.1), build.run("default", 12.05, 12.1, gap_s=0.1))
    new = replace(
        old, verification=build.verification(*runs, build.run("off", 9.0, 9.1))
    )
    plan, default, off = sections(compare(old, new))[1:]
    _, now = plan.table.rows
    assert now[1].look == "good"
    assert "worse" in [
        cell.look for cell in default.table.rows[1] if isinstance(cell, Cell)
    ]
    assert "tie" in default.table.rows[1]
    assert off.sentences
    assert len(off.table.rows) == 1


def test_another_machine_and_a_missing_result_are_noted(tmp_path) -> None:
    old = examples.folder(tmp_path, "profile", "verify")
    moved = replace(
        old.verification, machine=replace(old.verification.machine, vllm="0.30.0")
    )
    for new in (replace(old, verification=moved), replace(old, profile=None)):
        assert compare(old, new).to_json()["notes"]
