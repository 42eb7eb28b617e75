"""The prompt is found by looking at the first records."""

import gzip
import json
from typing import Any

import pytest

from chunkscope.errors import InputError
from chunkscope.prompts.prompt_field import select
from chunkscope.prompts.selection import SelectOptions
from tests.sources.helpers import CHAT, choose, extract, items, shared


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
    assert choose(record).left_out == (
        'counted only "question"; "context" holds more text: '
        "use --field context --field question, or --template",
    )


def test_more_text_within_a_list_is_pointed_at() -> None:
    record = {"question": "why?", "ctxs": [{"title": "t", "text": "a long story"}]}
    assert choose(record).left_out == (
        'counted only "question"; "ctxs[].text" holds more text: '
        "use --field 'ctxs[].text' --field question, or --template",
    )


@pytest.mark.parametrize(
    "name", ["answer", "long_answer", "canonicalSolution", "test_code", "references", "output"]
)
def test_what_the_model_should_say_is_not_pointed_at(name: str) -> None:
    assert choose({"question": "why?", name: "a long story"}).left_out == ()


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
    file = shared(path)
    text = gzip.decompress(file.read_bytes()) if path.endswith(".gz") else file.read_bytes()
    records = [json.loads(line) for line in text.splitlines()]
    selection = choose(*records)
    assert selection.label == label
    assert len(items(selection, *records)) == rows
