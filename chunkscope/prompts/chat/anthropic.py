"""Anthropic's messages, whose content holds calls, results and thoughts as blocks."""

from typing import Any

from chunkscope.prompts.chat.conversation import Message
from chunkscope.prompts.chat.openai import function_call

THOUGHTS = ("thinking", "redacted_thinking")
BLOCKS = ("tool_use", "tool_result", *THOUGHTS)


def has_blocks(message: Message) -> bool:
    """Whether the content holds blocks that are not for a template.

    Thinking without a signature is not Anthropic's, and read as a text.
    """
    for block in blocks_in(message):
        if block["type"] != "thinking" or "signature" in block:
            return True
    return False


def blocks_in(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if _is_block(part)]


def _is_block(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in BLOCKS


def from_anthropic(message: Message) -> list[Message]:
    """OpenAI's messages, as vLLM makes them.

    Results of tools are messages of their own, before what the user says. Calls and
    thoughts stand beside the content.
    """
    results: list[Message] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for block in blocks_in(message):
        if block["type"] == "tool_result":
            result = {"role": "tool", "tool_call_id": block.get("tool_use_id")}
            results.append(result | {"content": block.get("content")})
        elif block["type"] == "tool_use":
            call = function_call(block.get("id"), block.get("name"), block.get("input"))
            calls.append(call)
        else:
            thoughts.append(str(block.get("thinking", "")))
    content = [part for part in message["content"] if not _is_block(part)]
    if results and not content:
        return results
    said = {**message, "content": content}
    if thoughts:
        said["reasoning"] = "".join(thoughts)
    if calls and not message.get("tool_calls"):
        said["tool_calls"] = calls
    return [*results, said]
