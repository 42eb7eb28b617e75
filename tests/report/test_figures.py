"""A figure is listed once: whoever shows, compares or limits figures has all of them."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from chunkscope.artefacts.figures import DECISIVE, FIGURES, Figure, Group
from chunkscope.findings import Findings
from chunkscope.gating.budget import parse_budget
from chunkscope.report.comparison import compare
from chunkscope.report.markdown import as_markdown
from chunkscope.report.page import render
from chunkscope.report.terminal.findings import show_findings
from chunkscope.report.terminal.verification import show_verification
from chunkscope.verification.result import Verification
from tests.report import examples

EVERY_FIGURE = pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.key)
PROMISED = [figure for figure in FIGURES if figure.promise]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return examples.everything(tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def shown(found: Findings) -> dict[str, str]:
    return {
        "terminal": on_terminal(lambda console: show_verification(found.verification, console)),
        "brief": on_terminal(lambda console: show_findings(found, console)),
        "markdown": as_markdown(found),
        "page": render(found).decode(),
    }


def on_terminal(show: Any) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(console)
    return console.file.getvalue()


@EVERY_FIGURE
def test_every_figure_is_shown_in_every_format(figure: Figure, shown: dict[str, str]) -> None:
    assert figure.label in shown["terminal"]
    assert figure.title in shown["markdown"]
    assert f">{figure.title}<" in shown["page"]


@pytest.mark.parametrize("figure", DECISIVE, ids=lambda figure: figure.key)
def test_what_decides_is_in_the_short_report(figure: Figure, shown: dict[str, str]) -> None:
    assert figure.heading in shown["brief"]


def test_every_figure_that_changed_is_in_a_comparison(found: Findings) -> None:
    slower = Verification.from_json(larger(found.verification.to_json()))
    changed = {
        change.figure for change in compare(found, replace(found, verification=slower)).changes
    }
    assert {figure.title for figure in FIGURES} <= changed


def larger(document: dict[str, Any]) -> dict[str, Any]:
    def twice(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: twice(item) for key, item in value.items()}
        if isinstance(value, list):
            return [twice(item) for item in value]
        return value * 2 + 1 if type(value) in (int, float) else value

    runs = [
        {key: twice(v) if key != "args" else v for key, v in run.items()}
        for run in document["runs"]
    ]
    return {**document, "runs": runs}


@pytest.mark.parametrize("figure", PROMISED, ids=lambda figure: figure.key)
def test_every_figure_with_a_promise_can_be_limited(figure: Figure) -> None:
    is_memory = figure.group is Group.MEMORY
    limits = {figure.promise: 7 if figure.unit.bare else "7GiB" if is_memory else "7s"}
    table: Any = {"memory": {"measured": limits}} if is_memory else {"speed": limits}
    budget = parse_budget(table, file="chunkscope.toml", prefix="gate")
    read = budget.memory.measured if is_memory else budget.speed
    assert getattr(read, figure.promise) == 7
