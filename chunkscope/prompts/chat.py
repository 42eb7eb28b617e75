"""Conversations: what a chat server makes of a row before its chat template is rendered.

Rows come as OpenAI messages, ShareGPT turns or request bodies. They are brought into one form the
way vLLM's OpenAI server does it: only the keys it passes on are kept, content is text or a list of
parts (by the chat template: `string_content`, `part_content`), tool-call arguments are objects.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from chunkscope.errors import UsageError
from chunkscope.prompts.paths import (
    FieldPath,
    all_unicode,
    json_in,
    json_type,
    shorten,
    wrong_type,
)
from chunkscope.sources.base import DataError
from chunkscope.sources.json_rows import role_of

Message = dict[str, Any]
Release = tuple[
    int, int
]  # of vLLM, whose server writes a request before a template sees it
NEWEST: Release = (99, 0)  # where none is named; the others were read in vLLM's sources


def release_of(version: str) -> Release:
    match = (
        re.match(r"v?(\d+)\.(\d+)", version.strip())
        if isinstance(version, str)
        else None
    )
    if match is None:
        raise UsageError(
            f"{version!r} is not a vLLM version", hint='write it like "0.24"'
        )
    return int(match[1]), int(match[2])


_PLAIN_ROLES = {"user", "assistant", "system", "tool"}
_TEXT_PARTS = {"text", "input_text", "output_text", "refusal", "thinking"}
_MEDIA_PARTS = {
    **dict.fromkeys(
        ("image_url", "input_image", "image", "image_pil", "image_embeds"), "image"
    ),
    **dict.fromkeys(("input_audio", "audio_url", "audio_embeds", "audio"), "audio"),
    **dict.fromkeys(("video_url", "video"), "video"),
    **dict.fromkeys(
        ("inlineData", "inline_data", "fileData", "file_data"), "image"
    ),  # Gemini's
}
# Items of /v1/responses that are parts of an assistant's message, and Anthropic's blocks.
_ITEMS = {"reasoning": "reasoning", "message": "content", "function_call": "tool_calls"}
_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "reasoning")
_CONTENTS = (
    "content",
    "value",
    "text",
    "parts",
    "system_prompt",
)  # where a message has its text
# Under these names rows have their tools; the function-calling leaderboard says `function`.
TOOL_FIELDS = ("tools", "functions", "function", "available_tools")
# Row-level fields that change what is rendered.
_PASSED_ON = ("documents", "add_generation_prompt", "reasoning_effort")
# What goes before messages without one.
SYSTEMS = ("system", "system_prompt", "systemInstruction", "system_instruction")
_REFUSED = ("continue_final_message", "previous_response_id")
ROW_FIELDS = (
    *TOOL_FIELDS,
    *SYSTEMS,
    *_PASSED_ON,
    *_REFUSED,
    "chat_template_kwargs",
    "reasoning",
)
FUNCTION_KEYS = ("name", "description", "parameters")


@dataclass(slots=True)
class Conversation:
    """What a chat template is given. `media` counts image, audio and video parts, whose tokens
    only the model's processor could count."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    media: int = 0
    renames_developers: bool = True  # as vLLM does since 0.23


def conversation(
    value: Any, row: Mapping[str, Any], vllm: Release = NEWEST
) -> Conversation:
    """Normalise one row. Raises DataError where a server would refuse the request."""
    value = [value] if isinstance(value, dict) else value
    if not isinstance(value, list) or not value:
        raise (
            DataError("no_messages")
            if value == []
            else wrong_type(value, "messages", "list")
        )
    if {*map(type, value)} == {str}:  # LIMA's
        value = [
            {"role": ("user", "assistant")[n % 2], "content": t}
            for n, t in enumerate(value)
        ]
    if chats := plain_conversations([value], [row]):
        return chats[0]
    messages = [
        _message(message, number, vllm) for number, message in _openai_form(value)
    ]
    systems = [row[name] for name in SYSTEMS if row.get(name)]
    if systems and messages[0]["role"] != "system":
        with suppress(DataError):  # it is something else
            system = (
                systems[0] if isinstance(systems[0], dict) else {"content": systems[0]}
            )
            messages.insert(0, _message({**system, "role": "system"}, 0, vllm))
            if isinstance(systems[0], list):  # Anthropic's
                messages[0]["content"] = "".join(_texts(messages[0]["content"]))
    media = sum(_media(message["content"]) for message in messages)
    kwargs = _template_kwargs(row, vllm)
    return Conversation(messages, _tools(row, vllm), kwargs, media, vllm >= (0, 23))


