"""The highest rate of arrivals that a setting sustains: limits are kept, and no queue grows.

Bisection over one draw of Poisson arrivals, only slower or faster: from one rate to the next
nothing else changes. At saturation requests begin to come faster than they are done.
"""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt

from chunkscope.simulation.loop import Circumstances, run_setting
from chunkscope.simulation.result import RatePoint, SimulatedRun, SustainedRate
from chunkscope.vllm.settings import EngineArgs

FEWEST_REQUESTS = 1_000
UNIT_RATE = "1/s"  # how the requests come of which `find_rate` is told
NEAR_ENOUGH = 1.03  # of the rate that is kept to the one that is not
LOWEST, HIGHEST = 1 / 64, 4.0  # of what is done in a second when all come at once
GROWING = "the queue grows"


def find_rate(c: Circumstances, args: EngineArgs) -> SimulatedRun:
    """The run at the highest rate that is kept; at the lowest that was tried where none is."""
    at_once = tuple(replace(request, arrival_s=0.0) for request in c.requests)
    most = len(at_once) / run_setting(replace(c, requests=at_once), args).figures.makespan_s
    rates = _Rates(c, args)
    kept, broken = _between(rates.is_kept, most / 2, most)
    _, growing = _between(rates.is_calm, most, most)
    found = SustainedRate(
        rate_per_s=kept,
        breaks=rates.why_not(broken) if broken else None,
        saturation_per_s=growing,
        points=rates.points(),
    )
    return replace(rates.run(kept or most * LOWEST), rate=found)


def _between(
    holds: Callable[[float], bool], start: float, most: float
) -> tuple[float | None, float | None]:
    """The highest rate at which it holds and the lowest at which it does not, close together.

    High rates take few steps to simulate, so the first guess is high.
    """
    low = high = start
    while holds(high):
        if high >= most * HIGHEST:
            return high, None
        low, high = high, high * 2
    while not holds(low):
        if low <= most * LOWEST:
            return None, low
        low, high = low / 2, low
    while high / low > NEAR_ENOUGH:
        middle = sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


class _Rates:
    """One setting at several rates; each is simulated once."""

    def __init__(self, c: Circumstances, args: EngineArgs) -> None:
        self._c, self._args = c, args
        self._done: dict[float, SimulatedRun] = {}

    def run(self, rate: float) -> SimulatedRun:
        if rate not in self._done:
            coming = tuple(replace(r, arrival_s=r.arrival_s / rate) for r in self._c.requests)
            self._done[rate] = run_setting(replace(self._c, requests=coming), self._args)
        return self._done[rate]

    def is_calm(self, rate: float) -> bool:
        backlog = self.run(rate).backlog
        return backlog is None or not backlog.grows

    def is_kept(self, rate: float) -> bool:
        slo = self.run(rate).slo
        return self.is_calm(rate) and (slo is None or slo.is_met)

    def why_not(self, rate: float) -> str:
        """The limit that breaks first: just above the rate that is kept."""
        slo = self.run(rate).slo
        return GROWING if slo is None or slo.is_met else slo.tightest.name

    def points(self) -> tuple[RatePoint, ...]:
        return tuple(
            RatePoint(rate_per_s=rate, figures=run.figures, grows=not self.is_calm(rate))
            for rate, run in sorted(self._done.items())
        )
