"""Prompts of random token ids that share what the data's prompts share, no more."""

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chunkscope_sessions import SentSession


class SharingIds:
    """Makes prompts: the ids of a prompt's stretches, and after them ids of its own.

    `stretches` are pairs of the stretch before (or -1) and a number of tokens, `ends`
    the last stretch of each session's first prompt (or -1). What is random goes on
    alike now and then for a token, never for a block of them. The same seed makes the
    same prompts.
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

    def texts(
        self, seed: str, session: "SentSession", number: int
    ) -> "list[list[int]]":
        """The ids that each turn of a session adds to what it keeps.

        `number` tells sessions apart that have no place in the workload.
        """
        length = session.turns[0].prompt_tokens
        if session.place is None:
            name = f"{seed}/alone/{number}"
            shared = []
        else:
            name = f"{seed}/{session.place}"
            shared = self._shared(seed, session.place)[:length]
        texts = [shared + self._random(name, length - len(shared))]
        for place, turn in enumerate(session.turns[1:], start=1):
            new = turn.prompt_tokens - turn.kept_tokens
            texts.append(self._random(f"{name}/turn/{place}", new))
        return texts

    def _shared(self, seed: str, place: int) -> "list[int]":
        """The ids of the stretches that the session at this place begins with."""
        ids: list[int] = []
        stretch = self._ends[place]
        while stretch >= 0:
            parent, tokens = self._stretches[stretch]
            ids = self._random(f"{seed}/stretch/{stretch}", tokens) + ids
            stretch = parent
        return ids

    def _random(self, seed: str, length: int) -> "list[int]":
        return random.Random(seed).choices(range(*self._ids), k=length)
