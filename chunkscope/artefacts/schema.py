"""Checking what was read against a dataclass: every field, its type, and nothing more."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import orjson
from annotated_types import Ge, Gt

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Gt(0)]


class Numbers(tuple[int, ...]):
    """Many whole numbers, which a file has as one line: as a list they would fill most of it.

    >>> plain(Numbers([3, -1]))
    '3 -1'
    """

    __slots__ = ()

    @classmethod
    def parse(cls, line: str) -> "Numbers":
        return cls(map(int, line.split()))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema())


NO_NUMBERS = Numbers()


def plain(document: Any) -> Any:
    """The same as JSON gives it back: dataclasses as dictionaries, tuples as lists."""
    return orjson.loads(dumped(document))


def dumped(document: Any) -> bytes:
    """As JSON, which `built` takes back."""
    return orjson.dumps(document, default=_line, option=orjson.OPT_NON_STR_KEYS)


def _line(value: Any) -> str:
    if isinstance(value, Numbers):
        return " ".join(map(str, value))
    raise TypeError(f"{type(value).__name__} cannot be written")


def validated(kind: type[T], document: Any) -> T:
    """The document as a `kind`; ValueError for a field that is wrong, missing or unknown."""
    from pydantic import ValidationError

    try:
        value: tuple[T] = _adapter(kind).validate_json(orjson.dumps([document]))  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}") from None
    return value[0]


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    """Of a tuple: pydantic takes no settings for a dataclass alone."""
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return TypeAdapter(tuple[kind], config=config)


def built(kind: Any, value: Any) -> Any:
    """A value from its JSON, unchecked and quickly: for what we keep under a checksum ourselves.

    >>> built(dict[int, Numbers], {"3": "1 2"})
    {3: (1, 2)}
    """
    origin, parts = get_origin(kind), get_args(kind)
    if value is None or kind is Any:
        return value
    if kind is Numbers:
        return Numbers.parse(value)
    if origin is Annotated:
        return built(parts[0], value)
    if origin in (Union, UnionType):
        classes = [part for part in parts if is_dataclass(part)]
        return built(classes[0], value) if classes and isinstance(value, dict) else value
    if origin is tuple:
        return tuple(built(parts[0], part) for part in value)
    if origin in (dict, Mapping):
        is_number = parts[0] is not str
        return {int(k) if is_number else k: built(parts[1], part) for k, part in value.items()}
    if is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        return kind(**{name: built(hints[name], part) for name, part in value.items()})  # type: ignore[operator]
    return value


_hints = cache(partial(get_type_hints, include_extras=True))
