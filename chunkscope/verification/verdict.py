"""What the measurements say of the plan: keep it, its flags can go, or another row is better.

The rule is that of `recommend`: a flag earns its place, and a tie means vLLM's default. A tie is a
difference within the spread over repeats, or of less than WORTH of the figure that decides.
"""

from collections.abc import Sequence
from dataclasses import replace

from chunkscope.artefacts.figures import E2E_P95, MAKESPAN, TIGHTEST_LIMIT, Figure
from chunkscope.artefacts.numbers import NOT_MEASURED, by, share, spaced
from chunkscope.planning.search import WORTH, WORTH_ROOM
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import BATCH
from chunkscope.verification.outcomes import against, is_tie, ratio, value
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.settings import COMMON, DEFAULT, PLAN


def goal_of(arrivals: str, slo: Slo = ()) -> Figure:
    """The figure that decides: of all figures, what the plan was made for. Less is better."""
    if slo:
        return TIGHTEST_LIMIT
    if arrivals == BATCH:
        return MAKESPAN
    # At a given rate the last request ends when it ends: what differs is how long each waits.
    return E2E_P95


def judged(v: Verification, slo: Slo = ()) -> Verification:
    """With a verdict, the row that beats the plan if one does, and the flags that can go."""
    plan = v.run(PLAN)
    if plan is None:
        return v
    default = v.run(DEFAULT) or (None if _own_args(plan) else plan)
    goal = goal_of(v.workload.arrivals, slo)
    others = [run for run in v.runs if run is not plan]
    best = _best(others, plan, default, goal)
    can_go: tuple[str, ...] = ()
    if not plan.ok:
        text = _without_plan(plan, best, goal)
    elif best is not None:
        text = _advice(best, plan, goal)
    elif default is plan:
        text = _nothing_to_set(plan, others, goal)
    elif default is not None and default.ok and not _beats(plan, default, goal):
        can_go = tuple(_own_args(plan))
        text = _tie(plan, default, goal)
    else:
        text = f"Keep the plan: {_reason(plan, others, default, goal)}"
    return replace(v, verdict=text, better=best.setting if best else None, can_go=can_go)


def _best(others: Sequence[Run], plan: Run, default: Run | None, goal: Figure) -> Run | None:
    """The best of what beats the plan; what only ties with vLLM's default gives way to it."""
    better = [run for run in others if run.ok and (not plan.ok or _beats(run, plan, goal))]
    best = min(better, key=lambda run: value(run, goal) or 0, default=None)
    if best is None or best is default or default is None or not default.ok:
        return best
    if _beats(best, default, goal):
        return best
    return default if default in better else None


def _beats(run: Run, other: Run, goal: Figure) -> bool:
    if goal is TIGHTEST_LIMIT:
        ours, theirs = (value(one, goal) for one in (run, other))
        is_more = ours is not None and theirs is not None and theirs - ours >= WORTH_ROOM
        return is_more and not is_tie(run, other, goal)
    found = ratio(other, run, goal)
    return found is not None and found - 1 >= WORTH and not is_tie(run, other, goal)


def _own_args(run: Run) -> dict[str, object]:
    """What it sets beyond what all rows have in common."""
    return {name: value for name, value in run.args.items() if name not in COMMON}


def _named(run: Run) -> str:
    return "vLLM's default" if DEFAULT in (run.setting, *run.same_as) else run.setting


# -- in words ------------------------------------------------------------------------------------


def _without_plan(plan: Run, best: Run | None, goal: Figure) -> str:
    lead = f"The plan does not run here ({plan.message})"
    if best is None:
        return f"{lead}, and nothing else did."
    took = _said(best, goal)
    return f"{lead}; the best of what did is {_named(best)}: {goal.title} {took}. {_to_use(best)}."


def _nothing_to_set(plan: Run, others: Sequence[Run], goal: Figure) -> str:
    own = f"the plan is vLLM's default, {goal.title} {_said(plan, goal)}"
    return f"Change nothing: {'; '.join([own, *(_beside(run, plan, goal) for run in others)])}."


def _tie(plan: Run, default: Run, goal: Figure) -> str:
    flags = list(_own_args(plan))
    enough = f"{share(WORTH_ROOM)} of it" if goal is TIGHTEST_LIMIT else share(WORTH)
    why = "within the spread" if is_tie(plan, default, goal) else f"less than {enough}"
    return (
        f"The {'flag' if len(flags) == 1 else 'flags'} can go: {goal.title} "
        f"{_said(plan, goal)} with {', '.join(flags)} and "
        f"{_said(default, goal)} with vLLM's default ({_change(plan, default, goal)}, "
        f"{why}). {against(plan, default, said=goal)}"
    )


def _reason(plan: Run, others: Sequence[Run], default: Run | None, goal: Figure) -> str:
    """How much it gains, beside what else was tried, and what that costs in other figures."""
    own, more = f"{goal.title} {_said(plan, goal)}", ""
    if default is not None and default.ok:
        theirs, change = _said(default, goal), _change(plan, default, goal)
        own += f" instead of {theirs} with vLLM's default ({change})"
        more = f" {against(plan, default, said=goal)}"
        others = [run for run in others if run is not default]
    elif default is None:
        own += "; vLLM's default was not measured"
    return f"{'; '.join([own, *(_beside(run, plan, goal) for run in others)])}.{more}"


def _beside(run: Run, plan: Run, goal: Figure) -> str:
    found = ratio(run, plan, goal)
    if not run.ok or found is None:
        return f"{run.setting}: {run.status.value.replace('_', ' ')}"
    if is_tie(run, plan, goal):
        return f"{run.setting} is a tie ({_change(run, plan, goal)}, within the spread)"
    if goal is TIGHTEST_LIMIT:
        return f"{run.setting} uses {_said(run, goal)}"
    if goal is not MAKESPAN:
        word = "longer" if found > 1 else "shorter"
        return f"{run.setting}: {goal.title} {share(abs(found - 1))} {word}"
    word = "slower" if found > 1 else "faster"
    return f"{run.setting} is {share(abs(found - 1))} {word}"


def _advice(best: Run, plan: Run, goal: Figure) -> str:
    theirs, ours = (_said(run, goal) for run in (best, plan))
    return (
        f"{_named(best)} is better than the plan: {goal.title} {theirs} instead of {ours} "
        f"({_change(best, plan, goal)}). {_to_use(best)}. {against(best, plan, said=goal)}"
    )


def _to_use(run: Run) -> str:
    words = " ".join(f"{name}={value}" for name, value in _own_args(run).items())
    return f"Its arguments: {words}" if words else "It needs no flag"


def _change(run: Run, other: Run, goal: Figure) -> str:
    return by((ratio(run, other, goal) or 1) - 1)


def _said(run: Run, goal: Figure) -> str:
    found = value(run, goal)
    if found is None:
        return NOT_MEASURED
    if goal is TIGHTEST_LIMIT:
        return spaced(f"{found:.0%}")  # over 100 % it is broken
    return f"{found:,.2f} s" if found >= 1 else f"{found * 1000:,.1f} ms"
