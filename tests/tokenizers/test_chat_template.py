"""Rendering chat templates: letter for letter what transformers renders."""

import datetime
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chunkscope.errors import InputError
from chunkscope.prompts.chat import (
    Conversation,
    conversation,
    part_content,
    string_content,
)
from chunkscope.tokenizers.chat_template import (
    ChatTemplate,
    choose_template,
    read_template,
)
from chunkscope.tokenizers.foreign import TemplateRefused

WITH_TEMPLATES = ["llama3.1", "qwen3", "deepseek-v3", "mistral-nemo"]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> & later in 東京",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {
    "id": "abcdef123",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'},
}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **others: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **others}


PARTS = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "content": '{"sunny": true}'}
ASKED = [user("Weather in Zürich?")]
THOUGHT = "<think>\nhm\n</think>\n\nTwo"
CASES: dict[str, dict[str, Any]] = {
    "one question": {"messages": [user("Hi there")]},
    "a system prompt": {
        "messages": [{"role": "system", "content": "Be.\n"}, user("  2+2? ")]
    },
    "several turns": {"messages": [user("One"), assistant(THOUGHT), user("Three")]},
    "unicode": {"messages": [user("naïve 東京 🎉 \u2028 <|im_end|> </s> {{ x }}")]},
    "content parts": {"messages": [user(PARTS)]},
    "tools offered": {"messages": ASKED, "tools": [WEATHER]},
    "a tool called and its result": {
        "messages": [*ASKED, assistant(None, tool_calls=[CALL]), RESULT],
        "tools": [WEATHER],
    },
    "reasoning kept apart": {
        "messages": [user("One"), assistant("Two", reasoning_content="because")]
    },
    "thinking switched off": {
        "messages": [user("One")],
        "chat_template_kwargs": {"enable_thinking": False},
    },
}


def chat(**row: Any) -> Conversation:
    return conversation(row["messages"], row)


def say(text: str) -> Conversation:
    return chat(messages=[user(text)])


@pytest.fixture(scope="session")
def auto(shared: Path) -> Callable[[str], Any]:
    transformers = pytest.importorskip("transformers")
    return cache(
        lambda name: transformers.AutoTokenizer.from_pretrained(
            shared / "tokenizers" / name
        )
    )


def our_template(tokenizer: Any) -> ChatTemplate:
    return ChatTemplate(
        tokenizer.chat_template, special_tokens=tokenizer.special_tokens_map
    )


def expected(
    tokenizer: Any, ours: ChatTemplate, row: Conversation, template: str | None = None
) -> str | None:
    """transformers' text, or None where its template raises."""
    content = part_content if ours.content_format == "openai" else string_content
    try:
        text = tokenizer.apply_chat_template(
            content(row.messages),
            tools=row.tools,
            chat_template=template,
            tokenize=False,
            **{"add_generation_prompt": True} | row.template_kwargs,
        )
    except Exception:
        return None
    assert isinstance(text, str)
    return text


def rendered(ours: ChatTemplate, row: Conversation) -> str | None:
    try:
        return ours.render(row)
    except TemplateRefused:
        return None


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", WITH_TEMPLATES)
def test_the_text_is_the_one_transformers_renders(auto, name, case) -> None:
    ours, row = our_template(auto(name)), chat(**CASES[case])
    assert rendered(ours, row) == expected(auto(name), ours, row)


@pytest.mark.parametrize("name", WITH_TEMPLATES)
def test_real_conversations_come_out_as_transformers_renders_them(
    auto, shared, name
) -> None:
    ours = our_template(auto(name))
    bench = shared / "data/mt_bench_101/mtbench101_messages.jsonl"
    lines = bench.read_text(encoding="utf-8").splitlines()[::20]
    rows = [chat(**json.loads(line)) for line in lines]
    assert len(rows) > 60
    for row in rows:
        assert rendered(ours, row) == expected(auto(name), ours, row)


