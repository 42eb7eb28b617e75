"""Settings tried on the simulator: the memory model says which can be, the simulator which pay.

How fast the host is, is assumed. So each setting is tried twice, with that host and with one that
takes no time, and counts as what it is at its worst: what pays only with one of them is left alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from chunkscope.costs.step_time import ASSUMED_HOST, NO_HOST, Host
from chunkscope.engine.choices import Task
from chunkscope.engine.rules import rules_of
from chunkscope.engine.settings import EngineArgs
from chunkscope.errors import InputError
from chunkscope.planning.problem import Situation
from chunkscope.simulation.loop import Circumstances, run_setting
from chunkscope.simulation.result import SimulatedRun

WORTH = 0.02  # a smaller gain keeps what vLLM does by itself
BUDGET_STEPS = (0.25, 0.5, 2, 4, 8)  # as multiples of vLLM's own
FEWEST_SEQS = 8
SMALLEST_BUDGET = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    budget: int
    seqs: int
    threshold: int = 0
    chunking: bool = True


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Each setting is simulated once. `cap` is the policy's threshold, where it chunks."""

    s: Situation
    cap: int | None = None
    _done: dict[tuple[Setting, Host], SimulatedRun | None] = field(default_factory=dict)

    def run(self, setting: Setting, host: Host = ASSUMED_HOST) -> SimulatedRun | None:
        """None where the memory model says that it would not run."""
        if (setting, host) not in self._done:
            self._done[setting, host] = self._run(setting, host)
        return self._done[setting, host]

    def seconds(self, setting: Setting, host: Host = ASSUMED_HOST) -> float:
        run = self.run(setting, host)
        return run.makespan_s if run is not None else float("inf")

    def against(self, setting: Setting, other: Setting) -> float:
        """How many times as long as with the other, on the host that likes it least."""
        if self.seconds(other) == float("inf"):
            return self.seconds(setting)
        hosts = (ASSUMED_HOST, NO_HOST)
        return max(self.seconds(setting, host) / self.seconds(other, host) for host in hosts)

    def best(self, settings: Iterable[Setting], unless: Setting) -> Setting:
        """The fastest, to within what is worth it: the first of them, and rather `unless`."""
        found = {setting: self.against(setting, unless) for setting in (unless, *settings)}
        fastest = min(found.values())
        return next(one for one, takes in found.items() if takes <= fastest * (1 + WORTH))

    def _run(self, setting: Setting, host: Host) -> SimulatedRun | None:
        s, step = self.s, self.s.step
        memory = s.memory(setting.budget, chunk=self._chunk(setting), seqs=setting.seqs)
        if step is None or memory is None or not memory.holds(s.context):
            return None
        if setting.seqs > setting.budget or (not setting.chunking and setting.budget < s.context):
            return None
        rules = rules_of(s.release)
        args = EngineArgs(
            max_num_batched_tokens=setting.budget,
            max_num_seqs=setting.seqs,
            long_prefill_token_threshold=setting.threshold,
            kv_cache_tokens=memory.kv_cache_tokens,
            enable_chunked_prefill=setting.chunking,
            async_scheduling=rules.async_by_default,
        )
        circumstances = Circumstances(
            requests=s.requests,
            rules=rules,
            step=replace(step, host=host),
            prompt_logprobs=s.task is Task.LOGLIKELIHOOD,
        )
        try:
            return run_setting(circumstances, args)
        except InputError:
            return None  # the longest request and the cache are of one size, to a block

    def at(self, setting: Setting, *, budget: int) -> Setting:
        """Another budget: the threshold is only set where it bites before the budget does."""
        cap = self.cap or 0
        threshold = cap if self.s.longest > cap and cap < budget else 0
        seqs = min(setting.seqs, budget)
        return replace(setting, budget=budget, seqs=seqs, threshold=threshold)

    def _chunk(self, setting: Setting) -> int:
        caps = (setting.threshold, setting.budget, max(1, self.s.longest))
        return min(cap for cap in caps if cap)


def can_be_tried(s: Situation) -> bool:
    return bool(s.requests) and s.step is not None and s.engine is not None


def own_setting(s: Situation) -> Setting:
    """What vLLM takes by itself."""
    budget, seqs = s.default_budget or 1, s.default_seqs or 1
    return Setting(budget=budget, seqs=min(seqs, budget))


def search(trials: Trials, start: Setting, budgets: Iterable[int]) -> Setting:
    """Budgets, then requests at once, then a budget again if that changed: one at a time."""
    sizes = sorted({*budgets} - {start.budget})
    found = trials.best(_budgets(trials, start, sizes), start)
    if start.seqs <= min(len(trials.s.requests), found.budget):  # else nobody waits for a place
        found = trials.best(_counts(trials, found), found)
    if found.seqs != start.seqs:
        found = trials.best(_budgets(trials, found, sizes), found)
    return found if trials.against(found, start) * (1 + WORTH) < 1 else start


def _budgets(trials: Trials, setting: Setting, sizes: list[int]) -> list[Setting]:
    """Smaller and larger ones, each way as long as it gets no slower; in their order."""
    other = [trials.at(setting, budget=size) for size in sizes]
    down = [one for one in reversed(other) if one.budget < setting.budget]
    up = [one for one in other if one.budget > setting.budget]
    walked = [*_walk(trials, setting, down), *_walk(trials, setting, up)]
    return sorted(walked, key=lambda one: one.budget)


def _counts(trials: Trials, setting: Setting) -> list[Setting]:
    counts = [max(FEWEST_SEQS, int(setting.seqs * step)) for step in (0.5, 0.25)]
    fewer = [replace(setting, seqs=count) for count in counts if count < setting.seqs]
    more = [replace(setting, seqs=min(n * setting.seqs, setting.budget)) for n in (2, 4)]
    return [*_walk(trials, setting, fewer), *_walk(trials, setting, more)]


def _walk(trials: Trials, first: Setting, path: list[Setting]) -> Iterator[Setting]:
    last = first
    for setting in path:
        if trials.against(setting, last) > 1:
            return
        yield setting
        last = setting


def budgets_around(default: int) -> list[int]:
    return [max(SMALLEST_BUDGET, int(default * step)) for step in BUDGET_STEPS]
