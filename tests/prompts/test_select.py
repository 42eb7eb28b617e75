"""The prompt is what the options name, and rows that do not fit are bad rows."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import InputError, UsageError
from chunkscope.prompts.chat import string_content
from chunkscope.prompts.paths import parse_path
from chunkscope.prompts.prompt import Prompt
from chunkscope.prompts.template import Template
from chunkscope.prompts.traces import find_trace, trace_length
from tests.prompts.helpers import CHAT, choose, extract, items

NESTED = {
    "question": "q?",
    "context": "c",
    "turns": ["one", "two"],
    "ctxs": [{"text": "x"}, {"text": "y"}],
    "meta": {"source": "s", "odd.key": "o"},
    "a.b": "dots",
    "odd [key]": "odd",
    "score": 3,
    "messages": CHAT,
}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param(["context", "question"], "c\n\nq?", id="two fields"),
        pytest.param(["turns[-1]"], "two", id="last of a list"),
        pytest.param(["turns"], "one\n\ntwo", id="whole list"),
        pytest.param(["ctxs[].text"], "x\n\ny", id="in each element"),
        pytest.param(["meta.source"], "s", id="in an object"),
        pytest.param(["a.b"], "dots", id="key with a dot"),
        pytest.param(["meta.odd.key"], "o", id="inner key with a dot"),
        pytest.param(["odd [key]"], "odd", id="key with brackets"),
    ],
)
def test_fields_are_taken_as_named(fields: list[str], text: str) -> None:
    reader = choose(NESTED, fields=tuple(fields))
    assert reader.label == " + ".join(fields)
    assert items(reader, NESTED) == [text]


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
    "path",
    ["a..b", "a.", ".a", "turns[x]", "turns[0", "turns]", "turns[0]text", "a.[0]", ""],
)
def test_a_path_that_cannot_be_read_is_a_usage_error(path: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_path(path)
    assert repr(path) in caught.value.message


@pytest.mark.parametrize("read", [parse_path, Template])
@given(text=st.text())
def test_reading_a_path_or_template_fails_only_as_a_usage_error(read, text) -> None:
    with suppress(UsageError):
        read(text)


def test_columns_are_the_top_level_fields_that_are_read() -> None:
    fields = choose(NESTED, fields=("ctxs[].text", "question"))
    assert fields.columns == {"ctxs", "question"}
    template = choose(NESTED, template="{{ context }}", output_field="meta.source")
    assert template.columns == {"context", "meta"}
    chat_columns = choose(NESTED, fields=("messages",)).columns or set()
    assert {"messages", "tools", "system", "chat_template_kwargs"} <= chat_columns
    assert choose("text").columns is None
    assert choose(NESTED, template="{{ row['a.b'] }}").columns is None


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        pytest.param({"fields": ("Qestion",)}, "--field question?", id="field"),
        pytest.param(
            {"output_field": "ctxs[].txt"}, "--output-field 'ctxs[].text'?", id="output"
        ),
        pytest.param(
            {"output_field": "nowhere"},
            "[datasets] in chunkscope.toml has fields of single datasets",
            id="nothing near",
        ),
        pytest.param(
            {"choices": ("turnz",), "fields": ("question",)},
            "--choices turns?",
            id="choices",
        ),
        pytest.param({"each": ("turnz",)}, "--each turns?", id="each"),
        pytest.param(
            {"template": "{{ contxt }}"}, "--template '{{ context }}'?", id="template"
        ),
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
        pytest.param(
            r"{{ meta.source }}\n\nQ: {{question}}\t!", "s\n\nQ: q?\t!", id="breaks"
        ),
        pytest.param(
            "{% if score > 2 %}{{ question }}{% endif %}\n", "q?\n", id="condition"
        ),
        pytest.param(
            "{{ score }} of {{ turns }}", "3 of one\n\ntwo", id="number and list"
        ),
        pytest.param("{% for c in ctxs %}{{ c.text }};{% endfor %}", "x;y;", id="loop"),
        pytest.param("{{ row['a.b'] }}", "dots", id="odd key"),
        pytest.param(
            "{{ meta | tojson }}", '{"source": "s", "odd.key": "o"}', id="JSON"
        ),
        pytest.param("{ {{ context | upper }} }", "{ C }", id="braces and a filter"),
    ],
)
def test_a_template_is_filled_by_jinja(template: str, text: str) -> None:
    reader = choose(NESTED, template=template, prefix="# ")
    assert reader.label == "template"
    assert items(reader, NESTED) == [f"# {text}"]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({"context": "c"}, id="no field"),
        pytest.param({"question": None, "meta": {"source": "s"}}, id="null"),
        pytest.param({"question": "q", "meta": {}}, id="no inner field"),
        pytest.param({"question": "q", "meta": "text"}, id="no object"),
        pytest.param({"question": {"a": 1}, "meta": {"source": "s"}}, id="object"),
        pytest.param(
            {"question": "\ud800", "meta": {"source": "s"}}, id="half a character"
        ),
        pytest.param("text", id="no row"),
    ],
)
def test_a_row_that_a_template_cannot_be_filled_with_is_a_bad_row(record: Any) -> None:
    reader = choose(NESTED, template="{{ question }} {{ meta.source }}")
    assert extract(reader, record)[1] == [1]


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__ }}{{ question }}", "{{ 1 / 0 }}{{ score }}"]
)
def test_what_a_template_may_not_do_is_a_bad_row(template: str) -> None:
    assert extract(choose(NESTED, template=template), NESTED)[1] == [1]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"fields": ("question",), "template": "{{ question }}"}, id="both"
        ),
        pytest.param({"each": ("question",)}, id="each of a text"),
        pytest.param({"template": "question"}, id="no field"),
        pytest.param({"template": "{question}"}, id="one brace"),
        pytest.param({"template": "{{ question"}, id="open"),
        pytest.param({"template": "{% what %}"}, id="unknown tag"),
    ],
)
def test_options_that_cannot_be_meant_are_usage_errors(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        choose(NESTED, **options)


# --- rows -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"question": None},
        {"question": 3},
        {"question": True},
        {"question": {}},
        {"question": "a\ud800"},
        "text",
        None,
    ],
    ids=repr,
)
def test_a_bad_row_is_named_and_the_others_go_on(record: Any) -> None:
    good = {"question": "é\0"}
    prompts, bad = extract(choose(good), good, record, {"question": ""})
    assert prompts == [Prompt(1, "é\0"), Prompt(3, "")]
    assert bad == [2]


def test_outputs_are_kept_where_there_are_any() -> None:
    records = [
        {"question": "a", "answer": "x"},
        {"question": "b", "answer": 3},
        {"question": None, "answer": "lost"},
        {"question": "c"},
        {"question": "d", "answer": "\ud800"},
    ]
    prompts, _ = extract(choose(*records, output_field="answer"), *records)
    assert [prompt.position for prompt in prompts] == [1, 2, 4, 5]
    assert [prompt.output for prompt in prompts] == ["x", "3", None, None]


def test_output_lengths_are_taken_as_numbers() -> None:
    row = {"question": "a", "output_tokens": "90"}  # as `vllm bench serve` takes them
    (prompt,), _ = extract(choose(row, output_field="output_tokens"), row)
    assert prompt.output == 90


def test_the_blocks_of_a_trace_come_with_its_lengths() -> None:
    rows = [{"input_length": n, "output_length": 1, "hash_ids": [n, 7]} for n in (4, 5)]
    others = [
        {**rows[0], "hash_ids": "x"},
        {"input_length": 3},
        {"input_length": -1},
        {},
    ]
    reader = choose(*rows, fields=("input_length",))
    prompts, bad = extract(reader, *rows, *others)
    assert prompts == [
        Prompt(1, 4, 1, blocks=[4, 7]),
        Prompt(2, 5, 1, blocks=[5, 7]),
        Prompt(4, 3, None, blocks=[]),
    ]
    assert bad == [3, 5, 6]
    assert reader.columns == {"input_length", "output_length", "hash_ids"}


def test_a_system_prompt_beside_the_messages_is_the_first_of_them() -> None:
    parts = [{"type": "text", "text": "Be kind."}]
    whole = [{"role": "system", "content": "Be kind."}, *CHAT]
    body = {"instructions": "Be kind.", "input": "hi"}
    rows = [
        {"url": "/v1/responses", "body": body | more} for more in ({}, {"input": CHAT})
    ]
    rows += [{"url": "/v1/chat/completions", "body": {"messages": whole}}]
    prompts, bad = extract(choose(*rows), *rows, {"body": body | {"input": None}})
    assert ([prompt.content.messages for prompt in prompts], bad) == ([whole] * 3, [4])
    others = [
        {"messages": CHAT, "system": "Be kind."},
        {"messages": whole, "system": "Be good."},
    ]
    for row in (*others, {"params": {"messages": CHAT, "system_prompt": parts}}):
        assert [string_content(chat.messages) for chat in items(choose(row), row)] == [
            whole
        ]


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
    assert ([prompt.position for prompt in prompts], bad) == ([1], [2])


# --- lengths that the data holds already ----------------------------------------------

TRACE = {"input_length": 5, "output_length": 1}


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        pytest.param(
            {"ContextTokens": "374", "GeneratedTokens": "44"},
            ["ContextTokens", "GeneratedTokens"],
            id="Azure's texts",
        ),
        pytest.param(
            {"num_prefill_tokens": 5.0, "num_decode_tokens": 2.0},
            ["num_prefill_tokens", "num_decode_tokens"],
            id="Vidur's floats",
        ),
        pytest.param(
            {"Request tokens": "4", "Response tokens": 1},
            ["Request tokens", "Response tokens"],
            id="blanks in names",
        ),
        pytest.param(
            {"input_length": 5, "output_length": "n/a"},
            ["input_length"],
            id="no output",
        ),
        pytest.param({**TRACE, "hash_ids": [0, 1]}, [*TRACE, "hash_ids"], id="blocks"),
        pytest.param(
            {**TRACE, "hash_ids": "[0, 1]"}, [*TRACE, "hash_ids"], id="cell of blocks"
        ),
        pytest.param({**TRACE, "hash_ids": []}, [*TRACE], id="empty blocks"),
        pytest.param({**TRACE, "hash_ids": ["a"]}, [*TRACE], id="names of blocks"),
        pytest.param(
            {"usage": {"prompt_tokens": 5}}, ["usage.prompt_tokens"], id="usage"
        ),
    ],
)
def test_a_trace_is_known_by_its_columns(record: dict[str, Any], columns: Any) -> None:
    trace = find_trace([record] * 3)
    assert trace is not None
    paths = [trace.prompt, trace.output, trace.blocks]
    assert [path.text for path in paths if path is not None] == columns


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

PAIRS = {"doc": "D", "qas": [{"q": "a"}, {"q": "b"}], "texts": ["x", "y"]}


def test_each_puts_an_element_where_its_list_was() -> None:
    reader = choose(PAIRS, each=("qas",), template="{{ doc }}: {{ qas.q }}")
    assert items(reader, PAIRS) == ["D: a", "D: b"]
    assert items(choose(PAIRS, each=("texts",)), PAIRS) == ["x", "y"]


def test_two_lists_are_crossed() -> None:
    crossed = choose(PAIRS, each=("qas", "texts"), fields=("qas.q", "texts"))
    assert items(crossed, PAIRS) == ["a\n\nx", "a\n\ny", "b\n\nx", "b\n\ny"]


def test_answers_of_as_many_questions_go_along() -> None:
    row = {"input": "D", "instructions": ["How?", "Why?"], "outputs": ["1", "2"]}
    fields = ("input", "instructions")
    reader = choose(row, fields=fields, each=("instructions",), output_field="outputs")
    prompts, _ = extract(reader, row)
    assert [prompt.content for prompt in prompts] == ["D\n\nHow?", "D\n\nWhy?"]
    assert [prompt.output for prompt in prompts] == ["1", "2"]


def test_each_question_has_its_own_choices() -> None:
    questions = [{"q": f"Why {n}?", "o": ["a", f"b{n}"]} for n in range(2)]
    row = {"article": "S.", "qs": questions}
    reader = choose(row, fields=("article", "qs.q"), each=("qs",), choices=("qs.o",))
    expected = [f"S.\n\nWhy {n}?\nA. a\nB. b{n}\nAnswer:" for n in range(2)]
    assert items(reader, row) == expected


def test_a_row_without_the_list_is_a_bad_row() -> None:
    row = {"q": ["a", "b"]}
    reader = choose(row, each=("q",))
    prompts, bad = extract(reader, row, {"q": "a"}, {}, {"q": "['c']"})
    assert [prompt.position for prompt in prompts] == [1, 1, 4]
    assert bad == [2, 3]
