"""Which setting is better, and whether the difference is more than noise."""

from collections.abc import Sequence
from dataclasses import dataclass

from chunkscope.engine.choices import Objective
from chunkscope.simulation.workload import BATCH
from chunkscope.verification.result import Figures, Run, Verification
from chunkscope.verification.settings import PLAN

WORTH = 0.02  # a better row must be better by this share, or it is not worth a change
TIE_OF_ONE = 0.05  # with a single repeat nobody knows the spread: smaller differences are ties


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The figure that decides: of all figures, what the plan was made for. Less is better."""

    figure: str
    words: str


def goal_of(objective: Objective, arrivals: str) -> Goal:
    if objective is Objective.LATENCY:
        return Goal(figure="itl_s.p99", words="p99 gap between tokens")
    if arrivals == BATCH:
        return Goal(figure="makespan_s", words="time for all requests")
    # At a given rate the last request ends when it ends: what differs is how long each waits.
    return Goal(figure="e2e_s.p95", words="p95 latency")


def figure(figures: Figures | None, name: str) -> float | None:
    """By its name in the artefact: `makespan_s`, `ttft_s.p95`, `itl_s.long.p99`.

    None where it was not measured.
    """
    value: object = figures
    for part in _path(name):
        if value is None:
            return None
        value = getattr(value, part)
    return float(value) if isinstance(value, (int, float)) else None


def _path(name: str) -> list[str]:
    first, *rest = name.split(".")
    return [first, *(["all"] if len(rest) == 1 else []), *rest]


def spread(run: Run, name: str) -> tuple[float, float] | None:
    """Least and most over the repeats."""
    values = [value for r in run.repeats if (value := figure(r, name)) is not None]
    return (min(values), max(values)) if values else None


def ratio(run: Run, first: Run, name: str) -> float | None:
    ours, theirs = figure(run.figures, name), figure(first.figures, name)
    return ours / theirs if ours is not None and theirs else None


def is_tie(run: Run, other: Run, name: str) -> bool:
    """Their spreads overlap; with one repeat, they are close."""
    ours, theirs = spread(run, name), spread(other, name)
    if ours is None or theirs is None:
        return False
    if min(len(run.repeats), len(other.repeats)) == 1:
        return abs(ours[0] / theirs[0] - 1) < TIE_OF_ONE if theirs[0] else True
    return ours[0] <= theirs[1] and theirs[0] <= ours[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    text: str
    better: str | None = None


def judge(v: Verification, objective: Objective) -> Advice | None:
    """Keep the plan, or this other row is better, and why. None when there is no plan's row."""
    plan = v.run(PLAN)
    if plan is None:
        return None
    goal = goal_of(objective, v.workload.arrivals)
    others = [run for run in v.runs if run is not plan]
    if not plan.ok:
        return _without_plan(plan, others, goal)
    beaten_by = [run for run in others if run.ok and _beats(run, plan, goal)]
    best = min(beaten_by, key=lambda run: figure(run.figures, goal.figure) or 0, default=None)
    if best is None:
        return Advice(text=f"Keep the plan: {_reason(plan, others, goal)}.")
    return Advice(text=_advice(best, plan, goal), better=best.setting)


def _beats(run: Run, plan: Run, goal: Goal) -> bool:
    found = ratio(run, plan, goal.figure)
    return found is not None and found <= 1 - WORTH and not is_tie(run, plan, goal.figure)


def _without_plan(plan: Run, others: Sequence[Run], goal: Goal) -> Advice:
    running = [run for run in others if run.ok]
    best = min(running, key=lambda run: figure(run.figures, goal.figure) or 0, default=None)
    lead = f"The plan does not run here ({plan.message})"
    if best is None:
        return Advice(text=f"{lead}, and nothing else did.")
    value = _seconds(figure(best.figures, goal.figure))
    return Advice(
        text=f"{lead}; the best of what did is {best.setting}: {goal.words} {value}.",
        better=best.setting,
    )


def _reason(plan: Run, others: Sequence[Run], goal: Goal) -> str:
    own = f"{goal.words} {_seconds(figure(plan.figures, goal.figure))}"
    if plan.same_as:
        own += f" ({' and '.join(plan.same_as)}: the same arguments)"
    if not others:
        return f"{own}; nothing else was measured"
    return "; ".join([own, *(_beside(run, plan, goal) for run in others)])


def _beside(run: Run, plan: Run, goal: Goal) -> str:
    found = ratio(run, plan, goal.figure)
    if not run.ok or found is None:
        return f"{run.setting}: {run.status.value.replace('_', ' ')}"
    if is_tie(run, plan, goal.figure):
        return f"{run.setting} is a tie ({found - 1:+.1%}, within the spread)"
    word = "longer" if found > 1 else "shorter"
    return f"{run.setting} takes {abs(found - 1):.1%} {word}"


def _advice(best: Run, plan: Run, goal: Goal) -> str:
    theirs, ours = (figure(run.figures, goal.figure) for run in (best, plan))
    change = (theirs or 0) / (ours or 1) - 1
    text = (
        f"{best.setting} is better than the plan: {goal.words} {_seconds(theirs)} "
        f"instead of {_seconds(ours)} ({change:+.1%})"
    )
    return f"{text}{_price(best, plan)}."


def _price(best: Run, plan: Run) -> str:
    """What the better row costs, if that was measured."""
    gap = ratio(best, plan, "itl_s.max")
    if gap is not None and gap > 1.1 and not is_tie(best, plan, "itl_s.max"):
        return f", at a longest gap between tokens {gap:.1f} times as long"
    slower = ratio(best, plan, "makespan_s")
    if slower is not None and slower > 1 + WORTH:
        return f", at {slower - 1:.0%} more time for all requests"
    return ""


def _seconds(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.2f} s" if value >= 1 else f"{value * 1000:,.1f} ms"
