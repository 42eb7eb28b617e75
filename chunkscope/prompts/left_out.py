"""Text that stands beside the prompt that was chosen: is it part of what the model is sent?"""

import re
import shlex
from collections.abc import Sequence
from typing import Any

from chunkscope.prompts.chat import ROW_FIELDS, looks_like_messages
from chunkscope.prompts.fields import FieldPath, Leaf, escape, leaves, parse_path
from chunkscope.prompts.prompt_names import is_no_prompt

_DEEPEST = 4
_QUESTIONS = {"question", "query", "prompt", "instruction", "problem"}


def likely_fields(head: Sequence[Any]) -> list[Leaf]:
    """Fields of prose that no name speaks against, those with the most text first."""
    fine = (leaf for leaf in _prose(head) if not is_no_prompt(leaf.path))
    return sorted(fine, key=lambda leaf: -leaf.chars)


def _prose(head: Sequence[Any]) -> list[Leaf]:
    found = leaves(head, deepest=_DEEPEST).values()
    return [leaf for leaf in found if leaf.prose * 2 > leaf.texts]


def longer_field(
    head: Sequence[Any],
    likely: Sequence[Leaf],
    chosen: FieldPath,
    not_these: Sequence[str],
    *,
    chat: bool,
) -> str | None:
    """The likely field with the most text, if that is more than the chosen one has, as written.

    A chat's own tools are no such field, nor is what another list of steps says again.
    """
    own = sum(_chars(chosen.find(record)) for record in head)
    taken = {chosen.text, f"{chosen.text}[]"}
    closed = {*not_these, *(ROW_FIELDS if chat else ())}
    closed |= {chosen.column or ""} if chat or 0 in chosen.steps else set()
    for leaf in likely:
        if leaf.chars <= own:
            return None
        path = parse_path(leaf.path)
        if leaf.path in taken or path.column in closed or (chat and "[]." in leaf.path):
            continue
        if leaf.path.startswith(tuple(f"{name}[" for name in not_these)):
            continue
        return escape(_messages_around(path, head) or leaf.path)
    return None


def _messages_around(path: FieldPath, head: Sequence[Any]) -> str | None:
    """`history` for `history[].content` where that is a conversation."""
    outer = path.text.partition("[]")[0]
    is_chat = outer != path.text and any(
        looks_like_messages(parse_path(outer).find(record)) for record in head
    )
    return outer if is_chat else None


def _chars(value: Any, depth: int = 0) -> int:
    if isinstance(value, str):
        return len(value)
    if depth > 8 or not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return sum(_chars(one, depth + 1) for one in inner)


def how_to_include(more: Sequence[str], chosen: str) -> str:
    """
    >>> how_to_include(["ctxs[].text"], "question")
    "--field 'ctxs[].text' --field question"
    """
    return " ".join(f"--field {shlex.quote(name)}" for name in (*more, chosen))


def likely_options(head: Sequence[Any]) -> str | None:
    """What to try where the prompt was not found: the field with the most prose, or a question."""
    found = likely_fields(head)
    asked = [leaf.path for leaf in found if parse_path(leaf.path).steps[-1] in _QUESTIONS]
    if found and asked and "[]" in asked[0]:
        return _for_each(asked[0], found[0].path)
    leaf = found[0] if found else max(_prose(head), key=lambda leaf: leaf.chars, default=None)
    if leaf is None:
        return None
    path = _messages_around(parse_path(leaf.path), head) or leaf.path
    return f"--field {shlex.quote(escape(path))}"


def _for_each(asked: str, longest: str) -> str:
    """`paragraphs[].qas[].question`: an `--each` for each list on the way, and the text beside."""
    ends = [place.start() for place in re.finditer(re.escape("[]."), asked)]
    lists = [asked[:end] for end in ends]
    fields = [longest, asked] if longest != asked else [asked]
    words = [("--each", name) for name in lists] + [("--field", name) for name in fields]
    return " ".join(f"{flag} {shlex.quote(_spread_name(name, lists))}" for flag, name in words)


def _spread_name(name: str, lists: Sequence[str]) -> str:
    """
    >>> _spread_name("a[].b[].c", ["a", "a[].b"]), _spread_name("d[].e", ["a"])
    ('a.b.c', 'd[].e')
    """
    for outer in reversed(lists):
        if name.startswith(f"{outer}[]"):
            name = outer + name.removeprefix(f"{outer}[]")
    return name
