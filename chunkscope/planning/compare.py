"""What the simulator says for and against a setting: an argument has to earn its place.

A finalist must gain at least WORTH over vLLM's default on all requests, and still gain when what is
assumed turns out otherwise: the host, the draw, the lengths, outputs that nobody knows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chunkscope.planning.plan import Cost, Role, Standing, TriedRow
from chunkscope.planning.problem import Problem
from chunkscope.planning.request import Aim
from chunkscope.planning.search import (
    NEAR,
    WORTH,
    WORTH_ROOM,
    Bench,
    ideas,
    limits_used,
    search,
)
from chunkscope.planning.simulator import Variation, served, variations
from chunkscope.vllm.settings import NAMES, Settings

HOUR_S = 3_600
MOST_ROUNDS = 4  # of looking whether a neighbour in the table beats the best
MOST_CHECKED = 4  # settings that keep the limits with a part of the requests, tried with all


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`chosen` is vLLM's default unless another one earned its place.

    `gain` is what the best of the others gains over it (None: the default cannot run, or breaks a
    limit that the best keeps), `least` the least of all variations, `doubt` the code of that one.
    """

    default: Settings
    chosen: Settings
    best: Settings
    gain: float | None
    least: float | None
    doubt: str | None
    rows: tuple[TriedRow, ...]
    bench: Bench

    @property
    def default_runs(self) -> bool:
        return self.bench.run(self.default) is not None

    @property
    def keeps_limits(self) -> bool:
        """With the best setting; True without limits."""
        run = self.bench.run(self.best)
        return run is not None and limits_used(run) <= 1


def compare(
    p: Problem, threshold: int | None, tick: Callable[[], None] = lambda: None
) -> Comparison:
    """Search on a part of the requests, then judge the finalist on all of them."""
    bench, default = Bench.of(p, tick=tick), p.default
    best = _finalist(bench.part, default, threshold)
    if p.request.slo and not bench.part.keeps_limits(default):
        best = _robust(bench.part, best)
    best = _keeping(bench, best)
    named = _named(bench, default, best)
    for _ in range(MOST_ROUNDS):
        top = _top(bench, [one for one in named if one != default], default) or best
        if top == best:
            break
        best = top
        named = _named(bench, default, best)
    gain, least, doubt, chosen = None, None, None, best
    if p.request.slo and not bench.keeps_limits(default):  # what keeps them is better, surely
        chosen = best if bench.keeps_limits(best) else default
        broken = _breaks_with(bench.part, best) if chosen == best else None
        doubt = broken.code if broken else None
    elif bench.run(default) is not None:
        is_worth = _is_worth(bench, best, default)
        gain = bench.cost(default) / bench.cost(best) - 1
        least, doubt = _least(bench.part, best, default, gain) if is_worth else (gain, None)
        chosen = best if is_worth and least > 0 else default
    return Comparison(
        default=default,
        chosen=chosen,
        best=best,
        gain=gain,
        least=least,
        doubt=doubt,
        rows=tuple(_rows(bench, named, default, chosen)),
        bench=bench,
    )


def _is_worth(bench: Bench, best: Settings, default: Settings) -> bool:
    """3 % of the aim; where requests come by themselves, a tenth of a limit more room."""
    ours, theirs = bench.cost(best), bench.cost(default)
    if bench.problem.request.aim is Aim.ROOM_TO_LIMITS:
        return ours <= 1 and (theirs - ours >= WORTH_ROOM or theirs > 1)
    run = bench.run(best)
    is_met = run is not None and (run.slo is None or run.slo.is_met)
    return is_met and theirs / ours - 1 >= WORTH


def _finalist(bench: Bench, default: Settings, threshold: int | None) -> Settings:
    p, found = bench.problem, search(bench, default)
    others = [found, *ideas(p, found, threshold), *ideas(p, default, threshold)]
    best = bench.best([one for one in others if one != default], default)
    for name in NAMES:  # each argument earns its place: what makes no difference is left to vLLM
        without = Settings.of({**best.given(), name: getattr(default, name)})
        if without != best and bench.against(without, best) <= 1 + NEAR:
            best = without
    return best


def _breaks_with(part: Bench, settings: Settings) -> Variation | None:
    """A variation with which a setting breaks a limit."""
    every = variations(part.problem.output)
    return next((v for v in every if not part.varied(v).keeps_limits(settings)), None)


def _robust(part: Bench, best: Settings) -> Settings:
    """The next best that keeps the limits whatever is varied, where the finalist does not."""
    if not part.keeps_limits(best):
        return best
    settings, keeping = best, _keepers(part)[: 4 * MOST_CHECKED]
    for _ in range(MOST_CHECKED):
        if (broken := _breaks_with(part, settings)) is None:
            return settings
        varied = part.varied(broken)
        keeping = [one for one in keeping if one != settings and varied.keeps_limits(one)]
        if not keeping:
            break
        settings = keeping[0]
    return best


