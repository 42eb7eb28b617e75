"""Chats: whatever form a row has them in, they become what vLLM's server gives a chat
template.

Read are OpenAI's messages, Anthropic's, ShareGPT's turns and items of /v1/responses.
They are written down as the server of the newest known vLLM writes them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from chunkscope.prompts.chat.anthropic import from_anthropic, has_blocks
from chunkscope.prompts.chat.conversation import (
    Conversation,
    Message,
    media_parts,
    part_content,
    string_content,
    without_developers,
)
from chunkscope.prompts.chat.openai import openai_message
from chunkscope.prompts.chat.request import (
    ROW_FIELDS,
    SYSTEMS,
    TOOL_FIELDS,
    system_message,
    template_kwargs,
    tools_of,
)
from chunkscope.prompts.chat.responses import from_item, is_item, together
from chunkscope.prompts.chat.sharegpt import from_sharegpt, is_sharegpt
from chunkscope.prompts.paths import all_unicode, json_type, wrong_type
from chunkscope.sources.base import DataError

__all__ = [
    "ROW_FIELDS",
    "SYSTEMS",
    "TOOL_FIELDS",
    "Conversation",
    "Message",
    "conversation",
    "part_content",
    "string_content",
    "without_developers",
]

PLAIN_ROLES = ("user", "assistant", "system", "tool")


def conversation(value: object, row: Mapping[str, Any]) -> Conversation:
    """The messages in `value` as a conversation, with what `row` has beside them.

    Raises DataError where a server would refuse the request.
    """
    messages = [value] if isinstance(value, dict) else value
    if messages == []:
        raise DataError("no_messages")
    if not isinstance(messages, list):
        raise wrong_type(messages, "messages", "list")
    if _is_plain(messages) and not any(name in row for name in ROW_FIELDS):
        return Conversation(messages)
    written = []
    for number, message in _openai_messages(messages):
        written.append(openai_message(message, number))
    system = system_message(row)
    if system is not None and written[0]["role"] != "system":
        written.insert(0, system)
    return Conversation(
        messages=written,
        tools=tools_of(row),
        template_kwargs=template_kwargs(row),
        media=sum(media_parts(message["content"]) for message in written),
    )


def _openai_messages(messages: list[Any]) -> Iterator[tuple[int, Message]]:
    """OpenAI's messages, each with the number of the message that it came from."""
    # An assistant's, to which items may belong.
    pending: tuple[int, Message] | None = None
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict):
            raise DataError("wrong_message", message=number, found=json_type(message))
        for converted in _converted(message, number):
            merged = None
            if pending is not None and is_item(message):
                merged = together(pending[1], converted)
            if merged is not None:
                pending = (number, merged)
                continue
            if pending is not None:
                yield pending
            pending = (number, converted)
    if pending is not None:
        yield pending


def _converted(message: Message, number: int) -> list[Message]:
    if is_item(message):
        return [from_item(message, number)]
    if is_sharegpt(message):
        return [from_sharegpt(message)]
    if has_blocks(message):
        return from_anthropic(message)
    return [message]


def _is_plain(messages: list[Any]) -> bool:
    """Whether all are texts of the usual roles, as nearly all are: they stay as they
    are.
    """
    texts = []
    for message in messages:
        if not isinstance(message, dict) or tuple(message) != ("role", "content"):
            return False
        text = message["content"]
        if message["role"] not in PLAIN_ROLES or not isinstance(text, str):
            return False
        texts.append(text)
    return bool(texts) and all_unicode(texts)
