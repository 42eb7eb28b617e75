"""What the prompt is, given or found, and what becomes of the rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.errors import ChunkscopeError, InputError, UsageError
from chunkscope.sources.base import Chunk, Problems
from chunkscope.sources.chat import Conversation
from chunkscope.sources.prompt_field import select
from chunkscope.sources.selection import Prompts, Selection, SelectOptions

SHARED = Path(__file__).resolve().parents[3] / "shared"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="no shared data beside the checkout")

SURROGATE = "the prompt holds a lone surrogate (\\ud800 to \\udfff), which is no character"
CHAT = [{"role": "user", "content": "hi"}]


def choose(*head: Any, rows_at: str | None = None, **options: Any) -> Selection:
    return select(list(head), SelectOptions(**options), rows_at=rows_at)


def extract(selection: Selection, *records: Any) -> tuple[Prompts, list[str]]:
    problems = Problems()
    prompts = selection.extract(Chunk(range(1, len(records) + 1), list(records)), problems)
    assert problems.count == len(problems.rows) == len(records) - len(prompts.items)
    return prompts, [f"{row.position}: {row.reason}" for row in problems.rows]


def items(selection: Selection, *records: Any) -> list[Any]:
    prompts, problems = extract(selection, *records)
    assert not problems
    return prompts.items


# --- found by itself ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "kind", "label"),
    [
        ({"messages": CHAT, "prompt": "x"}, "chat", "messages (chat)"),
        ({"custom_id": "1", "body": {"messages": CHAT}}, "chat", "body.messages (chat)"),
        ({"custom_id": "1", "url": "u", "body": {"prompt": "p"}}, "text", "body.prompt"),
        ({"custom_id": "1", "url": "u", "body": {"input": "p"}}, "text", "body.input"),
        ({"custom_id": "1", "body": {"input": CHAT}}, "chat", "body.input (chat)"),
        (
            {"id": "1", "conversations": [{"from": "human", "value": "x"}]},
            "chat",
            "conversations (chat)",
        ),
        ({"conversation": CHAT, "text": "x"}, "chat", "conversation (chat)"),
        ({"prompt": CHAT, "question": "x"}, "chat", "prompt (chat)"),
        (CHAT, "chat", "record (chat)"),
        ({"ContextTokens": "1", "GeneratedTokens": "2"}, "lengths", "ContextTokens (lengths)"),
        (
            {"text": "x", "input_length": 1, "output_length": 2},
            "lengths",
            "input_length (lengths)",
        ),
        ({"prompt": "x", "input_length": 1}, "text", "prompt"),
        ({"timestamp": 3, "input_length": 1}, "lengths", "input_length (lengths)"),
        ({"question": "q", "prompt": "p"}, "text", "prompt"),
        ({"answer": "a", "question": "q"}, "text", "question"),
        ({"Question": "q", "Answer": "a"}, "text", "Question"),
        ({"instruction": "i", "input": "x", "output": "o"}, "text", "instruction + input"),
        ({"instruction": "i", "output": "o"}, "text", "instruction"),
        ({"turns": ["a", "b"], "category": "c"}, "text", "turns[0]"),
        ({"prompts": ["a", "b"], "category": "c"}, "text", "prompts[0]"),
        ({"id": 3, "stem": "x"}, "text", "stem"),
        ("all of a text", "text", "whole file"),
    ],
)
def test_the_prompt_is_found(record: Any, kind: str, label: str) -> None:
    selection = choose(record)
    assert (selection.kind, selection.label) == (kind, label)
    assert len(items(selection, record, record)) == 2


def test_a_label_that_comes_again_and_again_is_not_the_prompt() -> None:
    rows = [{"task": "GR", "history": [{"user": "Who is the tallest?"}]} for _ in range(8)]
    with pytest.raises(InputError, match="cannot tell which field is the prompt"):
        select(rows, SelectOptions())


def test_several_texts_are_lines() -> None:
    assert choose("a", "b").label == "line"


def test_most_records_decide_when_schemas_are_mixed() -> None:
    records = [{"prompt": "p", "x": "y"}, {"question": "a", "x": "y"}, {"question": "b", "x": "y"}]
    selection = choose(*records)
    assert selection.label == "question"
    prompts, problems = extract(selection, *records)
    assert prompts.positions == [2, 3]
    assert problems == ['1: field "question" is missing']


def test_a_field_that_few_records_have_is_better_than_none() -> None:
    records = [{"prompt": "p", "x": "y"}, *[{"x": "y", "z": "w"}] * 5]
    assert choose(*records).label == "prompt"


def test_alpaca_rows_may_have_no_input() -> None:
    rows = [
        {"instruction": "Add", "input": "1 2"},
        {"instruction": "Tell", "input": ""},
        {"instruction": "Say", "input": None},
    ]
    selection = choose(*rows, prefix="> ")
    assert items(selection, *rows, {"instruction": "Go"}) == [
        "> Add\n\n1 2",
        "> Tell",
        "> Say",
        "> Go",
    ]


def test_without_a_header_the_longest_column_is_the_prompt() -> None:
    record = {"column0": "A", "column1": "a long question", "column2": "B"}
    selection = choose(record)
    assert items(selection, record) == ["a long question"]
    assert selection.notes == (
        'the table has no header: counted "column1", its longest text; --field chooses',
    )


def test_more_text_in_another_field_is_pointed_at() -> None:
    record = {"question": "why?", "context": "a long story", "answer": "a longer story still"}
    assert choose(record).notes == (
        'counted only "question"; "context" holds more text: '
        "use --field context --field question, or --template",
    )


def test_more_text_within_a_list_is_pointed_at() -> None:
    record = {"question": "why?", "ctxs": [{"title": "t", "text": "a long story"}]}
    assert choose(record).notes == (
        'counted only "question"; "ctxs[].text" holds more text: '
        "use --field 'ctxs[].text' --field question, or --template",
    )


@pytest.mark.parametrize(
    "name", ["answer", "long_answer", "canonicalSolution", "test_code", "references", "output"]
)
def test_what_the_model_should_say_is_not_pointed_at(name: str) -> None:
    assert choose({"question": "why?", name: "a long story"}).notes == ()


def test_when_nothing_fits_the_fields_are_listed_with_examples() -> None:
    with pytest.raises(InputError) as caught:
        choose({"key": "k" * 99, "value": "v\n", "n": 3, "pairs": [["a", "b"]], "gold": {"x": "y"}})
    assert caught.value.message.splitlines() == [
        "cannot tell which field is the prompt; there are:",
        '  key     text       "' + "k" * 57 + '..."',
        '  value   text       "v\\n"',
        "  n       a number   3",
        "  pairs   a list     1 elements",
        '  gold.x  text       "y"',
    ]
    assert "--field" in (caught.value.hint or "")


@pytest.mark.parametrize("head", [[], [3], [{}], [None, {}]])
def test_records_without_fields_are_bad_input(head: list[Any]) -> None:
    with pytest.raises(InputError):
        select(head, SelectOptions())


# --- as asked for ---------------------------------------------------------------------------------

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


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, 'field "question" is missing'),
        ({"question": None}, 'field "question" is null'),
        ({"question": 3}, 'field "question" is a number, not text'),
        ({"question": True}, 'field "question" is true or false, not text'),
        ({"question": {}}, 'field "question" is an object, not text'),
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


# --- real data ------------------------------------------------------------------------------------


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(
    ("path", "label", "rows"),
    [
        ("humaneval/HumanEval.jsonl.gz", "prompt", 164),
        ("gsm8k/test.jsonl", "question", 1319),
        ("mbpp/mbpp.jsonl", "text", 974),
        ("ifeval/input_data.jsonl", "prompt", 541),
        ("arena_hard/arena-hard-v0.1_question.jsonl", "prompt", 500),
        ("lost_in_the_middle/nq-open-oracle.jsonl.gz", "question", 2655),
        ("qmsum/test_prompts.jsonl.gz", "prompt", 244),
        ("mt_bench/question.jsonl", "turns[0]", 80),
        ("mt_bench_101/mtbench101_messages.jsonl", "messages (chat)", 1388),
        ("mooncake_trace/conversation_trace.jsonl", "input_length (lengths)", 12031),
    ],
)
def test_the_prompt_of_real_sets_is_found(path: str, label: str, rows: int) -> None:
    file = SHARED / "data" / path
    text = gzip.decompress(file.read_bytes()) if path.endswith(".gz") else file.read_bytes()
    records = [json.loads(line) for line in text.splitlines()]
    selection = choose(*records)
    assert selection.label == label
    assert len(items(selection, *records)) == rows
