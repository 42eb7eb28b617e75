"""What the datasets share: how banks of words are split, and how chance is used."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

SEED = 20240911

T = TypeVar("T")
Row = dict[str, Any]
Puzzle = tuple[str, str]  # what is asked, the right answer


def words(text: str) -> tuple[str, ...]:
    """Split a word bank: `words("ash birch")` is `("ash", "birch")`."""
    return tuple(text.split())


def lines(text: str) -> tuple[str, ...]:
    """Split a bank of sentences, one per line."""
    return tuple(" ".join(line.split()) for line in text.strip().splitlines())


def phrases(text: str) -> tuple[str, ...]:
    """Split a bank of phrases between semicolons: `phrases("a cup; a jug")`."""
    return tuple(" ".join(phrase.split()) for phrase in text.split(";"))


def table(text: str) -> tuple[tuple[str, ...], ...]:
    """Split a bank of records between semicolons, their fields between bars."""
    return tuple(tuple(field.strip() for field in row.split("|")) for row in phrases(text))


def rng_for(dataset: str) -> Random:
    """Each dataset has its own seed: changing one leaves the others as they are."""
    return Random(f"{SEED}/{dataset}")


def distinct(make: Callable[[], T], count: int, key: Callable[[T], object]) -> list[T]:
    """Call `make` until `count` results with different keys are there."""
    found: dict[object, T] = {}
    while len(found) < count:
        candidate = make()
        found.setdefault(key(candidate), candidate)
    return list(found.values())


def listed(names: Sequence[str]) -> str:
    """`listed(["Ivo", "Noor", "Tara"])` is "Ivo, Noor and Tara"."""
    return f"{', '.join(names[:-1])} and {names[-1]}"


def capitalised(sentence: str) -> str:
    """Unlike str.capitalize, leave the other letters alone."""
    return sentence[:1].upper() + sentence[1:]
