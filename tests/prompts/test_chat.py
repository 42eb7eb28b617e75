"""Conversations, brought into the form that the newest vLLM's server renders."""

import json
from typing import Any

import pytest

from chunkscope.prompts.chat import (
    Conversation,
    conversation,
    part_content,
    string_content,
    without_developers,
)
from chunkscope.sources.base import DataError

USER = {"role": "user", "content": "hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
NOTHING_SAID = {"role": "assistant", "content": None, "tool_calls": []}


def messages(*given: Any, **row: Any) -> list[dict[str, Any]]:
    return conversation(list(given), row).messages


def contents(chat: list[dict[str, Any]]) -> list[Any]:
    return [message["content"] for message in chat]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


# --- OpenAI's messages ----------------------------------------------------------------


def test_only_what_a_server_passes_on_is_kept() -> None:
    said = {"role": "user", "content": "hi", "name": "ann"}
    assert messages(said | {"weight": 1, "tool_calls": None}) == [said]


def test_a_single_message_is_a_chat() -> None:
    assert conversation(USER, {}).messages == [USER]


PARTS = {"role": "user", "content": [text("a"), "", IMAGE, "b"]}


def test_a_template_that_takes_texts_gets_those_of_all_parts() -> None:
    assert contents(string_content(messages(PARTS, USER, NOTHING_SAID))) == [
        "a\nb",
        "hi",
        "",
    ]


def test_a_template_that_loops_over_parts_gets_parts_of_all_texts() -> None:
    assert contents(part_content(messages(PARTS, USER, NOTHING_SAID))) == [
        [text("a"), text(""), {"type": "image"}, text("b")],
        [text("hi")],
        [],
    ]


def test_pictures_are_said_to_be_there() -> None:
    assert conversation([PARTS], {}).media == 1


def test_a_tool_result_is_one_text_for_every_template() -> None:
    result = {"role": "tool", "tool_call_id": "1", "content": [text("sunny")]}
    expected = [{"role": "tool", "content": "sunny", "tool_call_id": "1"}]
    assert part_content(messages(result)) == expected
    assert string_content(messages(result)) == expected


def test_thinking_without_a_signature_is_text() -> None:
    thought = {"type": "thinking", "thinking": "Hm."}
    said = messages({"role": "assistant", "content": [thought, text("Yes.")]})
    assert contents(string_content(said)) == ["Hm.\nYes."]


def test_reasoning_is_there_under_each_name_that_templates_read() -> None:
    said = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}
    (message,) = messages(said)
    names = ("reasoning", "reasoning_content", "thinking")
    assert [message[name] for name in names] == ["2 + 2"] * 3


def test_what_developers_say_joins_the_system_prompt() -> None:
    given = [
        {"role": "developer", "content": "Be kind."},
        USER,
        {"role": "system", "content": "Be brief."},
    ]
    system = {"role": "system", "content": "Be kind.\n\nBe brief."}
    assert without_developers(conversation(given, {})) == [system, USER]


def test_a_template_gets_messages_without_developers_as_they_are() -> None:
    chat = conversation([USER], {})
    assert without_developers(chat) is chat.messages


CALLED = {
    "index": 0,
    "type": "function",
    "function": {"x": 1, "name": "f", "arguments": "{}"},
    "id": "1",
}
# As vLLM's request has them.
CALL_KEYS = ["id", "function", "type", "index"]
FUNCTION_KEYS = ["arguments", "name", "x"]


def test_a_call_has_its_keys_in_the_order_of_vllms_request() -> None:
    (called,) = messages({"role": "assistant", "tool_calls": [CALLED]})[0]["tool_calls"]
    assert list(called) == CALL_KEYS
    assert list(called["function"]) == FUNCTION_KEYS


