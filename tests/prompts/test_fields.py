"""Paths and templates."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.errors import UsageError
from chunkscope.prompts.fields import (
    FieldPath,
    UnusableError,
    all_unicode,
    dotted,
    escape,
    field_table,
    leaves,
    parse_path,
    parse_template,
    quote_key,
    shorten,
    text_at,
)

RECORD = {
    "question": "q",
    "a": {"b": "ab", "odd key": "odd"},
    "turns": ["one", "two", "three"],
    "ctxs": [{"text": "x"}, {"text": "y"}],
    "dotted.key": {"inner": "literal"},
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
        ("dotted.key.inner", "literal"),
    ],
)
def test_a_path_leads_to_its_value(path: str, value: Any) -> None:
    assert parse_path(path).get(RECORD) == value


def test_a_key_with_dots_is_preferred_to_a_way_down() -> None:
    assert parse_path("a.b").get({"a.b": "literal", "a": {"b": "nested"}}) == "literal"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing", 'field "missing" is missing'),
        ("a.c", 'field "a.c" is missing'),
        ("question.x", "text where an object should be"),
        ("turns[3]", "the list has 3 elements"),
        ("question[0]", "text where a list should be"),
        ("a[]", "an object where a list should be"),
        ("turns[].x", "text where an object should be"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ended(path: str, reason: str) -> None:
    with pytest.raises(UnusableError, match=reason.replace("[", r"\[")):
        parse_path(path).get(RECORD)


@pytest.mark.parametrize(
    ("path", "caret_under", "reason"),
    [
        ("a..b", 2, "a name is missing after the dot"),
        ("a.", 2, "a name is missing after the dot"),
        (".a", 0, "a name is missing before the dot"),
        ("turns[x]", 5, "brackets hold a number, nothing, or a quoted key"),
        ("turns[0", 5, "brackets hold"),
        ("turns]", 5, "never opened"),
        ("turns[0]text", 8, "a dot is missing here"),
        ('a["open]', 1, "brackets hold"),
    ],
)
def test_a_path_that_cannot_be_read_shows_the_place(
    path: str, caret_under: int, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        parse_path(path)
    assert caught.value.message.splitlines()[-1] == "  " + " " * caret_under + "^"


def test_an_empty_path_is_no_field() -> None:
    with pytest.raises(UsageError, match="needs a name"):
        parse_path("")


@pytest.mark.parametrize(
    ("path", "text"),
    [("question", "q"), ("turns", "one|two|three"), ("ctxs[].text", "x|y")],
)
def test_texts_in_a_list_are_joined(path: str, text: str) -> None:
    assert text_at(RECORD, parse_path(path), "|") == text


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("score", 'field "score" is a number, not text'),
        ("nothing", 'field "nothing" is null'),
        ("a", "field \"a\" is an object, not text (as JSON it is counted by --field 'a|json')"),
        ("ctxs", 'field "ctxs" is a list that holds an object, not only text'),
    ],
)
def test_what_is_not_text_is_named(path: str, reason: str) -> None:
    with pytest.raises(UnusableError) as caught:
        text_at(RECORD, parse_path(path), "|")
    assert str(caught.value) == reason


def fill(template: str, record: Any) -> str:
    return "".join(
        part if isinstance(part, str) else text_at(record, part, ", ", numbers=True)
        for part in parse_template(template)
    )


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{question}", "q"),
        (r"{a.b}\n\nQ: {question}\t!", "ab\n\nQ: q\t!"),
        ("{{{question}}}", "{q}"),
        (r"C:\\new {score}", r"C:\new 3"),
        ('{a["odd key"]}', "odd"),
        ("{turns[]}", "one, two, three"),
        ("{ question }", "q"),
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


@pytest.mark.parametrize("template", ["{question!r}", "{question:>9}", "{question.__class__}"])
def test_a_template_formats_and_executes_nothing(template: str) -> None:
    with pytest.raises(UnusableError, match="missing"):
        fill(template, RECORD)


@pytest.mark.parametrize(
    ("texts", "fine"),
    [
        (["plain", ""], True),
        (["naïve", "東京", "🎉", "\0"], True),
        (["plain", "bro\ud800ken"], False),
        (["\udc00"], False),
        (["end\ud83c", "\udf89start"], False),
    ],
)
def test_lone_surrogates_are_noticed(texts: list[str], fine: bool) -> None:
    assert all_unicode(texts) is fine


def test_leaves_are_the_paths_a_user_could_ask_for() -> None:
    assert [(leaf.path, leaf.kind, leaf.rows) for leaf in leaves([RECORD, {}]).values()] == [
        ("question", "text", 1),
        ("a.b", "text", 1),
        ("a.odd key", "text", 1),
        ("turns[]", "text", 1),
        ("ctxs[].text", "text", 1),
        ('["dotted.key"].inner', "text", 1),
        ("score", "a number", 1),
        ("nothing", "null", 0),
    ]


def test_the_table_of_fields_is_cut_and_escaped() -> None:
    table = field_table([{"long": "x" * 100, "bell": "a\x07\nb", "new\nline": 1}])
    assert table.splitlines() == [
        "  long       text       " + '"' + "x" * 57 + '..."',
        '  bell       text       "a\\x07\\nb"',
        "  new\\nline  a number   1",
    ]


def test_a_long_table_of_fields_ends_in_a_count() -> None:
    table = field_table([{f"field{i}": i for i in range(40)}])
    assert table.splitlines()[-1] == "  ... and 10 more"


@settings(deadline=None)
@given(st.text(), st.text())
def test_any_key_can_be_written_as_a_path(first: str, second: str) -> None:
    record = {first: {second: "found"}}
    assert parse_path(quote_key(first) + dotted(second)).get(record) == "found"


@settings(deadline=None)
@given(st.text())
def test_reading_a_path_or_template_fails_only_as_a_usage_error(text: str) -> None:
    for read in (parse_path, parse_template):
        try:
            read(text)
        except UsageError:
            continue


@settings(deadline=None)
@given(st.text(st.characters()))
def test_what_is_shown_is_printable_and_short(text: str) -> None:
    assert escape(text).isprintable()
    assert len(shorten(text)) <= 62


def test_the_column_of_a_path_is_its_first_key() -> None:
    assert parse_path("a.b[0]").column == "a"
    assert parse_path("[0].b").column is None
    assert FieldPath("", ()).column is None
