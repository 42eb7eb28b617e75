"""The one search: settings tried on the simulator, of which the memory model allows some.

How fast the host is, is assumed. So each setting is timed twice, with that host and with one that
takes no time, and counts as what it is at its worst: what pays only with one of them is left alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from chunkscope.errors import InputError
from chunkscope.hardware.step_time import ASSUMED_HOST, NO_HOST, Host
from chunkscope.planning.problem import FEWEST_SEQS, LADDER, NEAR, Problem
from chunkscope.planning.requests import (
    ANOTHER_HOST,
    AS_DRAWN,
    FEWEST_SEARCHED,
    MOST_REQUESTS,
    SEARCH_TOKENS,
    Variation,
)
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.choices import Task
from chunkscope.vllm.flags import BY_NAME, Release
from chunkscope.vllm.rules import rules_of
from chunkscope.vllm.settings import Settings

BUDGET_STEPS = (0.25, 0.5, 2, 4, 8)  # as multiples of vLLM's own
HOSTS = (ASSUMED_HOST, NO_HOST)
NEVER = float("inf")
BROKEN_S = 1e9  # longer than any run that keeps its limits
THRESHOLDS = (512, 2_048)  # tried against gaps, where requests come while others decode


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Each setting is simulated once."""

    problem: Problem
    workload: Workload
    hosts: tuple[Host, ...] = HOSTS
    _done: dict[tuple[Settings, Host], SimulatedRun | None] = field(default_factory=dict)
    _varied: "dict[Variation, Trials]" = field(default_factory=dict)

    @cached_property
    def part(self) -> "Trials":
        """On fewer requests, where there are many more than are needed to search."""
        count = searched(self.problem)
        return trials_of(self.problem, count) if 2 * count < len(self.workload.requests) else self

    def varied(self, how: Variation) -> "Trials":
        """On as many that are somewhat other. The hosts are always varied."""
        if how is ANOTHER_HOST:
            return replace(self, hosts=HOSTS)
        if how not in self._varied:
            other = trials_of(self.problem, len(self.workload.requests), how)
            # Where all are sent in their own order, another draw is the same again.
            same = other.workload.requests == self.workload.requests
            self._varied[how] = self if same else other
        return self._varied[how]

    def run(self, settings: Settings, host: Host = ASSUMED_HOST) -> SimulatedRun | None:
        """None where vLLM would not start with it, or it does not fit by the memory model."""
        full = self.problem.deployment.effective(settings.over(self.problem.base))
        if (full, host) not in self._done:
            self._done[full, host] = self._run(full, host)
        return self._done[full, host]

    def seconds(self, settings: Settings, host: Host = ASSUMED_HOST) -> float:
        """With a host that takes no time, what is sent at once takes what the GPU computes."""
        p = self.problem
        if host == NO_HOST and not p.is_open and p.concurrency is None:
            run = self.run(settings)
            return run.gpu_s or 0.0 if run is not None else NEVER
        run = self.run(settings, host)
        return run.figures.makespan_s if run is not None else NEVER

    def cost(self, settings: Settings, host: Host = ASSUMED_HOST) -> float:
        """What is to be small: how much of the limits is used by requests that come by themselves;
        else the time that all take, where the limits are kept."""
        run = self.run(settings, host) if self.problem.slo else None
        if run is None or run.slo is None:
            return self.seconds(settings, host)
        if self.problem.is_open:
            return limits_used(run)
        return run.figures.makespan_s if run.slo.is_met else BROKEN_S * run.slo.use

    def against(self, settings: Settings, other: Settings) -> float:
        """How many times as much as with the other, on the host that likes it least."""
        if self.run(settings) is None:
            return NEVER
        if self.run(other) is None:
            return 0.0
        return max(self.cost(settings, host) / self.cost(other, host) for host in self.hosts)

    def gain(self, settings: Settings, other: Settings) -> float:
        """How much more is done in the same time than with the other, at the least."""
        takes = self.against(settings, other)
        return 1 / takes - 1 if takes else NEVER

    def best(self, settings: Iterable[Settings], unless: Settings) -> Settings:
        """The fastest, or the first that is as good, and rather `unless`."""
        running = [one for one in (unless, *settings) if self.run(one) is not None]
        takes = {one: self.against(one, running[0]) for one in running}
        fastest = min(takes.values(), default=1.0)
        return next((one for one in running if takes[one] <= fastest * (1 + NEAR)), unless)

    def _run(self, settings: Settings, host: Host) -> SimulatedRun | None:
        p, step = self.problem, self.problem.step
        memory = p.memory(settings)
        if step is None or memory is None or not memory.holds(p.context):
            return None
        if p.deployment.refusals(settings):
            return None
        scenario = Scenario(
            requests=self.workload.requests,
            rules=rules_of(p.deployment.release),
            step=replace(step, host=host),
            stretches=self.workload.stretches,
            prompt_logprobs=p.task is Task.LOGLIKELIHOOD,
            concurrency=p.concurrency,
            slo=p.slo,
        )
        args = p.deployment.engine_args(settings, kv_cache_tokens=memory.kv_cache_tokens)
        try:
            return run_setting(scenario, args)
        except InputError:
            return None  # the longest request and the cache are of one size, to a block


