"""Settings tried on the simulator: the search, and what speaks for and against its finalist.

An argument has to earn its place: a finalist must gain at least WORTH over vLLM's default on all
requests, and still gain when what is assumed turns out otherwise: the host, the draw, the lengths,
outputs that nobody knows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from chunkscope.planning.plan import Advice, AdviceKind, Basis, Role, Standing, TriedRow
from chunkscope.planning.problem import FEWEST_SEQS, LADDER, Problem
from chunkscope.planning.request import Aim, PlanRequest
from chunkscope.planning.simulator import NEAR, Simulator, limits_used
from chunkscope.simulation.sweep import UNIT_RATE
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.flags import Release, flags_of
from chunkscope.vllm.settings import NAMES, Settings

WORTH = 0.03  # an argument that gains less of the aim is not set
BUDGET_STEPS = (0.25, 0.5, 1, 2, 4, 8)  # as multiples of vLLM's own
LEAST_BUDGET = 64  # with less, steps are so many that nothing is gained
MOST_ROUNDS = 3  # of looking near the best of the grid
THRESHOLDS = (512, 2_048)  # tried against gaps, where requests come while others decode
WORTH_ROOM = 0.1  # of a limit: settings with less between them keep it about as well
TABLE_ROUNDS = 4  # of looking whether a neighbour in the table beats the best
MOST_CHECKED = 4  # settings that keep the limits with a part of the requests, tried with all
NO_CPU_TIME = "no_cpu_time"  # a host that takes no time: every variation tries it, too


def search(simulator: Simulator, start: Settings) -> Settings:
    """The best setting by the aim, or `start` where none is better: a coarse grid of budgets and
    requests at once, then what is near the best of it; against limits, caps on prompts as well."""
    slo, release = simulator.request.slo, simulator.deployment.release
    budget, seqs = start.step_tokens, start.max_num_seqs or 1
    around = {max(LADDER[0], int(budget * step)) for step in BUDGET_STEPS}
    sizes = (
        {*LADDER[::2], budget}
        if slo
        else around
        if simulator.attempt(start)
        else {*LADDER, *around}
    )
    levels = dict.fromkeys(max(FEWEST_SEQS, seqs >> n) for n in ((0, 2, 4) if slo else (0,)))
    grid = [replace(start, max_num_seqs=n).at_budget(s) for n in levels for s in sorted(sizes)]
    chosen = simulator.best(grid, start)
    for _ in range(MOST_ROUNDS):
        near = simulator.best(_near(chosen), chosen)
        if near == chosen:
            break
        chosen = near
    if not slo:
        return chosen
    return simulator.best([*_capped(chosen, release), *_capped(start, release)], chosen)


def _near(settings: Settings) -> Iterator[Settings]:
    budget, seqs = settings.step_tokens or 1, settings.max_num_seqs or 1
    for count in (seqs // 2, seqs * 2):
        yield replace(settings, max_num_seqs=max(FEWEST_SEQS, count))
    for size in (budget // 2, budget * 2):
        yield settings.at_budget(max(LEAST_BUDGET, size))


def _capped(settings: Settings, release: Release) -> Iterator[Settings]:
    """As it is, or no less than a fair share of the budget, where this version can do that."""
    adapts = "long_prefill_token_threshold_adaptive" in flags_of(release.version)
    for threshold in THRESHOLDS:
        if threshold < settings.step_tokens:
            fixed = replace(settings, long_prefill_token_threshold=threshold)
            yield fixed
            if adapts:
                yield replace(fixed, long_prefill_token_threshold_adaptive=True)


# -- the finalist ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The settings that were chosen, complete; what was tried beside them."""

    problem: Problem
    settings: Settings
    advice: Advice
    rows: tuple[TriedRow, ...] = ()


def by_simulation(p: Problem) -> Draft:
    """Search on a part of the requests, then judge the finalist on all of them."""
    every, default = p.simulator(), p.default
    default_runs = every.attempt(default) is not None
    hopeless = p.request.slo and default_runs and every.breaks_alone(default)
    best = default if hopeless else _keeper(p, _finalist(p))
    named = {default: Role.DEFAULT} if hopeless else _named(p, best)
    for _ in range(TABLE_ROUNDS):
        top = _top(every, [one for one in named if one != default], default) or best
        if top == best:
            break
        best = top
        named = _named(p, best)
    keeps_limits = every.keeps_limits(best)
    gain, least, doubt, chosen = None, None, None, best
    if p.request.slo and not every.keeps_limits(default):  # what keeps them is better, surely
        chosen = best if keeps_limits else default
        doubt = _breaks_with(p, best) if chosen == best else None
    elif default_runs:
        is_worth = _is_worth(every, best, default)
        gain = every.cost(default) / every.cost(best) - 1
        least, doubt = _least(p, best, gain) if is_worth else (gain, None)
        chosen = best if is_worth and least > 0 else default
    kind = AdviceKind.SET if chosen != default else AdviceKind.KEEP
    rate = gpus = None
    if p.request.slo and not keeps_limits:
        kind, rate = AdviceKind.NO_SETTING, sustained(p, best)
    if rate and p.request.rate:  # replicas share the requests
        gpus = ceil(p.request.rate / rate) * p.base.parallel.gpus
    changed = chosen.changed_from(default)
    advice = Advice(
        kind=kind,
        basis=Basis.SIMULATED,
        settings=changed if default_runs else OWN,
        needed=p.needed if default_runs else changed.over(p.needed),
        gain=gain,
        least_gain=least,
        doubt=doubt,
        alternative=best.changed_from(default) if best != chosen else None,
        rate=rate,
        gpus=gpus,
    )
    rows = tuple(_rows(every, named, default, chosen))
    return Draft(problem=p, settings=chosen, advice=advice, rows=rows)


