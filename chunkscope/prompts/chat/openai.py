"""OpenAI's messages, of which only what vLLM's server passes on to a chat template is
kept.
"""

import json
from typing import Any

from chunkscope.prompts.chat.conversation import Content, Message, Part
from chunkscope.prompts.paths import shorten, wrong_type
from chunkscope.sources.base import DataError
from chunkscope.sources.json_document import role_of

MEDIA_PARTS = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "image_pil": "image",
    "image_embeds": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "audio_embeds": "audio",
    "audio": "audio",
    "video_url": "video",
    "video": "video",
}
# Parts that hold text, and the key of it.
TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}


def openai_message(message: Message, number: int) -> Message:
    """A message as vLLM's server renders it. Raises DataError, which names its
    number.
    """
    role = _role(message, number)
    written: Message = {"role": role, "content": _content(message, number)}
    if role == "assistant":
        written |= _tool_calls(message, number)
        written |= _reasoning(message)
    elif role == "tool":
        call_id = message.get("tool_call_id", message.get("id"))
        if call_id is not None:
            written["tool_call_id"] = call_id
    elif role == "developer":
        written["tools"] = message.get("tools")
    if isinstance(message.get("name"), str):
        written["name"] = message["name"]
    return written


def function_call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    """A call of a tool as it stands in the `tool_calls` of a message."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _role(message: Message, number: int) -> str:
    role = role_of(message)
    name = message.get("role", message.get("from", message.get("type")))
    # An item of /v1/responses that is not converted has a type that is no role.
    is_item = "content" not in message and "role" not in message and "type" in message
    if role is None or is_item:
        raise DataError("unknown_role", message=number, role=str(name)[:40])
    return role


def _content(message: Message, number: int) -> Content:
    key = "text" if message.get("content") is None and "text" in message else "content"
    content = message.get(key)
    if isinstance(content, str):
        return content
    if content is None:
        return []
    if not isinstance(content, list):
        raise wrong_type(content, key, "text", message=number)
    parts = [_part(part, number) for part in content]
    return [part for part in parts if part is not None]


def _part(part: object, number: int) -> Part | None:
    """One part of a content; None for one without text."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise wrong_type(part, "content[]", "object", message=number)
    kind = part.get("type")
    if not isinstance(kind, str):
        raise wrong_type(kind, "content[].type", "text", message=number)
    if kind in MEDIA_PARTS:
        return {"type": MEDIA_PARTS[kind]}
    if kind not in TEXT_PARTS:
        raise DataError("unknown_part", message=number, type=shorten(kind))
    text = part.get(TEXT_PARTS[kind])
    if text is None:
        return None
    if not isinstance(text, str):
        raise wrong_type(text, "content[].text", "text", message=number)
    return {"type": "text", "text": text}


def _tool_calls(message: Message, number: int) -> Message:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise wrong_type(calls, "tool_calls", "list", message=number)
    if not calls:
        return {}
    return {"tool_calls": [_tool_call(call, number) for call in calls]}


def _tool_call(call: object, number: int) -> dict[str, Any]:
    """A call with its keys in the order of vLLM's request, which templates may write
    down.
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise wrong_type(function, "tool_calls[].function", "object", message=number)
    arguments = _arguments(function.get("arguments"))
    function = _with_first({**function, "arguments": arguments}, "arguments", "name")
    return _with_first({**call, "function": function}, "id", "function", "type")


def _arguments(arguments: object) -> dict[str, Any]:
    """As an object. vLLM takes what is no object in JSON for a call without
    arguments.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _with_first(values: dict[str, Any], *names: str) -> dict[str, Any]:
    ordered = {name: values[name] for name in names if name in values}
    return ordered | values


def _reasoning(message: Message) -> Message:
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if not isinstance(reasoning, str):
        return {}
    # Templates read any of these names: transformers adds the first, vLLM the others.
    names = ("thinking", "reasoning", "reasoning_content")
    return dict.fromkeys(names, reasoning)
