"""Conversations, brought into the form that vLLM's server renders."""

import json
from typing import Any

import pytest

from chunkscope.prompts.chat import (
    Conversation,
    conversation,
    part_content,
    release_of,
    string_content,
)
from chunkscope.sources.base import DataError

USER = {"role": "user", "content": "hi"}
UNASKED = {"chat_template_kwargs": '{"add_generation_prompt": false}'}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}


def messages(*given: Any, **row: Any) -> list[dict[str, Any]]:
    return conversation(list(given), row).messages


def test_share_gpt_names_become_the_roles_templates_know() -> None:
    names = (
        "human",
        "gpt",
        "function_call",
        "system",
        "tool",
        "function",
        "observation",
    )
    roles = [
        message["role"]
        for message in messages(*({"from": n, "value": ""} for n in names))
    ]
    assert roles == ["user", "assistant", "assistant", "system", "tool", "tool", "tool"]


def test_only_what_a_server_passes_on_is_kept() -> None:
    said = {"role": "user", "content": "hi", "name": "ann"}
    assert messages(said | {"weight": 1, "tool_calls": None}) == [said]


def test_content_parts_are_joined_or_kept_as_the_template_wants_them() -> None:
    parts = [{"type": "text", "text": "a"}, "", IMAGE, "b"]
    nothing = {"role": "assistant", "content": None, "tool_calls": []}
    chat = conversation([{"role": "user", "content": parts}, USER, nothing], {})
    assert [m["content"] for m in string_content(chat.messages)] == ["a\nb", "hi", ""]
    assert [m["content"] for m in part_content(chat.messages)] == [
        [said("a"), said(""), {"type": "image"}, said("b")],
        [{"type": "text", "text": "hi"}],
        [],
    ]
    assert chat.media == 1  # whose tokens are not counted


def test_messages_of_other_forms_are_brought_into_openai_s() -> None:
    """Of /v1/responses, Gemini, Bedrock, OpenTelemetry, SWE-agent, tau2 and LIMA."""
    call = {
        "type": "function_call",
        "call_id": "1",
        "name": "f",
        "arguments": '{"a": 1}',
    }
    result = {"type": "function_call_output", "call_id": "1", "output": "sunny"}
    asked, answered = messages(call, result)
    assert asked["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert answered == {"role": "tool", "content": "sunny", "tool_call_id": "1"}
    part = [{"type": "text", "text": "hi"}]
    gemini = {
        "role": "user",
        "parts": [{"fileData": None, "text": "hi"}],
    }  # as Vertex echoes it
    instruction = {"parts": [{"text": "hi"}]}
    system, *chat = messages(gemini, systemInstruction=instruction)
    assert (system, chat) == (
        {"role": "system", "content": part},
        [USER | {"content": part}],
    )
    traced = [{"type": "text", "content": "hi"}, {"type": "text", "text": None}]
    assert messages({"role": "user", "parts": traced}) == chat
    swe_agent = {"role": "system", "system_prompt": "hi", "text": None}
    assert messages(swe_agent, USER) == [{"role": "system", "content": "hi"}, USER]
    called = {
        "role": "assistant",
        "tool_calls": [{"id": "1", "name": "f", "args": {"a": 1}}],
    }
    results = [{"role": "tool", "id": "1", "content": "sunny"}]
    found = messages(
        called, {"role": "tool", "content": None, "tool_messages": results}
    )
    assert found[0]["tool_calls"] == asked["tool_calls"]
    assert found[1:] == [answered]
    (tool,) = conversation([USER], {"available_tools": ['{"name": "f"}']}).tools or ()
    assert tool["function"]["name"] == "f"
    assert conversation([USER], {"available_tools": ["f"]}).tools is None
    assert messages("hi", "ho") == [USER, {"role": "assistant", "content": "ho"}]


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
ASKED = {"role": "user", "content": "Is it warm?"}
# Requests to /v1/messages and /v1/responses.
CLAUDE: dict[str, Any] = {
    "system": [said("Be brief."), said(" Be kind.")],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    "messages": [
        ASKED,
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Which city?", "signature": "Eq"},
            {"type": "redacted_thinking", "data": "Em"},
            said("I look."),
            {"type": "tool_use", "id": "1", "name": "f", "input": {"city": "Bern"}},
            {"type": "tool_use", "id": "2", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "content": [said("20"), said("C")]},
            {"type": "tool_result", "tool_use_id": "2", "content": "none", "is_error": True},
            said("And now?")]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Again.", "signature": "Eq"}, said("Yes.")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2"}]},
    ],
}  # fmt: skip
ITEMS: list[dict[str, Any]] = [
    ASKED,
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"city": "Bern"}'},
    {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "20 C"},
    {"type": "function_call_output", "call_id": "2", "output": "none"},
    {"type": "reasoning", "id": "s", "summary": [],
     "content": [{"type": "reasoning_text", "text": "So."}]},
    {"type": "message", "role": "assistant", "id": "m", "status": "completed",
     "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]},
    ASKED,
]  # fmt: skip


