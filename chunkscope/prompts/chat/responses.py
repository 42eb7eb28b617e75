"""Items of OpenAI's /v1/responses, several of which may be one message of an
assistant.
"""

from typing import Any

from chunkscope.prompts.chat.conversation import Message
from chunkscope.prompts.chat.openai import function_call
from chunkscope.prompts.paths import FieldPath, shorten
from chunkscope.sources.base import DataError


def is_item(message: Message) -> bool:
    kind = message.get("type")
    if kind in ("function_call", "function_call_output"):
        return bool(message.get("call_id"))
    if kind == "reasoning":
        return "role" not in message
    return kind == "message"


def from_item(item: Message, number: int) -> Message:
    """OpenAI's message for one item. Raises DataError where its text is encrypted."""
    call_id = item.get("call_id")
    if item["type"] == "function_call":
        call = function_call(call_id, item.get("name"), item.get("arguments"))
        return {"role": "assistant", "tool_calls": [call]}
    if item["type"] == "function_call_output":
        output = item.get("output")
        return {"role": "tool", "content": output, "tool_call_id": call_id}
    if item["type"] == "reasoning":
        if item.get("encrypted_content"):
            kind = shorten("encrypted_content")
            raise DataError("unknown_part", message=number, type=kind)
        return {"role": "assistant", "reasoning": _reasoning(item)}
    return item


def _reasoning(item: Message) -> Any:
    for key in ("content", "summary"):
        text = FieldPath((key, 0, "text")).find(item)
        if text:
            return text
    return ""


def together(last: Message, item: Message) -> Message | None:
    """Both as one message, if vLLM makes one of them: of what an assistant thinks, says
    and calls.
    """
    if last.get("role") != "assistant" or item.get("role") != "assistant":
        return None
    for key in ("reasoning", "content", "tool_calls"):
        if item.get(key) is None:
            continue
        if last.get(key) is None:
            return {**last, key: item[key]}
        if key == "tool_calls":
            return {**last, key: [*last[key], *item[key]]}
        return None
    return None