OWN_TEMPLATES = {
    "json": "{{ messages | tojson }}{{ tools | tojson(indent=2) }}",
    "sorted json": "{{ messages | tojson(sort_keys=true, separators=(',', ':')) }}",
    "white space": (
        "  {% for m in messages %}\n\n    {%- if loop.first %}\n  A {{ m.role }}\n"
        "    {% endif %}\n  {# note #}\n B\n{% endfor %}\n\n"
    ),
    "left early": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}"
        "{% generation %}{% set x = 1 %}{{ m.content | trim }}{% endgeneration %}"
        "{{ x }}{% endfor %}"
    ),
    "namespace": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% endfor %}{{ ns.n }}{{ ns['n'] }}{{ ns.m }}{{ namespace(items=3).items }}"
        "{{ ns }}{% block b %}{% for m in messages %}{{ m.role.upper() }}{% endfor %}"
        "{% endblock %}"
    ),
    "unknown names": (
        "{{ nothing }}{{ documents is none }}{{ tools is defined }}{{ pad_token }}"
    ),
    "steps": (
        "{% set loop = {'index': 5, '_x': 6, 'title': 7} %}{{ loop.index }}"
        "{{ loop._x }}{{ loop['title'] }}{{ {'count': 8}.count }}{{ [1].count(1) }}"
        "{{ messages[0]['none'] }}{{ 'ab'.index('b') }}{{ 'a'['upper']() }}"
        "{{ 'a{}'.format('b') }}{{ dict(a=1).a }}{% for m in messages %}"
        "{{ loop.last }}{{ loop['index0'] }}{{ loop.cycle(1, 2) }}{% endfor %}"
    ),
    "steps out": (
        "{{ messages[0].__class__ }}{{ ''['__class__'] }}{{ lipsum.__globals__ }}"
        "{{ 'a{0.__class__}'.format('b') }}{{ {'__x__': 4}.__x__ }}"
        "{{ pad_token.strip.__self__ }}"
    ),
    "a change": "{{ messages[0].update({'role': 'x'}) }}",
    "a class": "{{ messages[0].content.__class__.__mro__ }}",
}


@pytest.mark.parametrize("case", ["several turns", "tools offered"])
@pytest.mark.parametrize("own", OWN_TEMPLATES)
def test_the_environment_is_the_one_of_transformers(auto, own, case) -> None:
    tokenizer, row = auto("qwen3"), chat(**CASES[case])
    ours = ChatTemplate(OWN_TEMPLATES[own], special_tokens=tokenizer.special_tokens_map)
    assert rendered(ours, row) == expected(tokenizer, ours, row, OWN_TEMPLATES[own])


def test_the_generation_prompt_is_asked_for_and_a_row_can_decline_it() -> None:
    template = ChatTemplate("{{ add_generation_prompt }}", special_tokens={})
    row = chat(messages=[user("x")], add_generation_prompt=False)
    assert [template.render(one) for one in (say("x"), row)] == ["True", "False"]


def test_developers_are_the_system_of_a_template_that_does_not_name_them() -> None:
    roles = {"user": "hi", "developer": "be", "system": "kind"}
    messages = [{"role": role, "content": text} for role, text in roles.items()]
    row = conversation(messages, {})
    source = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }} {% endfor %}"
    plain, kept = ChatTemplate(source, special_tokens={}), "u:hi d:be s:kind "
    assert plain.render(row) == "s:be\n\nkind u:hi "
    assert (
        ChatTemplate(source + "{# 'developer' #}", special_tokens={}).render(row)
        == kept
    )


def test_a_template_that_asks_for_the_date_says_so_and_can_be_pinned() -> None:
    source = "{{ strftime_now('%-d %B %Y') }}: {{ messages[0].content }}"
    first = ChatTemplate(source, special_tokens={}, date=datetime.date(2024, 5, 1))
    last = ChatTemplate(source, special_tokens={}, date=datetime.date(2024, 9, 30))
    assert first.uses_date
    assert first.render(say("hi")) == "1 May 2024: hi"
    assert last.render(say("hi")) == "30 September 2024: hi"
    today = datetime.date.today().strftime("%Y")  # noqa: DTZ011
    assert today in ChatTemplate(source, special_tokens={}).render(say("hi"))
    assert not ChatTemplate("{{ messages[0].content }}", special_tokens={}).uses_date


