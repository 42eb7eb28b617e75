"""The prompt is what the options name, and rows that do not fit are bad rows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import InputError, UsageError
from chunkscope.prompts.chat import string_content
from chunkscope.prompts.paths import FieldPath, parse_path, parse_template
from chunkscope.prompts.selection import Prompts, trace_columns, trace_length
from tests.prompts.helpers import CHAT, choose, extract, items

NESTED = {
    "question": "q?",
    "context": "c",
    "turns": ["one", "two"],
    "ctxs": [{"text": "x"}, {"text": "y"}],
    "meta": {"source": "s", "odd key": "o"},
    "a.b": "dots",
    "odd [key]": "odd",
    "key:with!marks": "marks",
    "score": 3,
    "messages": CHAT,
}


@pytest.mark.parametrize(
    ("fields", "label", "text"),
    [
        (["context", "question"], "context + question", "c\n\nq?"),
        (["turns[-1]"], "turns[-1]", "two"),
        (["turns"], "turns", "one\n\ntwo"),
        (["ctxs[].text"], "ctxs[].text", "x\n\ny"),
        (['meta["odd key"]'], "meta.odd key", "o"),
        (["a.b"], '["a.b"]', "dots"),
        (["odd [key]"], '["odd [key]"]', "odd"),
        (["meta|json"], "meta", '{"source": "s", "odd key": "o"}'),
    ],
)
def test_fields_are_taken_as_named(fields: list[str], label: str, text: str) -> None:
    selection = choose(NESTED, fields=tuple(fields))
    assert selection.label == label
    assert items(selection, NESTED) == [text]


@pytest.mark.parametrize(
    "path",
    [
        "missing",
        "meta.c",
        "question.x",
        "turns[3]",
        "turns[-4]",
        "question[0]",
        "meta[]",
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_path(path).get(NESTED)
    assert f'"{path}"' in str(caught.value)
    assert parse_path(path).find(NESTED) is None


@pytest.mark.parametrize(
    ("path", "rest"),
    [
        *(
            ("a..b", "..b"),
            ("a.", "."),
            (".a", ".a"),
            ("turns[x]", "[x]"),
            ("turns[0", "[0"),
        ),
        *(("turns]", "]"), ("turns[0]text", "text"), ('a["open]', '["open]'), ("", "")),
    ],
)
def test_a_path_that_cannot_be_read_shows_the_place(path: str, rest: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_path(path)
    assert repr(path) in caught.value.message
    assert repr(rest) in caught.value.message


@given(st.text(), st.text())
def test_any_key_can_be_written_as_a_path(first: str, second: str) -> None:
    path = FieldPath((first, second))
    assert parse_path(path.text) == path


@given(st.text())
def test_reading_a_path_or_template_fails_only_as_a_usage_error(text: str) -> None:
    for read in (parse_path, parse_template):
        try:
            read(text)
        except UsageError:
            continue


def test_columns_are_the_top_level_fields_that_are_read() -> None:
    assert choose(NESTED, fields=("ctxs[].text", "question")).columns == {
        "ctxs",
        "question",
    }
    assert choose(NESTED, template="{a.b}", output_field="meta.source").columns == {
        "a.b",
        "meta",
    }
    chat_columns = choose(NESTED, fields=("messages",)).columns or set()
    assert {"messages", "tools", "system", "chat_template_kwargs"} <= chat_columns
    assert choose("text").columns is None


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"fields": ("Qestion",)}, "--field question?"),
        ({"output_field": "ctxs[].txt"}, "--output-field 'ctxs[].text'?"),
        (
            {"output_field": "nowhere"},
            "--output-field NAME=... is for one dataset of several",
        ),
        ({"choices": ("turnz",)}, "--choices turns?"),
        ({"each": ("turnz",)}, "--each turns?"),
        ({"template": "{contxt}"}, "--template '{context}'?"),
    ],
)
def test_a_field_that_no_record_has_comes_with_a_guess_for_its_option(
    options, hint
) -> None:
    with pytest.raises(InputError) as caught:
        choose(NESTED, **options)
    assert (caught.value.hint or "").endswith(hint)
    assert "meta.source" in caught.value.message


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (r"{meta.source}\n\nQ: {question}\t!", "s\n\nQ: q?\t!"),
        ("{{{ question }}}", "{q?}"),
        (r"C:\\new {score} \d stays", r"C:\new 3 \d stays"),
        ('{meta["odd key"]}{turns[]}', "oone\n\ntwo"),
        ("{key:with!marks}", "marks"),
    ],
)
def test_a_template_is_filled_by_plain_substitution(template: str, text: str) -> None:
    selection = choose(NESTED, template=template, prefix="# ")
    assert selection.label == "template"
    assert items(selection, NESTED) == [f"# {text}"]
    assert extract(selection, {"context": "c"})[1] == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"fields": ("question",), "template": "{question}"},
        {"each": ("question",)},
        *(
            {"template": text}
            for text in ("question", "{question", "question}", "{}", "{a{b}}")
        ),
    ],
    ids=str,
)
def test_options_that_cannot_be_meant_are_usage_errors(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        choose(NESTED, **options)


# --- rows -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        *(
            {},
            {"question": None},
            {"question": 3},
            {"question": True},
            {"question": {}},
        ),
        *({"question": "a\ud800"}, "text", None),
    ],
    ids=repr,
)
def test_a_bad_row_is_named_and_the_others_go_on(record: Any) -> None:
    good = {"question": "é\0"}
    prompts, bad = extract(choose(good), good, record, {"question": ""})
    assert prompts == Prompts([1, 3], ["é\0", ""], None)
    assert bad == [2]


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
    assert prompts == Prompts(
        [1, 2, 4, 5], ["a", "b", "c", "d"], ["x", "3", None, None]
    )
    row = {"question": "a", "output_tokens": "90"}  # as `vllm bench serve` takes them
    assert extract(choose(row, output_field="output_tokens"), row)[0].outputs == [90]


def test_the_blocks_of_a_trace_come_with_its_lengths() -> None:
    rows = [{"input_length": n, "output_length": 1, "hash_ids": [n, 7]} for n in (4, 5)]
    others = [
        {**rows[0], "hash_ids": "x"},
        {"input_length": 3},
        {"input_length": -1},
        {},
    ]
    selection = choose(*rows, fields=("input_length",))
    prompts, bad = extract(selection, *rows, *others)
    assert prompts == Prompts([1, 2, 4], [4, 5, 3], [1, 1, None], [[4, 7], [5, 7], []])
    assert bad == [3, 5, 6]
    assert selection.columns == {"input_length", "output_length", "hash_ids"}
    assert choose(*rows, {"input_length": 3}).columns == selection.columns
    assert choose(TRACE).columns == {*TRACE}
    runs = {"runs": [{"usage": {"prompt_tokens": n}} for n in (4, 5)]}  # GuideLLM's
    named = choose(runs, each=("runs",), fields=("runs.usage.prompt_tokens",))
    assert (named.kind, items(named, runs)) == ("lengths", [4, 5])


def test_what_a_request_says_to_the_system_beside_its_messages_is_the_first_of_them() -> (
    None
):
    parts = [{"type": "text", "text": "Be kind."}]
    whole = [{"role": "system", "content": "Be kind."}, *CHAT]
    body = {"instructions": "Be kind.", "input": "hi"}
    rows = [
        {"url": "/v1/responses", "body": body | more} for more in ({}, {"input": CHAT})
    ]
    rows += [{"url": "/v1/chat/completions", "body": {"messages": whole}}]
    prompts, bad = extract(choose(*rows), *rows, {"body": body | {"input": None}})
    assert ([chat.messages for chat in prompts.items], bad) == ([whole] * 3, [4])
    others = [
        {"messages": CHAT, "system": "Be kind."},
        {"messages": whole, "system": "Be good."},
    ]
    for row in (*others, {"params": {"messages": CHAT, "system_prompt": parts}}):
        assert [string_content(chat.messages) for chat in items(choose(row), row)] == [
            whole
        ]
    told = [
        choose(row)
        for row in (*others, {"messages": CHAT, "instructions": "Say why. " * 9})
    ]
    assert [[n.code for n in one.notes] for one in told] == [["system_counted"], [], []]
    assert told[2].uncounted[0].values["beside"] == ["instructions"]


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [{"role": "user", "content": "\ud800"}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "\ud800"}]}
            ]
        },
        {"messages": CHAT, "chat_template_kwargs": {"seed": 10**30, "note": "\ud800"}},
        {"messages": None},
        {
            "messages": [
                *CHAT,
                {"type": "function_call", "name": "f", "arguments": "{}"},
            ]
        },
    ],
    ids=repr,
)
def test_a_conversation_that_no_server_takes_is_a_bad_row(record: Any) -> None:
    prompts, bad = extract(choose({"messages": CHAT}), {"messages": CHAT}, record)
    assert (prompts.positions, bad) == ([1], [2])


# --- lengths that the data holds already ----------------------------------------------

TRACE = {"input_length": 5, "output_length": 1}


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        ({"ContextTokens": "374", "GeneratedTokens": "44"}, ("ContextTokens", "GeneratedTokens")),
        ({"num_prefill_tokens": 5.0, "num_decode_tokens": 2.0},
         ("num_prefill_tokens", "num_decode_tokens")),
        ({"Request tokens": "4", "Response tokens": 1}, ("Request tokens", "Response tokens")),
        ({"input_length": 5, "output_length": "n/a"}, ("input_length", None)),
        *(({**TRACE, "hash_ids": ids}, (*TRACE, "hash_ids")) for ids in ([0, 1], "[0, 1]")),
        *(({**TRACE, "hash_ids": odd}, tuple(TRACE)) for odd in ([], "a", ["a"], [0.5])),
    ],
)  # fmt: skip
def test_a_trace_is_known_by_its_columns(record: dict[str, Any], columns: Any) -> None:
    assert trace_columns([record] * 3) == (*columns, None)[:3]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        -1,
        "-5",
        1.5,
        float("nan"),
        float("inf"),
        10**400,
        "many",
        "9" * 5000,
        True,
        [3],
    ],
    ids=lambda value: str(value)[:9],
)
def test_anything_else_is_a_bad_row(value: Any) -> None:
    with pytest.raises(InputError, match='field "n"'):
        trace_length(value, "n")


# --- one prompt each ------------------------------------------------------------------


def test_each_puts_an_element_where_its_list_was() -> None:
    row = {"doc": "D", "qas": [{"q": "a"}, {"q": "b"}], "texts": ["x", "y"]}
    assert items(choose(row, each=("qas",), template="{doc}: {qas.q}"), row) == [
        "D: a",
        "D: b",
    ]
    assert items(choose(row, each=("texts",)), row) == ["x", "y"]
    crossed = choose(row, each=("qas", "texts"), fields=("qas.q", "texts"))
    assert items(crossed, row) == ["a\n\nx", "a\n\ny", "b\n\nx", "b\n\ny"]


def test_each_question_has_its_own_choices() -> None:
    questions, options = (
        [f"Why {n}?" for n in range(2)],
        [["a", f"b{n}"] for n in range(2)],
    )
    pairs = zip(questions, options, strict=True)
    quality = [{"question": question, "options": some} for question, some in pairs]
    race = {"questions": questions, "options": options, "answers": ["A", "B"]}
    for row in (
        {"article": "A story.", **more} for more in ({"questions": quality}, race)
    ):
        (note,) = choose(row).uncounted
        prompts = items(choose(row, choices=(str(note.values["fields"]),)), row)
        assert prompts == [
            f"A story.\n\nWhy {n}?\nA. a\nB. b{n}\nAnswer:" for n in range(2)
        ]


def test_a_row_without_the_list_is_a_bad_row() -> None:
    row = {"q": ["a", "b"]}
    prompts, bad = extract(
        choose(row, each=("q",)), row, {"q": "a"}, {}, {"q": "['c']"}
    )
    assert (prompts.positions, bad) == ([1, 1, 4], [2, 3])
