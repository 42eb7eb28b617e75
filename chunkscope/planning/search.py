"""The one search: settings tried on the simulator, of which the memory model allows some.

How fast the host is, is assumed. So each setting is tried twice, with that host and with one that
takes no time, and counts as what it is at its worst: what pays only with one of them is left alone.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from chunkscope.costs.step_time import ASSUMED_HOST, NO_HOST, Host
from chunkscope.engine.choices import Task
from chunkscope.engine.rules import rules_of
from chunkscope.engine.settings import Settings
from chunkscope.errors import InputError
from chunkscope.planning.problem import FEWEST_SEQS, LADDER, WORTH, Problem
from chunkscope.simulation.loop import Circumstances, run_setting
from chunkscope.simulation.result import SimulatedRun

BUDGET_STEPS = (0.25, 0.5, 2, 4, 8)  # as multiples of vLLM's own
NEVER = float("inf")


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Each setting is simulated once. `cap` is the policy's threshold, where it chunks."""

    problem: Problem
    cap: int | None = None
    _done: dict[tuple[Settings, Host], SimulatedRun | None] = field(default_factory=dict)

    @property
    def possible(self) -> bool:
        return bool(self.problem.requests) and self.problem.step is not None

    def run(self, settings: Settings, host: Host = ASSUMED_HOST) -> SimulatedRun | None:
        """None where vLLM would not start with it, or it does not fit by the memory model."""
        full = self.problem.deployment.effective(settings.over(self.problem.base))
        if (full, host) not in self._done:
            self._done[full, host] = self._run(full, host)
        return self._done[full, host]

    def seconds(self, settings: Settings, host: Host = ASSUMED_HOST) -> float:
        run = self.run(settings, host)
        return run.makespan_s if run is not None else NEVER

    def against(self, settings: Settings, other: Settings) -> float:
        """How many times as long as with the other, on the host that likes it least."""
        if self.run(settings) is None:
            return NEVER
        if self.run(other) is None:
            return 0.0
        hosts = (ASSUMED_HOST, NO_HOST)
        return max(self.seconds(settings, host) / self.seconds(other, host) for host in hosts)

    def best(self, settings: Iterable[Settings], unless: Settings) -> Settings:
        """The fastest, to within what is worth it: the first of them, and rather `unless`."""
        running = [one for one in (unless, *settings) if self.run(one) is not None]
        takes = {one: self.against(one, running[0]) for one in running}
        fastest = min(takes.values(), default=1.0)
        return next((one for one in running if takes[one] <= fastest * (1 + WORTH)), unless)

    def at(self, settings: Settings, budget: int) -> Settings:
        """Another budget: the threshold is only set where it bites before the budget does."""
        cap = self.cap or 0
        return replace(
            settings,
            max_num_batched_tokens=budget,
            max_num_seqs=min(settings.max_num_seqs or budget, budget),
            long_prefill_token_threshold=cap if self.problem.longest > cap and cap < budget else 0,
        )

    def _run(self, settings: Settings, host: Host) -> SimulatedRun | None:
        p, step = self.problem, self.problem.step
        memory = p.memory(settings)
        if step is None or memory is None or not memory.holds(p.context):
            return None
        if p.deployment.refusals(settings):
            return None
        circumstances = Circumstances(
            requests=p.requests,
            rules=rules_of(p.deployment.release),
            step=replace(step, host=host),
            prompt_logprobs=p.task is Task.LOGLIKELIHOOD,
        )
        args = p.deployment.engine_args(settings, kv_cache_tokens=memory.kv_cache_tokens)
        try:
            return run_setting(circumstances, args)
        except InputError:
            return None  # the longest request and the cache are of one size, to a block


def search(trials: Trials, start: Settings, *, least_budget: int = LADDER[0]) -> Settings:
    """Budgets, then requests at once, then a budget again if that changed: one at a time."""
    sizes = _sizes(trials, start, least_budget)
    found = trials.best(_budgets(trials, start, sizes), start)
    budget, seqs = found.max_num_batched_tokens or 0, start.max_num_seqs or 0
    if seqs <= min(len(trials.problem.requests), budget):  # else nobody waits for a place
        found = trials.best(_counts(trials, found), found)
    if found.max_num_seqs != start.max_num_seqs:
        found = trials.best(_budgets(trials, found, sizes), found)
    return found if trials.against(found, start) * (1 + WORTH) < 1 else start


def _sizes(trials: Trials, start: Settings, least: int) -> list[int]:
    """Around vLLM's own budget; all of the ladder where the one to start from does not run."""
    own = trials.problem.own.max_num_batched_tokens or 0
    around = [max(LADDER[0], int(own * step)) for step in BUDGET_STEPS]
    rest = LADDER if trials.run(start) is None else ()
    sizes = {size for size in (*around, *rest) if size >= least}
    if least > LADDER[0]:
        sizes.add(least)
    return sorted(sizes - {start.max_num_batched_tokens})


def _budgets(trials: Trials, start: Settings, sizes: list[int]) -> list[Settings]:
    """Smaller and larger ones, each way as long as it gets no slower; in their order."""
    size = start.max_num_batched_tokens or 0
    down = [trials.at(start, budget) for budget in reversed(sizes) if budget < size]
    up = [trials.at(start, budget) for budget in sizes if budget > size]
    walked = [*_walk(trials, start, down), *_walk(trials, start, up)]
    return sorted(walked, key=lambda one: one.max_num_batched_tokens or 0)


def _counts(trials: Trials, start: Settings) -> list[Settings]:
    seqs, budget = start.max_num_seqs or 1, start.max_num_batched_tokens or 1
    fewer = [max(FEWEST_SEQS, int(seqs * step)) for step in (0.5, 0.25)]
    more = [min(n * seqs, budget) for n in (2, 4)]
    each: Callable[[int], Settings] = lambda count: replace(start, max_num_seqs=count)  # noqa: E731
    down = [each(count) for count in fewer if count < seqs]
    return [*_walk(trials, start, down), *_walk(trials, start, [each(count) for count in more])]


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
