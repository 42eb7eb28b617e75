"""Search the settings of vLLM for those that serve a workload best, by simulation.

A setting is advised only if it is worth it: on the whole workload it has to beat
vLLM's default by at least 3 %, and it has to stay ahead when what is assumed turns out
otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf

from chunkscope.artefacts.figures import ITL_MAX, TTFT_P95
from chunkscope.planning.case import Case
from chunkscope.planning.drawing import VARIATIONS
from chunkscope.planning.grid import best_of_grid
from chunkscope.planning.plan import Advice, AdviceKind, Basis
from chunkscope.planning.simulator import NEAR, Simulator
from chunkscope.simulation.rate import UNIT_RATE
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.settings import NAMES, Settings

WORTH = 0.03  # of the time: settings that gain less are left to vLLM
WORTH_ROOM = 0.1  # of a limit: settings with less between them keep it about as well
# Of the tightest limit: gaps at a rate were up to a fifth longer than predicted.
ENOUGH_USED = 0.7
FEWEST_REQUESTS, MOST_REQUESTS = 256, 3_072  # of the part that settings are tried on
TIMES_AT_ONCE = 2  # as many sessions as are under way, in the part that is tried
MOST_ANSWER_TOKENS = 4_000_000  # of the part: more only takes longer to simulate
MOST_TURNS = 1_500  # of all sessions of the part, unless more are under way
MOST_CHECKED = 4  # settings that are tried on all requests, and when things vary
MOST_RATES = 3  # rounds of looking for the setting with the highest rate


class Search:
    """One case, simulated: all of its requests, a part of them, the part varied."""

    def __init__(self, case: Case, tick: Callable[[], None] = lambda: None) -> None:
        self.case = case
        self.tick = tick

    def simulator(self, workload: Workload, host_times: float = 1.0) -> Simulator:
        """For other requests of the case."""
        return Simulator(
            request=self.case.request,
            engine=self.case.engine,
            workload=workload,
            host_times=host_times,
            tick=self.tick,
        )

    def some(self, count: int) -> Simulator:
        """Of about so many of the requests."""
        together = not self.case.has_sessions
        return self.simulator(self.case.draw(count=count, together=together))

    @cached_property
    def whole(self) -> Simulator:
        """Of all requests."""
        return self.simulator(self.case.draw())

    @cached_property
    def part(self) -> Simulator:
        """Of as few requests as comparing settings takes."""
        if self.case.has_sessions:
            count = self._enough_sessions()
        else:
            count = min(
                self.enough_requests(),
                self.requests_with(MOST_ANSWER_TOKENS),
            )
        if 2 * count >= len(self.whole.workload.sessions):
            return self.whole
        return self.some(count)

    def requests_with(self, answer_tokens: int) -> int:
        """How many have so many tokens of answers, but no less than a few hundred."""
        workload = self.whole.workload
        mean = workload.output_tokens / len(workload.requests)
        return max(FEWEST_REQUESTS, round(answer_tokens / mean))

    def _enough_sessions(self) -> int:
        """So many that places are taken again and again, or all."""
        workload = self.whole.workload
        turns = len(workload.requests) / len(workload.sessions)
        at_once = workload.samples_at_once or 0
        for phase in workload.phases:
            at_once = max(at_once, phase.samples_at_once or 0)
        return max(TIMES_AT_ONCE * at_once, round(MOST_TURNS / turns))

    def enough_requests(self) -> int:
        """More than run at once, so that some wait, or than a KV cache holds.

        At a rate that the default serves, a few hundred show what later ones see.
        """
        case = self.case
        run = self.whole.attempt(case.default)
        if run is not None and run.backlog is not None and not run.queue_grows:
            return FEWEST_REQUESTS
        replicas = case.base.parallel.data
        running = case.default.step_requests * replicas
        if run is not None:
            running = run.most_running
        if case.request.is_open:
            return max(FEWEST_REQUESTS, round(1.5 * running))
        enough = max(FEWEST_REQUESTS, 2 * running)
        memory = case.memory()
        if memory is None or case.request.slo:
            return enough
        mean = round(case.lengths.mean or 0) + case.output_tokens
        held = case.engine.requests_of(mean, memory, case.base) * replicas
        return max(enough, min(running + held, MOST_REQUESTS))

    @cached_property
    def variations(self) -> dict[str, Simulator]:
        """The part by code of what turns out otherwise, if that changes it."""
        case = self.case
        count = len(self.part.workload.sessions)
        variations = {}
        for code, variation in VARIATIONS.items():
            workload = self.part.workload
            if variation.host_times == 1.0:
                workload = case.draw(
                    count=count,
                    variation=variation,
                    together=not self.part.workload.phases,
                )
                if workload.sessions == self.part.workload.sessions:
                    continue
            variations[code] = self.simulator(workload, variation.host_times)
        return variations

    def broken_variation(self, settings: Settings) -> str | None:
        """The code of a variation in which the settings break a limit, if any."""
        for code, simulator in self.variations.items():
            if not simulator.keeps_limits(settings):
                return code
        return None


# -- the advice ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The advice, and the best settings beside vLLM's default."""

    advice: Advice
    best: Settings