def limits_used(run: SimulatedRun) -> float:
    """Of the tightest: over 1 it is broken, and where the queue grows it will be."""
    used = run.slo.use if run.slo else 0.0
    return used + (run.backlog is not None and run.backlog.grows)


def trials_of(p: Problem, count: int | None = None, how: Variation = AS_DRAWN) -> Trials:
    """On so many of the requests (None: all), as they are or somewhat other."""
    if p.requests is None:
        raise AssertionError("without requests nothing can be tried")
    workload = p.requests.draw(p.context, count=count, how=how)
    # On another host they come at other steps: it is tried only where it is asked for.
    return Trials(problem=p, workload=workload, hosts=HOSTS[:1] if p.is_open else HOSTS)


def searched(p: Problem) -> int:
    """Twice as many as run at once, so that some wait; and no more than a moment's worth.

    All, where limits are to be kept: a part has other percentiles, and another longest gap.
    """
    if p.slo:
        return MOST_REQUESTS
    mean = max(1, round(p.lengths.mean or 0) + p.output_tokens)
    running = (p.own.max_num_seqs or 0) * p.parallel.data
    return max(2 * running, FEWEST_SEARCHED, SEARCH_TOKENS // mean)


def search(trials: Trials, start: Settings) -> Settings:
    """Budgets, then requests at once, then a budget again if that changed: one at a time."""
    sizes = _sizes(trials, start)
    if trials.problem.slo:  # of which none is better all along a way
        found = trials.best((start.at_budget(size) for size in sizes), start)
        release = trials.problem.deployment.release
        found = trials.best([*_capped(start, release), *_capped(found, release)], found)
    else:
        found = trials.best(_budgets(trials, start, sizes), start)
    budget, seqs = found.max_num_batched_tokens or 0, start.max_num_seqs or 0
    if seqs <= min(len(trials.workload.requests), budget):  # else nobody waits for a place
        found = trials.best(_counts(trials, found), found)
    if trials.problem.slo:
        found = trials.best(_admitted(trials.problem.deployment.release, found, start), found)
    if found.max_num_seqs != start.max_num_seqs:
        found = trials.best(_budgets(trials, found, sizes), found)
    return found


def _capped(settings: Settings, release: Release) -> Iterator[Settings]:
    """As it is, or no less than a fair share of the budget, where this version can do that."""
    adapts = BY_NAME["long_prefill_token_threshold_adaptive"].known_to(release.version)
    for threshold in THRESHOLDS:
        if threshold < (settings.max_num_batched_tokens or 0):
            fixed = replace(settings, long_prefill_token_threshold=threshold)
            yield fixed
            if adapts:
                yield replace(fixed, long_prefill_token_threshold_adaptive=True)


def _admitted(release: Release, found: Settings, start: Settings) -> Iterator[Settings]:
    """As few at once, and CUDA graphs as for many: a chunk beside them is still launched whole."""
    fewer = (found.max_num_seqs or 0) < (start.max_num_seqs or 0)
    if fewer and BY_NAME["max_num_active_seqs"].known_to(release.version):
        seqs = min(start.max_num_seqs or 0, found.max_num_batched_tokens or 0)
        yield replace(found, max_num_seqs=seqs, max_num_active_seqs=found.max_num_seqs)


def _sizes(trials: Trials, start: Settings) -> list[int]:
    """Around vLLM's own budget; all of the ladder where the one to start from does not run."""
    own = start.max_num_batched_tokens or 0
    around = [max(LADDER[0], int(own * step)) for step in BUDGET_STEPS]
    rest = LADDER if trials.problem.slo or trials.run(start) is None else ()
    return sorted({*around, *rest} - {own})


def _budgets(trials: Trials, start: Settings, sizes: list[int]) -> list[Settings]:
    """Smaller and larger ones, each way as long as it gets no slower; in their order."""
    size = start.max_num_batched_tokens or 0
    down = [start.at_budget(budget) for budget in reversed(sizes) if budget < size]
    up = [start.at_budget(budget) for budget in sizes if budget > size]
    walked = [*_walk(trials, start, down), *_walk(trials, start, up)]
    return sorted(walked, key=lambda one: one.max_num_batched_tokens or 0)


def _counts(trials: Trials, start: Settings) -> list[Settings]:
    seqs, budget = start.max_num_seqs or 1, start.max_num_batched_tokens or 1
    halves = 8 if trials.problem.slo else 2  # limits may ask for a few at a time
    fewer = [max(FEWEST_SEQS, seqs >> n) for n in range(1, halves + 1)]
    more = [min(n * seqs, budget) for n in (2, 4)]
    down = [replace(start, max_num_seqs=count) for count in fewer if count < seqs]
    up = [replace(start, max_num_seqs=count) for count in more if count > seqs]
    if trials.problem.slo:
        return [*down, *up]
    return [*_walk(trials, start, down), *_walk(trials, start, up)]


def _walk(trials: Trials, first: Settings, path: list[Settings]) -> Iterator[Settings]:
    """As long as it gets no slower; what does not run is passed over until something does."""
    last = first
    for settings in path:
        if trials.run(settings) is None and trials.run(last) is None:
            continue
        if trials.against(settings, last) > 1:
            return
        yield settings
        last = settings
