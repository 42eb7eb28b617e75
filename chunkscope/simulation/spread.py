"""How a time is spread over requests or tokens: percentiles of values that occur several times."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """In seconds."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float


class Ranked:
    """Values in their order, each with how often it occurs; at least one."""

    def __init__(self, values: Iterable[tuple[float, int]]) -> None:
        self._ordered = sorted(pair for pair in values if pair[1])
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


def spread(values: Iterable[tuple[float, int]]) -> Spread | None:
    """Of values that occur so often; None of nothing."""
    ranked = Ranked(values)
    if not ranked:
        return None
    p50, p95, p99 = (ranked.percentile(percent) for percent in (50, 95, 99))
    return Spread(p50=p50, p95=p95, p99=p99, max=ranked.max, mean=ranked.mean)