def _keepers(part: Bench) -> list[Settings]:
    """What was tried and keeps the limits, the best first."""
    keeping = [one for one, run in part.tried().items() if limits_used(run) <= 1]
    return sorted(keeping, key=part.cost)


def _keeping(bench: Bench, best: Settings) -> Settings:
    """The finalist of a part of the requests, or the next that keeps the limits with all of them.

    All have a longer tail than a part: what breaks a limit by so much has to have as much room.
    """
    part = bench.part
    if part is bench or not bench.problem.request.slo:
        return best
    keeping = _keepers(part)
    for _ in range(MOST_CHECKED):
        run, of_part = bench.run(best), part.run(best)
        if run is None or of_part is None or limits_used(run) <= 1:
            return best
        tail = limits_used(run) / max(limits_used(of_part), 1e-9)
        runs = part.tried()
        keeping = [one for one in keeping if limits_used(runs[one]) * tail <= 1]
        best = keeping[0] if keeping else best
    return best


def _top(bench: Bench, settings: list[Settings], default: Settings) -> Settings | None:
    """By the aim; of those that are about as good and no worse than the default, the one with the
    shortest longest gap."""
    runs = {one: run for one in settings if (run := bench.run(one)) is not None}
    costs = {one: bench.cost(one) for one in runs}
    least = min(costs.values(), default=0.0)
    most = max(least, min(least * (1 + NEAR), bench.cost(default)))
    near = [one for one in runs if costs[one] <= most]
    return min(near, key=lambda o: (runs[o].figures.longest_gap_s or 0.0, costs[o]), default=None)


def _least(part: Bench, best: Settings, default: Settings, gain: float) -> tuple[float, str | None]:
    """The least gain of all variations, on either host; one in which there is none ends it."""
    p, least, doubt = part.problem, gain, None
    for variation in variations(p.output):
        varied = part.varied(variation)
        times = varied.against(best, default)
        found = 1 / times - 1 if times else float("inf")
        if found < least:
            least, doubt = found, variation.code
        if least <= 0:
            break
    return least, doubt


# -- the table -----------------------------------------------------------------------------------


def _named(bench: Bench, default: Settings, best: Settings) -> dict[Settings, Role]:
    """vLLM's default, the best, and the better of its neighbours by the part of the requests."""
    size, part = best.max_num_batched_tokens or 0, bench.part
    near = [best.at_budget(budget) for budget in (size // 2, size * 2)]
    rows = {default: Role.DEFAULT}
    rows.setdefault(best, Role.BEST)
    rows.setdefault(min(near, key=part.cost), Role.NEIGHBOUR)
    return rows


def _rows(
    bench: Bench, named: dict[Settings, Role], default: Settings, chosen: Settings
) -> Iterator[TriedRow]:
    """What cannot run is left out."""
    for settings, role in named.items():
        if (run := bench.run(settings)) is None:
            continue
        standing = Standing.CHOSEN if settings == chosen else Standing.WORSE
        if settings != chosen and bench.cost(settings) < bench.cost(chosen):
            worth = chosen == default and _is_worth(bench, settings, default)
            standing = Standing.NOT_ROBUST if worth else Standing.TOO_LITTLE
        yield TriedRow(role=role, settings=settings, run=run, standing=standing)


# -- what the run takes ----------------------------------------------------------------------------


def cost_of(bench: Bench, settings: Settings) -> Cost | None:
    """Of all prompts with this setting; None where it cannot run.

    What is assumed is varied on a part of the requests: how much longer or shorter that takes.
    """
    p, run = bench.problem, bench.run(settings)
    if run is None:
        return None
    # Of more prompts than are ever simulated, the rest take as long as these.
    times = served(p.datasets, p.request, p.context) / run.requests
    part = bench.part
    usual = part.seconds(settings)
    tried = [(one.code, part.varied(one)) for one in variations(p.output)]
    varied = [(code, other) for code, other in tried if other is not part]  # else the same again
    ratios = [1.0]
    for _, other in varied:
        ratios += [other.seconds(settings, host) / usual for host in other.hosts]
    hours = run.figures.makespan_s * times / HOUR_S
    return Cost(
        input_tokens=round(run.input_tokens * times),
        output_tokens=round(run.output_tokens * times),
        hours=hours,
        least_hours=hours * min(ratios),
        most_hours=hours * max(ratios),
        varied=tuple(code for code, _ in varied),
        gpus=p.base.parallel.gpus,
        price_per_hour=p.request.price_per_hour,
    )
