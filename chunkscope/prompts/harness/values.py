"""What the logs of several harnesses have in common: keys, counts, conversations and answers."""

from collections.abc import Iterable, Sequence
from typing import Any

from chunkscope.prompts.chat import Conversation, conversation
from chunkscope.prompts.fields import UnusableError, describe, escape


def has(record: Any, *keys: str) -> bool:
    return isinstance(record, dict) and record.keys() >= set(keys)


def most_have(head: Sequence[Any], *keys: str) -> bool:
    """Whether most records are objects with these keys: the others are bad rows."""
    return sum(has(record, *keys) for record in head) * 2 > len(head)


def an_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def a_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def a_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def a_count(value: Any) -> int | None:
    """A number of tokens, or None: harnesses write 0 or -1 where they do not know."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value > 0 else None


def a_prompt(value: Any) -> str | Conversation:
    """Text, or messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return conversation(value, {})
    raise UnusableError(f"the prompt is {describe(value)}, not text or messages")


def without_answer(messages: Any) -> tuple[Conversation, str | None]:
    """What was sent of a conversation that ends in its answer, and the answer's text."""
    if not isinstance(messages, list) or not messages:
        raise UnusableError(f"messages are {describe(messages)}, not a list of them")
    last, answer = an_object(messages[-1]), None
    if last.get("role") == "assistant":
        messages, answer = messages[:-1], a_text(last.get("content"))
    return conversation(messages, {}), answer


def another(what: str, name: Any, first: Any) -> str:
    """A harness writes a file for each task and model: who joined them knows which is wanted."""
    return f"of another {what} ({escape(str(name)[:80])}) than the log ({escape(str(first)[:80])})"


def the_only(texts: Iterable[Any]) -> str | None:
    """The answer of a request that has just one."""
    given = list(texts)
    return a_text(given[0]) if len(given) == 1 else None
