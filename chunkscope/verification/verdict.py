"""One run beside another, figure by figure, and what that means for the plan.

The rule is that of `recommend`: a flag earns its place, and a tie means vLLM's default. A tie is a
difference within the spread over repeats, or of less than WORTH of the figure that decides.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from chunkscope.artefacts.figures import BY_KEY, MAKESPAN, TIGHTEST_LIMIT, Figure
from chunkscope.planning.choose import WORTH, WORTH_ROOM
from chunkscope.simulation.workload import BATCH
from chunkscope.verification.result import (
    DEFAULT,
    PLAN,
    Conclusion,
    MeasuredVerdict,
    Run,
    Verification,
)
from chunkscope.verification.settings import COMMON

TIE_OF_ONE = (
    0.1  # of a single repeat: one setting took 57.6 and 61.5 s (Llama-3.2-3B, H200)
)
NEGLIGIBLE = (
    0.02  # memory is read once per run, without a spread: less is no difference
)
ASKED_FOR = (
    *("makespan_s", "output_tokens_per_s", "ttft_s.p50", "ttft_s.p95"),
    *("itl_s.p50", "itl_s.p95", "itl_s.p99", "itl_s.max", "e2e_s.p95"),
    *("activation_peak_gib", "kv_cache_tokens", "preemptions"),
)


class Outcome(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    TIE = "tie"
    UNKNOWN = "unknown"  # not measured on one side, or neither way is better


# -- two runs ------------------------------------------------------------------------------------


def value(run: Run, figure: Figure) -> float | None:
    """None where it was not measured."""
    return figure.value(run if figure.once else run.figures)


def spread(run: Run, figure: Figure) -> tuple[float, float] | None:
    """Least and most over the repeats."""
    values = [v for repeat in run.repeats if (v := figure.value(repeat)) is not None]
    return (min(values), max(values)) if values else None


def ratio(run: Run, other: Run, figure: Figure) -> float | None:
    ours, theirs = value(run, figure), value(other, figure)
    return ours / theirs if ours is not None and theirs else None


def is_tie(run: Run, other: Run, figure: Figure) -> bool:
    """Their spreads overlap; with one repeat, they are close."""
    ours, theirs = spread(run, figure), spread(other, figure)
    if ours is None or theirs is None:
        return False
    if min(len(run.repeats), len(other.repeats)) == 1:
        return abs(ours[0] / theirs[0] - 1) < TIE_OF_ONE if theirs[0] else True
    return ours[0] <= theirs[1] and theirs[0] <= ours[1]


def judge(figure: Figure, run: Run, other: Run) -> Outcome:
    """Is `run` better? A difference within the spread over repeats is a tie."""
    ours, theirs = value(run, figure), value(other, figure)
    if ours is None or theirs is None or figure.less_is_better is None:
        return Outcome.UNKNOWN
    if figure.once:
        is_noise = abs(ours - theirs) <= NEGLIGIBLE * abs(theirs)
    else:
        is_noise = is_tie(run, other, figure)
    if ours == theirs or is_noise:
        return Outcome.TIE
    return Outcome.BETTER if (ours < theirs) is figure.less_is_better else Outcome.WORSE


def worse_figures(run: Run, other: Run) -> list[Figure]:
    """Those that people ask for, where `run` is worse by enough to act."""
    worse = [
        BY_KEY[key]
        for key in ASKED_FOR
        if judge(BY_KEY[key], run, other) is Outcome.WORSE
    ]
    ratios = [(figure, ratio(run, other, figure)) for figure in worse]
    return [
        figure for figure, times in ratios if times is None or abs(times - 1) >= WORTH
    ]


# -- the plan ------------------------------------------------------------------------------------


def goal_of(v: Verification) -> Figure:
    """The figure that decides: of all figures, what the plan was made for. Less is better."""
    if v.slo:
        return TIGHTEST_LIMIT
    # At a given rate the last request ends when it ends: what differs is how long each waits.
    return MAKESPAN if v.workload.arrivals == BATCH else BY_KEY["e2e_s.p95"]


def judged(v: Verification) -> Verification:
    """With a verdict, once the plan was run."""
    plan = v.run(PLAN)
    if plan is None:
        return v
    goal = goal_of(v)
    default = v.run(DEFAULT) or (None if arguments(plan) else plan)
    best = _best([run for run in v.runs if run is not plan], plan, default, goal)
    use = best or (plan if plan.ok else None)
    drop: tuple[str, ...] = ()
    if not plan.ok:
        conclusion = Conclusion.PLAN_FAILED
    elif best is not None:
        conclusion = Conclusion.USE_ANOTHER
    elif default is plan:
        conclusion = Conclusion.KEEP_DEFAULT
    elif default is not None and default.ok and not beats(plan, default, goal):
        conclusion, use, drop = Conclusion.DROP_FLAGS, default, tuple(arguments(plan))
    else:
        conclusion = Conclusion.KEEP_PLAN
    name = use.setting if use else None
    verdict = MeasuredVerdict(conclusion=conclusion, goal=goal.key, use=name, drop=drop)
    return replace(v, verdict=verdict)


def _best(
    others: Sequence[Run], plan: Run, default: Run | None, goal: Figure
) -> Run | None:
    """The best of what beats the plan; what only ties with vLLM's default gives way to it."""
    better = [
        run for run in others if run.ok and (not plan.ok or beats(run, plan, goal))
    ]
    best = min(better, key=lambda run: value(run, goal) or 0, default=None)
    if best is None or best is default or default is None or not default.ok:
        return best
    if beats(best, default, goal):
        return best
    return default if default in better else None


def beats(run: Run, other: Run, goal: Figure) -> bool:
    """Better by more than the spread, and by enough to set a flag for it."""
    if is_tie(run, other, goal):
        return False
    if goal is TIGHTEST_LIMIT:
        ours, theirs = value(run, goal), value(other, goal)
        return ours is not None and theirs is not None and theirs - ours >= WORTH_ROOM
    times = ratio(other, run, goal)
    return times is not None and times - 1 >= WORTH


def arguments(run: Run) -> dict[str, object]:
    """What it sets beyond what all runs have in common."""
    return {name: v for name, v in run.settings.given().items() if name not in COMMON}
