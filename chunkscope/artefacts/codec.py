"""Dataclass -> JSON -> dataclass. A document begins with its schema and a checksum of the rest."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import date
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from chunkscope.errors import ChunkscopeError, InputError

CHECKSUM = "sha256"  # the key of a document that holds it
T = TypeVar("T")


class Numbers(tuple[int, ...]):
    """Many whole numbers, which a file has as one line: as a list they would fill most of it.

    >>> plain(Numbers([3, -1]))
    '3 -1'
    """

    __slots__ = ()


NO_NUMBERS = Numbers()


def plain(document: Any) -> Any:
    """The same as JSON gives it back: dataclasses as dictionaries, tuples as lists."""
    return orjson.loads(dumped(document))


def dumped(document: Any) -> bytes:
    """As JSON, which `built` takes back."""

    def written(value: Any) -> str:
        if isinstance(value, Numbers):
            return " ".join(map(str, value))
        raise TypeError(f"{type(value).__name__} cannot be written")

    return orjson.dumps(document, default=written, option=orjson.OPT_NON_STR_KEYS)


def dump(document: dict[str, Any]) -> bytes:
    """As JSON for people."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


_hints = cache(get_type_hints)


def built(kind: Any, value: Any, where: str = "") -> Any:
    """A value of this type from its JSON; ValueError names a part that is wrong or unknown.

    >>> built(dict[int, Numbers], {"3": "1 2"})
    {3: (1, 2)}
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any or (origin is Literal and value in parts):
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in parts:
            return None
        *others, last = (part for part in parts if part is not NoneType)
        for part in others:
            try:
                return built(part, value, where)
            except (ValueError, TypeError):
                continue
        return built(last, value, where)
    if origin in (tuple, list) and isinstance(value, list):
        return origin(built(parts[0], one, f"{where}.{n}") for n, one in enumerate(value))
    if isinstance(value, dict) and origin in (dict, Mapping):
        return {parts[0](k): built(parts[1], one, f"{where}.{k}") for k, one in value.items()}
    if isinstance(value, dict) and is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        if unknown := value.keys() - hints:
            raise ValueError(f"{where}.{min(unknown)}: unknown".lstrip("."))
        return kind(**{n: built(hints[n], one, f"{where}.{n}") for n, one in value.items()})  # type: ignore[operator]
    if isinstance(value, str) and isinstance(kind, type):
        if kind is Numbers:
            return Numbers(map(int, value.split()))
        if issubclass(kind, str | Path):
            return kind(value)
        if kind is date:
            return date.fromisoformat(value)
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(
        f"{where.lstrip('.')}: {str(value)[:40]!r} is no {getattr(kind, '__name__', kind)}"
    )


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with a checksum of everything else in it, in any order, behind its schema."""
    body = {name: value for name, value in document.items() if name != CHECKSUM}
    checksum = hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return {"schema": body["schema"], CHECKSUM: checksum, **body}


def read(path: Path, schema: str, made_by: str, build: Callable[[dict[str, Any]], T]) -> T:
    """What `build` makes of the artefact in a file; InputError where it is not one, or damaged."""
    try:
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"no such file: {path}", hint=f"run `{made_by}` first") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        document = None  # another file: data, perhaps
    return checked(document, path, schema, made_by, build)


def checked(
    document: Any, what: Path | str, schema: str, made_by: str, build: Callable[[dict[str, Any]], T]
) -> T:
    """The same of what JSON gave back."""
    written = document.get("schema") if isinstance(document, dict) else None
    if written != schema:
        raise InputError(
            f"{what} has schema {written!r}; this chunkscope reads {schema!r} here",
            hint=f"`{made_by}` writes it",
        )
    problem: object = "its checksum is not that of its content"
    try:
        if document.get(CHECKSUM) == sealed(document)[CHECKSUM]:
            return build(document)
    except (ChunkscopeError, LookupError, TypeError, ValueError, AttributeError) as error:
        problem = error
    raise InputError(f"{what} is damaged: {problem}", hint=f"make it again: `{made_by}`")
