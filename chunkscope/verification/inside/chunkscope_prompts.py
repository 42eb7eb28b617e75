"""Prompts of random token ids that share what the data's prompts share, no more."""

import random
from collections import Counter

from chunkscope_sessions import SentSession


class SharingIds:
    """Makes prompts: the ids of a prompt's stretches, and after them ids of its own.

    `stretches` are pairs of the stretch before (or -1) and a number of tokens, `ends`
    the last stretch of each session's first prompt (or -1). Whatever follows the same
    stretch begins with an id of its own, as long as there are enough ids: random ones
    alone would now and then go on alike. The same seed makes the same prompts.
    """

    def __init__(
        self,
        stretches: "list[tuple[int, int]]",
        ends: "list[int]",
        ids: "tuple[int, int]",
    ) -> None:
        self._stretches = stretches
        self._ends = ends
        self._ids = ids
        self._made: dict[tuple[str, int], list[int]] = {}  # by seed and stretch
        followers: Counter[int] = Counter()  # by stretch, what was seen to follow it
        self._turn_of_stretch = []
        for parent, _ in stretches:
            self._turn_of_stretch.append(followers[parent])
            followers[parent] += 1
        self._turn_of_prompt = []
        for end in ends:
            self._turn_of_prompt.append(followers[end])
            followers[end] += 1

    def texts(self, seed: str, session: SentSession, number: int) -> "list[list[int]]":
        """The ids that each turn of a session adds to what it keeps.

        `number` tells sessions apart that have no place in the workload.
        """
        length = session.turns[0].prompt_tokens
        if session.place is None:
            name = f"{seed}/alone/{number}"
            first = random_ids(name, length, self._ids)
        else:
            name = f"{seed}/{session.place}"
            first = self.prompt(seed, session.place, length)
        texts = [first]
        for place, turn in enumerate(session.turns[1:], start=1):
            new = turn.prompt_tokens - turn.kept_tokens
            texts.append(random_ids(f"{name}/turn/{place}", new, self._ids))
        return texts

    def prompt(self, seed: str, place: int, length: int) -> "list[int]":
        """The ids of the first prompt of the session at this place of the workload."""
        path = []
        stretch = self._ends[place]
        while stretch >= 0:
            path.append(stretch)
            stretch = self._stretches[stretch][0]
        ids = []
        for stretch in reversed(path):
            ids += self._ids_of_stretch(seed, stretch)
        ids = ids[:length]
        rest = random_ids(f"{seed}/{place}", length - len(ids), self._ids)
        turn = self._turn_of_prompt[place]
        return ids + self._apart(rest, seed, self._ends[place], turn)

    def _ids_of_stretch(self, seed: str, stretch: int) -> "list[int]":
        if (seed, stretch) not in self._made:
            parent, tokens = self._stretches[stretch]
            ids = random_ids(f"{seed}/stretch/{stretch}", tokens, self._ids)
            turn = self._turn_of_stretch[stretch]
            self._made[seed, stretch] = self._apart(ids, seed, parent, turn)
        return self._made[seed, stretch]

    def _apart(self, ids: "list[int]", seed: str, after: int, turn: int) -> "list[int]":
        """The ids, the first of them no other's that follows the stretch `after`."""
        if not ids:
            return ids
        first, end = self._ids
        shift = random_ids(f"{seed}/after/{after}", 1, self._ids)[0]
        return [first + (shift + turn) % (end - first), *ids[1:]]


def random_ids(seed: str, length: int, ids: "tuple[int, int]") -> "list[int]":
    return random.Random(seed).choices(range(*ids), k=length)