def arguments_of(given: Any) -> Any:
    call = {"type": "function", "function": {"name": "f", "arguments": given}}
    (message,) = messages({"role": "assistant", "tool_calls": [call]})
    return message["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize("given", ['{"a": 1}', {"a": 1}], ids=["JSON", "object"])
def test_arguments_of_a_call_are_an_object(given) -> None:
    assert arguments_of(given) == {"a": 1}


@pytest.mark.parametrize("given", ["", "null", "[1]", None, [1], "3", "{'a': 1}"])
def test_a_call_whose_arguments_are_no_object_has_none(given) -> None:
    assert arguments_of(given) == {}


# --- ShareGPT's -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("human", "user"),
        ("gpt", "assistant"),
        ("function_call", "assistant"),
        ("system", "system"),
        ("tool", "tool"),
        ("function", "tool"),
        ("observation", "tool"),
    ],
)
def test_share_gpt_names_become_the_roles_templates_know(name, role) -> None:
    (message,) = messages({"from": name, "value": "hi"})
    assert (message["role"], message["content"]) == (role, "hi")


# --- Anthropic's, requests to /v1/messages --------------------------------------------

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
ASKED = {"role": "user", "content": "Is it warm?"}
CLAUDE: dict[str, Any] = {
    "system": [text("Be brief."), text(" Be kind.")],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    "messages": [
        ASKED,
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Which city?", "signature": "Eq"},
            {"type": "redacted_thinking", "data": "Em"},
            text("I look."),
            {"type": "tool_use", "id": "1", "name": "f", "input": {"city": "Bern"}},
            {"type": "tool_use", "id": "2", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1",
             "content": [text("20"), text("C")]},
            {"type": "tool_result", "tool_use_id": "2", "content": "no",
             "is_error": True},
            text("And now?")]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Again.", "signature": "Eq"},
            text("Yes.")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2"}]},
    ],
}  # fmt: skip


def test_results_of_tools_come_before_what_the_user_says() -> None:
    chat = conversation(CLAUDE["messages"], CLAUDE)
    said = [(m["role"], m["content"]) for m in string_content(chat.messages)]
    assert said == [
        ("system", "Be brief. Be kind."),
        ("user", "Is it warm?"),
        ("assistant", "I look."),
        ("tool", "20\nC"),
        ("tool", "no"),
        ("user", "And now?"),
        ("assistant", "Yes."),
        ("tool", ""),
    ]


def test_anthropics_thoughts_and_calls_are_beside_the_text() -> None:
    chat = conversation(CLAUDE["messages"], CLAUDE).messages
    assert (chat[2]["reasoning"], chat[6]["reasoning"]) == ("Which city?", "Again.")
    calls = [call["function"]["arguments"] for call in chat[2]["tool_calls"]]
    assert calls == [{"city": "Bern"}, {}]


@pytest.mark.parametrize("key", ["input_schema", "inputSchema"])
def test_the_schema_of_a_tool_is_its_parameters_for_anthropic_and_mcp(key) -> None:
    tool = {"name": "f", "description": "d", key: SCHEMA}
    (written,) = conversation([USER], {"tools": [tool]}).tools or ()
    expected = {"name": "f", "description": "d", "parameters": SCHEMA}
    assert written["function"] == expected


# --- items of /v1/responses -----------------------------------------------------------

ITEMS: list[dict[str, Any]] = [
    ASKED,
    {"type": "reasoning", "id": "r",
     "summary": [{"type": "summary_text", "text": "Hm."}]},
    {"type": "function_call", "call_id": "1", "name": "f",
     "arguments": '{"city": "Bern"}'},
    {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "20 C"},
    {"type": "function_call_output", "call_id": "2", "output": "none"},
    {"type": "reasoning", "id": "s", "summary": [],
     "content": [{"type": "reasoning_text", "text": "So."}]},
    {"type": "message", "role": "assistant", "id": "m", "status": "completed",
     "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]},
    ASKED,
]  # fmt: skip


def test_what_an_assistant_thinks_says_and_calls_is_one_message() -> None:
    chat = messages(*ITEMS)
    roles = ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message["role"] for message in chat] == roles
    assert (len(chat[1]["tool_calls"]), chat[1]["reasoning"]) == (2, "Hm.")
    assert contents(string_content(chat))[4] == "Yes."
    assert chat[4]["reasoning"] == "So."


