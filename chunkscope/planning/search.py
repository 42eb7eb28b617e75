"""The one search: settings tried on the simulator, of which the memory model allows some.

How fast the host is, is assumed. So each setting is timed twice, with that host and with one that
takes no time, and counts as what it is at its worst: what pays only with one of them is left alone.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt

from chunkscope.hardware.step_time import NO_HOST, Host
from chunkscope.planning.problem import FEWEST_SEQS, LADDER, Problem
from chunkscope.planning.request import Aim, PlanRequest
from chunkscope.planning.simulator import (
    AS_DRAWN,
    NO_CPU_TIME,
    Simulator,
    Variation,
    draw,
)
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.sweep import UNIT_RATE
from chunkscope.vllm.flags import Off, Release, known_to
from chunkscope.vllm.settings import Settings

WORTH = 0.03  # an argument that gains less of the aim is not set
WORTH_ROOM = 0.1  # of a limit: settings with less between them keep it about as well
NEAR = 0.01  # of two settings that differ by less, the first is as good
BUDGET_STEPS = (0.25, 0.5, 1, 2, 4, 8)  # as multiples of vLLM's own
MOST_ROUNDS = 3  # of looking near the best of the grid
HOSTS = (None, NO_HOST)  # the model's own, and one that takes no time
NEVER = float("inf")
BROKEN_S = 1e9  # longer than any run that keeps its limits
THRESHOLDS = (512, 2_048)  # tried against gaps, where requests come while others decode
# Settings are searched on a part of the requests, which takes no more than a moment.
SEARCH_TOKENS = 1_000_000
FEWEST_SEARCHED = 256
MOST_RATE, LEAST_RATE = 256.0, 1 / 1_024  # requests a second


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where settings are compared: on all requests or a part, as they are or varied."""

    problem: Problem
    simulator: Simulator
    hosts: tuple[Host | None, ...] = HOSTS
    tick: Callable[[], None] = lambda: None
    _varied: "dict[Variation, Bench]" = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        count: int | None = None,
        variation: Variation = AS_DRAWN,
        tick: Callable[[], None] = lambda: None,
    ) -> "Bench":
        """On so many of the requests (None: all)."""
        p = problem
        workload = draw(p.request, p.datasets, p.context, count=count, variation=variation)
        simulator = Simulator(request=p.request, deployment=p.deployment, workload=workload)
        # With limits, another host is another simulation: tried only where it is asked for.
        hosts = HOSTS[:1] if p.request.slo else HOSTS
        return cls(problem=p, simulator=simulator, hosts=hosts, tick=tick)

    @property
    def requests(self) -> int:
        return len(self.simulator.workload.requests)

    @cached_property
    def part(self) -> "Bench":
        """On fewer requests, where there are many more than are needed to search."""
        count = _searched(self.problem)
        if 2 * count >= self.requests:
            return self
        return Bench.of(self.problem, count=count, tick=self.tick)

    def varied(self, variation: Variation) -> "Bench":
        """On as many that are somewhat other. The hosts are always varied."""
        if variation is NO_CPU_TIME:
            return replace(self, hosts=HOSTS)
        if variation not in self._varied:
            other = Bench.of(self.problem, count=self.requests, variation=variation, tick=self.tick)
            # Where all are sent in their own order, another draw is the same again.
            same = other.simulator.workload.requests == self.simulator.workload.requests
            self._varied[variation] = self if same else other
        return self._varied[variation]

    def run(self, settings: Settings, host: Host | None = None) -> SimulatedRun | None:
        """None where vLLM would not start with it, or it does not fit."""
        self.tick()
        return self.simulator.attempt(settings, host=host)

    def tried(self) -> dict[Settings, SimulatedRun]:
        """What ran so far, on the model's own host."""
        return self.simulator.tried()

    def seconds(self, settings: Settings, host: Host | None = None) -> float:
        """With a host that takes no time, what is sent at once takes what the GPU computes."""
        request = self.problem.request
        if host == NO_HOST and not request.is_open and request.concurrency is None:
            run = self.run(settings)
            return run.gpu_s or 0.0 if run is not None else NEVER
        run = self.run(settings, host)
        return run.figures.makespan_s if run is not None else NEVER

    def cost(self, settings: Settings, host: Host | None = None) -> float:
        """What the aim wants small: the use of the tightest limit, or the time that all take."""
        aim = self.problem.request.aim
        run = self.run(settings, host) if aim is not Aim.THROUGHPUT else None
        if run is None or run.slo is None:
            return self.seconds(settings, host)
        if aim is Aim.ROOM_TO_LIMITS:
            return limits_used(run)
        return run.figures.makespan_s if run.slo.is_met else BROKEN_S * run.slo.use

    def against(self, settings: Settings, other: Settings) -> float:
        """How many times the cost of the other, on the host that likes it least."""
        if self.run(settings) is None:
            return NEVER
        if self.run(other) is None:
            return 0.0
        return max(self.cost(settings, host) / self.cost(other, host) for host in self.hosts)

    def keeps_limits(self, settings: Settings) -> bool:
        """On every host; True without limits."""
        runs = [self.run(settings, host) for host in self.hosts]
        return all(run is not None and limits_used(run) <= 1 for run in runs)

    def best(self, settings: Iterable[Settings], unless: Settings) -> Settings:
        """The cheapest, or the first that is as good, and rather `unless`."""
        running = [one for one in (unless, *settings) if self.run(one) is not None]
        costs = {one: self.against(one, running[0]) for one in running}
        least = min(costs.values(), default=1.0)
        return next((one for one in running if costs[one] <= least * (1 + NEAR)), unless)