TEXT_PARTS = "m['content'] | selectattr('type', 'equalto', 'text')"


@pytest.mark.parametrize(
    ("messages", "inside", "content_format"),
    [
        pytest.param("messages", "{{ m['content'] }}", "string", id="as a string"),
        pytest.param(
            "messages", "{% for p in m.content %}x{% endfor %}", "openai", id="parts"
        ),
        pytest.param(
            "rest",
            f"{{% for p in {TEXT_PARTS} %}}x{{% endfor %}}",
            "openai",
            id="slice",
        ),
        pytest.param(
            "messages", "{% for c in m.tool_calls %}x{% endfor %}", "string", id="calls"
        ),
    ],
)
def test_how_a_template_wants_content_is_found_as_vllm_finds_it(
    messages, inside, content_format
):
    loop = f"{{% for m in {messages} %}}{inside}{{% endfor %}}"
    source = "{% set rest = messages[1:] %}" + loop
    assert ChatTemplate(source, special_tokens={}).content_format == content_format


def test_a_template_that_loops_over_parts_gets_parts_and_media_places() -> None:
    source = (
        "{% for m in messages %}{% for p in m.content %}"
        "{% if p.type == 'text' %}[{{ p.text }}]{% else %}<{{ p.type }}>{% endif %}"
        "{% endfor %}{% endfor %}"
    )
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    row = chat(messages=[user("plain"), user([image, *PARTS])])
    assert (
        ChatTemplate(source, special_tokens={}).render(row)
        == "[plain]<image>[first][second]"
    )
    assert row.media == 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
        ("{{ messages[0].nothing.there }}", "no attribute"),
        ("{{ messages[0].content + 1 }}", "concatenate"),
        ("{{ messages.append(1) }}", "safe"),
        ("{{ messages[0].update(a=1) }}", "safe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ '{0.__class__.a}'.format('') }}", "unsafe"),
        ("{% for _ in messages %}{{ loop.__init__.a }}{% endfor %}", "unsafe"),
        ("{% set n = namespace(s='') %}{{ n.s.__class__.a }}", "unsafe"),
        ("{% for i in range(999999999) %}{% endfor %}", "Range"),
    ],
)
def test_a_template_that_refuses_a_conversation_says_why(
    source: str, reason: str
) -> None:
    with pytest.raises(TemplateRefused, match=reason) as caught:
        ChatTemplate(source, special_tokens={}).render(say("x"))
    assert "\n" not in caught.value.message


def test_named_templates_are_chosen_as_transformers_chooses() -> None:
    named = [
        {"name": "default", "template": "d"},
        {"name": "tool_use", "template": "t"},
    ]
    assert choose_template(named, has_tools=False) == "d"
    assert choose_template(named, has_tools=True) == "t"
    assert (
        choose_template([{"name": "default", "template": "d"}], has_tools=True) == "d"
    )
    assert choose_template("text", has_tools=True) == "text"
    assert choose_template(None, has_tools=False) is None
    with pytest.raises(InputError, match="rag"):
        choose_template([{"name": "rag", "template": "r"}], has_tools=False)
    with pytest.raises(InputError):
        choose_template(3, has_tools=False)


@pytest.mark.parametrize(
    ("text", "template"),
    [
        (
            "{% for m in messages %}x{% endfor %}\n",
            "{% for m in messages %}x{% endfor %}\n",
        ),
        ('{"chat_template": "{{ x }}", "bos_token": null}', "{{ x }}"),
        ("{not json {{ x }}", "{not json {{ x }}"),
    ],
)
def test_a_template_file_is_jinja_or_json(
    tmp_path: Path, text: str, template: str
) -> None:
    path = tmp_path / "template"
    path.write_text(text, encoding="utf-8")
    assert read_template(path) == template


@pytest.mark.parametrize("content", [None, b"\xe9", b'{"bos_token": "<s>"}'])
def test_a_template_file_that_cannot_be_used_is_bad_input(
    tmp_path: Path, content: Any
) -> None:
    if content:
        (tmp_path / "template").write_bytes(content)
    with pytest.raises(InputError, match="template"):
        read_template(tmp_path / "template")
