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