def advise(search: Search) -> Found:
    """What to set: vLLM's default stays unless another setting is surely better."""
    default = search.case.default
    if not search.case.request.slo:
        return faster_setting(search, best_settings(search))
    if search.whole.run_one_by_one(default).breaks is not None:
        return no_setting(search, default)
    if search.whole.keeps_limits(default):
        return better_setting(search)
    best = default
    if not comes_too_fast(search):
        best = best_settings(search)
    if search.whole.keeps_limits(best):
        return use(search, best, doubt=search.broken_variation(best))
    return fastest_that_keeps_limits(search)


def better_setting(search: Search) -> Found:
    """Where vLLM's default keeps the limits: one that is faster, or at a rate safer."""
    default = search.case.default
    if not search.case.request.is_open:
        return faster_setting(search, best_settings(search))
    if search.broken_variation(default) is None:
        return keep(search, best=default, gain=0.0, least_gain=0.0)
    return roomier_setting(search, best_settings(search))


def faster_setting(search: Search, best: Settings) -> Found:
    """The best settings, if they are worth it: they save time in every variation."""
    default = search.case.default
    if search.whole.attempt(best) is None:
        search.whole.run(best)  # InputError: the longest request is never let in
    gain = gain_over(default, best, search.whole)
    if not search.whole.keeps_limits(best) or gain < WORTH:
        return keep(search, best=best, gain=gain, least_gain=gain)
    return if_sure(search, best, gain)


def roomier_setting(search: Search, best: Settings) -> Found:
    """The best settings at a rate, if they leave clearly more room below the limits."""
    default = search.case.default
    gain = gain_over(default, best, search.whole)
    room = search.whole.use(default) - search.whole.use(best)
    if not search.whole.keeps_limits(best) or room < WORTH_ROOM:
        return keep(search, best=best, gain=gain, least_gain=gain)
    return if_sure(search, best, gain)


def if_sure(search: Search, best: Settings, gain: float) -> Found:
    """The best settings, if they gain whatever turns out otherwise."""
    default = search.case.default
    least_gain = gain
    doubt = None
    for code, simulator in search.variations.items():
        gain_then = gain_over(default, best, simulator)
        if gain_then < least_gain:
            least_gain = gain_then
            doubt = code
        if least_gain <= 0:
            return keep(
                search, best=best, gain=gain, least_gain=least_gain, doubt=doubt
            )
    return use(search, best, gain=gain, least_gain=least_gain, doubt=doubt)


def gain_over(default: Settings, settings: Settings, simulator: Simulator) -> float:
    """How much more is done in the same time than with the default: 0.05 is 5 %."""
    ours = simulator.cost(settings)
    theirs = simulator.cost(default)
    if ours == theirs:
        return 0.0
    return theirs / ours - 1 if ours else inf


def keep(
    search: Search,
    *,
    best: Settings,
    gain: float,
    least_gain: float,
    doubt: str | None = None,
) -> Found:
    """Keep vLLM's default; `best` is named beside it."""
    default = search.case.default
    advice = Advice(
        kind=AdviceKind.KEEP,
        basis=Basis.SIMULATED,
        settings=Settings(),
        needed=search.case.needed,
        gain=gain,
        least_gain=least_gain,
        doubt=doubt,
        alternative=best.changed_from(default) if best != default else None,
    )
    return Found(advice=advice, best=best)


def use(
    search: Search,
    best: Settings,
    *,
    gain: float | None = None,
    least_gain: float | None = None,
    doubt: str | None = None,
) -> Found:
    """Set what the best settings change; no gain where the default breaks a limit."""
    advice = Advice(
        kind=AdviceKind.SET,
        basis=Basis.SIMULATED,
        settings=best.changed_from(search.case.default),
        needed=search.case.needed,
        gain=gain,
        least_gain=least_gain,
        doubt=doubt,
    )
    return Found(advice=advice, best=best)


def no_setting(search: Search, best: Settings, rate: float | None = None) -> Found:
    """None that was tried keeps the limits; `best` would at this rate, if at any."""
    case = search.case
    gpus = None
    if rate and case.request.rate:  # replicas share the requests
        gpus = ceil(case.request.rate / rate) * case.base.parallel.gpus
    advice = Advice(
        kind=AdviceKind.NO_SETTING,
        basis=Basis.SIMULATED,
        settings=Settings(),
        needed=case.needed,
        alternative=best.changed_from(case.default) if best != case.default else None,
        rate=rate,
        gpus=gpus,
    )
    return Found(advice=advice, best=best)


