"""A folder of results: whose answer stands on top, and what the chapters have."""

from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.findings import Findings
from chunkscope.report.blocks import Block, Facts, Flags, Headline, Notes, Text
from chunkscope.report.folder import chapters, first_screen, flags, folder_pictures
from chunkscope.report.show import blocks
from chunkscope.vllm.enums import Entry
from tests import build
from tests.report import examples


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return examples.folder(tmp_path_factory.mktemp("all"))


def setting_something(findings: Findings) -> Findings:
    """The same with a plan that sets an argument, and not measured."""
    settings = build.Settings(max_num_batched_tokens=4_096)
    plan = replace(findings.plan, settings=settings)
    return replace(findings, plan=plan, verification=None)


def texts_of(parts: list[Block]) -> list[str]:
    return [block.text for block in parts if isinstance(block, Headline | Text)]


def notes_of(findings: Findings) -> list[str]:
    notes: list[str] = []
    for block in first_screen(findings):
        if isinstance(block, Notes):
            notes += block.notes
    return notes


def labels_of(findings: Findings) -> list[str]:
    labels: list[str] = []
    for block in first_screen(findings):
        if isinstance(block, Facts):
            labels += [fact.label for fact in block.facts]
    return labels


def test_nothing_is_said_twice(everything: Findings) -> None:
    said = texts_of(first_screen(everything))
    for chapter in chapters(everything):
        said += texts_of(list(chapter.blocks))
    assert len(said) == len(set(said))


def test_a_measured_verdict_is_the_answer(everything: Findings) -> None:
    headline = first_screen(everything)[0]
    assert isinstance(headline, Headline)
    assert "measured" in headline.text


def test_what_another_plan_did_is_no_answer_of_this_one(everything: Findings) -> None:
    measured = replace(everything.verification, plan_digest="another")
    findings = replace(everything, verification=measured)
    headline = first_screen(findings)[0]
    assert isinstance(headline, Headline)
    assert "measured" not in headline.text
    titles = [chapter.title for chapter in chapters(findings)]
    assert "What was measured for another plan" in titles


@pytest.mark.parametrize("name", ["profile", "plan", "simulation", "verify", "doctor"])
def test_whatever_is_there_has_an_answer(tmp_path: Path, name: str) -> None:
    headline = blocks(examples.folder(tmp_path, name))[0]
    assert isinstance(headline, Headline)
    assert headline.text.endswith(".")


def test_results_of_different_data_are_called_out(tmp_path: Path) -> None:
    examples.folder(tmp_path, "profile", "plan")
    build.profile(other=[5]).save(tmp_path / "profile.json")
    notes = notes_of(examples.load_findings(tmp_path))
    assert any("run `chunkscope recommend`" in text for text in notes)


# -- the settings to use ---------------------------------------------------------------


def test_the_flags_of_the_plan_are_shown_as_they_are_typed(
    everything: Findings,
) -> None:
    assert flags(setting_something(everything)) == "--max-num-batched-tokens 4096"


def test_for_pythons_class_they_are_its_arguments(everything: Findings) -> None:
    findings = setting_something(everything)
    deployment = replace(findings.plan.deployment, entry=Entry.LLM)
    called = replace(findings.plan, deployment=deployment)
    assert flags(replace(findings, plan=called)) == "max_num_batched_tokens=4096"


def test_of_measured_settings_it_is_what_measured_best(everything: Findings) -> None:
    default = build.run("default", 10.0, 10.1, settings=build.Settings())
    runs = (build.run("plan", 20.0, 20.1), default)
    findings = setting_something(everything)
    digest = everything.plan.digest()  # as the folder has it
    measured = examples.judged(build.verification(*runs, plan_digest=digest))
    assert flags(replace(findings, verification=measured)) == ""


def test_there_are_none_where_the_limits_are_broken(everything: Findings) -> None:
    broken = replace(everything, plan=examples.limits_broken(), verification=None)
    assert flags(broken) == ""
    assert Flags("") in first_screen(broken)


def test_figures_of_the_plan_are_not_those_of_what_measured_better(
    everything: Findings,
) -> None:
    default = build.run("default", 10.0, 10.1, settings=build.Settings())
    runs = (build.run("plan", 20.0, 20.1), default)
    digest = everything.plan.digest()
    measured = examples.judged(build.verification(*runs, plan_digest=digest))
    assert "time" in labels_of(everything)
    assert "time" not in labels_of(replace(everything, verification=measured))


# -- chapters --------------------------------------------------------------------------


def test_chapters_come_in_the_order_of_their_weight(everything: Findings) -> None:
    assert [chapter.name for chapter in chapters(everything)] == [
        "measured",
        "predicted",
        "lengths",
        "memory",
        "simulated",
        "engine",
        "sources",
    ]


def test_a_simulation_of_the_plans_own_runs_adds_no_chapter(
    everything: Findings,
) -> None:
    findings = replace(everything, simulation=examples.simulation())
    assert "simulated" not in [chapter.name for chapter in chapters(findings)]


def test_the_pictures_show_what_people_look_for(everything: Findings) -> None:
    kinds = {type(picture).__name__ for picture in folder_pictures(everything)}
    assert kinds >= {"Scatter", "StackedBars", "Timeline", "Histogram", "Lines"}
