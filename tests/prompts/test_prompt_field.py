"""The prompt is what was asked for."""

import pytest

from chunkscope.errors import InputError, UsageError
from tests.sources.helpers import CHAT, choose, extract, items

NESTED = {
    "question": "q?",
    "context": "c",
    "turns": ["one", "two"],
    "ctxs": [{"text": "x"}, {"text": "y"}],
    "meta": {"source": "s"},
    "a.b": "dots",
    "odd [key]": "odd",
    "score": 3,
    "empty": None,
    "messages": CHAT,
    "tools": None,
}


@pytest.mark.parametrize(
    ("fields", "label", "text"),
    [
        (["question"], "question", "q?"),
        (["context", "question"], "context + question", "c\n\nq?"),
        (["turns[-1]"], "turns[-1]", "two"),
        (["turns"], "turns", "one\n\ntwo"),
        (["ctxs[].text"], "ctxs[].text", "x\n\ny"),
        (["meta.source"], "meta.source", "s"),
        (["a.b"], "a.b", "dots"),
        (["odd [key]"], "odd [key]", "odd"),
        (['["odd [key]"]'], '["odd [key]"]', "odd"),
    ],
)
def test_fields_are_taken_as_named(fields: list[str], label: str, text: str) -> None:
    selection = choose(NESTED, fields=tuple(fields))
    assert selection.label == label
    assert items(selection, NESTED) == [text]


def test_columns_are_the_top_level_fields_that_are_read() -> None:
    assert choose(NESTED, fields=("ctxs[].text", "question")).columns == {"ctxs", "question"}
    assert choose(NESTED, template="{a.b}", output_field="meta.source").columns == {"a.b", "meta"}
    assert choose({"a.b": {"c": "x"}}, fields=("a.b.c",)).columns == {"a.b"}
    chat_columns = choose(NESTED, fields=("messages",)).columns
    assert chat_columns is not None
    assert {"messages", "tools", "chat_template_kwargs"} <= chat_columns
    assert choose("text").columns is None


def test_a_field_that_holds_messages_is_chat() -> None:
    selection = choose(NESTED, fields=("messages",))
    assert (selection.kind, selection.label) == ("chat", "messages (chat)")


def test_a_trace_column_asked_for_by_name_is_lengths() -> None:
    record = {"ContextTokens": "12", "GeneratedTokens": "3"}
    selection = choose(record, fields=("ContextTokens",))
    assert (selection.kind, selection.output_label) == ("lengths", "GeneratedTokens")
    selection = choose(record, fields=("GeneratedTokens",))
    assert items(selection, record) == [3]


def test_a_path_from_the_top_of_the_file_means_the_row() -> None:
    record = {"input": "x", "target": "y"}
    for path in ("examples[].input", "input"):
        selection = choose(record, fields=(path,), rows_at="examples", output_field="target")
        assert selection.label == "input"
        assert items(selection, record) == ["x"]
    selection = choose(record, template="Q: {examples[].input}", rows_at="examples")
    assert items(selection, record) == ["Q: x"]
    assert items(choose("a", "b", fields=("lines[]",), rows_at="lines"), "a") == ["a"]


def test_a_field_that_no_record_has_is_bad_input_with_a_guess() -> None:
    with pytest.raises(InputError, match='no record has a field "Qestion"') as caught:
        choose(NESTED, fields=("Qestion",))
    assert caught.value.hint == "did you mean --field question?"
    assert '  meta.source         text       "s"\n' in caught.value.message
    with pytest.raises(InputError) as caught:
        choose(NESTED, output_field="ctxs[].txt")
    assert caught.value.hint == "did you mean --field 'ctxs[].text'?"


def test_text_records_have_no_fields() -> None:
    with pytest.raises(InputError, match="plain values"):
        choose("a text", fields=("question",))


def test_without_records_a_given_field_is_believed() -> None:
    assert choose(fields=("question",)).label == "question"


def test_a_template_is_filled_row_by_row() -> None:
    selection = choose(NESTED, template=r"{context}\n{{Q}}: {question} ({score})", prefix="# ")
    assert selection.label == "template"
    assert items(selection, NESTED) == ["# c\n{Q}: q? (3)"]
    _, problems = extract(selection, {"context": "c", "score": 1})
    assert problems == ['1: field "question" is missing']


def test_field_and_template_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude"):
        choose(NESTED, fields=("question",), template="{question}")


def test_a_template_without_a_field_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="names no field"):
        choose(NESTED, template="question")
