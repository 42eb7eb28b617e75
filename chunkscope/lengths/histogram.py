"""Percentiles of values that were counted; lengths as an exact histogram."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from chunkscope.artefacts.figures import Percentiles
from chunkscope.artefacts.numbers import number

PERCENTILES = (50, 75, 90, 95, 99)
_DOUBLING = (0, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


class Ranked:
    """Values in order. `counts`: how often each occurs, if not once."""

    def __init__(
        self, values: Iterable[float], counts: Iterable[int] | None = None
    ) -> None:
        if counts is None:
            pairs = [(value, 1) for value in sorted(values)]
        else:
            pairs = sorted(zip(values, counts, strict=True))
        self.values = [value for value, _ in pairs]
        # By value: how many are as large, or less.
        self.up_to = list(accumulate(count for _, count in pairs))
        self.count = self.up_to[-1] if pairs else 0
        self.total: float = sum(value * count for value, count in pairs)

    def percentile(self, percent: float) -> float:
        """Linear between ranks, to the last bit as `numpy.percentile` does it.

        >>> Ranked([1.0, 3.0]).percentile(50)
        2.0
        """
        rank = (self.count - 1) * (percent / 100)
        below, share = int(rank), rank - int(rank)
        low = self.values[bisect_right(self.up_to, below)]
        high = self.values[bisect_right(self.up_to, min(below + 1, self.count - 1))]
        # numpy interpolates from the nearer end; so the last bit is equal.
        if share >= 0.5:
            return high - (high - low) * (1 - share)
        return low + (high - low) * share

    def percentiles(self) -> Percentiles:
        return Percentiles(
            p50=self.percentile(50),
            p95=self.percentile(95),
            p99=self.percentile(99),
            max=self.percentile(100),
            mean=self.total / self.count,
        )


@dataclass(frozen=True, repr=False)
class LengthHistogram:
    """How many prompts have which length.

    >>> LengthHistogram.of([110, 110, 2_880])
    <LengthHistogram of 3: p50 110, p95 2,603, longest 2,880 tokens>
    """

    counts: Mapping[int, int]

    def __repr__(self) -> str:
        return f"<LengthHistogram of {self.count:,}: {self.line}>"

    @property
    def line(self) -> str:
        """Median, p95 and longest, in one line."""
        p50 = number(self.percentile(50))
        p95 = number(self.percentile(95))
        return f"p50 {p50}, p95 {p95}, longest {number(self.max)} tokens"

    @classmethod
    def of(cls, lengths: Iterable[int]) -> "LengthHistogram":
        return cls(dict(Counter(lengths)))

    @cached_property
    def _ranked(self) -> Ranked:  # by a name that orjson does not write
        return Ranked(self.counts, self.counts.values())

    @property
    def count(self) -> int:
        return self._ranked.count

    @property
    def total(self) -> int:
        return int(self._ranked.total)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def min(self) -> int | None:
        return min(self.counts, default=None)

    @property
    def max(self) -> int | None:
        return max(self.counts, default=None)

    def percentile(self, percent: float) -> float | None:
        """Linear between ranks, as numpy's; None where there are no prompts."""
        return self._ranked.percentile(percent) if self.count else None

    def over(self, length: int) -> int:
        """How many prompts are longer than `length`."""
        index = bisect_right(self._ranked.values, length)
        return self.count - (self._ranked.up_to[index - 1] if index else 0)

    def share_over(self, length: int) -> float | None:
        return self.over(length) / self.count if self.count else None

    def doubling(self) -> list[tuple[int, int, int]]:
        """(from, up to, count) in doubling steps, from shortest to longest.

        >>> LengthHistogram.of([3, 100, 200]).doubling()
        [(0, 64, 1), (64, 128, 1), (128, 256, 1)]
        """
        longest = self.max or 0
        edges = [*_DOUBLING, max(_DOUBLING[-1] * 2, longest + 1)]
        steps = []
        for low, high in pairwise(edges):
            count = self.over(low - 1) - self.over(high - 1)
            is_within = (self.min or 0) < high and longest >= low
            if self.counts and is_within:
                steps.append((low, high, count))
        return steps

    def summary(self) -> dict[str, int | float | None]:
        """The figures of the profile artefact; unknown is None, never 0."""
        percentiles = {f"p{p}": self.percentile(p) for p in PERCENTILES}
        ends = {"count": self.count, "mean": self.mean, "min": self.min}
        return {**ends, **percentiles, "max": self.max, "total": self.total}


def added_up(histograms: Iterable[LengthHistogram]) -> LengthHistogram:
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram.counts)
    return LengthHistogram(dict(total))
