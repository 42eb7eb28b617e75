"""One hostile value in every place where an artefact takes text, through every way out."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from chunkscope.report.profile_csv import as_csv
from chunkscope.report.terminal.profile import show_profile

from chunkscope import console
from chunkscope.artefacts.artefact import Artefact
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.findings import Findings
from chunkscope.planning.emit import emit
from chunkscope.report.markdown import as_markdown, profile_as_markdown
from chunkscope.report.terminal.findings import show_findings
from chunkscope.report.terminal.plan import show_plan
from chunkscope.report.terminal.simulation import show_simulation
from chunkscope.report.terminal.verification import show_verification
from chunkscope.vllm.enums import Target
from tests.report import examples

HOSTILE = (
    "=cmd|' /C calc'!A0 \x1b]0;owned\x07\x1b[2J\n::error::owned\n##[error]owned\r\u202e$(id)`id`;id"
)
A = TypeVar("A", bound=Artefact)
ACTED_ON = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
OBEYED = re.compile(r"^\s*(::|##\[)", re.MULTILINE)


def check_lines(text: str) -> None:
    assert "owned" in text, "the hostile value is not shown: this test looks at nothing"
    assert not ACTED_ON.search(text)
    assert not OBEYED.search(text)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is text."""
    if isinstance(value, str) and path[-1] != "beginnings":  # packed numbers
        yield path
    children = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        children = list(enumerate(value))[:3]  # the others are alike
    for name, child in children:
        yield from leaves(child, (*path, name))


def changed(value: Any, path: tuple[Any, ...], text: str) -> Any:
    if not path:
        return text
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], text)
    return copy


def poisoned(made: A) -> A:
    """With the hostile value wherever it is taken."""
    document, found = made.to_json(), made
    for path in leaves(document):
        try:
            found = type(made).from_json(tried := changed(document, path, HOSTILE))
        except ChunkscopeError:
            continue
        document = tried
    assert found is not made
    return found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    good = examples.everything(tmp_path_factory.mktemp("artefacts"))
    return replace(
        good,
        profile=poisoned(good.profile),
        plan=poisoned(good.plan),
        verification=poisoned(good.verification),
        simulation=poisoned(good.simulation),
    )


def test_a_terminal_shows_it_and_does_not_obey(
    hostile: Findings, capsys: pytest.CaptureFixture[str]
) -> None:
    shows = [
        lambda out: show_findings(hostile, out),
        lambda out: show_profile(hostile.profile, out, longest=3),
        lambda out: show_plan(hostile.plan, out),
        lambda out: show_verification(hostile.verification, out),
        lambda out: show_simulation(hostile.simulation, out),
    ]
    for show in shows:
        console.show(show)
        check_lines(capsys.readouterr().out)
    console.show_error(InputError(f"{HOSTILE} is damaged", hint=HOSTILE))
    check_lines(capsys.readouterr().err)


def test_markdown_shows_it_and_does_not_obey(hostile: Findings) -> None:
    check_lines(as_markdown(hostile))
    check_lines(profile_as_markdown(hostile.profile))


def test_a_spreadsheet_finds_no_formula(hostile: Findings) -> None:
    written = as_csv(hostile.profile)
    check_lines(written)
    cells = [cell for row in csv.reader(io.StringIO(written)) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


@pytest.mark.parametrize("target", Target)
def test_an_emitted_command_has_nothing_to_obey(hostile: Findings, target: Target) -> None:
    try:
        made = emit(hostile.plan, target)
    except ChunkscopeError:
        return  # it says that this cannot be written down
    assert not ACTED_ON.search(made.text)
    assert not OBEYED.search(made.text)