def test_calls_results_and_thoughts_are_where_vllm_puts_them() -> None:
    """Of a request to /v1/messages: results before what the user says, thoughts not in the text."""
    chat = conversation(CLAUDE["messages"], CLAUDE)
    assert [(m["role"], m["content"]) for m in string_content(chat.messages)] == [
        ("system", "Be brief. Be kind."),
        ("user", "Is it warm?"),
        ("assistant", "I look."),
        ("tool", "20\nC"),
        ("tool", "none"),
        ("user", "And now?"),
        ("assistant", "Yes."),
        ("tool", ""),
    ]
    assert [m["reasoning"] for m in chat.messages[2::4]] == ["Which city?", "Again."]
    calls = [call["function"]["arguments"] for call in chat.messages[2]["tool_calls"]]
    assert calls == [{"city": "Bern"}, {}]
    (tool,) = chat.tools or ()
    assert tool["function"] == {"name": "f", "description": "d", "parameters": SCHEMA}
    (mcp,) = (
        conversation([USER], {"tools": [{"name": "f", "inputSchema": SCHEMA}]}).tools
        or ()
    )
    assert mcp["function"]["parameters"] == SCHEMA


def test_what_an_assistant_thinks_says_and_calls_is_one_message() -> None:
    """Of /v1/responses, where each is an item; what OpenAI encrypted is refused."""
    chat = messages(*ITEMS)
    roles = ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message["role"] for message in chat] == roles
    assert (len(chat[1]["tool_calls"]), chat[1]["reasoning"]) == (2, "Hm.")
    assert string_content(chat)[4]["content"] == "Yes."
    names = ("reasoning", "reasoning_content", "thinking")  # that a template may read
    assert [chat[4][name] for name in names] == ["So."] * 3
    twice = [{"role": "assistant", "content": text} for text in "ab"]
    assert messages(*twice) == twice
    items = [{"type": "message", **twice[0]}, ITEMS[2], ITEMS[3]]
    for _ in range(2):  # what is read is not changed
        assert len(messages(*items)[0]["tool_calls"]) == 2
    with pytest.raises(DataError, match="message 2"):
        messages(USER, {"type": "reasoning", "summary": [], "encrypted_content": "gA"})


def test_thinking_without_a_signature_is_text_and_files_of_gemini_are_not() -> None:
    thought = {"type": "thinking", "thinking": "Hm."}
    (message,) = messages({"role": "assistant", "content": [thought, said("Yes.")]})
    assert string_content([message])[0]["content"] == "Hm.\nYes."
    parts = [
        {"text": "hi"},
        {"fileData": {"fileUri": "gs://a"}},
        {"inlineData": {"data": "iV"}},
    ]
    assert conversation([{"role": "user", "parts": parts}], {}).media == 2
    with pytest.raises(DataError, match="functionCall"):
        messages({"role": "user", "parts": [{"functionCall": {"name": "f"}}]})


def test_a_tool_result_is_one_string_for_every_template() -> None:
    result = {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "text", "text": "sunny"}],
    }
    expected = [{"role": "tool", "content": "sunny", "tool_call_id": "1"}]
    assert (
        part_content(messages(result)) == string_content(messages(result)) == expected
    )


FUNCTION = {"x": 1, "name": "f", "arguments": "{}"}
CALLED = {"index": 0, "type": "function", "function": FUNCTION, "id": "1"}
KEYS = [
    "id",
    "function",
    "type",
    "index",
    "arguments",
    "name",
    "x",
]  # as vLLM's request has them


