"""What to change, what that brings and what it costs: the first screen, before any detail.

What was measured goes before what was planned: where another row did better, or vLLM's default as
well, that row is the answer, and its arguments are those to copy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from chunkscope.artefacts.figures import MAKESPAN, Figure
from chunkscope.artefacts.numbers import as_written, change, duration, money, plural
from chunkscope.planning.plan import Plan
from chunkscope.report import sentences
from chunkscope.report.words import verdicts as words
from chunkscope.report.words.plan import advice, order
from chunkscope.report.words.verdicts import difference, shown
from chunkscope.verification.result import Conclusion, Run, Verification
from chunkscope.verification.verdict import Outcome, goal_of, outcomes, ratio
from chunkscope.vllm.settings import Settings

DEFAULT, PLAN = "default", "plan"
MOST = 3  # figures that got worse, on the first screen


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalAnswer:
    """`plan` has the arguments to use: those of the plan, or of what did better than it."""

    headline: str
    brings: str
    costs: str
    plan: Plan
    overruled: str | None = None


def answer(plan: Plan, verification: Verification | None) -> FinalAnswer:
    ours = verification.run(PLAN) if verification else None
    if verification is None or ours is None:
        return _predicted(plan)
    found = verification.verdict
    best = verification.run(found.use) if found else None
    if found and found.conclusion is Conclusion.DROP_FLAGS:
        return _can_go(plan, found.drop)
    if best is not None and best is not ours:
        return _better(plan, verification, best, ours)
    default = verification.run(DEFAULT)
    if not ours.ok or default is None or default is ours or not default.ok:
        return _kept(plan, verification)
    return FinalAnswer(
        headline=verdict(plan) + _gain(plan, verification, ours, default),
        brings=_instead(plan, verification, ours, default, "vLLM's default"),
        costs=_worse(ours, default),
        plan=plan,
    )


# -- measured ------------------------------------------------------------------------------------


def _better(plan: Plan, verification: Verification, best: Run, ours: Run) -> FinalAnswer:
    winner = replace(plan, settings=best.settings)
    is_default = DEFAULT in (best.setting, *best.same_as)
    named = "vLLM's default" if is_default else best.setting
    if is_default:
        headline = f"Keep vLLM's default{_gain(plan, verification, best, ours, ' over the plan')}"
    else:
        over = verification.run(DEFAULT)
        headline = f"Set {_listed(winner.settings)}"
        headline += _gain(plan, verification, best, over) if over is not None and over.ok else ""
    return FinalAnswer(
        headline=headline,
        brings=_instead(plan, verification, best, ours, "the plan") or f"{named} runs.",
        costs=_worse(best, ours),
        plan=winner,
        overruled=f"The plan said: {verdict(plan)}. On the engine {named} did better: use "
        f"{sentences.arguments(winner)}",
    )


def _can_go(plan: Plan, drop: Sequence[str]) -> FinalAnswer:
    left = {n: v for n, v in plan.settings.given().items() if n not in drop}
    winner = replace(plan, settings=Settings.of(left))
    flags = ", ".join(drop)
    return FinalAnswer(
        headline=f"Set {_listed(winner.settings)}" if left else "Change nothing",
        brings="On the engine vLLM's default did as well as the plan.",
        costs="Nothing.",
        plan=winner,
        overruled=f"The plan said: {verdict(plan)}. On the engine vLLM's default did as well: "
        f"leave out {flags}.",
    )


def _kept(plan: Plan, verification: Verification) -> FinalAnswer:
    """The plan is vLLM's default, or there is nothing to hold it against."""
    said = words.verdict(verification) or "There is no verdict yet."
    brings = said[:1].upper() + said[1:].split(". Against ")[0].rstrip(".") + "."
    costs = "Nothing: it is vLLM's default." if not plan.settings.given() else _hours(plan)
    return FinalAnswer(headline=verdict(plan), brings=brings, costs=costs, plan=plan)


def _gain(plan: Plan, v: Verification, run: Run, other: Run, over: str = "") -> str:
    """How much more is done in the same time, where that is what counts."""
    if goal_of(v.workload.arrivals, plan.request.slo) is not MAKESPAN:
        return ""
    times = ratio(other, run, MAKESPAN)
    if times is None or times <= 1 or _is_tie(MAKESPAN, run, other):
        return ""
    return f": {change(1, times)} throughput{over}"


def _instead(plan: Plan, v: Verification, run: Run, other: Run, name: str) -> str:
    goal = goal_of(v.workload.arrivals, plan.request.slo)
    if not (run.ok and other.ok):
        return ""
    if _is_tie(goal, run, other):
        both = f"{shown(goal, run)} and {shown(goal, other)}"
        return f"A tie with {name}, measured: {goal.title} {both}."
    said = difference(goal, run, other)
    return f"{said[0].upper()}{said[1:]}, measured against {name}."


def _is_tie(figure: Figure, run: Run, other: Run) -> bool:
    return (figure, Outcome.TIE) in outcomes(run, other)


def _worse(run: Run, other: Run) -> str:
    found = [f for f, outcome in outcomes(run, other) if outcome is Outcome.WORSE]
    if not found:
        return "Nothing that was measured got worse."
    said = "; ".join(difference(figure, run, other) for figure in found[:MOST])
    more = f"; {len(found) - MOST} more figures below" if len(found) > MOST else ""
    return f"{said[0].upper()}{said[1:]}{more}."


# -- predicted -----------------------------------------------------------------------------------


def _predicted(plan: Plan) -> FinalAnswer:
    brings = advice(plan).removeprefix(order(plan)).lstrip(",.; ")
    return FinalAnswer(
        headline=order(plan),
        brings=f"{brings[:1].upper()}{brings[1:]}",
        costs=" ".join(_costs(plan)),
        plan=plan,
    )


def _costs(plan: Plan) -> Iterator[str]:
    ours, own = (run.figures.longest_gap_s if run else None for run in (plan.run, plan.default_run))
    if ours and own and ours > own * 1.01:
        yield sentences.instead("Longest gap between tokens", ours, own) + "."
    if plan.refused.prompts:
        yield f"{plural(plan.refused.prompts, 'prompt')} refused or cut."
    yield _hours(plan)


def _hours(plan: Plan) -> str:
    found = plan.cost
    if found is None:
        return "Not known."
    price = found.price_per_hour
    paid = f" and costs {money(found.hours * found.gpus * price)}" if price is not None else ""
    gpus = f" on {found.gpus} GPUs" if found.gpus > 1 else ""
    return f"The run takes {duration(found.hours)}{gpus}{paid} (predicted)."


# -- what is set ---------------------------------------------------------------------------------


def verdict(plan: Plan) -> str:
    """What to do."""
    return order(plan)


def _listed(settings: Settings) -> str:
    return ", ".join(f"{name} {as_written(value)}" for name, value in settings.given().items())