def _is_worth(every: Simulator, best: Settings, default: Settings) -> bool:
    """3 % of the aim; where requests come by themselves, a tenth of a limit more room."""
    ours, theirs = every.cost(best), every.cost(default)
    if every.request.aim is Aim.ROOM_TO_LIMITS:
        return ours <= 1 and (theirs - ours >= WORTH_ROOM or theirs > 1)
    return every.keeps_limits(best) and theirs / ours - 1 >= WORTH


def _finalist(p: Problem) -> Settings:
    part, default = p.part, p.default
    best = search(part, default)
    for name in NAMES:  # each argument earns its place: what makes no difference is left to vLLM
        without = Settings.of({**best.given(), name: getattr(default, name)})
        if without != best and part.against(without, best) <= 1 + NEAR:
            best = without
    return best


def _keeper(p: Problem, best: Settings) -> Settings:
    """The finalist, or the next best that keeps the limits with all requests; and rather one that
    keeps them whatever is varied, where vLLM's default breaks them."""
    part, every, first = p.part, p.simulator(), None
    if not p.request.slo or not part.keeps_limits(best):
        return best
    used = {one: limits_used(run) for one, run in part.runs.items() if run}
    others = sorted((one for one, share in used.items() if share <= 1), key=part.cost)
    candidates = [best, *(one for one in others if one != best)]
    for _ in range(MOST_CHECKED):
        if not candidates:
            break
        settings = candidates.pop(0)
        run = every.attempt(settings)
        if run is not None and limits_used(run) > 1:
            # All have a longer tail than a part: the next has to have as much room.
            tail = limits_used(run) / max(used[settings], 1e-9)
            candidates = [one for one in candidates if used[one] * tail <= 1]
            continue
        first = first or settings
        if part.keeps_limits(p.default) or _breaks_with(p, settings) is None:
            return settings
    return first or best


def _breaks_with(p: Problem, settings: Settings) -> str | None:
    """A variation with which a setting breaks a limit."""
    every = p.varied.items()
    return next((code for code, one in every if not one.keeps_limits(settings)), None)


def _top(every: Simulator, settings: list[Settings], default: Settings) -> Settings | None:
    """By the aim; of those that are about as good and no worse than the default, the one with the
    shortest longest gap."""
    runs = {one: run for one in settings if (run := every.attempt(one)) is not None}
    costs = {one: every.cost(one) for one in runs}
    least = min(costs.values(), default=0.0)
    most = max(least, min(least * (1 + NEAR), every.cost(default)))
    near = [one for one in runs if costs[one] <= most]
    return min(near, key=lambda o: (runs[o].figures.longest_gap_s or 0.0, costs[o]), default=None)


def _least(p: Problem, best: Settings, gain: float) -> tuple[float, str | None]:
    """The least gain of all variations, on either host; one in which there is none ends it."""
    least, doubt = gain, None
    for code, varied in {NO_CPU_TIME: p.part, **p.varied}.items():
        times = varied.against(best, p.default)
        gained = 1 / times - 1 if times else float("inf")
        if gained < least:
            least, doubt = gained, code
        if least <= 0:
            break
    return least, doubt


# -- the table -----------------------------------------------------------------------------------


def _named(p: Problem, best: Settings) -> dict[Settings, Role]:
    """vLLM's default, the best, and the better of its neighbours by the part of the requests."""
    size = best.step_tokens
    near = [best.at_budget(budget) for budget in (size // 2, size * 2) if budget >= LEAST_BUDGET]
    rows = {p.default: Role.DEFAULT}
    rows.setdefault(best, Role.BEST)
    rows.setdefault(min(near, key=p.part.cost), Role.NEIGHBOUR)
    return rows


def _rows(
    every: Simulator, named: dict[Settings, Role], default: Settings, chosen: Settings
) -> Iterator[TriedRow]:
    """What cannot run is left out."""
    for settings, role in named.items():
        if (run := every.attempt(settings)) is None:
            continue
        standing = Standing.CHOSEN if settings == chosen else Standing.WORSE
        if settings != chosen and every.cost(settings) < every.cost(chosen):
            worth = chosen == default and _is_worth(every, settings, default)
            standing = Standing.NOT_ROBUST if worth else Standing.TOO_LITTLE
        yield TriedRow(role=role, settings=settings, run=run, standing=standing)


# -- the highest rate ------------------------------------------------------------------------------


def unit_rate(request: PlanRequest) -> PlanRequest:
    """As many requests as `recommend` tries at a rate, coming one by one, for `find_rate`."""
    return replace(request, arrivals=UNIT_RATE, concurrency=None)


def better_at(problem: Problem, rate: float) -> Settings | None:
    """What the search finds at a rate that is higher by its margin than what is sustained; None
    where it does not keep the limits."""
    request = replace(unit_rate(problem.request), arrivals=f"{rate * (1 + WORTH)!r}/s")
    faster = replace(problem, request=request)
    part, every = faster.part, faster.simulator()
    search(part, problem.default)
    near = sorted((one for one, run in part.runs.items() if run), key=part.cost)[:MOST_CHECKED]
    best = min(near, key=every.cost, default=problem.default)
    return best if every.keeps_limits(best) else None


def sustained(problem: Problem, settings: Settings) -> float | None:
    """The highest rate a second at which this setting, or a better one, keeps the limits."""
    simulator = replace(problem, request=unit_rate(problem.request)).simulator()

    def rate_of(settings: Settings) -> float | None:
        run = simulator.at_highest_rate(settings, saturation=False)
        return run.rate.rate_per_s if run.rate else None

    rate = rate_of(settings)
    better = better_at(problem, rate) if rate else None
    return max(rate or 0.0, rate_of(better) or 0.0) if better else rate
