"""Every way in which one part of a document may be wrong: removed, negated, huge, another type."""

import math
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
GONE = object()
HUGE = 10**15 + 1  # odd, so that nothing divides it by chance
MOST_OF_A_LIST = 4  # of long lists the first, the last and one between are enough


def mutations(document: Any) -> Iterator[tuple[Path, Any]]:
    """Places in a document, each with something that may stand there instead; GONE: nothing."""
    for path, value in _places(document):
        if path:
            yield path, GONE
        for other in _instead_of(value):
            if not _equal(other, value):
                yield path, other


def mutated(document: Any, path: Path, instead: Any) -> Any:
    """A copy with that one change; all else is shared."""
    if not path:
        return instead
    copy = document.copy()
    place, rest = path[0], path[1:]
    if rest:
        copy[place] = mutated(document[place], rest, instead)
    elif instead is GONE:
        del copy[place]
    else:
        copy[place] = instead
    return copy


def _places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, value
    if isinstance(value, dict):
        for key in _some(list(value)) if _is_histogram(value) else value:
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in _some(range(len(value))):
            yield from _places(value[index], (*path, index))


def _is_histogram(value: dict[str, Any]) -> bool:
    return all(key.isdigit() for key in value)


def _some(places: Any) -> list[Any]:
    if len(places) <= MOST_OF_A_LIST:
        return list(places)
    return [places[0], places[len(places) // 2], places[-1]]


def _instead_of(value: Any) -> Iterator[Any]:
    yield None
    if isinstance(value, bool):
        yield from (not value, 0)
    elif isinstance(value, int | float):
        yield from (-value, 0, HUGE, math.nan, math.inf, str(value))
    elif isinstance(value, str):
        yield from ("", "x", 0, *_numbers_in(value))
    elif isinstance(value, list):
        yield from ([], {}, value[1:], [*value, *value[:1]])
    elif isinstance(value, dict):
        yield from ({}, [])
    else:
        yield from ("x", 0, [])


def _numbers_in(text: str) -> Iterator[str]:
    """A limit with its unit, like 5% or 200ms."""
    number = text.rstrip("%msGiBKk")
    if number and number != text and number.replace(".", "").isdigit():
        yield from (text.replace(number, new) for new in ("0", f"-{number}", str(HUGE), "nan"))


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other
