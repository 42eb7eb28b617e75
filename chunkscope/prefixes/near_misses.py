"""What spoils reuse: prompts that are the same but for something early in them.

A date, an id, shots in another order: the lines after it are the same, and no cache
finds them. A sample of the texts is compared, line by line, so that time and memory do
not depend on the dataset's size.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from chunkscope.prefixes.reuse import NearMiss

TEXTS = 64  # that are compared, of a dataset
CHARS = 6_000  # of a text
LEAST_CHARS = 400  # of a text, that an earlier one has too: less is not worth a line
LEAST_PART = 0.25  # of a text, likewise
MOST_NEW = 0.2  # of a text up to what is lost: with more it is another document
FEWEST = 4  # texts that have to miss another: fewer are chance
LEAST_TEXTS = 0.1  # of the sample, likewise
LEAST_LOST = 0.05  # of all tokens: less is not worth a line
CUT_WORD = re.compile(r"\s\S*$")  # the last word of "what is cu"
AROUND = 24  # characters that are shown on each side of a difference

S = TypeVar("S", str, bytes)
Text = tuple[int, str]  # with its position


@dataclass(frozen=True, slots=True)
class Miss:
    """A text that has many lines of an earlier one, and begins differently."""

    lost_chars: int
    text: Text
    earlier: Text


def same_start(one: S, other: S) -> int:
    """How many characters or bytes they begin with in common.

    >>> same_start("to be", "to do")
    3
    """
    if other.startswith(one):
        return len(one)
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
    lost_chars = sum(miss.lost_chars for miss in misses)
    lost_tokens = round(lost_chars * scale * tokens / chars)
    if not misses or lost_tokens < LEAST_LOST * tokens:
        return ()
    worst = max(misses, key=lambda miss: miss.lost_chars)
    position, text = worst.text
    earlier_position, earlier = worst.earlier
    differ = same_start(text, earlier)
    start = max(0, differ - AROUND)
    near_miss = NearMiss(
        prompts=round((len(misses) + 1) * scale),
        lost_tokens=lost_tokens,
        position=position,
        other_position=earlier_position,
        text=_shown(text, start, differ),
        other_text=_shown(earlier, start, differ),
        same_before=differ - start,
    )
    return (near_miss,)


def _shown(text: str, start: int, differ: int) -> str:
    """Up to the end of a word, if one ends after the difference."""
    rest = text[differ + 1 : differ + AROUND]
    return text[start : differ + 1] + CUT_WORD.sub("", rest)


def misses_in(sample: Sequence[Text]) -> list[Miss]:
    """Texts that have much of an earlier one, behind what they and others begin with.
    None if there are only a few, which is chance."""
    texts = sorted(sample)
    lines_of = [text.splitlines(keepends=True) for _, text in texts]
    starts = _shared_starts(lines_of)
    first_with: dict[str, int] = {}  # by line, the first text that has it
    misses = []
    for number, lines in enumerate(lines_of):
        lost: Counter[int] = Counter()  # by earlier text, characters
        new_chars = new_before_last = 0
        for place, line in enumerate(lines):
            earlier = first_with.get(line)
            if earlier is None:
                new_chars += len(line)
            elif place >= starts[number]:
                lost[earlier] += len(line)
                new_before_last = new_chars
        for line in lines:
            first_with.setdefault(line, number)
        chars = len(texts[number][1])
        is_much = lost.total() >= max(LEAST_CHARS, LEAST_PART * chars)
        if is_much and new_before_last <= MOST_NEW * chars:
            ((earlier, _),) = lost.most_common(1)
            misses.append(Miss(lost.total(), texts[number], texts[earlier]))
    if len(misses) < max(FEWEST, LEAST_TEXTS * len(texts)):
        return []
    return misses


def _shared_starts(lines_of: Sequence[Sequence[str]]) -> list[int]:
    """By text, with how many lines another one begins too."""
    counts: Counter[int] = Counter()
    starts_of = []
    for lines in lines_of:
        starts, start = [], 0
        for line in lines:
            start = hash((start, line))
            starts.append(start)
        counts.update(starts)
        starts_of.append(starts)
    return [sum(counts[start] > 1 for start in starts) for starts in starts_of]
