"""Prompts of random token ids that share what the data's prompts share, and nothing else."""

import random
from collections import defaultdict
from itertools import count
from typing import Any


class SharingIds:
    """A prompt is the ids of its stretches, one after the other, and ids of its own after them.

    `stretches` are (the stretch before it or -1, tokens), `ends` the last stretch of each prompt.
    What follows the same stretch begins with another id each, as long as there are enough of them:
    random ones alone would now and then go on alike. The same seed makes the same prompts.
    """

    def __init__(
        self, stretches: "list[Any]", ends: "list[int]", ids: "tuple[int, int]"
    ) -> None:
        self._stretches, self._ends, self._ids = stretches, ends, ids
        turns: defaultdict[int, count[int]] = defaultdict(
            count
        )  # by stretch, the ways it goes on
        self._turn_of_stretch = [next(turns[parent]) for parent, _ in stretches]
        self._turn_of_prompt = [next(turns[end]) for end in ends]
        self._made: dict[tuple[str, int], list[int]] = {}  # by seed and stretch

    def prompt(self, seed: str, index: int, length: int) -> "list[int]":
        parts, stretch = [], self._ends[index]
        while stretch >= 0:
            parts.append(self._stretch(seed, stretch))
            stretch = self._stretches[stretch][0]
        ids = [number for part in reversed(parts) for number in part][:length]
        rest = random_ids(f"{seed}/{index}", length - len(ids), self._ids)
        return ids + self._begun(
            rest, seed, self._ends[index], self._turn_of_prompt[index]
        )

    def _stretch(self, seed: str, stretch: int) -> "list[int]":
        if (seed, stretch) not in self._made:
            parent, tokens = self._stretches[stretch]
            ids = random_ids(f"{seed}/stretch/{stretch}", tokens, self._ids)
            turn = self._turn_of_stretch[stretch]
            self._made[seed, stretch] = self._begun(ids, seed, parent, turn)
        return self._made[seed, stretch]

    def _begun(self, ids: "list[int]", seed: str, after: int, turn: int) -> "list[int]":
        if ids:
            first, end = self._ids
            shift = random_ids(f"{seed}/after/{after}", 1, self._ids)[0]
            ids[0] = first + (shift + turn) % (end - first)
        return ids


def random_ids(seed: str, length: int, ids: "tuple[int, int]") -> "list[int]":
    return random.Random(seed).choices(range(*ids), k=length)
