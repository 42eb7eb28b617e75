"""The highest rate that a setting sustains: limits are kept, and no queue grows.

From one rate to the next only the arrivals are slower or faster.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf, log2

from chunkscope.hardware.step_time import StepModel
from chunkscope.simulation.result import Judged, SimulatedRun, SustainedRate
from chunkscope.simulation.run import simulate
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.settings import KvPool, Settings

UNIT_RATE = "1/s"  # how the sessions come that a rate is looked for
# Rates that are tried, each 5.9 % over the one before: as much as other draws differ.
PER_DOUBLING = 12
LOWEST_SHARE = 1 / 256  # of what the engine serves when it never waits
HIGHEST_SHARE = 64
ALONE = 200  # sessions that are tried one by one


def highest_rate(  # noqa: PLR0913  (all by name)
    workload: Workload,
    settings: Settings,
    engine: Engine,
    step_model: StepModel | None = None,
    *,
    limits: Slo = (),
    kv_pool: KvPool | None = None,
    tick: Callable[[], None] = lambda: None,
) -> SimulatedRun:
    """The run at the highest rate that is sustained, with that rate, by bisection.

    The sessions of the workload come one a second. If even the lowest rate is not
    sustained, it is the run at that. `tick` is called for each run.
    """

    def run_of(part: Workload) -> SimulatedRun:
        tick()
        judged = Judged(limits=limits)
        return simulate(
            part, settings, engine, step_model, judged=judged, kv_pool=kv_pool
        )

    alone = run_of(one_by_one(workload))
    if alone.slo is not None and alone.slo.use > 1:  # then no rate keeps the limits
        rate = SustainedRate(rate_per_s=None, breaks=alone.breaks)
        return replace(alone, rate=rate)
    at_once = run_of(workload.times_as_fast(inf))
    served_per_s = len(workload.sessions) / at_once.figures.makespan_s
    low = round(PER_DOUBLING * log2(LOWEST_SHARE * served_per_s))
    high = round(PER_DOUBLING * log2(HIGHEST_SHARE * served_per_s))
    kept: SimulatedRun | None = None
    broken: SimulatedRun | None = None
    while low <= high:
        middle = (low + high) // 2
        run = run_of(workload.times_as_fast(rate_at(middle)))
        if run.breaks is None:
            kept, low = run, middle + 1
        else:
            broken, high = run, middle - 1
    rate = SustainedRate(
        rate_per_s=rate_at(high) if kept else None,
        breaks=broken.breaks if broken else None,
    )
    return replace(kept or broken or at_once, rate=rate)


def rate_at(place: int) -> float:
    """A rate as it is written, with three digits.

    >>> rate_at(0), rate_at(13)
    (1.0, 2.12)
    """
    return float(f"{2.0 ** (place / PER_DOUBLING):.3g}")


def one_by_one(workload: Workload) -> Workload:
    """Some of the sessions, each sent when the one before has ended."""
    every_nth = max(1, len(workload.sessions) // ALONE)
    return replace(workload.every_nth(every_nth), samples_at_once=1)
