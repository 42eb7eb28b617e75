"""Many settings of one workload, and the highest rate that a setting sustains: limits are kept, and
no queue grows. From one rate to the next only the arrivals are slower or faster."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from math import inf, log2

from chunkscope.simulation.loop import Scenario, run_setting, simulated
from chunkscope.simulation.result import SimulatedRun, SustainedRate
from chunkscope.simulation.slo import Outlook
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
PER_DOUBLING = (
    12  # rates that are tried, each 5.9 % over the one before: as other draws differ
)
STEEP = 1.6  # the rate's power that pressure grows with, until two rates say it: 1 to 1.9 seen
FEW = 0.1  # the least pressure that says how near a limit is
ALONE = 200  # requests that are tried one by one
Figures = Callable[[], SimulatedRun]


def find_rate(
    scenario: Scenario,
    settings: Settings,
    pool: KvPool,
    *,
    start: float | None = None,
    tick: Callable[[], None] = lambda: None,
) -> tuple[SustainedRate, Figures]:
    """The highest rate that is kept, near `start` if that is given, and the run at it; if none is,
    the run at the lowest that was tried."""

    def rate_of(place: int) -> float:
        return float(f"{2.0 ** (place / PER_DOUBLING):.3g}")  # as it is written

    @cache
    def run(place: int) -> tuple[Outlook, Figures]:
        tick()
        coming = replace(scenario, rate=rate_of(place))
        known, figures = simulated(coming, settings, pool, give_up=1.0)
        if not known.broken and (known.pressure >= 1 or settings.parallel.data > 1):
            known = known._replace(broken=figures().breaks)
        return known, partial(
            run_setting, coming, settings, pool
        )  # less to hold than figures

    steps = 2
    if start is None:
        at_once = replace(scenario, rate=inf)
        if alone := broken_alone(at_once, settings, pool):
            return SustainedRate(rate_per_s=None, breaks=alone.breaks), lambda: alone
        most = (
            len(scenario.requests)
            / run_setting(at_once, settings, pool).figures.makespan_s
        )
        start, steps = most / 2, PER_DOUBLING
    near = round(PER_DOUBLING * log2(start))
    highest, broken = _between(lambda place: run(place)[0], near, steps)
    rate = SustainedRate(
        rate_per_s=None if highest is None else rate_of(highest),
        breaks=None if broken is None else run(broken)[0].broken,
    )
    return rate, run(broken or 0 if highest is None else highest)[1]


def broken_alone(
    scenario: Scenario, settings: Settings, pool: KvPool
) -> SimulatedRun | None:
    """Some of the requests one by one: if even they break a limit, no rate keeps it."""
    nth = max(1, len(scenario.requests) // ALONE)
    scored = frozenset(place // nth for place in scenario.scored if place % nth == 0)
    some = replace(
        scenario, requests=scenario.requests[::nth], scored=scored, concurrency=1
    )
    run = run_setting(some, settings, pool)
    return run if run.slo and run.slo.use > 1 else None


def _between(
    known: Callable[[int], Outlook], start: int, steps: int
) -> tuple[int | None, int | None]:
    """The highest place at which nothing breaks, and the next, at which something does.

    How many are late grows about as a power of the rate, so the next place is where as many would
    be as may be: by the two places nearest to it, or in their middle where that says nothing.
    """
    ends, far, place, was_kept = dict[bool, int](), dict[bool, float](), start, None
    rise, before, was_over = STEEP / PER_DOUBLING, start, 0.0
    while abs(place - start) < 7 * PER_DOUBLING:
        broken, pressure = known(place)
        kept, over = broken is None, log2(pressure) if pressure > FEW else 0.0
        ends[kept], far[kept] = place, max(0.0, -over if kept else over)
        if len(ends) == 1:
            if over and was_over and place != before:
                rise = max((over - was_over) / (place - before), rise / 4)
            before, was_over = place, over
            step = min(max(1, round(far[kept] / rise)) if over else steps, PER_DOUBLING)
            steps = 2 * steps if step == steps else steps
            place += step if kept else -step
            continue
        low, high = ends[True], ends[False]
        if high - low == 1:
            break
        if kept is was_kept:  # the other end is too far off to count as much
            far[not kept] /= 2
        share = far[True] / sum(far.values()) if all(far.values()) else 0.5
        place = min(max(low + int((high - low) * share), low + 1), high - 1)
        was_kept = kept
    return ends.get(True), ends.get(False)
