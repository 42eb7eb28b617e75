"""What becomes of the rows: prompts, or problems."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.errors import ChunkscopeError
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.prompt_field import select
from chunkscope.prompts.selection import Prompts, SelectOptions
from chunkscope.sources.base import Chunk, Problems
from tests.sources.helpers import CHAT, choose, extract, items

SURROGATE = "the prompt holds a lone surrogate (\\ud800 to \\udfff), which is no character"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, 'field "question" is missing'),
        ({"question": None}, 'field "question" is null'),
        ({"question": 3}, 'field "question" is a number, not text'),
        ({"question": True}, 'field "question" is true or false, not text'),
        (
            {"question": {}},
            'field "question" is an object, not text (as JSON it is counted by '
            "--field 'question|json')",
        ),
        ({"question": "a\ud800"}, SURROGATE),
        ("text", 'field "question" is missing (text where an object should be)'),
        (None, 'field "question" is missing (null where an object should be)'),
    ],
)
def test_a_bad_row_is_named_and_the_others_go_on(record: Any, reason: str) -> None:
    good = {"question": "é\0"}
    selection = choose(good)
    prompts, problems = extract(selection, good, record, {"question": ""})
    assert prompts == Prompts([1, 3], ["é\0", ""], None)
    assert problems == [f"2: {reason}"]


def test_plain_fields_take_the_fast_way() -> None:
    records = [{"question": f"{i} é", "context": "c"} for i in range(5)]
    selection = choose(*records, fields=("context", "question"), prefix="P:")
    assert items(selection, *records) == [f"P:c\n\n{i} é" for i in range(5)]
    assert selection.extract(Chunk([], []), Problems()) == Prompts([], [], None)


def test_outputs_are_kept_where_there_are_any() -> None:
    records = [
        {"question": "a", "answer": "x"},
        {"question": "b", "answer": 3},
        {"question": None, "answer": "lost"},
        {"question": "c"},
        {"question": "d", "answer": "\ud800"},
    ]
    selection = choose(*records, output_field="answer")
    prompts, _ = extract(selection, *records)
    assert prompts == Prompts([1, 2, 4, 5], ["a", "b", "c", "d"], ["x", "3", None, None])
    assert selection.output_label == "answer"


def test_bad_lengths_are_bad_rows() -> None:
    good = {"ContextTokens": "5", "GeneratedTokens": "2"}
    records = [
        good,
        {"ContextTokens": "-1", "GeneratedTokens": "2"},
        {"ContextTokens": "0", "GeneratedTokens": ""},
        {"GeneratedTokens": "2"},
        {"ContextTokens": float("nan"), "GeneratedTokens": 2},
        {"ContextTokens": 1.5, "GeneratedTokens": 2},
    ]
    prompts, problems = extract(choose(good), *records)
    assert prompts == Prompts([1, 3], [5, 0], [2, None])
    assert [problem.partition(":")[0] for problem in problems] == ["2", "4", "5", "6"]


def test_a_request_body_brings_its_tools_along() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    record = {"custom_id": "1", "body": {"messages": CHAT, "tools": [tool]}}
    (row,) = items(choose(record), record)
    assert isinstance(row, Conversation)
    assert row.tools is not None
    assert row.tools[0]["function"]["name"] == "f"


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [{"role": "user", "content": "\ud800"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}]},
        {"messages": CHAT, "chat_template_kwargs": {"seed": 10**30, "note": "\ud800"}},
    ],
)
def test_a_lone_surrogate_anywhere_in_a_conversation_is_a_bad_row(record: Any) -> None:
    assert extract(choose({"messages": CHAT}), record)[1] == [f"1: {SURROGATE}"]


def test_a_lone_surrogate_beside_the_prompt_does_no_harm() -> None:
    odd = {"id": "\ud800", "\udfff": 1}
    for record in ({"prompt": "good", **odd}, {"messages": CHAT, **odd}):
        assert len(items(choose(record), record)) == 1
    record = {"messages": CHAT, "tools": [{"function": {"name": "\ud800"}}]}
    assert items(choose(record, chat=False), record) == ["hi"]


def test_a_field_whose_name_is_no_text_is_shown_escaped() -> None:
    record = {"\ud800": "the only text"}
    selection = choose(record)
    assert items(selection, record) == ["the only text"]
    assert selection.label == r"\ud800"
    assert extract(selection, {})[1] == [r'1: field "\ud800" is missing']


def test_bad_conversations_are_bad_rows() -> None:
    records = [{"messages": CHAT}, {"messages": None}, {}, {"messages": [{"role": "x"}]}]
    prompts, problems = extract(choose(records[0]), *records)
    assert prompts.positions == [1]
    assert problems == [
        '2: field "messages" is null',
        '3: field "messages" is missing',
        '4: message 1 has an unknown role "x"',
    ]


def test_without_a_chat_template_the_contents_are_plain_text() -> None:
    record = {"messages": [*CHAT, {"role": "assistant", "content": "yo"}]}
    selection = choose(record, chat=False, prefix="P: ")
    assert (selection.kind, selection.label) == ("text", "messages (text)")
    assert items(selection, record) == ["P: hi\nyo"]


def test_a_prefix_that_cannot_be_used_is_said() -> None:
    assert choose({"messages": CHAT}, prefix="P").notes == (
        "the prefix was not used: it goes before text prompts only",
    )


# --- anything -------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    [
        *("messages", "body", "conversations", "prompt", "question", "instruction", "input"),
        *("turns", "ContextTokens", "GeneratedTokens", "column0", "role", "content", "from"),
        *("value", "tools", "functions", "chat_template_kwargs", "tool_calls", "a.b", "text", ""),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["user", "assistant", "tool", "human", "7", "[", "{}"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OPTIONS = st.builds(
    SelectOptions,
    fields=st.lists(
        st.sampled_from(["question", "turns[0]", "body.messages", "turns[].text", "a.b", "x["]),
        max_size=2,
    ).map(tuple),
    template=st.none() | st.sampled_from(["{question}", "{body.prompt}{turns}", "{"]),
    prefix=st.sampled_from(["", "P"]),
    output_field=st.none() | st.sampled_from(["text", "GeneratedTokens"]),
    chat=st.booleans(),
)


@settings(deadline=None)
@given(st.lists(JSON, max_size=4), st.lists(JSON, max_size=4), OPTIONS)
def test_no_json_and_no_options_lead_to_anything_but_our_errors(
    head: list[Any], more: list[Any], options: SelectOptions
) -> None:
    try:
        selection = select(head, options, rows_at="body")
    except ChunkscopeError as error:
        str(error).encode()
        return
    prompts, _ = extract(selection, *head, *more)
    assert len(prompts.positions) == len(prompts.items)
    assert prompts.outputs is None or len(prompts.outputs) == len(prompts.items)
    if selection.kind == "text":
        "".join(prompts.items).encode()