# -- the best settings -----------------------------------------------------------------


def best_settings(search: Search) -> Settings:
    """The best settings other than vLLM's default, or that if no other will do."""
    default = search.case.default
    candidates = ranked(search)
    if not candidates:
        return default
    if not search.case.request.slo:
        return candidates[0]
    return within_limits(search, candidates) or default


def within_limits(search: Search, candidates: list[Settings]) -> Settings | None:
    """The first that keeps the limits with all requests, if possible when varied."""
    part = search.part
    in_doubt = None
    doubts = failures = 0
    most_use = 1 + NEAR
    for settings in candidates:
        if max(doubts, failures) == MOST_CHECKED:
            break
        use = part.use(settings)
        if use > 1 or use >= most_use:
            continue
        if not search.whole.keeps_limits(settings):
            # All requests have a longer tail than a part: the next needs more room.
            most_use = use
            failures += 1
        elif search.broken_variation(settings) is not None:
            in_doubt = in_doubt or settings
            doubts += 1
        else:
            return settings
    return in_doubt


def ranked(search: Search) -> list[Settings]:
    """All that was tried on a part of the requests but the default, the best first."""
    part = search.part
    default = search.case.default
    best = without_idle_arguments(part, streaming_best(search, default), default)
    others = []
    for settings, run in part.runs.items():
        if run is not None and settings not in (default, best):
            others.append(settings)
    others.sort(key=part.cost)
    return [best, *others] if best != default else others


def streaming_best(search: Search, default: Settings) -> Settings:
    """Of the settings that are as good as the best, the one with the shortest waits.

    At a rate those with room enough count as good, and the soonest first token decides;
    else the longest gap between tokens does.
    """
    part = search.part
    best = best_of_grid(part, default)
    is_open = search.case.request.is_open
    enough_use = 0.0
    figure = ITL_MAX
    if is_open:
        enough_use = min(ENOUGH_USED, part.use(default) - WORTH_ROOM)
        figure = TTFT_P95
    shortest = inf
    chosen = best
    for settings, run in part.runs.items():
        if run is None:
            continue
        is_good = part.cost(settings) <= part.cost(best)
        if not is_good and part.use(settings) >= enough_use:
            continue
        wait_s = figure.value(run.figures) or 0.0
        sooner = wait_s < shortest
        if sooner or (wait_s == shortest and part.cost(settings) < part.cost(chosen)):
            shortest = wait_s
            chosen = settings
    return chosen


def without_idle_arguments(
    part: Simulator, best: Settings, default: Settings
) -> Settings:
    """Take back each argument that makes no difference."""
    for name in NAMES:
        simpler = replace(best, **{name: getattr(default, name)})
        if simpler != best and part.is_as_good(simpler, best):
            best = simpler
    return best


# -- the highest rate ------------------------------------------------------------------


def comes_too_fast(search: Search) -> bool:
    """Do requests come faster than the GPU serves them, its weights read at once?"""
    case = search.case
    run = search.whole.attempt(case.default)
    if case.request.rate is None or run is None or not run.queue_grows:
        return False
    step_times = search.whole.step_times(case.default)
    steps = (run.figures.steps or 0) / case.default.parallel.data
    weights_s = steps * (step_times.fixed_s + step_times.experts_s)
    return case.request.rate * (run.gpu_s - weights_s) > run.requests


def fastest_that_keeps_limits(search: Search) -> Found:
    """Where limits are not kept: the setting with the highest rate, and that rate."""
    best = highest_rate_setting(search)
    if search.whole.keeps_limits(best):
        return use(search, best, doubt=search.broken_variation(best))
    slower = Search(search.case.at(UNIT_RATE), search.tick)
    run = slower.whole.run_at_highest_rate(best)
    return no_setting(search, best, run.rate.rate_per_s if run.rate else None)


def highest_rate_setting(search: Search) -> Settings:
    """The setting that keeps the limits at the highest rate, by a part of the requests.

    Each round seeks the best setting at a rate that the one before cannot keep.
    """
    case = search.case
    slow = Search(case.at(UNIT_RATE), search.tick).some(FEWEST_REQUESTS)
    best = settings = case.default
    rate = 0.0
    for _ in range(MOST_RATES):
        run = slow.run_at_highest_rate(settings)
        kept = run.rate.rate_per_s if run.rate else None
        kept = kept or run.requests / run.figures.makespan_s
        if kept <= rate:
            break
        best = settings
        rate = kept * (1 + WORTH)
        faster = Search(case.at(f"{rate!r}/s"), search.tick).some(FEWEST_REQUESTS)
        settings = best_of_grid(faster, case.default)
        if settings == best or not faster.keeps_limits(settings):
            break
    return best