def limits_used(run: SimulatedRun) -> float:
    """Of the tightest: over 1 it is broken, and where the queue grows it will be."""
    used = run.slo.use if run.slo else 0.0
    return used + (run.backlog is not None and run.backlog.grows)


def _searched(p: Problem) -> int:
    """Twice as many as run at once, so that some wait; and no more than a moment's worth."""
    mean = max(1, round(p.lengths.mean or 0) + p.output.tokens)
    running = (p.default.max_num_seqs or 0) * p.base.parallel.data
    return max(2 * running, FEWEST_SEARCHED, SEARCH_TOKENS // mean)


def search(bench: Bench, start: Settings) -> Settings:
    """The best setting by the aim, or `start` where none is better: a coarse grid of budgets and
    requests at once, then what is near the best of it; against limits, caps on prompts as well."""
    slo, release = bench.problem.request.slo, bench.problem.deployment.release
    budget, seqs = start.max_num_batched_tokens or 0, start.max_num_seqs or 1
    around = {max(LADDER[0], int(budget * step)) for step in BUDGET_STEPS}
    sizes = {*LADDER[::2], budget} if slo else around if bench.run(start) else {*LADDER, *around}
    levels = dict.fromkeys(max(FEWEST_SEQS, seqs >> n) for n in ((0, 2, 4) if slo else (0,)))
    grid = [replace(start, max_num_seqs=n).at_budget(s) for n in levels for s in sorted(sizes)]
    chosen = bench.best(grid, start)
    for _ in range(MOST_ROUNDS):
        near = bench.best(_near(chosen), chosen)
        if near == chosen:
            break
        chosen = near
    if not slo:
        return chosen
    chosen = bench.best([*_capped(chosen, release), *_capped(start, release)], chosen)
    return bench.best(_admitted(release, chosen, start), chosen)


def _near(settings: Settings) -> Iterator[Settings]:
    budget, seqs = settings.max_num_batched_tokens or 1, settings.max_num_seqs or 1
    for count in (seqs // 2, seqs * 2):
        yield replace(settings, max_num_seqs=max(FEWEST_SEQS, count))
    for size in (budget // 2, budget * 2):
        yield settings.at_budget(size)


def ideas(p: Problem, settings: Settings, threshold: int | None) -> list[Settings]:
    """The length rule's threshold where it bites; off where vLLM supports it without a warning."""
    budget, others = settings.max_num_batched_tokens or 0, []
    if threshold and threshold < min(budget, p.longest):
        others.append(replace(settings, long_prefill_token_threshold=threshold))
    if p.deployment.release.off is Off.HONOURED and not settings.long_prefill_token_threshold:
        size = max(budget, p.context)
        others.append(replace(settings.at_budget(size), enable_chunked_prefill=False))
    return others


def _capped(settings: Settings, release: Release) -> Iterator[Settings]:
    """As it is, or no less than a fair share of the budget, where this version can do that."""
    adapts = known_to("long_prefill_token_threshold_adaptive", release.version)
    for threshold in THRESHOLDS:
        if threshold < (settings.max_num_batched_tokens or 0):
            fixed = replace(settings, long_prefill_token_threshold=threshold)
            yield fixed
            if adapts:
                yield replace(fixed, long_prefill_token_threshold_adaptive=True)


def _admitted(release: Release, chosen: Settings, start: Settings) -> Iterator[Settings]:
    """Few requests at once, with the CUDA graphs for many: a chunk beside them stays graphed."""
    fewer = (chosen.max_num_seqs or 0) < (start.max_num_seqs or 0)
    if fewer and known_to("max_num_active_seqs", release.version):
        seqs = min(start.max_num_seqs or 0, chosen.max_num_batched_tokens or 0)
        yield replace(chosen, max_num_seqs=seqs, max_num_active_seqs=chosen.max_num_seqs)


# -- the highest rate ------------------------------------------------------------------------------


def unit_rate(request: PlanRequest) -> PlanRequest:
    """As many requests as `recommend` tries at a rate, coming one by one, for `find_rate`."""
    return replace(request, arrivals=UNIT_RATE, concurrency=None)


def at_rate(problem: Problem, rate: float) -> Bench:
    request = replace(unit_rate(problem.request), arrivals=f"{rate!r}/s")
    return Bench.of(replace(problem, request=request))


def better_at(problem: Problem, rate: float) -> Settings | None:
    """What the search finds at a rate that is higher by its margin than what is sustained; None
    where it does not keep the limits."""
    bench = at_rate(problem, rate * (1 + WORTH))
    best = search(bench, problem.default)
    return best if bench.keeps_limits(best) else None


def sustained(problem: Problem, settings: Settings) -> float | None:
    """The highest rate a second at which this setting, or a better one, keeps the limits."""
    rate = _rate_of(problem, settings, problem.request.rate or MOST_RATE)
    better = better_at(problem, rate) if rate else None
    return _rate_of(problem, better, 2 * (rate or 0.0)) if better else rate


def _rate_of(problem: Problem, settings: Settings, broken: float) -> float | None:
    """The highest rate below one that breaks a limit, by bisection; None where none is kept."""
    low = broken
    while not at_rate(problem, low).keeps_limits(settings):
        low, broken = low / 4, low
        if low < LEAST_RATE:
            return None
    while broken / low > 1 + WORTH:
        middle = sqrt(low * broken)
        keeps = at_rate(problem, middle).keeps_limits(settings)
        low, broken = (middle, broken) if keeps else (low, middle)
    return low
