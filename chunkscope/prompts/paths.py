"""Naming a part of a record: paths such as `ctxs[].text`, and templates made of them.

A path is a chain of keys, list positions and "all elements". Nothing in a path or a template is
evaluated: they are split once and looked up literally.
"""

import json
import re
from codecs import utf_16_le_encode
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from string import Formatter
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
    as_json: bool = False  # `tools|json`: whatever is there, written as JSON

    @classmethod
    def to(cls, *keys: str) -> "FieldPath":
        """The path to a key, or to a key within others, whatever characters they hold."""
        quoted = quote_key(keys[0]) + "".join(map(dotted, keys[1:]))
        return cls(quoted if len(keys) > 1 else escape(keys[0]), keys)

    def then(self, step: str | int) -> "FieldPath":
        if isinstance(step, int):
            return FieldPath(f"{self.text}[{step}]", (*self.steps, step))
        text = self.text + dotted(step) if self.text else quote_key(step)
        return FieldPath(text, (*self.steps, step))

    @property
    def column(self) -> str | None:
        """The top-level field that is read, or None for the record itself."""
        first = self.steps[0] if self.steps else None
        return first if isinstance(first, str) else None

    @property
    def key(self) -> str | None:
        """The key of a path that is nothing but a key: such columns are read at once."""
        return self.column if len(self.steps) == 1 else None

    @property
    def holder(self) -> "FieldPath":
        """The object that holds it: of `question[0]` the record, of `body.messages` the body."""
        keys = [place for place, step in enumerate(self.steps) if isinstance(step, str)]
        return FieldPath(self.text, self.steps[: keys[-1]] if keys else ())

    def get(self, record: Any) -> Any:
        """The value. Raises UnusableError where there is none."""
        return _walk(record, self.steps, self.text)

    def find(self, record: Any) -> Any:
        """The value, or None where there is none."""
        try:
            return self.get(record)
        except UnusableError:
            return None


RECORD = FieldPath("", ())


def _walk(value: Any, steps: Sequence[Step], text: str) -> Any:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if not isinstance(value, dict if isinstance(step, str) else list):
        name = "an object" if isinstance(step, str) else "a list"
        raise UnusableError(
            f'field "{text}" is missing ({json_type(value)} where {name} should be)'
        )
    inside: Any = value
    if isinstance(step, EllipsisType):
        return [_walk(element, rest, text) for element in inside]
    if isinstance(step, str):
        for key, taken in spellings(steps):
            if key in inside:
                return _walk(inside[key], steps[taken:], text)
        raise UnusableError(f'field "{text}" is missing')
    if not -len(inside) <= step < len(inside):
        raise UnusableError(f'field "{text}" is missing (the list has {len(inside)} elements)')
    return _walk(inside[step], rest, text)


def spellings(steps: Sequence[Step]) -> Iterator[tuple[str, int]]:
    """The keys that the first steps may mean and how many steps each takes, longest first.

    >>> list(spellings(("a", "b", 0)))
    [('a.b', 2), ('a', 1)]
    """
    keys = list(takewhile(lambda step: isinstance(step, str), steps))
    for taken in range(len(keys), 0, -1):
        yield ".".join(map(str, keys[:taken])), taken


_TYPES = {bool: "true or false", str: "text", list: "a list", dict: "an object"}


