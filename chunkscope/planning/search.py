"""The one search: settings tried on the simulator, of which the memory model allows some."""

from collections.abc import Iterator
from dataclasses import replace

from chunkscope.planning.problem import FEWEST_SEQS, LADDER, Problem
from chunkscope.planning.request import PlanRequest
from chunkscope.planning.simulator import Simulator
from chunkscope.simulation.sweep import UNIT_RATE, find_rate
from chunkscope.vllm.flags import Release, known_to
from chunkscope.vllm.rules import Off
from chunkscope.vllm.settings import Settings

WORTH = 0.03  # an argument that gains less of the aim is not set
BUDGET_STEPS = (0.25, 0.5, 1, 2, 4, 8)  # as multiples of vLLM's own
MOST_ROUNDS = 3  # of looking near the best of the grid
THRESHOLDS = (512, 2_048)  # tried against gaps, where requests come while others decode


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
    chosen = simulator.best([*_capped(chosen, release), *_capped(start, release)], chosen)
    return simulator.best(_admitted(release, chosen, start), chosen)


def _near(settings: Settings) -> Iterator[Settings]:
    budget, seqs = settings.step_tokens or 1, settings.max_num_seqs or 1
    for count in (seqs // 2, seqs * 2):
        yield replace(settings, max_num_seqs=max(FEWEST_SEQS, count))
    for size in (budget // 2, budget * 2):
        yield settings.at_budget(size)


def ideas(p: Problem, settings: Settings, threshold: int | None) -> list[Settings]:
    """The length rule's threshold where it bites; off where vLLM supports it without a warning."""
    budget, others = settings.step_tokens, []
    if threshold and threshold < min(budget, p.longest):
        others.append(replace(settings, long_prefill_token_threshold=threshold))
    if p.deployment.release.rules.off is Off.HONOURED and not settings.long_prefill_token_threshold:
        size = max(budget, p.context)
        others.append(replace(settings.at_budget(size), enable_chunked_prefill=False))
    return others


def _capped(settings: Settings, release: Release) -> Iterator[Settings]:
    """As it is, or no less than a fair share of the budget, where this version can do that."""
    adapts = known_to("long_prefill_token_threshold_adaptive", release.version)
    for threshold in THRESHOLDS:
        if threshold < settings.step_tokens:
            fixed = replace(settings, long_prefill_token_threshold=threshold)
            yield fixed
            if adapts:
                yield replace(fixed, long_prefill_token_threshold_adaptive=True)


def _admitted(release: Release, chosen: Settings, start: Settings) -> Iterator[Settings]:
    """Few requests at once, with the CUDA graphs for many: a chunk beside them stays graphed."""
    fewer = (chosen.max_num_seqs or 0) < (start.max_num_seqs or 0)
    if fewer and known_to("max_num_active_seqs", release.version):
        seqs = min(start.max_num_seqs or 0, chosen.step_tokens)
        yield replace(chosen, max_num_seqs=seqs, max_num_active_seqs=chosen.max_num_seqs)


# -- the highest rate ------------------------------------------------------------------------------


def unit_rate(request: PlanRequest) -> PlanRequest:
    """As many requests as `recommend` tries at a rate, coming one by one, for `find_rate`."""
    return replace(request, arrivals=UNIT_RATE, concurrency=None)


def better_at(problem: Problem, rate: float) -> Settings | None:
    """What the search finds at a rate that is higher by its margin than what is sustained; None
    where it does not keep the limits."""
    request = replace(unit_rate(problem.request), arrivals=f"{rate * (1 + WORTH)!r}/s")
    simulator = replace(problem, request=request).simulator()
    best = search(simulator, problem.default)
    return best if simulator.keeps_limits(best) else None


def sustained(problem: Problem, settings: Settings) -> float | None:
    """The highest rate a second at which this setting, or a better one, keeps the limits."""
    simulator = replace(problem, request=unit_rate(problem.request)).simulator()

    def rate_of(settings: Settings) -> float | None:
        full = simulator.complete(settings)
        scenario, pool = simulator.scenario(settings), simulator.pool(full)
        run = find_rate(scenario, full, pool, saturation=False, tick=problem.tick)
        return run.rate.rate_per_s if run.rate else None

    rate = rate_of(settings)
    better = better_at(problem, rate) if rate else None
    return max(rate or 0.0, rate_of(better) or 0.0) if better else rate
