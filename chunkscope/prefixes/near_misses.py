"""What spoils reuse: prompts that are the same but for something early in them.

A date, an id, shots in another order: what comes after it is the same text, and no cache finds it.
A sample of the texts is compared, so that time and memory do not depend on the dataset's size.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from chunkscope.prefixes.reuse import NearMiss

TEXTS = 64  # that are compared, of a dataset
CHARS = 6_000  # of a text
_WORD = re.compile(r"\w{1,8}\W*|\W+")
_WINDOW = 32  # characters that have to be the same for a word to be at a place that is the same
_LEAST_CHARS, _LEAST_PART = (
    400,
    0.25,
)  # of a text, that another one has too: less is not lost
_MOST_NEW = (
    0.2  # of a text up to what is lost: more is a document, not a small difference
)
_FEWEST, _LEAST_TEXTS = (
    4,
    0.1,
)  # texts that have to miss another, of the sample: fewer are chance
_LEAST_LOST = 0.05  # of all tokens: less is not worth a line
_CUT_WORD = re.compile(r"\s\S*$")
_AROUND = 24  # characters that are shown on each side of a difference

S = TypeVar("S", str, bytes)
Text = tuple[int, str]  # with its position
Miss = tuple[
    int, Text, Text
]  # how many characters are lost; the text, and what it misses


def same_start(one: S, other: S) -> int:
    """How many characters or bytes they begin with in common.

    >>> same_start("to be", "to do")
    3
    """
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def near_misses(
    misses: Sequence[Miss], *, compared: int, prompts: int, tokens: int, chars: int
) -> tuple[NearMiss, ...]:
    """What a dataset of that size loses, by the misses among so many of its texts."""
    scale = prompts / max(1, compared)
    lost_tokens = round(sum(lost for lost, _, _ in misses) * scale * tokens / chars)
    if not misses or lost_tokens < _LEAST_LOST * tokens:
        return ()
    _, (position, text), (other_position, other) = max(misses)
    differ = same_start(text, other)
    start = max(0, differ - _AROUND)  # at a word, if one begins before the difference
    start = text.find(" ", start, differ) + 1 or start if start else 0
    place, end = differ + 1, differ + _AROUND
    shown = [t[start:place] + _CUT_WORD.sub("", t[place:end]) for t in (text, other)]
    return (
        NearMiss(
            prompts=round((len(misses) + 1) * scale),
            lost_tokens=lost_tokens,
            position=position,
            other_position=other_position,
            text=shown[0],
            other_text=shown[1],
            same_before=differ - start,
        ),
    )


def misses_in(sample: Sequence[Text]) -> list[Miss]:
    """Texts that have much of an earlier one, behind what they and others begin with: how many
    characters, and both. None if there are only a few, which is chance."""
    sample = sorted(sample)
    texts, enough = (
        [text for _, text in sample],
        max(_FEWEST, _LEAST_TEXTS * len(sample)),
    )
    shared = [0] * len(texts)  # by text, the longest beginning that another has too
    for one, other in pairwise(
        sorted(range(len(texts)), key=lambda place: texts[place])
    ):
        same = same_start(texts[one], texts[other])
        shared[one], shared[other] = max(shared[one], same), max(shared[other], same)
    least = [max(_LEAST_CHARS, int(_LEAST_PART * len(text))) for text in texts]
    may_lose = [len(t) - s >= n for t, s, n in zip(texts, shared, least, strict=True)]
    if sum(may_lose) < enough:
        return []
    first_with: dict[
        str, int
    ] = {}  # by what is at a word's place: the first text that has it
    misses: list[Miss] = []
    for number, text in enumerate(texts):
        words = [match.span() for match in _WORD.finditer(text)]
        windows = [text[start : start + _WINDOW] for start, _ in words]
        earlier_ones = zip(words, map(first_with.get, windows), strict=True)
        again = [
            (*word, earlier) for word, earlier in earlier_ones if earlier is not None
        ]
        for what in windows:
            first_with.setdefault(what, number)
        lost = [
            (end - start, earlier)
            for start, end, earlier in again
            if start >= shared[number]
        ]
        lost_chars = sum(size for size, _ in lost)
        if lost_chars < least[number]:
            continue
        new_chars = again[-1][1] - sum(end - start for start, end, _ in again)
        if new_chars <= _MOST_NEW * again[-1][1]:
            ((earlier, _),) = Counter(earlier for _, earlier in lost).most_common(1)
            misses.append((lost_chars, sample[number], sample[earlier]))
    return misses if len(misses) >= enough else []
