"""Conversations, wherever in a record they are: `traj`, `history`, `question[0]`, `info.messages`.

They are known by their shape, a list of {role, content}, and not by their name.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from chunkscope.prompts.chat import begins_a_chat, messages_of
from chunkscope.prompts.fields import FieldPath, Step, dotted, quote_key
from chunkscope.prompts.prompt_names import is_no_prompt

_DEEPEST = 5
_MOST_RECORDS = 20


def message_lists(head: Sequence[Any]) -> list[FieldPath]:
    """The paths that lead to messages in at least half of the records, the least deep first.

    >>> [path.text for path in message_lists([{"id": "a", "question": [[{"role": "user",
    ...     "content": "hi"}]]}])]
    ['question[0]']
    """
    records = head[:_MOST_RECORDS]
    found: Counter[FieldPath] = Counter()
    for record in records:
        found.update(_in(record))
    often = [path for path, count in found.items() if count * 2 >= len(records)]
    return sorted(often, key=lambda path: len(path.steps))


def _in(record: Any) -> Iterator[FieldPath]:
    """Every conversation in a record; of a list of conversations the first."""
    waiting: deque[tuple[FieldPath, Any]] = deque(_below(FieldPath("", ()), record))
    while waiting:
        path, value = waiting.popleft()
        if begins_a_chat(messages_of(value)):
            yield path
        elif len(path.steps) < _DEEPEST:
            waiting.extend(_below(path, value))


def _below(path: FieldPath, value: Any) -> Iterator[tuple[FieldPath, Any]]:
    if isinstance(value, dict):
        for key, held in value.items():
            if isinstance(key, str) and not is_no_prompt(key):
                text = path.text + dotted(key) if path.text else quote_key(key)
                yield _step(path, text, key), held
    elif isinstance(value, list) and value and isinstance(value[0], list | dict):
        yield _step(path, f"{path.text}[0]", 0), value[0]


def _step(path: FieldPath, text: str, step: Step) -> FieldPath:
    return FieldPath(text, (*path.steps, step))


def conversations_beside(head: Sequence[Any], path: FieldPath) -> int:
    """Of the list whose first element was taken, the most elements that a record has; else 1."""
    if not path.steps or path.steps[-1] != 0:
        return 1
    lists = (path.parent.find(record) for record in head)
    return max((len(found) for found in lists if isinstance(found, list)), default=1)