def json_type(value: Any) -> str:
    """What a value is, in JSON's words: `json_type(3)` is "a number"."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    return "null" if value is None else _TYPES.get(type(value), f"a {type(value).__name__}")


def text_at(
    record: Any,
    path: FieldPath,
    joiner: str,
    *,
    numbers: bool = False,
    remarks: Counter[tuple[str, str]] | None = None,
) -> str:
    """The text a path leads to; a list of texts is joined. Raises UnusableError otherwise.

    `remarks` counts rows by the code of a note and the field it is about.
    """
    value = path.get(record)
    if isinstance(value, str):
        return value
    name = f'field "{path.text}"' if path.steps else "the row"
    if path.as_json and value is not None:
        try:
            return json.dumps(value, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError) as error:
            raise UnusableError(f"{name} cannot be written as JSON: {error}") from None
    if isinstance(value, list):
        texts = list(_texts_in(value, name))
        if remarks is not None and None in texts:
            remarks["nulls_skipped", path.text] += 1
        if remarks is not None and len(texts) > 1 and ... not in path.steps:
            remarks["list_joined", path.text] += 1
        return joiner.join(text for text in texts if text is not None)
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise UnusableError(f"{name} is null")
    as_json = f" (--field '{path.text}|json' counts it as JSON)" if isinstance(value, dict) else ""
    raise UnusableError(f"{name} is {json_type(value)}, not text{as_json}")


def _texts_in(values: list[Any], name: str, depth: int = 0) -> Iterator[str | None]:
    if depth > 100:
        raise UnusableError(f"{name} is nested too deeply")
    for value in values:
        if isinstance(value, list):
            yield from _texts_in(value, name, depth + 1)
        elif isinstance(value, str) or value is None:
            yield value
        else:
            raise UnusableError(f"{name} is a list that holds {json_type(value)}, not only text")


# --- parsing --------------------------------------------------------------------------------------

_AS_JSON = "|json"
_PATH_PART = re.compile(
    r"""
      \[ \s* (?P<index> -?\d{1,9} ) \s* \]
    | (?P<all> \[ \s* \] )
    | \[ \s* (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) \s* \]
    | (?: ^ | (?!^)\. ) (?P<key> [^.\[\]]+ )
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
    end = 0
    while match := _PATH_PART.match(text, end):
        steps.append(_step(match))
        end = match.end()
    if end < len(text) or not steps:
        raise UsageError(
            f"cannot read the field path {text!r}, from {text[end:]!r} on",
            hint='paths look like question, a.b, turns[0], ctxs[].text or ["odd key"]',
        )
    return FieldPath(text, tuple(steps))


def _step(match: re.Match[str]) -> Step:
    if match["index"]:
        return int(match["index"])
    if match["quoted"]:
        return re.sub(r"\\(.)", r"\1", match["quoted"][1:-1], flags=re.DOTALL)
    return match["key"] or ...


_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}

Part = str | FieldPath


def parse_template(text: str, path: Callable[[str], FieldPath] = parse_path) -> tuple[Part, ...]:
    r"""Split a template into literal text and paths, by Python's own rules for braces.

    `\n`, `\t` and `\\` in the text are what they are in most languages: a shell hands them over as
    typed.

    >>> parse_template(r"Q: {question}\n")
    ('Q: ', FieldPath(text='question', steps=('question',), as_json=False), '\n')
    """
    parts: list[Part] = []
    try:
        for literal, field, spec, conversion in Formatter().parse(text):
            literal = re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match[0]], literal)
            if literal and parts and isinstance(parts[-1], str):
                parts[-1] += literal
            elif literal:
                parts.append(literal)
            if field is not None:  # `!` and `:` format nothing here: a key may hold them
                name = (
                    field + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
                )
                parts.append(path(name.strip()))
    except ValueError as error:
        raise UsageError(
            f"cannot read the template {text!r}: {error}",
            hint="fields are written {question}; a brace itself is written {{ or }}",
        ) from None
    return tuple(parts)


# --- writing them for people ----------------------------------------------------------------------


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
    if isinstance(value, list | dict):  # repr of a huge structure would be built only to be cut
        return f"{len(value)} {'elements' if isinstance(value, list) else 'keys'}"
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


def all_unicode(texts: Iterable[str]) -> bool:
    """False when a text holds a lone surrogate, which no tokenizer can encode.

    `isascii` is a look at a flag; UTF-16 is the encoder that goes through other text fastest.
    """
    try:
        deque(map(utf_16_le_encode, [text for text in texts if not text.isascii()]), maxlen=0)
    except UnicodeEncodeError:
        return False
    return True
