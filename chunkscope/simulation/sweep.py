"""Many settings of one workload, and the highest rate that a setting sustains: limits are kept, and
no queue grows. From one rate to the next only the arrivals are slower or faster."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import sqrt

from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import SimulatedRun, SustainedRate
from chunkscope.vllm.settings import KvPool, Settings

BUDGETS = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
THRESHOLDS = (512, 2_048, 8_192)


def points(base: Settings) -> Iterator[Settings]:
    """Every budget without a threshold, then thresholds at the budget of `base`.

    A budget below max_model_len needs chunking on; one below max_num_seqs runs fewer requests.
    """
    size = base.step_tokens
    capped = ((size, threshold) for threshold in THRESHOLDS if threshold < size)
    for budget, threshold in (*((budget, 0) for budget in BUDGETS), *capped):
        chunked = replace(base.at_budget(budget), enable_chunked_prefill=True)
        yield replace(chunked, long_prefill_token_threshold=threshold)


# -- the highest rate --------------------------------------------------------------------------

UNIT_RATE = "1/s"  # how the requests come that `find_rate` is given
NEAR_ENOUGH = 1.03  # of the rate that is kept to the one that is not
LOWEST, HIGHEST = 1 / 128, 4.0  # of what is done in a second when all come at once
ALONE, BY_FAR = 64, 0.8
GROWING = "queue"  # instead of a limit's name: the queue grows


def find_rate(
    scenario: Scenario,
    settings: Settings,
    pool: KvPool,
    *,
    start: float | None = None,
    saturation: bool = True,
    tick: Callable[[], None] = lambda: None,
) -> SimulatedRun:
    """The run at the highest rate that is kept, which is near `start` if that is given; at the
    lowest that was tried where none is."""

    @cache
    def run(rate: float) -> SimulatedRun:
        tick()
        coming = tuple(replace(r, arrival_s=r.arrival_s / rate) for r in scenario.requests)
        return run_setting(replace(scenario, requests=coming), settings, pool)

    def breaks_at(rate: float) -> str | None:
        """The tightest limit, where it is broken; or the queue, where it grows."""
        slo = run(rate).slo
        if slo is not None and not slo.is_met:
            return slo.tightest.name
        return GROWING if run(rate).queue_grows else None

    requests = tuple(replace(request, arrival_s=0.0) for request in scenario.requests)
    at_once = replace(scenario, requests=requests)
    if unkept := lone_run_that_breaks(at_once, settings, pool):
        return unkept
    most = len(requests) / run_setting(at_once, settings, pool).figures.makespan_s
    first, factor = (start, NEAR_ENOUGH) if start else (most / 2, 2.0)
    highest, broken = _between(lambda rate: not breaks_at(rate), first, most, factor)
    calm = _between(lambda rate: not run(rate).queue_grows, most, most) if saturation else None
    breaks, saturates = breaks_at(broken) if broken else None, calm[1] if calm else None
    rate = SustainedRate(rate_per_s=highest, breaks=breaks, saturation_per_s=saturates)
    return replace(run(highest or most * LOWEST), rate=rate)


def _every(scenario: Scenario, nth: int) -> Scenario:
    """Each n-th of the requests."""
    scored = frozenset(place // nth for place in scenario.scored if place % nth == 0)
    return replace(scenario, requests=scenario.requests[::nth], scored=scored)


def lone_run_that_breaks(
    scenario: Scenario, settings: Settings, pool: KvPool
) -> SimulatedRun | None:
    """Some of the requests one by one, where even they break a limit by far: no rate keeps it."""
    some = _every(scenario, max(1, len(scenario.requests) // ALONE))
    run = run_setting(replace(some, concurrency=1), settings, pool)
    if run.slo is None or run.slo.use < 1 / BY_FAR:
        return None
    rate = SustainedRate(rate_per_s=None, breaks=run.slo.tightest.name, saturation_per_s=None)
    return replace(run, rate=rate)


def _between(
    holds: Callable[[float], bool], start: float, most: float, factor: float = 2.0
) -> tuple[float | None, float | None]:
    """The highest rate at which it holds and the lowest at which it does not, close together.

    High rates take few steps to simulate, so a first guess is high, and it goes down by a factor of
    two. From a good one the first step is a small `factor`.
    """
    low = high = start
    while holds(high):
        if high >= most * HIGHEST:
            return high, None
        low, high, factor = high, high * factor, min(2.0, factor**2)
    while not holds(low):
        if low <= most * LOWEST:
            return None, low
        low, high, factor = low / factor, low, min(2.0, factor**2)
    while high / low > NEAR_ENOUGH:
        middle = sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
