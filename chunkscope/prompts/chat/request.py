"""What stands beside the messages in a row: tools, a system prompt, arguments of the
template.
"""

from collections.abc import Mapping
from typing import Any

from chunkscope.prompts.chat.conversation import Message, texts_in
from chunkscope.prompts.chat.openai import openai_message
from chunkscope.prompts.paths import FieldPath, json_in, shorten, wrong_type
from chunkscope.sources.base import DataError
from chunkscope.sources.json_document import is_list_of_objects

Row = Mapping[str, Any]
Tool = dict[str, Any]

TOOL_FIELDS = ("tools", "functions")
BFCL_TOOLS = "function"  # described in the types of Python, Java and JavaScript
SYSTEMS = ("system", "system_prompt")
PASSED_ON = ("documents", "add_generation_prompt", "reasoning_effort")
REFUSED = ("continue_final_message", "previous_response_id")
REFUSED_KWARGS = ("chat_template", "tokenize", "conversation", "messages", "tools")
# All fields of a row that change how its messages are rendered.
ROW_FIELDS = (
    *TOOL_FIELDS,
    BFCL_TOOLS,
    *SYSTEMS,
    *PASSED_ON,
    *REFUSED,
    "chat_template_kwargs",
    "reasoning",
)

# What vLLM writes down of a tool: these always, the others where they say something.
FUNCTION_KEYS = ("name", "description", "parameters")
OPTIONAL_FUNCTION_KEYS = ("strict", "defer_loading")
# Anthropic and MCP have other names for a tool's parameters.
PARAMETER_NAMES = {"input_schema": "parameters", "inputSchema": "parameters"}


def system_message(row: Row) -> Message | None:
    """The system prompt that a row has outside its messages."""
    for name in SYSTEMS:
        content = row.get(name)
        if not content:
            continue
        if isinstance(content, dict):
            content = content.get("content")
        if not isinstance(content, str | list):
            return None
        try:
            message = openai_message({"role": "system", "content": content}, 0)
        except DataError:  # it is something else
            return None
        if isinstance(content, list):  # Anthropic's blocks of text
            message["content"] = "".join(texts_in(message["content"]))
        return message
    return None


def tools_of(row: Row) -> list[Tool] | None:
    """The tools that a request offers. Raises DataError where vLLM would refuse
    them.
    """
    if is_list_of_objects(json_in(row.get(BFCL_TOOLS))):
        raise DataError("tools_not_read", field=BFCL_TOOLS)
    for name in TOOL_FIELDS:
        tools = json_in(row.get(name))
        if not tools:
            continue
        if not isinstance(tools, list):
            raise wrong_type(tools, name, "list")
        return [_tool(json_in(tool)) for tool in tools]
    return None


def _tool(tool: object) -> Tool:
    """A tool as vLLM's newest server writes it, without keys that it does not know."""
    if not isinstance(tool, dict):
        raise wrong_type(tool, "tools[]", "object")
    if "function" not in tool and "name" in tool:
        tool = {"function": _with_usual_names(tool)}
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError("unnamed_tool")
    if tool.get("type", "function") != "function":
        raise DataError("unknown_tool", type=shorten(tool["type"]))
    deferred = tool.get("defer_loading")
    if deferred is None:
        return {"type": "function", "function": _function(function)}
    if function.get("defer_loading") is None:
        function = {**function, "defer_loading": deferred}
    described = _function(function)
    return {"type": "function", "function": described, "defer_loading": deferred}


def _function(function: Tool) -> Tool:
    described = {key: function.get(key) for key in FUNCTION_KEYS}
    for key in OPTIONAL_FUNCTION_KEYS:
        if function.get(key) is not None:
            described[key] = function[key]
    return described


def _with_usual_names(tool: Tool) -> Tool:
    """A function that is described without an object around it."""
    function = {PARAMETER_NAMES.get(key, key): value for key, value in tool.items()}
    function.pop("type", None)
    return function


def template_kwargs(row: Row) -> dict[str, Any]:
    """What a template gets beside messages and tools. Raises DataError as vLLM refuses
    it.
    """
    kwargs = json_in(row.get("chat_template_kwargs")) or {}
    if not isinstance(kwargs, dict):
        raise wrong_type(kwargs, "chat_template_kwargs", "object")
    for name in REFUSED_KWARGS:
        if name in kwargs:
            raise DataError("kwarg_refused", name=name)
    for name in REFUSED:
        if row.get(name):
            raise DataError("field_refused", name=name)
    passed = {name: row[name] for name in PASSED_ON if row.get(name) is not None}
    effort = FieldPath(("reasoning", "effort")).find(row)
    if effort and "messages" not in row:  # a request to /v1/responses
        passed["reasoning_effort"] = effort
    if "reasoning_effort" in passed:
        thinks = passed["reasoning_effort"] != "none"
        kwargs = {"enable_thinking": thinks, **kwargs}
    return {**kwargs, "add_generation_prompt": True, **passed}
