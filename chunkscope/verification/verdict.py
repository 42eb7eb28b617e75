"""Which setting is better, and whether the difference is more than noise."""

from collections.abc import Sequence
from dataclasses import replace

from chunkscope.artefacts.figures import E2E_P95, ITL_MAX, ITL_P99, MAKESPAN, Figure
from chunkscope.artefacts.numbers import NOT_MEASURED
from chunkscope.engine.choices import Objective
from chunkscope.simulation.workload import BATCH
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.settings import PLAN

WORTH = 0.02  # a better row must be better by this share, or it is not worth a change
TIE_OF_ONE = 0.05  # with a single repeat nobody knows the spread: smaller differences are ties


def goal_of(objective: Objective, arrivals: str) -> Figure:
    """The figure that decides: of all figures, what the plan was made for. Less is better."""
    if objective is Objective.LATENCY:
        return ITL_P99
    if arrivals == BATCH:
        return MAKESPAN
    # At a given rate the last request ends when it ends: what differs is how long each waits.
    return E2E_P95


def value(run: Run, figure: Figure) -> float | None:
    """None where it was not measured."""
    return figure.of(run if figure.once else run.figures)


def spread(run: Run, figure: Figure) -> tuple[float, float] | None:
    """Least and most over the repeats."""
    values = [found for r in run.repeats if (found := figure.of(r)) is not None]
    return (min(values), max(values)) if values else None


def ratio(run: Run, first: Run, figure: Figure) -> float | None:
    ours, theirs = value(run, figure), value(first, figure)
    return ours / theirs if ours is not None and theirs else None


def is_tie(run: Run, other: Run, figure: Figure) -> bool:
    """Their spreads overlap; with one repeat, they are close."""
    ours, theirs = spread(run, figure), spread(other, figure)
    if ours is None or theirs is None:
        return False
    if min(len(run.repeats), len(other.repeats)) == 1:
        return abs(ours[0] / theirs[0] - 1) < TIE_OF_ONE if theirs[0] else True
    return ours[0] <= theirs[1] and theirs[0] <= ours[1]


def judged(v: Verification, objective: Objective) -> Verification:
    """With a verdict: keep the plan, or this other row is better, and why. Without a plan, none."""
    plan = v.run(PLAN)
    if plan is None:
        return v
    goal = goal_of(objective, v.workload.arrivals)
    others = [run for run in v.runs if run is not plan]
    better = [run for run in others if run.ok and (not plan.ok or _beats(run, plan, goal))]
    best = min(better, key=lambda run: value(run, goal) or 0, default=None)
    if not plan.ok:
        text = _without_plan(plan, best, goal)
    elif best is None:
        text = f"Keep the plan: {_reason(plan, others, goal)}."
    else:
        text = _advice(best, plan, goal)
    return replace(v, verdict=text, better=best.setting if best else None)


def _beats(run: Run, plan: Run, goal: Figure) -> bool:
    found = ratio(run, plan, goal)
    return found is not None and found <= 1 - WORTH and not is_tie(run, plan, goal)


def _without_plan(plan: Run, best: Run | None, goal: Figure) -> str:
    lead = f"The plan does not run here ({plan.message})"
    if best is None:
        return f"{lead}, and nothing else did."
    took = _seconds(value(best, goal))
    return f"{lead}; the best of what did is {best.setting}: {goal.title} {took}."


def _reason(plan: Run, others: Sequence[Run], goal: Figure) -> str:
    own = f"{goal.title} {_seconds(value(plan, goal))}"
    if plan.same_as:
        own += f" ({' and '.join(plan.same_as)}: the same arguments)"
    if not others:
        return f"{own}; nothing else was measured"
    return "; ".join([own, *(_beside(run, plan, goal) for run in others)])


def _beside(run: Run, plan: Run, goal: Figure) -> str:
    found = ratio(run, plan, goal)
    if not run.ok or found is None:
        return f"{run.setting}: {run.status.value.replace('_', ' ')}"
    if is_tie(run, plan, goal):
        return f"{run.setting} is a tie ({found - 1:+.1%}, within the spread)"
    word = "longer" if found > 1 else "shorter"
    return f"{run.setting} takes {abs(found - 1):.1%} {word}"


def _advice(best: Run, plan: Run, goal: Figure) -> str:
    theirs, ours = (value(run, goal) for run in (best, plan))
    change = (theirs or 0) / (ours or 1) - 1
    text = (
        f"{best.setting} is better than the plan: {goal.title} {_seconds(theirs)} "
        f"instead of {_seconds(ours)} ({change:+.1%})"
    )
    return f"{text}{_price(best, plan)}."


def _price(best: Run, plan: Run) -> str:
    """What the better row costs, if that was measured."""
    gap = ratio(best, plan, ITL_MAX)
    if gap is not None and gap > 1.1 and not is_tie(best, plan, ITL_MAX):
        return f", at a longest gap between tokens {gap:.1f} times as long"
    slower = ratio(best, plan, MAKESPAN)
    if slower is not None and slower > 1 + WORTH:
        return f", at {slower - 1:.0%} more time for all requests"
    return ""


def _seconds(found: float | None) -> str:
    if found is None:
        return NOT_MEASURED
    return f"{found:,.2f} s" if found >= 1 else f"{found * 1000:,.1f} ms"
