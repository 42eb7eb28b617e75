"""Naming a part of a record: paths such as `ctxs[].text`, and templates made of them.

A path is a chain of keys, list positions and "all elements". Nothing in a path or a template is
ever evaluated: they are split up once and looked up literally.
"""

import json
import re
import shlex
from codecs import utf_16_le_encode
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from types import EllipsisType
from typing import Any

from chunkscope.errors import UsageError
from chunkscope.prompts.prompt_names import is_prose

# A key, a position in a list, or `...` for every element of a list.
Step = str | int | EllipsisType

EXAMPLE_CHARS = 60
_MOST_ELEMENTS = 50  # of a list, where it is only looked at


class UnusableError(Exception):
    """Why one row cannot be used; becomes the reason of a bad row."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A parsed path; the empty one is the record itself.

    >>> parse_path("ctxs[].text").get({"ctxs": [{"text": "a"}, {"text": "b"}]})
    ['a', 'b']
    """

    text: str
    steps: tuple[Step, ...]
    as_json: bool = False  # `tools|json`: whatever is there, written as JSON

    @classmethod
    def to(cls, key: str) -> "FieldPath":
        """The path to a top-level key, whatever it is made of."""
        return cls(escape(str(key)), (key,))

    @property
    def column(self) -> str | None:
        """The top-level field that is needed, or None where that cannot be said."""
        first = self.steps[0] if self.steps else None
        return first if isinstance(first, str) else None

    @property
    def key(self) -> str | None:
        """The key, when the path is nothing but one: such paths have a fast way."""
        return self.column if len(self.steps) == 1 else None

    @property
    def parent(self) -> "FieldPath":
        return FieldPath(self.text, self.steps[:-1])

    @property
    def holder(self) -> "FieldPath":
        """The object that holds it: of `question[0]` the record, of `body.messages` the body."""
        steps = self.steps[:-1]
        while steps and not isinstance(self.steps[len(steps)], str):
            steps = steps[:-1]
        return FieldPath(self.text, steps)

    def get(self, record: Any) -> Any:
        return _walk(record, self.steps, self.text)

    def find(self, record: Any) -> Any:
        """The value, or None where there is none."""
        try:
            return self.get(record)
        except UnusableError:
            return None


RECORD = FieldPath("", ())


def _walk(value: Any, steps: Sequence[Step], text: str) -> Any:
    while steps:
        step, rest = steps[0], steps[1:]
        if isinstance(step, str):
            value, steps = _by_key(value, step, rest, text)
        elif isinstance(step, int):
            value, steps = _by_position(value, step, text), rest
        elif isinstance(value, list):
            return [_walk(element, rest, text) for element in value]
        else:
            raise UnusableError(f'field "{text}" is missing' + _instead(value, "a list"))
    return value


def _by_key(value: Any, key: str, rest: Sequence[Step], text: str) -> tuple[Any, Sequence[Step]]:
    """One step down a dict, and the steps left; a key that holds dots itself is also found."""
    if not isinstance(value, dict):
        raise UnusableError(f'field "{text}" is missing' + _instead(value, "an object"))
    for name, taken in spellings((key, *rest)) if rest else ((key, 1),):
        if name in value:
            return value[name], rest[taken - 1 :]
    raise UnusableError(f'field "{text}" is missing')


def spellings(steps: Sequence[Step]) -> Iterator[tuple[str, int]]:
    """The keys that the first steps may mean and how many steps each takes, longest first.

    >>> list(spellings(("a", "b", 0)))
    [('a.b', 2), ('a', 1)]
    """
    keys = list(takewhile(lambda step: isinstance(step, str), steps))
    for taken in range(len(keys), 0, -1):
        yield ".".join(map(str, keys[:taken])), taken


