"""Every note has a sentence, and every sentence an example that reads well."""

import re
from pathlib import Path

import pytest

from chunkscope.artefacts.note import Note
from chunkscope.report.notes import catalogue, sentence
from chunkscope.sources import problems
from chunkscope.vllm.log.failures import Failure
from tests.report.note_examples import EXAMPLES, example_notes
from tests.test_architecture import modules

SENTENCES = Path(__file__).with_name("notes.txt")
# How code makes a note: Note(code="...") and functions that take a code first.
WRITTEN = re.compile(
    r'(?:Note\(\s*code=|(?:\bnote|DataError|Refused)\(\s*)"([a-z0-9_-]+)"'
)
# Codes that are put together of this and the name of something.
BUILT = ("change_", "ended_", "engine_", "failure_", "memory_", "refused_", "why_")
PLURAL_OF_ONE = re.compile(r"(?<![\d.,-])1 (?!is\b|was\b|has\b)[a-z]+s\b")


def test_every_sentence_has_an_example() -> None:
    assert EXAMPLES.keys() == catalogue().keys()


def test_the_examples_read_as_they_did(request: pytest.FixtureRequest) -> None:
    lines = []
    for note in example_notes():
        lines.append(f"{note.code}: {sentence(note)}\n")
    text = "".join(lines)
    if request.config.getoption("--update-golden"):
        SENTENCES.write_text(text, encoding="utf-8")
    assert text == SENTENCES.read_text(encoding="utf-8")


def test_one_thing_is_never_several() -> None:
    for note in example_notes():
        assert not PLURAL_OF_ONE.search(sentence(note)), note


def test_no_placeholder_is_left() -> None:
    for note in example_notes():
        text = sentence(note).replace("{key: false}", "")
        assert not re.search(r"\{_?\w*\}|None", text), note


def test_the_code_makes_no_note_without_a_sentence() -> None:
    made = set()
    for path in modules():
        made |= set(WRITTEN.findall(path.read_text("utf-8")))
    assert made
    assert made <= catalogue().keys() | problems.SENTENCES.keys()


def code_that_makes_notes() -> str:
    code = ""
    for path in modules():
        if "/chunkscope/report/" not in str(path) and path.name != "problems.py":
            code += path.read_text("utf-8")
    return code


def test_every_end_of_an_engine_has_a_title_and_a_remedy() -> None:
    for kind in Failure:
        assert f"ended_{kind}" in catalogue()
        assert f"change_{kind}" in catalogue()


def test_no_sentence_is_without_use() -> None:
    code = code_that_makes_notes()
    unused = []
    for name in catalogue():
        is_written = f'"{name}"' in code or f'"{name.replace("_", "-")}"' in code
        if not is_written and not name.startswith(BUILT):
            unused.append(name)
    assert not unused


def test_every_sentence_about_data_is_used() -> None:
    code = code_that_makes_notes()
    unused = [name for name in problems.SENTENCES if f'"{name}"' not in code]
    unused += [name for name in problems.HINTS if f'"{name}"' not in code]
    assert not unused


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        pytest.param("media_rows", {"count": 1}, "1 row", id="one is singular"),
        pytest.param("media_rows", {"count": 1_200}, "1,200 rows", id="thousands"),
        pytest.param("hits", {"rate": 0.5, "shareable": 1}, "50 %", id="a share"),
        pytest.param("why_gains", {"gain": 0.13}, "+13 %", id="a change"),
        pytest.param(
            "change_small_step",
            {"names": ["a", "b", "c", "d"]},
            "a, b, c and 1 more",
            id="the first names",
        ),
    ],
)
def test_a_template_writes_values_for_people(
    template: str, values: dict, text: str
) -> None:
    assert text in sentence(Note(code=template, values=values))