def plain_conversations(
    values: Sequence[Any], rows: Sequence[Any]
) -> list[Conversation]:
    """Those of all rows if they are as most are, nothing but texts of known roles; or none."""
    with suppress(TypeError, ValueError):
        messages = [*chain.from_iterable(values)]
        roles, texts = zip(*map(dict.values, messages), strict=True)
        is_plain = {*map(tuple, messages)} == {("role", "content")} and {
            *roles
        } <= _PLAIN_ROLES
        is_text = (
            is_plain
            and {*map(type, texts)} == {str}
            and all_unicode(texts)
            and all(values)
        )
        if is_text and {*chain.from_iterable(rows)}.isdisjoint(ROW_FIELDS):
            return [*map(Conversation, values)]
    return []


def _openai_form(value: list[Any]) -> list[tuple[int, Message]]:
    """Numbered messages, as vLLM's server makes them of OpenAI's items and Anthropic's blocks."""
    messages: list[tuple[int, Message]] = []
    for number, message in enumerate(value, start=1):
        if not isinstance(message, dict):
            raise DataError("wrong_message", message=number, found=json_type(message))
        kind, call = str(message.get("type")), message.get("call_id")
        if kind == "function_call" and call:
            called = tool_call(call, message.get("name"), message.get("arguments"))
            message = {"role": "assistant", "tool_calls": [called]}
        elif kind == "function_call_output" and call:
            message = {
                "role": "tool",
                "content": message.get("output"),
                "tool_call_id": call,
            }
        elif kind == "reasoning" and "role" not in message:
            if message.get("encrypted_content"):
                raise DataError(
                    "unknown_part", message=number, type=shorten("encrypted_content")
                )
            texts = (
                FieldPath((name, 0, "text")).find(message)
                for name in ("content", "summary")
            )
            message = {"role": "assistant", "reasoning": next(filter(None, texts), "")}
        name = _ITEMS.get(kind, "")
        last = messages[-1][1] if name and messages else {}
        before, is_said = (
            last.get(name),
            message.get("role") == last.get("role") == "assistant",
        )
        if is_said and (
            before is None or (name == "tool_calls" and isinstance(before, list))
        ):
            more = [*before, *message[name]] if before else message.get(name)
            messages[-1] = (number, last | {name: more})
        elif isinstance(results := message.get("tool_messages"), list):  # tau2's
            messages += [(number, one) for _, one in _openai_form(results)]
        elif isinstance(message.get("content"), list):
            messages += [(number, one) for one in _without_blocks(message)]
        else:
            messages.append((number, message))
    return messages


def _without_blocks(message: Message) -> list[Message]:
    """Results of tools come before what the user says; calls and thoughts stand by themselves."""
    parts = message["content"]
    blocks = _of_type(parts, *_BLOCKS)
    if all(
        block["type"] == "thinking" and "signature" not in block for block in blocks
    ):
        return [message]
    got = _of_type(parts, "tool_result")
    results = [{**b, "role": "tool", "tool_call_id": b.get("tool_use_id")} for b in got]
    calls = [
        tool_call(*map(b.get, ("id", "name", "input")))
        for b in _of_type(parts, "tool_use")
    ]
    message = {**message, "content": [part for part in parts if part not in blocks]}
    message["tool_calls"] = message.get("tool_calls") or calls
    message["reasoning"] = "".join(
        str(b.get("thinking", b.get("reasoning", ""))) for b in blocks
    )
    return results if results and not message["content"] else [*results, message]


def _of_type(parts: list[Any], *kinds: str) -> list[dict[str, Any]]:
    return [
        part for part in parts if isinstance(part, dict) and part.get("type") in kinds
    ]


def _message(message: Message, number: int, vllm: Release) -> Message:
    role, name = (
        role_of(message),
        message.get("role", message.get("from", message.get("type"))),
    )
    is_item = (
        name is not None and name == message.get("type") and "content" not in message
    )
    if role is None or is_item:
        raise DataError("unknown_role", message=number, role=str(name)[:40])
    role = "tool" if role == "function" and "role" not in message else role
    key = next((name for name in _CONTENTS if message.get(name) is not None), "content")
    content = message.get(key)
    if content is not None and not isinstance(content, str | list):
        raise wrong_type(content, key, "text", message=number)
    if not isinstance(content, str):
        content = [*filter(None, (_part(part, number) for part in content or ()))]
    result: Message = {"role": role, "content": content}
    if role == "assistant":
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise wrong_type(calls, "tool_calls", "list", message=number)
        if calls:
            result["tool_calls"] = [_tool_call(call, number, vllm) for call in calls]
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        if isinstance(reasoning, str):
            # The names templates read: transformers adds the first, vLLM the others.
            others = dict.fromkeys(("reasoning", "reasoning_content"), reasoning)
            result = {"thinking": reasoning, **result, **others}
    elif (
        role == "tool"
        and (call_id := message.get("tool_call_id", message.get("id"))) is not None
    ):
        result["tool_call_id"] = call_id
    elif role == "developer":
        result["tools"] = message.get("tools")
    if isinstance(message.get("name"), str):
        result["name"] = message["name"]
    return result


