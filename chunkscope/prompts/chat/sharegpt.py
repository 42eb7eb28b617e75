"""ShareGPT's turns: {"from": "human", "value": "hi"}."""

from chunkscope.prompts.chat.conversation import Message
from chunkscope.sources.json_document import role_of


def is_sharegpt(message: Message) -> bool:
    return "from" in message or "value" in message


def from_sharegpt(message: Message) -> Message:
    """The turn as OpenAI's message; its role is left as it is where it is not known."""
    role = role_of(message) or message.get("from")
    if role == "function":
        role = "tool"  # there, it is what a function returned
    return {"content": message.get("value"), **message, "role": role}
