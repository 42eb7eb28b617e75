"""What became of each request of a run: a column for each fact."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers, frame

if TYPE_CHECKING:
    import pandas as pd

MICROSECONDS = 1_000_000  # in a second


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTable:
    """The requests that ended. Times are microseconds since their repeat began.

    >>> table = RequestTable(repeat=Numbers([0]), session=Numbers([3]),
    ...     turn=Numbers([1]), prompt_tokens=Numbers([100]),
    ...     cached_tokens=Numbers([80]), output_tokens=Numbers([5]),
    ...     start_us=Numbers([0]), first_token_us=Numbers([9]), end_us=Numbers([70]))
    >>> table.served_from_cache_by_turn()
    {1: 0.8}
    """

    repeat: Numbers
    session: Numbers  # its place in the workload
    turn: Numbers
    prompt_tokens: Numbers
    cached_tokens: Numbers = NO_NUMBERS  # none of all where nobody told
    output_tokens: Numbers
    start_us: Numbers
    first_token_us: Numbers
    end_us: Numbers

    def served_from_cache_by_turn(self) -> dict[int, float]:
        """The share of the prompt tokens that were cached; empty where not told."""
        prompt_tokens: Counter[int] = Counter()
        cached_tokens: Counter[int] = Counter()
        columns = zip(self.turn, self.prompt_tokens, self.cached_tokens, strict=False)
        for turn, prompt, cached in columns:
            prompt_tokens[turn] += prompt
            cached_tokens[turn] += cached
        shares = {}
        for turn in sorted(prompt_tokens):
            shares[turn] = cached_tokens[turn] / prompt_tokens[turn]
        return shares

    def to_frame(self) -> "pd.DataFrame":
        """One row per request, with its times in seconds."""
        rows = []
        for number in range(len(self.session)):
            cached = self.cached_tokens[number] if self.cached_tokens else None
            rows.append(
                {
                    "repeat": self.repeat[number],
                    "session": self.session[number],
                    "turn": self.turn[number],
                    "prompt_tokens": self.prompt_tokens[number],
                    "cached_tokens": cached,
                    "output_tokens": self.output_tokens[number],
                    "start_s": self.start_us[number] / MICROSECONDS,
                    "first_token_s": self.first_token_us[number] / MICROSECONDS,
                    "end_s": self.end_us[number] / MICROSECONDS,
                }
            )
        return frame(rows)