def _part(part: Any, number: int) -> dict[str, Any] | None:
    """One content part as {"type": "text", ...} or {"type": "image"}; None when it is empty."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise wrong_type(part, "content[]", "object", message=number)
    keys = (k for k in (*_MEDIA_PARTS, "text", *part) if part.get(k) is not None)
    kind = part.get("type") or next(keys, None)
    if isinstance(kind, str) and kind in _MEDIA_PARTS:
        return {"type": _MEDIA_PARTS[kind]}
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise DataError("unknown_part", message=number, type=shorten(kind))
    text = part.get(
        kind if kind in ("refusal", "thinking") else "text", part.get("content")
    )
    if text is not None and not isinstance(text, str):
        raise wrong_type(text, "content[].text", "text", message=number)
    return None if text is None else {"type": "text", "text": text}


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _tool_call(call: Any, number: int, vllm: Release) -> dict[str, Any]:
    """Arguments as an object, of text by JSON; keys in the order of vLLM's request (`tojson`)."""
    name = call.get("function", call.get("name")) if isinstance(call, dict) else None
    if isinstance(name, str):  # tau2's, LangChain's, Inspect's
        call = tool_call(call.get("id"), name, call.get("arguments", call.get("args")))
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise wrong_type(function, "tool_calls[].function", "object", message=number)
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            if vllm == NEWEST or vllm < (0, 29):  # without a version as older ones do
                raise DataError("arguments_not_json", message=number) from None
            arguments = {}
    is_empty = arguments is None and vllm >= (0, 23)
    if is_empty or (not isinstance(arguments, dict) and vllm >= (0, 29)):
        arguments = {}
    made = {
        **call,
        "function": _ordered({**function, "arguments": arguments}, "arguments", "name"),
    }
    return _ordered(made, "id", "function", "type")


def _ordered(given: dict[str, Any], *firsts: str) -> dict[str, Any]:
    return {name: given[name] for name in (*firsts, *given) if name in given}


def _tools(row: Mapping[str, Any], vllm: Release) -> list[dict[str, Any]] | None:
    """The first of a row's fields that holds some."""
    for name in TOOL_FIELDS:
        tools = json_in(row.get(name)) or None
        if tools is None or (name in TOOL_FIELDS[2:] and not has_functions(name, row)):
            continue
        if isinstance(tools, dict) and name != "tools":
            tools = [tools]
        if not isinstance(tools, list):
            raise wrong_type(tools, name, "list")
        form = (
            _documented_tool if name == "function" else json_in
        )  # When2Call's are texts
        return [_tool(form(tool), vllm) for tool in tools]
    return None


def has_functions(name: str, row: Any) -> bool:
    """Whether a row has tools in that field, by their shape: a `function` may be something else."""
    value = json_in(row.get(name)) if isinstance(row, dict) else None
    functions = map(json_in, value if isinstance(value, list) else [value])
    return bool(value) and all(
        isinstance(tool, dict) and ("name" in tool or "function" in tool)
        for tool in functions
    )


def _tool(tool: Any, vllm: Release) -> dict[str, Any]:
    """A tool as vLLM's request model writes it: its own keys first, and what else was given."""
    if not isinstance(tool, dict):
        raise wrong_type(tool, "tools[]", "object")
    if "function" not in tool and "name" in tool:
        names = {
            "input_schema": "parameters",
            "inputSchema": "parameters",
        }  # Anthropic's, MCP's
        tool = {
            "function": {names.get(k, k): v for k, v in tool.items() if k != "type"}
        }
    function, extra = (
        tool.get("function"),
        {k: v for k, v in tool.items() if k != "function"},
    )
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError("unnamed_tool")
    if (kind := extra.pop("type", "function")) != "function":
        raise DataError("unknown_tool", type=shorten(kind))
    named = dict.fromkeys(FUNCTION_KEYS) | function
    # Keys that it knows are left out where they are null.
    strict = ["strict"] if vllm >= (0, 24) else []
    deferred = ["defer_loading"] if vllm >= (0, 21) else []
    if deferred and named.get("defer_loading") is None:
        named["defer_loading"] = extra.get("defer_loading")
    return {
        "type": "function",
        "function": _written(named, FUNCTION_KEYS, [*strict, *deferred], vllm),
        **_written(extra, (), deferred, vllm),
    }