def tool_calls(arguments: Any, version: str | None) -> Any:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    chat = conversation(
        [{"role": "assistant", "tool_calls": [call]}], {}, release_of(version or "99.0")
    )
    return chat.messages[0]["tool_calls"][0]["function"]["arguments"]


def test_a_call_has_its_keys_in_the_order_of_vllms_request() -> None:
    (called,) = messages({"role": "assistant", "tool_calls": [CALLED]})[0]["tool_calls"]
    assert [*called, *called["function"]] == KEYS


@pytest.mark.parametrize(
    ("version", "arguments", "counted"),
    [
        ("0.22", "null", None),
        ("0.23", "null", {}),
        ("0.28", "[1]", [1]),
        ("0.29.0", "[1]", {}),
        ("0.29", "not json", {}),
        ("0.28", '{"a": 1}', {"a": 1}),
        (None, {"a": 1}, {"a": 1}),
        *((None, nothing, {}) for nothing in ("", "null", "[1]", None)),
    ],
)
def test_arguments_are_read_as_that_vllm_reads_them(
    version, arguments, counted
) -> None:
    assert tool_calls(arguments, version) == counted


@pytest.mark.parametrize("version", ["0.16", "0.28.1", None])
def test_arguments_that_are_no_json_make_a_request_that_vllm_refuses(
    version: str | None,
) -> None:
    with pytest.raises(DataError, match=r"message 1.*0\.29"):
        tool_calls("{'city': 'Bern'}", version)


@pytest.mark.parametrize(
    ("version", "function", "tool"),
    [
        ("0.20", ["strict", "x-id", "defer_loading"], ["version"]),
        ("0.21", ["strict", "x-id"], ["version"]),
        ("0.24", ["x-id"], ["version"]),
        ("0.26.1", ["x-id"], ["version"]),
        ("0.27", [], []),
        (None, [], []),
    ],
)
def test_null_and_unknown_keys_of_a_tool_are_dropped_by_version(
    version, function, tool
) -> None:
    odd = {"strict": None, "x-id": 3, "defer_loading": None}
    given = [{"type": "function", "function": {"name": "f"} | odd, "version": 2}]
    (written,) = (
        conversation([USER], {"tools": given}, release_of(version or "99.0")).tools
        or ()
    )
    assert list(written["function"]) == ["name", "description", "parameters", *function]
    assert list(written) == ["type", "function", *tool]


def test_types_of_other_languages_become_json_schema() -> None:
    """As the leaderboard itself writes them: its files hold Boolean, "" and no type at all."""
    kinds = {"a": "Boolean", "b": "", "c": "HashMap", "d": "float", "e": "array"}
    properties = {
        name: {"type": kind, "description": "d."} for name, kind in kinds.items()
    }
    properties["e"]["items"] = {"type": "tuple"}
    doc = {
        "name": "f",
        "parameters": {"type": "dict", "properties": properties | {"g": {}}},
    }
    (tool,) = conversation([USER], {"function": [doc]}).tools or ()
    made = tool["function"]["parameters"]["properties"]
    assert [made[name]["type"] for name in "abcdeg"] == [
        *("string", "string", "object", "number", "array", "string"),
    ]
    assert made["d"]["description"] == "d. This is a float type value."
    assert made["e"]["items"] == {"type": "array"}


def test_a_key_that_vllm_knows_is_kept_when_it_says_something() -> None:
    given = [{"function": {"strict": False, "name": "f"}, "defer_loading": True}]
    (written,) = conversation([USER], {"tools": given}).tools or ()
    assert list(written["function"])[3:] == ["strict", "defer_loading"]
    assert written["defer_loading"] is True


FUNCTION = {"parameters": {"type": "object"}, "name": "f", "strict": True}
WRITTEN = {
    "name": "f",
    "description": None,
    "parameters": {"type": "object"},
    "strict": True,
}


@pytest.mark.parametrize(
    "row",
    [
        {"tools": [{"type": "function", "function": FUNCTION}]},
        {"tools": json.dumps([{"function": FUNCTION}])},
        {"tools": [FUNCTION]},
        {"tools": [{"type": "function", **FUNCTION}]},
        {"functions": [FUNCTION]},
        {"tools": [], "functions": [FUNCTION]},
        {"function": [FUNCTION]},
        {"function": FUNCTION},
    ],
)
def test_tools_are_written_as_the_server_writes_them(row: dict[str, Any]) -> None:
    tools = conversation([USER], row).tools
    assert json.dumps(tools) == json.dumps([{"type": "function", "function": WRITTEN}])


