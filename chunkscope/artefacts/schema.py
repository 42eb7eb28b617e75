"""Checking what was read against a dataclass: every field, its type, and nothing more."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import orjson
from annotated_types import Ge, Gt

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Gt(0)]


class SchemaError(ValueError):
    """What is wrong with a document, and where."""


def plain(document: Any) -> Any:
    """The same as JSON gives it back: dataclasses as dictionaries, tuples as lists."""
    try:
        return orjson.loads(orjson.dumps(document))
    except TypeError as error:
        raise SchemaError(str(error)) from None


def validated(kind: type[T], document: Any) -> T:
    """The document as a `kind`; SchemaError for a field that is wrong, missing or unknown."""
    from pydantic import ValidationError

    try:
        (value,) = _adapter(kind).validate_json(orjson.dumps([document]))  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SchemaError(f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}") from None
    except TypeError as error:
        raise SchemaError(str(error)) from None
    found: T = value
    return found


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    """Of a tuple: pydantic takes no settings for a dataclass alone."""
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return TypeAdapter(tuple[kind], config=config)


def difference(found: Any, expected: Any, optional: frozenset[str]) -> str | None:
    """Where two documents differ first; keys that are `optional` may be missing in `found`.

    >>> difference({"a": [1, 2]}, {"a": [1, 3], "b": 0}, frozenset({"b"}))
    'a.1'
    """
    if orjson.dumps(found) == orjson.dumps(expected):
        return None
    if isinstance(found, dict) and isinstance(expected, dict):
        names = [*found, *(name for name in expected if name not in found and name not in optional)]
        pairs = [(name, found.get(name, _MISSING), expected.get(name, _MISSING)) for name in names]
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = [(place, *pair) for place, pair in enumerate(zip(found, expected, strict=True))]
    else:
        numbers = {type(found), type(expected)} == {int, float}  # 3 for 3.0
        return None if numbers and found == expected else ""
    for name, one, other in pairs:
        if one is _MISSING or other is _MISSING:
            return str(name)
        if (where := difference(one, other, optional)) is not None:
            return f"{name}.{where}" if where else str(name)
    return None


_MISSING = object()