def _written(
    given: dict[str, Any], always: Sequence[str], optional: Sequence[str], vllm: Release
) -> dict[str, Any]:
    """What the server passes on: keys it knows in its own order, then the others as they came."""
    written = {name: given[name] for name in always}
    written |= {name: given[name] for name in optional if given.get(name) is not None}
    if vllm >= (0, 27):
        return written
    return written | {k: v for k, v in given.items() if k not in (*always, *optional)}


_SCHEMA_TYPES = {
    **{
        name: name
        for name in ("string", "integer", "number", "boolean", "array", "object")
    },
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("list", "tuple", "ArrayList", "Array", "Queue", "Stack"), "array"),
    **dict.fromkeys(("dict", "HashMap", "Hashtable"), "object"),
    "bool": "boolean",
}


def _documented_tool(doc: Any) -> Any:
    """A function as the Berkeley leaderboard (BFCL) documents it, made into a tool as it does: with
    JSON Schema's types for those of Python, Java and JavaScript, and no dots in names."""
    if not isinstance(doc, dict) or not isinstance(doc.get("name"), str):
        return doc
    name, parameters = doc["name"].replace(".", "_"), _schema(doc.get("parameters"))
    function = {**doc, "name": name, "parameters": parameters}
    return {"type": "function", "function": function}


def _schema(schema: Any, depth: int = 20) -> Any:
    """A type that is not known is a string; the leaderboard marks a float twice more."""
    if not isinstance(schema, dict) or not depth:
        return schema
    kind = str(schema.get("type", "string"))
    result = {**schema, "type": _SCHEMA_TYPES.get(kind, "string")}
    if kind == "float":
        description = f"{schema.get('description', '')} This is a float type value."
        result |= {"format": "float", "description": description}
    if isinstance(parts := result.get("properties"), dict):
        result["properties"] = {
            name: _schema(part, depth - 1) for name, part in parts.items()
        }
    if "items" in result:
        result["items"] = _schema(result["items"], depth - 1)
    return result


def _template_kwargs(row: Mapping[str, Any], vllm: Release) -> dict[str, Any]:
    kwargs = json_in(row.get("chat_template_kwargs")) or {}
    if not isinstance(kwargs, dict):
        raise wrong_type(kwargs, "chat_template_kwargs", "object")
    for name in {
        "chat_template",
        "tokenize",
        "conversation",
        "messages",
        "tools",
    } & kwargs.keys():
        raise DataError("kwarg_refused", name=name)
    for name in filter(row.get, _REFUSED):
        raise DataError("field_refused", name=name)
    given = {name: row[name] for name in _PASSED_ON if row.get(name) is not None}
    if "messages" not in row and (
        effort := FieldPath(("reasoning", "effort")).find(row)
    ):
        given["reasoning_effort"] = effort  # of /v1/responses
    if "reasoning_effort" in given and vllm >= (0, 22):
        kwargs = {"enable_thinking": given["reasoning_effort"] != "none"} | kwargs
    return (
        given | kwargs
        if vllm < (0, 16)
        else kwargs | {"add_generation_prompt": True} | given
    )


def _media(content: str | list[dict[str, Any]]) -> int:
    return (
        sum(part["type"] != "text" for part in content)
        if isinstance(content, list)
        else 0
    )


def _texts(content: str | list[dict[str, Any]]) -> list[str]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [part["text"] for part in parts if part["type"] == "text"]


def string_content(messages: list[Message]) -> list[Message]:
    """For templates that treat content as a string: the parts' texts, a line break between."""
    if {type(message["content"]) for message in messages} == {str}:
        return messages
    return [
        {**m, "content": "\n".join(filter(None, _texts(m["content"])))}
        for m in messages
    ]


def part_content(messages: list[Message]) -> list[Message]:
    """For templates that loop over content: parts, but one string of all texts of a tool."""
    return [{**message, "content": _parts(message)} for message in messages]


def _parts(message: Message) -> str | list[dict[str, Any]]:
    content = message["content"]
    if message["role"] == "tool" and not _media(content):
        return "\n".join(_texts(content))
    return (
        [{"type": "text", "text": content}]
        if isinstance(content, str)
        else list(content)
    )


def without_developers(chat: Conversation) -> list[Message]:
    """For templates that do not name the role: all that developers and systems say goes first."""
    messages, firsts = chat.messages, ("system", "developer")
    if not (
        chat.renames_developers and any(m["role"] == "developer" for m in messages)
    ):
        return messages
    texts = (m["content"] for m in string_content(messages) if m["role"] in firsts)
    rest = [message for message in messages if message["role"] not in firsts]
    return [{"role": "system", "content": "\n\n".join(filter(None, texts))}, *rest]
