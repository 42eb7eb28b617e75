"""What the prompts of a dataset share, and the order in which they are sent: values, no arithmetic.

Made by `analyze` (stretches.py), kept in the profile; the simulator's requests and the prompts of
`verify` come from it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from chunkscope.artefacts.schema import Count
from chunkscope.errors import InputError

RUN = 50  # prompts that stay together in a sample: neighbours often share what others do not
NOTHING = -1  # the stretch of a prompt that shares nothing, and before one that begins a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Tokens that several prompts have, after all of the stretch before it (its `parent`)."""

    parent: int
    tokens: Count


def depths(stretches: Sequence[Stretch]) -> list[int]:
    """By stretch, how many tokens of a prompt there are up to its end.

    >>> depths([Stretch(parent=-1, tokens=32), Stretch(parent=0, tokens=16)])
    [32, 48]
    """
    found: list[int] = []
    for stretch in stretches:
        found.append((found[stretch.parent] if stretch.parent >= 0 else 0) + stretch.tokens)
    return found


class PathPart(NamedTuple):
    """Blocks `start` to `end` of a prompt, which all prompts of this stretch have."""

    stretch: int
    start: int
    end: int


Path = tuple[PathPart, ...]


def block_paths(stretches: Sequence[Stretch], block_size: int) -> list[Path]:
    """By stretch, the full blocks that a prompt which ends in it begins with.

    A block belongs to the stretch of its last token: with that, prompts share all before it.
    """
    paths: list[Path] = []
    for place, (stretch, depth) in enumerate(zip(stretches, depths(stretches), strict=True)):
        before = paths[stretch.parent] if stretch.parent >= 0 else ()
        part = PathPart(place, (depth - stretch.tokens) // block_size, depth // block_size)
        paths.append((*before, part) if part.start < part.end else before)
    return paths


def shared_by_neighbours(ends: Sequence[int], stretches: Sequence[Stretch]) -> int:
    """Tokens that a prompt has in common with the one before it, summed up over all of them.

    >>> tree = [Stretch(parent=-1, tokens=32), Stretch(parent=0, tokens=16)]
    >>> shared_by_neighbours([1, 1, 0, -1], tree)
    80
    """
    deep = [*depths(stretches), 0]  # NOTHING is the last of them
    total = 0
    for one, other in pairwise(ends):
        while one != other:  # a parent comes before its children
            one, other = min(one, other), stretches[max(one, other)].parent
        total += deep[one]
    return total


def check_stretches(stretches: Sequence[Stretch], ends: Iterable[int]) -> None:
    """InputError unless parents come before their children and all `ends` are there."""
    if any(not NOTHING <= s.parent < place for place, s in enumerate(stretches)):
        raise InputError("a stretch follows one that does not come before it")
    if not all(NOTHING <= end < len(stretches) for end in ends):
        raise InputError("a prompt ends in a stretch that is not there")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The prompts of a dataset in the order in which they are sent, and what each begins with.

    Of a dataset with very many prompts only a part is kept: it has more `rows` than these.
    """

    lengths: tuple[Count, ...]  # by prompt, in tokens
    ends: tuple[int, ...]  # by prompt, the last stretch that it shares with others, or NOTHING
    stretches: tuple[Stretch, ...]  # parents before their children

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.ends):
            raise InputError("not every prompt has a length and a stretch")
        check_stretches(self.stretches, self.ends)

    def longest_first(self) -> "Sharing":
        """As lm-eval sends them; of equal length, those that begin alike one after the other."""
        places = range(len(self.lengths))
        return self._in_order(sorted(places, key=lambda p: (-self.lengths[p], self.ends[p], p)))

    def _in_order(self, places: Sequence[int]) -> "Sharing":
        return Sharing(
            lengths=tuple(self.lengths[place] for place in places),
            ends=tuple(self.ends[place] for place in places),
            stretches=self.stretches,
        )

    def to_json(self) -> dict[str, str]:
        """A line of numbers each: as lists they would fill most of a profile."""
        return {
            "lengths": _line(self.lengths),
            "ends": _line(self.ends),
            "parents": _line(stretch.parent for stretch in self.stretches),
            "tokens": _line(stretch.tokens for stretch in self.stretches),
        }

    @classmethod
    def fields_of(cls, written: dict[str, str]) -> dict[str, Any]:
        """The reverse of `to_json`, of values that are not checked yet."""
        found = {name: [int(number) for number in line.split()] for name, line in written.items()}
        pairs = zip(found.pop("parents"), found.pop("tokens"), strict=True)
        stretches = [{"parent": parent, "tokens": tokens} for parent, tokens in pairs]
        return {**found, "stretches": stretches}

    @classmethod
    def of_json(cls, written: dict[str, str]) -> "Sharing":
        """From what was written of it, unchecked."""
        found = cls.fields_of(written)
        return cls(
            lengths=tuple(found["lengths"]),
            ends=tuple(found["ends"]),
            stretches=tuple(Stretch(**stretch) for stretch in found["stretches"]),
        )


def _line(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))
