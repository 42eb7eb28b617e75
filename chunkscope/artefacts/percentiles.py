"""Percentiles of times, of which the same value may occur many times."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Of one time over all requests or gaps of a run, in seconds. None: nobody computed it."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float | None = None


class Ranked:
    """Values in order, given as (value, how often it occurs)."""

    def __init__(self, counted: Iterable[tuple[float, int]]) -> None:
        self._ordered = sorted(pair for pair in counted if pair[1])
        self._up_to = list(accumulate(times for _, times in self._ordered))

    def __bool__(self) -> bool:
        return bool(self._ordered)

    @property
    def max(self) -> float:
        return self._ordered[-1][0]

    @property
    def mean(self) -> float:
        return sum(value * times for value, times in self._ordered) / self._up_to[-1]

    def percentile(self, percent: float) -> float:
        """As numpy's, linear between ranks.

        >>> Ranked([(1.0, 1), (3.0, 1)]).percentile(50)
        2.0
        """
        rank = (self._up_to[-1] - 1) * (percent / 100)
        below, share = int(rank), rank - int(rank)
        low = self._ordered[bisect_right(self._up_to, below)][0]
        high = self._ordered[bisect_right(self._up_to, min(below + 1, self._up_to[-1] - 1))][0]
        return low + (high - low) * share

    def percentiles(self) -> Percentiles | None:
        """None where there are no values."""
        if not self:
            return None
        p50, p95, p99 = (self.percentile(percent) for percent in (50, 95, 99))
        return Percentiles(p50=p50, p95=p95, p99=p99, max=self.max, mean=self.mean)


def percentiles(values: Iterable[float]) -> Percentiles | None:
    """Of single values; None where there are none.

    >>> percentiles([1.0, 3.0]).p50
    2.0
    """
    return Ranked((value, 1) for value in values).percentiles()