def _by_position(value: Any, index: int, text: str) -> Any:
    if not isinstance(value, list):
        raise UnusableError(f'field "{text}" is missing' + _instead(value, "a list"))
    try:
        return value[index]
    except IndexError:
        raise UnusableError(
            f'field "{text}" is missing (the list has {len(value)} elements)'
        ) from None


def _instead(value: Any, wanted: str) -> str:
    return f" ({describe(value)} where {wanted} should be)"


def describe(value: Any) -> str:
    """What a value is, in JSON's words: `describe(3)` is "a number"."""
    return _KINDS.get(type(value)) or f"a {type(value).__name__}"


_KINDS = {
    type(None): "null",
    bool: "true or false",
    **dict.fromkeys((int, float), "a number"),
    str: "text",
    list: "a list",
    dict: "an object",
}


# --- text -----------------------------------------------------------------------------------------


def text_at(
    record: Any,
    path: FieldPath,
    joiner: str,
    *,
    numbers: bool = False,
    remarks: Counter[str] | None = None,
) -> str:
    """The text a path leads to; a list of texts is joined. Raises UnusableError otherwise.

    `remarks` counts the rows of which something has to be said.
    """
    value = path.get(record)
    if isinstance(value, str):
        return value
    name = f'field "{path.text}"' if path.steps else "the row"
    if path.as_json and value is not None:
        return _json(value, name)
    if isinstance(value, list):
        try:
            texts = list(_texts_in(value, name))
        except RecursionError:
            raise UnusableError(f"{name} is nested too deeply") from None
        if remarks is not None:
            remarks.update(_about_list(texts, path))
        return joiner.join(text for text in texts if text is not None)
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise UnusableError(f"{name} is null")
    if isinstance(value, dict):
        hint = f" (as JSON it is counted by --field '{path.text}|json')"
        raise UnusableError(f"{name} is an object, not text{hint}")
    raise UnusableError(f"{name} is {describe(value)}, not text")


