"""What spoils reuse: prompts that are the same but for something early in them.

A date, an id, shots in another order: what comes after it is the same text, and no cache finds it.
A sample of the texts is compared, so that time and memory do not depend on the dataset's size.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log
from typing import NamedTuple

import numpy as np

from chunkscope.prefixes.block_hashes import mixed
from chunkscope.prefixes.prefixes import Hashes
from chunkscope.prefixes.reuse import NearMiss

_MOST_TEXTS = 256
_MOST_CHARS = 6_000  # of a text
_WINDOW = 32  # characters that have to be the same for a place to be the same
_EVERY = 32  # of so many places one is looked at
_SMALL = 96  # characters: a difference that could be left out, or put at the end
_LEAST = 400  # characters of the same text after it
_LEAST_PART = 0.25  # of a text
_MOVED = 0.8  # of a text's places that an earlier one has in another order
_MOST_SHOWN = 3
_LEAST_LOST = 0.05  # of all tokens: less is not worth a line
_LEAST_TEXTS = 0.1  # of the sample
_FEWEST = 4  # that have to miss another
_AROUND = 24  # characters that are shown on each side of a difference

_FACTOR = 0x9E3779B97F4A7C15
_POWERS: Hashes = np.cumprod(np.full(_MOST_CHARS + 1, _FACTOR, np.uint64), dtype=np.uint64)
_INVERSE = pow(_FACTOR, -1, 1 << 64)
_INVERSES: Hashes = np.cumprod(np.full(_MOST_CHARS + 1, _INVERSE, np.uint64), dtype=np.uint64)


class _Text(NamedTuple):
    position: int
    text: str


class _Known(NamedTuple):
    """A place in a text, and the earlier text that has the same at its place `there`."""

    place: int
    earlier: int
    there: int


@dataclass(frozen=True, slots=True)
class _Miss:
    """A text that goes on as an earlier one does, after a difference: places in the sample."""

    text: int
    earlier: int
    differ: int  # the first character that is another
    is_moved: bool  # its parts are in another order, or after something long
    lost_chars: int


class NearMisses:
    """A sample of the texts of a dataset, as they come: each is as likely to be in it."""

    def __init__(self) -> None:
        self._kept: list[_Text] = []
        self._offered = 0
        self._chance = random.Random(0)  # noqa: S311  (a sample, not a secret)
        self._weight = 1.0
        self._next = _MOST_TEXTS - 1  # the place of the next text that replaces another

    def offer(self, positions: Sequence[int], texts: Sequence[str]) -> None:
        room = max(0, _MOST_TEXTS - self._offered)
        for place in range(min(room, len(texts))):
            self._kept.append(_Text(positions[place], texts[place][:_MOST_CHARS]))
        if len(self._kept) == _MOST_TEXTS and self._weight == 1.0:
            self._skip()
        while self._next < self._offered + len(texts):
            place = self._next - self._offered
            kept = _Text(positions[place], texts[place][:_MOST_CHARS])
            self._kept[self._chance.randrange(_MOST_TEXTS)] = kept
            self._skip()
        self._offered += len(texts)

    def _skip(self) -> None:
        """How far the next one is: as far as one would be that is drawn each time (algorithm L)."""
        self._weight *= self._chance.random() ** (1 / _MOST_TEXTS)
        self._next += 1 + floor(log(1 - self._chance.random()) / log(1 - self._weight))

    def found(self, *, tokens: int, chars: int | None) -> tuple[NearMiss, ...]:
        """The groups that lose most, of a dataset of so many tokens and characters."""
        if not chars or len(self._kept) <= _FEWEST:  # the first misses none
            return ()
        sample = sorted(self._kept)
        scale = tokens / chars * self._offered / len(sample)
        groups = [group for group in _groups(_misses(sample)) if len(group) >= _enough(sample)]
        named = [_named(group, sample, scale, self._offered) for group in groups]
        named.sort(key=lambda one: -one.lost_tokens)
        return tuple(n for n in named[:_MOST_SHOWN] if n.lost_tokens >= _LEAST_LOST * tokens)


def _enough(sample: Sequence[_Text]) -> float:
    """How many have to miss another: fewer are a coincidence."""
    return max(_FEWEST, _LEAST_TEXTS * len(sample))


def _misses(sample: Sequence[_Text]) -> Iterator[_Miss]:
    """Each text beside the earlier one that has most of what follows its shared beginning."""
    shared = _shared_chars(sample)
    least = [max(_LEAST, int(_LEAST_PART * len(text))) for _, text in sample]
    left = [len(text) - same for same, (_, text) in zip(shared, sample, strict=True)]
    if sum(rest >= lost for rest, lost in zip(left, least, strict=True)) < _enough(sample):
        return
    first_with: dict[int, tuple[int, int]] = {}  # by what is there: the text, and the place in it
    for number, (_, text) in enumerate(sample):
        places = _looked_at(text)
        known = [_Known(place, *first_with[what]) for place, what in places if what in first_with]
        for place, what in places:
            first_with.setdefault(what, (number, place))
        lost = [one for one in known if one.place >= shared[number]]
        if len(lost) * _EVERY >= least[number] / 2:
            miss = _miss(number, sample, lost, is_moved=_is_moved(places, known))
            if miss.lost_chars >= least[number]:
                yield miss


def _miss(number: int, sample: Sequence[_Text], lost: Sequence[_Known], *, is_moved: bool) -> _Miss:
    ((earlier, _),) = Counter(one.earlier for one in lost).most_common(1)
    text, other = sample[number].text, sample[earlier].text
    differ = _alike(text, other)
    first = next(one for one in lost if one.earlier == earlier)
    chars = _goes_on(text, other, differ, first.place, first.there)
    if is_moved and not chars:
        return _Miss(number, earlier, differ, True, _known_elsewhere(text, lost, sample))
    return _Miss(number, earlier, differ, False, chars)


def _is_moved(places: Sequence[tuple[int, int]], known: Sequence[_Known]) -> bool:
    """Is nearly all up to the last known place known, such as shots in another order?"""
    return len(known) >= _MOVED * sum(place <= known[-1].place for place, _ in places)


def _known_elsewhere(text: str, lost: Sequence[_Known], sample: Sequence[_Text]) -> int:
    """How many characters earlier texts have too, from the places that they have in common on."""
    total = reached = 0
    for place, other, there in lost:
        if place >= reached:
            chars = _alike(text[place:], sample[other].text[there:])
            total, reached = total + chars, place + chars
    return total


def _shared_chars(sample: Sequence[_Text]) -> list[int]:
    """By text, the longest beginning that another has too: the one next to it in the dictionary."""
    shared = [0] * len(sample)
    order = sorted(range(len(sample)), key=lambda place: sample[place].text)
    for one, other in pairwise(order):
        same = _alike(sample[one].text, sample[other].text)
        shared[one], shared[other] = max(shared[one], same), max(shared[other], same)
    return shared


def _looked_at(text: str) -> list[tuple[int, int]]:
    """Places in a text, chosen by what is there, and what that is."""
    chars = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    if len(chars) < _WINDOW:
        return []
    sums: Hashes = np.zeros(len(chars) + 1, np.uint64)
    np.cumsum(chars * _POWERS[: len(chars)], out=sums[1:])
    windows = sums[_WINDOW:] - sums[:-_WINDOW]
    hashes: Hashes = mixed(windows * _INVERSES[: len(windows)])
    places = np.flatnonzero(hashes % np.uint64(_EVERY) == 0)
    return list(zip(places.tolist(), hashes[places].tolist(), strict=True))


def _goes_on(text: str, earlier: str, differ: int, place: int, there: int) -> int:
    """For how many characters they go on alike after a small difference; 0 if it is a large one."""
    while min(place, there) > differ and text[place - 1] == earlier[there - 1]:
        place, there = place - 1, there - 1
    if max(place, there) - differ > _SMALL:
        return 0
    return _alike(text[place:], earlier[there:])


def _alike(text: str, other: str) -> int:
    """How many characters they begin with in common.

    >>> _alike("to be", "to do")
    3
    """
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(text[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _groups(misses: Iterable[_Miss]) -> Iterable[list[_Miss]]:
    """Those whose small difference is at about the same place; those whose parts are moved."""
    groups: dict[int | None, list[_Miss]] = {}
    for miss in misses:
        groups.setdefault(None if miss.is_moved else miss.differ // _SMALL, []).append(miss)
    return groups.values()


def _named(group: Sequence[_Miss], sample: Sequence[_Text], scale: float, rows: int) -> NearMiss:
    miss = max(group, key=lambda miss: miss.lost_chars)
    (position, text), (other, earlier) = sample[miss.text], sample[miss.earlier]
    around = slice(max(0, miss.differ - _AROUND), miss.differ + _AROUND)
    return NearMiss(
        prompts=round((len(group) + 1) * rows / len(sample)),
        lost_tokens=round(sum(miss.lost_chars for miss in group) * scale),
        position=position,
        other_position=other,
        text=text[around],
        other_text=earlier[around],
        same_before=min(miss.differ, _AROUND),
    )
