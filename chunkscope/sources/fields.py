"""Naming a part of a record: paths such as `ctxs[].text`, and templates made of them.

A path is a chain of keys, list positions and "all elements". Nothing in a path or a template is
ever evaluated: they are split up once and looked up literally.
"""

import re
from codecs import utf_16_le_encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import EllipsisType
from typing import Any

from chunkscope.errors import UsageError

# A key, a position in a list, or `...` for every element of a list.
Step = str | int | EllipsisType

EXAMPLE_CHARS = 60


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


def text_at(record: Any, path: FieldPath, joiner: str, *, numbers: bool = False) -> str:
    """The text a path leads to; a list of texts is joined. Raises UnusableError otherwise."""
    value = path.get(record)
    if isinstance(value, str):
        return value
    name = f'field "{path.text}"' if path.steps else "the row"
    if isinstance(value, list):
        try:
            return joiner.join(_texts_in(value, name))
        except RecursionError:
            raise UnusableError(f"{name} is nested too deeply") from None
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise UnusableError(f"{name} is null")
    raise UnusableError(f"{name} is {describe(value)}, not text")


def _texts_in(values: list[Any], name: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield from _texts_in(value, name)
        elif isinstance(value, str):
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

_PATH_PART = re.compile(
    r"""
      \[ \s* (?P<index> -?\d{1,9} ) \s* \]
    | (?P<all> \[ \s* \] )
    | \[ \s* (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) \s* \]
    | (?P<key> [^.\[\]]+ )
    """,
    re.VERBOSE,
)


def parse_path(text: str) -> FieldPath:
    """Split `turns[0]`, `a.b`, `ctxs[].text` or `["odd key"]` into steps."""
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
    ('Q: ', FieldPath(text='question', steps=('question',)), '\n')
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


def leaves(records: Sequence[Any], *, most_elements: int = 50) -> dict[str, Leaf]:
    """Every path in the records, two levels deep, by path: for errors and for hints.

    >>> [leaf.path for leaf in leaves([{"id": 1, "ctxs": [{"text": "a"}]}]).values()]
    ['id', 'ctxs[].text']
    """
    found: dict[str, Leaf] = {}
    for record in records:
        seen: set[str] = set()
        for path, value in _leaves_of(record, most_elements):
            leaf = found.setdefault(path, Leaf(path, describe(value), shorten(value)))
            if leaf.kind == "null" and value is not None:
                leaf.kind, leaf.example = describe(value), shorten(value)
            leaf.chars += len(value) if isinstance(value, str) else 0
            leaf.rows += path not in seen and value is not None
            seen.add(path)
    return found


def _leaves_of(record: Any, most_elements: int) -> Iterator[tuple[str, Any]]:
    if not isinstance(record, dict):
        return
    for key, value in record.items():
        name = quote_key(str(key))
        if isinstance(value, dict) and value:
            yield from ((f"{name}{dotted(str(k))}", v) for k, v in value.items())
        elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value[:3]):
            for element in value[:most_elements]:
                if isinstance(element, dict):
                    yield from ((f"{name}[]{dotted(str(k))}", v) for k, v in element.items())
        elif isinstance(value, list) and value and all(isinstance(v, str) for v in value[:3]):
            yield from ((f"{name}[]", v) for v in value[:most_elements])
        else:
            yield name, value


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