def test_a_call_and_its_result_name_each_other() -> None:
    called, result = messages(ITEMS[2], ITEMS[4])
    function = {"name": "f", "arguments": {"city": "Bern"}}
    assert called["tool_calls"][0]["function"] == function
    assert result == {"role": "tool", "content": "20 C", "tool_call_id": "1"}


def test_messages_of_an_assistant_that_are_no_items_stay_apart() -> None:
    twice = [{"role": "assistant", "content": said} for said in "ab"]
    assert messages(*twice) == twice


def test_items_are_not_changed_by_reading_them() -> None:
    said = {"type": "message", "role": "assistant", "content": "a"}
    items = [said, ITEMS[2], ITEMS[3]]
    before = json.dumps(items)
    assert len(messages(*items)[0]["tool_calls"]) == 2
    assert json.dumps(items) == before


# --- beside the messages --------------------------------------------------------------

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
        pytest.param(
            {"tools": [{"type": "function", "function": FUNCTION}]}, id="usual"
        ),
        pytest.param({"tools": json.dumps([{"function": FUNCTION}])}, id="JSON"),
        pytest.param({"tools": [FUNCTION]}, id="bare"),
        pytest.param({"tools": [{"type": "function", **FUNCTION}]}, id="responses"),
        pytest.param({"functions": [FUNCTION]}, id="older name"),
        pytest.param({"tools": [], "functions": [FUNCTION]}, id="in the other field"),
        pytest.param({"tools": [json.dumps(FUNCTION)]}, id="each as JSON"),
    ],
)
def test_tools_are_written_as_the_server_writes_them(row) -> None:
    tools = conversation([USER], row).tools
    assert json.dumps(tools) == json.dumps([{"type": "function", "function": WRITTEN}])


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"tools": None},
        {"tools": []},
        {"tools": "", "functions": []},
        {"function": "def f(): ..."},
        {"function": ["f"]},
    ],
    ids=str,
)
def test_no_tools_is_none(row) -> None:
    assert conversation([USER], row).tools is None


def test_null_and_unknown_keys_of_a_tool_are_dropped() -> None:
    function = {"name": "f", "strict": None, "x-id": 3, "defer_loading": None}
    tool = {"type": "function", "function": function, "version": 2}
    (written,) = conversation([USER], {"tools": [tool]}).tools or ()
    assert list(written) == ["type", "function"]
    assert list(written["function"]) == ["name", "description", "parameters"]


def test_a_key_that_vllm_knows_is_kept_when_it_says_something() -> None:
    tool = {"function": {"strict": False, "name": "f"}, "defer_loading": True}
    (written,) = conversation([USER], {"tools": [tool]}).tools or ()
    assert list(written["function"])[3:] == ["strict", "defer_loading"]
    assert written["defer_loading"] is True


@pytest.mark.parametrize("system", ["Be brief.", {"content": "Be brief."}])
def test_a_system_prompt_beside_the_messages_goes_first(system) -> None:
    first = {"role": "system", "content": "Be brief."}
    assert messages(USER, system=system) == [first, USER]


def test_a_system_prompt_among_the_messages_is_the_one_that_counts() -> None:
    said = {"role": "system", "content": "Be kind."}
    assert messages(said, USER, system_prompt="Be brief.") == [said, USER]


@pytest.mark.parametrize(
    ("row", "kwargs"),
    [
        pytest.param(
            {"reasoning_effort": "none"},
            {"reasoning_effort": "none", "enable_thinking": False},
            id="no effort is no thinking",
        ),
        pytest.param(
            {"reasoning": {"effort": "low"}},
            {"reasoning_effort": "low", "enable_thinking": True},
            id="of /v1/responses",
        ),
        pytest.param(
            {"reasoning": {"effort": "low"}, "messages": [USER]},
            {},
            id="of another request",
        ),
        pytest.param(
            {"chat_template_kwargs": '{"add_generation_prompt": false, "a": 1}'},
            {"a": 1},
            id="an answer is always asked for",
        ),
    ],
)
def test_template_arguments_come_from_the_row(row, kwargs) -> None:
    given = conversation([USER], {"tools": None, **row}).template_kwargs
    assert given == {"add_generation_prompt": True} | kwargs


