"""Some of a run's own texts, from all over it, to compare an engine with the reference."""

import random
from itertools import accumulate

_TEXTS = 128
_WINDOW = 1000  # of a longer row, some part that may lie anywhere in it
_CHARS = 24_000


class RowSample:
    """A reservoir: every text that was offered is as likely to be in it as any other."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._offered = 0
        self._chance = random.Random(0)  # noqa: S311  (a sample, not a secret)

    def offer(self, texts: list[str]) -> None:
        for text in texts[:: max(1, len(texts) // 32)]:
            self._offered += 1
            place = len(self._kept)
            if place == _TEXTS:
                place = self._chance.randrange(self._offered)
            if place < _TEXTS:
                self._kept[place : place + 1] = [self._window(text)]

    def texts(self) -> list[str]:
        """As many of them, in any order, as can be counted at once."""
        chosen = self._chance.sample(self._kept, len(self._kept))
        ends = accumulate(map(len, chosen))
        return [text for text, end in zip(chosen, ends, strict=True) if end <= _CHARS]

    def _window(self, text: str) -> str:
        start = self._chance.randint(0, max(0, len(text) - _WINDOW))
        return text[start : start + _WINDOW]
