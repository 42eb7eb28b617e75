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
Duration = Annotated[float, Gt(0)]  # in seconds, of something that took time


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


def check_same(found: Any, expected: Any, optional: frozenset[str], at: str = "") -> None:
    """SchemaError where a document is not as expected; `optional` keys need not be there.

    >>> check_same({"a": [1, 2]}, {"a": [1, 3], "b": 0}, frozenset({"b"}))
    Traceback (most recent call last):
    chunkscope.artefacts.schema.SchemaError: a.1 does not follow from the rest
    """
    if orjson.dumps(found) == orjson.dumps(expected):
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        if lacking := [name for name in expected if name not in found and name not in optional]:
            raise SchemaError(f"{at}{lacking[0]} is missing")
        if unknown := [name for name in found if name not in expected]:
            raise SchemaError(f"{at}{unknown[0]} is not known")
        pairs = [(name, value, expected[name]) for name, value in found.items()]
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = [(place, *pair) for place, pair in enumerate(zip(found, expected, strict=True))]
    elif {type(found), type(expected)} == {int, float} and found == expected:  # 3 for 3.0
        return
    else:
        raise SchemaError(f"{at.removesuffix('.')} does not follow from the rest")
    for name, one, other in pairs:
        check_same(one, other, optional, f"{at}{name}.")