# --- what is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("hi", "messages"),
        ([], "empty"),
        ([USER, "hi"], "message 2"),
        ([USER, {"content": "x"}], "message 2"),
        ([{"role": "wizard\n", "content": "x"}], r"wizard\\n"),
        ([{"type": "web_search_call", "call_id": "1"}], "web_search_call"),
        ([{"role": "user", "content": 3}], "message 1"),
        ([{"role": "user", "content": [{"type": "smell"}]}], "smell"),
        ([{"role": "user", "content": [{"type": ["smell"]}]}], "message 1"),
        ([{"role": "user", "content": [3]}], "message 1"),
        ([{"role": "user", "content": [{"type": "text", "text": 3}]}], "message 1"),
        ([{"role": "assistant", "tool_calls": [{}]}], "message 1"),
        ([{"role": "assistant", "tool_calls": 1}], "message 1"),
        ([USER, ITEMS[1] | {"encrypted_content": "gA"}], "message 2"),
    ],
    ids=str,
)
def test_messages_that_a_server_would_refuse_are_a_bad_row(value, named) -> None:
    with pytest.raises(DataError, match=named):
        conversation(value, {})


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"tools": "{"}, "tools"),
        ({"tools": {"a": 1}}, "tools"),
        ({"tools": [{}]}, "tool"),
        ({"tools": [{"type": "custom", "function": FUNCTION}]}, "custom"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template"),
        ({"chat_template_kwargs": 3}, "chat_template_kwargs"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ],
    ids=str,
)
def test_a_request_that_a_server_would_refuse_is_a_bad_row(row, named) -> None:
    with pytest.raises(DataError, match=named):
        conversation([USER], row)


def test_tools_in_bfcls_own_form_are_refused() -> None:
    with pytest.raises(DataError, match="BFCL's tools"):
        conversation([USER], {"function": [FUNCTION]})


def test_a_chat_of_texts_is_taken_as_it_is() -> None:
    talk = [USER, {"role": "assistant", "content": "hello"}]
    assert conversation(talk, {"id": 1}).messages is talk


# --- vLLM itself ----------------------------------------------------------------------


@pytest.mark.real
def test_tools_and_arguments_are_what_a_real_vllm_makes_of_them(probe: Any) -> None:
    tools = []
    for function in (
        {"name": "f"},
        {"parameters": {"type": "object"}, "name": "f", "strict": None, "x-id": 3},
        {"strict": True, "defer_loading": None, "description": "d", "name": "f"},
    ):
        tools.append({"type": "function", "function": function, "version": 2})
    # vLLM 0.28 refuses arguments that are no JSON, and takes a list; newer ones take
    # neither.
    given = ['{"a": 1}', "null", "", None, {"a": 1}]
    asked = {"tools": tools, "arguments": given, "claude": CLAUDE, "items": ITEMS}
    asked["called"] = CALLED
    real = probe("request_probe", asked)
    assert_same(conversation(CLAUDE["messages"], CLAUDE), real["claude"])
    assert_same(conversation(ITEMS, {}), real["items"])
    made = conversation([USER], {"tools": tools}).tools
    assert json.dumps(made) == json.dumps(real["tools"])
    assert list(real["called"]) == CALL_KEYS
    assert list(real["called"]["function"]) == FUNCTION_KEYS
    assert [arguments_of(arguments) for arguments in given] == real["arguments"]


def assert_same(chat: Conversation, by_vllm: dict[str, Any]) -> None:
    made = conversation(by_vllm["messages"], by_vllm)
    assert string_content(chat.messages) == string_content(made.messages)
    assert chat.tools == made.tools