def test_no_tools_is_none() -> None:
    empty = ({}, {"tools": None}, {"tools": []}, {"tools": "", "functions": []})
    for row in (*empty, {"function": "def f(): ..."}, {"function": ["f"]}):
        assert conversation([USER], row).tools is None


@pytest.mark.parametrize(
    ("row", "version", "kwargs"),
    [
        (
            {"reasoning_effort": "none"},
            (0, 22),
            {"reasoning_effort": "none", "enable_thinking": 0},
        ),
        (UNASKED, (0, 15), {"add_generation_prompt": False}),
        (
            UNASKED | {"reasoning": {"effort": "low"}},
            (0, 16),
            {"reasoning_effort": "low"},
        ),
        ({"reasoning": {"effort": "low"}, "messages": [USER]}, (0, 28), {}),
    ],
)
def test_template_arguments_come_from_the_row(row, version, kwargs) -> None:
    given = conversation([USER], row, version).template_kwargs
    assert given == {"add_generation_prompt": True} | kwargs


@pytest.mark.parametrize(
    ("value", "row", "named"),
    [
        ("hi", {}, "messages"),
        ([USER, "hi"], {}, "message 2"),
        ([USER, {"content": "x"}], {}, "message 2"),
        ([{"role": "wizard\n", "content": "x"}], {}, r"wizard\\n"),
        ([{"role": "user", "content": 3}], {}, "message 1"),
        ([{"role": "user", "content": [{"type": "smell"}]}], {}, "smell"),
        ([{"role": "user", "content": [3]}], {}, "message 1"),
        ([{"role": "user", "content": [{"type": "text", "text": 3}]}], {}, "message 1"),
        ([{"role": "assistant", "tool_calls": [{}]}], {}, "message 1"),
        ([USER], {"tools": "{"}, "tools"),
        ([USER], {"tools": {"a": 1}}, "tools"),
        ([USER], {"tools": [{}]}, "tool"),
        ([USER], {"tools": [{"type": "custom", "function": FUNCTION}]}, "custom"),
        ([USER], {"chat_template_kwargs": {"chat_template": "x"}}, "chat_template"),
        ([USER], {"chat_template_kwargs": 3}, "chat_template_kwargs"),
        ([USER], {"continue_final_message": True}, "continue_final_message"),
        ([USER], {"previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_what_a_server_would_refuse_is_a_bad_row(value, row, named) -> None:
    with pytest.raises(DataError, match=named):
        conversation(value, row)


@pytest.mark.real
def test_tools_and_arguments_are_what_a_real_vllm_makes_of_them(probe: Any) -> None:
    functions = [
        {"name": "f"},
        {"parameters": {"type": "object"}, "name": "f", "strict": None, "x-id": 3},
        {"strict": True, "defer_loading": None, "description": "d", "name": "f"},
    ]
    tools = [
        {"type": "function", "function": function, "version": 2}
        for function in functions
    ]
    given = ['{"a": 1}', "null", "[1]", "3", "", None, {"a": 1}, "{'a': 1}"]
    asked = {"tools": tools, "arguments": given, "claude": CLAUDE, "items": ITEMS}
    asked["called"] = CALLED
    real = probe("request_probe", asked)
    assert_same(conversation(CLAUDE["messages"], CLAUDE), real["claude"])
    assert_same(conversation(ITEMS, {}), real["items"])
    made = conversation([USER], {"tools": tools}, release_of(real["version"])).tools
    assert json.dumps(made) == json.dumps(real["tools"])
    assert [*real["called"], *real["called"]["function"]] == KEYS
    for arguments, expected in zip(given, real["arguments"], strict=True):
        try:
            assert tool_calls(arguments, real["version"]) == expected
        except DataError:
            assert expected == "refused"


def assert_same(chat: Conversation, by_vllm: dict[str, Any]) -> None:
    made = conversation(by_vllm["messages"], by_vllm)
    assert string_content(chat.messages) == string_content(made.messages)
    assert chat.tools == made.tools
