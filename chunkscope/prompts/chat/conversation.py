"""A chat as a chat template gets it: messages whose content is a text or a list of
parts.
"""

from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]  # a JSON object with a role and a content
Part = dict[str, Any]  # {"type": "text", "text": ...}, {"type": "image"} and the like
Content = str | list[Part]


@dataclass(slots=True)
class Conversation:
    """What a chat template is given.

    `media` counts image, audio and video parts, whose tokens only the model's processor
    could count.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    media: int = 0


def media_parts(content: Content) -> int:
    if isinstance(content, str):
        return 0
    return sum(part["type"] != "text" for part in content)


def texts_in(content: Content) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]


def joined_text(content: Content) -> str:
    """The texts of all parts, one below the other."""
    return "\n".join(text for text in texts_in(content) if text)


def string_content(messages: list[Message]) -> list[Message]:
    """The messages for a template that takes content as a text."""
    if all(isinstance(message["content"], str) for message in messages):
        return messages
    return [
        {**message, "content": joined_text(message["content"])} for message in messages
    ]


def part_content(messages: list[Message]) -> list[Message]:
    """The messages for a template that loops over the parts of a content."""
    return [{**message, "content": _as_parts(message)} for message in messages]


def _as_parts(message: Message) -> Content:
    content: Content = message["content"]
    if message["role"] == "tool" and not media_parts(content):
        return "\n".join(texts_in(content))  # vLLM hands over a tool's result as a text
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


def without_developers(chat: Conversation) -> list[Message]:
    """The messages for a template that does not know developers.

    All that developers and systems say becomes one system message, the first, as in
    vLLM.
    """
    if all(message["role"] != "developer" for message in chat.messages):
        return chat.messages
    texts = []
    others = []
    for message in chat.messages:
        if message["role"] in ("system", "developer"):
            texts.append(joined_text(message["content"]))
        else:
            others.append(message)
    system = "\n\n".join(text for text in texts if text)
    return [{"role": "system", "content": system}, *others]
