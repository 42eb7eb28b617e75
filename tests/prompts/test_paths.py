"""Paths and templates."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import UsageError
from chunkscope.prompts.paths import (
    FieldPath,
    UnusableError,
    parse_path,
    parse_template,
    text_at,
)

RECORD = {
    "question": "q",
    "a": {"b": "ab", "odd key": "odd"},
    "turns": ["one", "two", "three"],
    "ctxs": [{"text": "x"}, {"text": "y"}],
    "dotted.key": {"inner": "literal"},
    "key:with!marks": "marks",
    "score": 3,
    "nothing": None,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("question", "q"),
        ("a.b", "ab"),
        ("turns[0]", "one"),
        ("turns[-1]", "three"),
        ("turns[]", ["one", "two", "three"]),
        ("ctxs[].text", ["x", "y"]),
        ("ctxs[1].text", "y"),
        ('a["odd key"]', "odd"),
        ("['a'].b", "ab"),
        ("a.odd key", "odd"),
    ],
)
def test_a_path_leads_to_its_value(path: str, value: Any) -> None:
    assert parse_path(path).get(RECORD) == value


@pytest.mark.parametrize(
    "path",
    ["missing", "a.c", "question.x", "turns[3]", "turns[-4]", "question[0]", "a[]", "turns[].x"],
)
def test_a_path_that_leads_nowhere_is_named(path: str) -> None:
    with pytest.raises(UnusableError) as caught:
        parse_path(path).get(RECORD)
    assert f'"{path}"' in str(caught.value)
    assert parse_path(path).find(RECORD) is None


@pytest.mark.parametrize(
    ("path", "rest"),
    [
        *(("a..b", "..b"), ("a.", "."), (".a", ".a"), ("turns[x]", "[x]"), ("turns[0", "[0")),
        *(("turns]", "]"), ("turns[0]text", "text"), ('a["open]', '["open]'), ("", "")),
    ],
)
def test_a_path_that_cannot_be_read_shows_the_place(path: str, rest: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_path(path)
    assert repr(path) in caught.value.message
    assert repr(rest) in caught.value.message


def fill(template: str, record: Any) -> str:
    return "".join(
        part if isinstance(part, str) else text_at(record, part, joiner=", ", numbers=True)
        for part in parse_template(template)
    )


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Q: {question}", "Q: q"),
        (r"{a.b}\n\nQ: {question}\t!", "ab\n\nQ: q\t!"),
        ("{{{question}}}", "{q}"),
        (r"C:\\new {score}", r"C:\new 3"),
        ('{a["odd key"]}', "odd"),
        ("{turns[]}", "one, two, three"),
        ("{ question }", "q"),
        ("{key:with!marks}", "marks"),
        ("plain", "plain"),
        (r"\d stays", r"\d stays"),
    ],
)
def test_a_template_is_filled_by_plain_substitution(template: str, text: str) -> None:
    assert fill(template, RECORD) == text


@pytest.mark.parametrize("template", ["{question", "question}", "{}", "{ }", "{a{b}}", "{a[x]}"])
def test_a_template_that_cannot_be_read_is_a_usage_error(template: str) -> None:
    with pytest.raises(UsageError):
        parse_template(template)


@given(st.text(), st.text())
def test_any_key_can_be_written_as_a_path(first: str, second: str) -> None:
    record = {first: {second: "value"}}
    path = FieldPath((first, second))
    assert parse_path(path.text) == path
    assert path.get(record) == "value"


@given(st.text())
def test_reading_a_path_or_template_fails_only_as_a_usage_error(text: str) -> None:
    for read in (parse_path, parse_template):
        try:
            read(text)
        except UsageError:
            continue