def _json(value: Any, name: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnusableError(f"{name} cannot be written as JSON: {error}") from None


def _about_list(texts: list[str | None], path: FieldPath) -> Iterator[str]:
    """What was made of a list where it was not asked for, and of what is missing in one."""
    if None in texts:
        yield f'nulls in "{path.text}" were left out'
    if len(texts) > 1 and ... not in path.steps:
        yield (
            f'"{path.text}" is a list, whose texts were joined to one prompt '
            f"(--each {shlex.quote(path.text)} makes a prompt of each)"
        )


def _texts_in(values: list[Any], name: str) -> Iterator[str | None]:
    for value in values:
        if isinstance(value, list):
            yield from _texts_in(value, name)
        elif isinstance(value, str) or value is None:
            yield value
        else:
            raise UnusableError(f"{name} is a list that holds {describe(value)}, not only text")


def all_unicode(texts: Iterable[str]) -> bool:
    """False when a text holds a lone surrogate, which no tokenizer can encode.

    `isascii` is a look at a flag, so that only other text is gone through; UTF-16 is the encoder
    that does it fastest.
    """
    try:
        deque(map(utf_16_le_encode, [text for text in texts if not text.isascii()]), maxlen=0)
    except UnicodeEncodeError:
        return False
    return True


# --- parsing paths --------------------------------------------------------------------------------

_AS_JSON = "|json"
_PATH_PART = re.compile(
    r"""
      \[ \s* (?P<index> -?\d{1,9} ) \s* \]
    | (?P<all> \[ \s* \] )
    | \[ \s* (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) \s* \]
    | (?P<key> [^.\[\]]+ )
    """,
    re.VERBOSE,
)


@lru_cache(1024)
def parse_path(text: str) -> FieldPath:
    """Split `turns[0]`, `a.b`, `ctxs[].text` or `["odd key"]` into steps.

    >>> parse_path("tools|json")
    FieldPath(text='tools', steps=('tools',), as_json=True)
    """
    if text.endswith(_AS_JSON) and len(text) > len(_AS_JSON):
        return replace(parse_path(text.removesuffix(_AS_JSON)), as_json=True)
    steps: list[Step] = []
    at = 0
    while at < len(text):
        if text[at] == "." and steps:
            at += 1
            if text[at : at + 1] in ("", ".", "["):
                raise _bad_path(text, at, "a name is missing after the dot")
        match = _PATH_PART.match(text, at)
        if match is None or (match["key"] and at and text[at - 1] == "]"):
            raise _bad_path(text, at, _what_is_wrong(text, at))
        steps.append(_step(match))
        at = match.end()
    if not steps:
        raise UsageError("a field needs a name", hint="for example: --field question")
    return FieldPath(text, tuple(steps))


def _step(match: re.Match[str]) -> Step:
    if match["index"]:
        return int(match["index"])
    if match["all"]:
        return ...
    if match["quoted"]:
        return re.sub(r"\\(.)", r"\1", match["quoted"][1:-1], flags=re.DOTALL)
    return match["key"]


def _what_is_wrong(text: str, at: int) -> str:
    if text[at] == "[":
        return "brackets hold a number, nothing, or a quoted key"
    if text[at] == "]":
        return "this bracket was never opened"
    return "a name is missing before the dot" if text[at] == "." else "a dot is missing here"


def _bad_path(text: str, at: int, reason: str) -> UsageError:
    return UsageError(
        f"cannot read the field path: {reason}\n  {text}\n  {' ' * at}^",
        hint='paths look like question, a.b, turns[0], ctxs[].text or ["odd key"]',
    )


# --- templates ------------------------------------------------------------------------------------

_TEMPLATE_PART = re.compile(
    r"""
      (?P<brace> \{\{ | \}\} )
    | (?P<escape> \\[nt\\] )
    | \{ (?P<path> (?: [^{}"'] | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )* ) \}
    | (?P<stray> [{}] )
    """,
    re.VERBOSE,
)
_ESCAPES = {r"\n": "\n", r"\t": "\t", "\\\\": "\\"}

Part = str | FieldPath


def parse_template(text: str, path: Callable[[str], FieldPath] = parse_path) -> tuple[Part, ...]:
    r"""Split a template into literal text and paths.

    `{{` and `}}` are braces; `\n`, `\t` and `\\` are what they are in most languages, because a
    shell hands them over as typed.

    >>> parse_template(r"Q: {question}\n")
    ('Q: ', FieldPath(text='question', steps=('question',), as_json=False), '\n')
    """
    parts: list[Part] = []
    at = 0
    for match in _TEMPLATE_PART.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        if match["stray"]:
            raise _stray_brace(text, match.start())
        if match["path"] is not None:
            parts.append(_template_path(text, match, path))
        else:
            parts.append(_ESCAPES.get(match[0]) or match[0][0])
    parts.append(text[at:])
    return tuple(_merged(parts))


def _template_path(text: str, match: re.Match[str], path: Callable[[str], FieldPath]) -> FieldPath:
    if not match["path"].strip():
        raise UsageError(f"empty braces in the template\n  {text!r}", hint="write {question}")
    return path(match["path"].strip())


def _merged(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts with neighbouring literals put together and empty ones dropped."""
    literal = ""
    for part in parts:
        if isinstance(part, str):
            literal += part
            continue
        if literal:
            yield literal
        literal = ""
        yield part
    if literal:
        yield literal


def _stray_brace(text: str, at: int) -> UsageError:
    return UsageError(
        f"a single {text[at]} in the template, at character {at + 1}: {text!r}",
        hint="fields are written {question}; a brace itself is written {{ or }}",
    )


# --- saying what there is -------------------------------------------------------------------------


@dataclass(slots=True)
class Leaf:
    """A path that leads to something simple, with what was seen there."""

    path: str
    kind: str
    example: str
    rows: int = 0
    chars: int = 0
    texts: int = 0
    prose: int = 0  # texts of more than one word


def leaves(records: Sequence[Any], *, deepest: int = 2) -> dict[str, Leaf]:
    """Every path in the records, so many levels deep, by path: for errors and for hints.

    >>> [leaf.path for leaf in leaves([{"id": 1, "ctxs": [{"text": "a"}]}]).values()]
    ['id', 'ctxs[].text']
    """
    found: dict[str, Leaf] = {}
    for record in records:
        seen: set[str] = set()
        for path, value in _leaves_of(record, deepest):
            if (leaf := found.get(path)) is None:
                leaf = found[path] = Leaf(path, describe(value), shorten(value))
            if leaf.kind == "null" and value is not None:
                leaf.kind, leaf.example = describe(value), shorten(value)
            if isinstance(value, str):
                leaf.chars += len(value)
                leaf.texts += 1
                leaf.prose += is_prose(value)
            leaf.rows += path not in seen and value is not None
            seen.add(path)
    return found


def _leaves_of(record: Any, deepest: int) -> Iterator[tuple[str, Any]]:
    if isinstance(record, dict):
        for key, value in record.items():
            yield from _below(quote_key(str(key)), value, deepest)


def _below(name: str, value: Any, deepest: int) -> Iterator[tuple[str, Any]]:
    """The leaves of a value. A list of lists is opened only where more than two levels are."""
    inner, elements = deepest - 1, value[:_MOST_ELEMENTS] if isinstance(value, list) else []
    if inner and isinstance(value, dict) and value:
        for key, held in value.items():
            yield from _below(f"{name}{dotted(str(key))}", held, inner)
    elif inner and _all_of(elements, dict):
        for key, held in (
            (k, v) for one in elements if isinstance(one, dict) for k, v in one.items()
        ):
            yield from _below(f"{name}[]{dotted(str(key))}", held, inner)
    elif inner > 1 and _all_of(elements, list):
        for element in elements:
            yield from _below(f"{name}[]", element, inner)
    elif _all_of(elements, str) and (inner or name.endswith("[]")):
        yield from ((f"{name}[]", one) for one in elements)
    else:
        yield name, value


def _all_of(elements: list[Any], kind: type) -> bool:
    return bool(elements) and all(isinstance(element, kind) for element in elements[:3])


def quote_key(key: str) -> str:
    """A key as it has to be written at the start of a path."""
    if key and not re.search(r"[.\[\]{}\"'\\]", key) and key == key.strip():
        return key
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{escaped}"]'


def dotted(key: str) -> str:
    """A key as it has to be written after something else."""
    quoted = quote_key(key)
    return quoted if quoted.startswith("[") else f".{quoted}"


def shorten(value: Any) -> str:
    """One line, about 60 characters, control characters escaped."""
    if isinstance(value, list | dict):
        # repr of a huge structure would be built only to be cut.
        return f"{len(value)} elements" if isinstance(value, list) else f"{len(value)} keys"
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    escaped = escape(value[: EXAMPLE_CHARS + 1] if isinstance(value, str) else str(value))
    if len(escaped) > EXAMPLE_CHARS:
        escaped = escaped[: EXAMPLE_CHARS - 3] + "..."
    return f'"{escaped}"' if isinstance(value, str) else escaped


def escape(text: str) -> str:
    """Text from a file made fit to be shown: what a terminal would act on is spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def field_table(records: Sequence[Any], *, most: int = 30) -> str:
    """The fields of the records, one per line: path, kind, example."""
    found = list(leaves(records).values())
    shown = [(escape(leaf.path), leaf.kind, leaf.example) for leaf in found[:most]]
    width = max((len(path) for path, _, _ in shown), default=0)
    lines = [f"  {path:<{width}}  {kind:<9}  {example}".rstrip() for path, kind, example in shown]
    if len(found) > most:
        lines.append(f"  ... and {len(found) - most} more")
    return "\n".join(lines)
