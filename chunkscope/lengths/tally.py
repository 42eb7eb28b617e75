"""Adds up the lengths of one dataset while it is read."""

import heapq
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import LongPrompt


class Tally:
    """Counts, characters and the longest prompts of the rows seen so far."""

    def __init__(self, keep_longest: int) -> None:
        self._untold = 0
        self.chars: int | None = None
        self.media_rows = 0
        self.engine: str | None = None
        self._keep = keep_longest
        self._counts: Counter[int] = Counter()
        self._outputs: Counter[int] | None = None
        self._longest: list[tuple[int, int]] = []
        self._shortest_kept = -1  # of those kept when they were last sorted

    def add(self, positions: Sequence[int], lengths: list[int]) -> None:
        if not lengths:
            return
        self._counts.update(lengths)
        self._untold += sum(lengths)
        # Most chunks hold none of the longest prompts; one `max` tells.
        room = len(self._longest) < self._keep
        if room or (self._keep and max(lengths) > self._shortest_kept):
            self._longest += zip(lengths, positions, strict=True)
            if len(self._longest) >= 2 * self._keep:  # seldom, however many are to be kept
                self._sort()

    def _sort(self) -> None:
        """Keep the longest; of equal ones, those that come first."""
        self._longest = heapq.nlargest(self._keep, self._longest, key=itemgetter(0))
        if self._longest:
            self._shortest_kept = self._longest[-1][0]

    def untold_tokens(self) -> int:
        """Tokens since the last call, for progress."""
        told, self._untold = self._untold, 0
        return told

    def add_chars(self, chars: int) -> None:
        self.chars = (self.chars or 0) + chars

    def add_outputs(self, lengths: list[int]) -> None:
        if self._outputs is None:
            self._outputs = Counter()
        self._outputs.update(lengths)

    @property
    def lengths(self) -> LengthHistogram:
        return LengthHistogram(dict(self._counts))

    @property
    def output_lengths(self) -> LengthHistogram | None:
        return LengthHistogram(dict(self._outputs)) if self._outputs is not None else None

    @property
    def longest(self) -> tuple[LongPrompt, ...]:
        self._sort()
        return tuple(LongPrompt(tokens=n, position=at) for n, at in self._longest)
