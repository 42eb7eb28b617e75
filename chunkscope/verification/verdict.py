"""One run beside another, figure by figure, and what that means for the plan.

The rule is that of `recommend`: a flag earns its place, and a tie means vLLM's default.
A tie is a difference within the spread over repeats, or of less than WORTH of the
figure that decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from chunkscope.artefacts.figures import BY_KEY, MAKESPAN, TIGHTEST_LIMIT, Figure
from chunkscope.planning.search import WORTH, WORTH_ROOM
from chunkscope.simulation.workload import BATCH
from chunkscope.verification.result import (
    DEFAULT,
    OFF,
    PLAN,
    Conclusion,
    MeasuredVerdict,
    Run,
    RunOutputs,
    Verification,
)
from chunkscope.verification.settings import COMMON

# A difference of two single repeats that is a tie, as a share. One setting took 57.6
# and 61.5 s (Llama-3.2-3B on an H200).
TIE_OF_ONE = 0.1
# Memory is read once per run and has no spread: a smaller share is no difference.
NEGLIGIBLE = 0.02
ASKED_FOR = (
    "makespan_s",
    "output_tokens_per_s",
    "ttft_s.p50",
    "ttft_s.p95",
    "itl_s.p50",
    "itl_s.p95",
    "itl_s.p99",
    "itl_s.max",
    "e2e_s.p95",
    "activation_peak_gib",
    "kv_cache_tokens",
    "preemptions",
)


class Outcome(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    TIE = "tie"
    UNKNOWN = "unknown"  # not measured on one side, or neither way is better


# -- two runs --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Least and most over the repeats."""

    least: float
    most: float

    def overlaps(self, other: "Spread") -> bool:
        return self.least <= other.most and other.least <= self.most


def value(run: Run, figure: Figure) -> float | None:
    """None where it was not measured."""
    return figure.value(run if figure.once else run.figures)


def spread(run: Run, figure: Figure) -> Spread | None:
    values = [figure.value(repeat) for repeat in run.repeats]
    known = [value for value in values if value is not None]
    return Spread(least=min(known), most=max(known)) if known else None


def ratio(run: Run, other: Run, figure: Figure) -> float | None:
    ours = value(run, figure)
    theirs = value(other, figure)
    return ours / theirs if ours is not None and theirs else None


def is_tie(run: Run, other: Run, figure: Figure) -> bool:
    """Do their spreads overlap? With one repeat: are they close?"""
    ours = spread(run, figure)
    theirs = spread(other, figure)
    if ours is None or theirs is None:
        return False
    if len(run.repeats) > 1 and len(other.repeats) > 1:
        return ours.overlaps(theirs)
    if theirs.least == 0:
        return True
    return abs(ours.least / theirs.least - 1) < TIE_OF_ONE


def judge(figure: Figure, run: Run, other: Run) -> Outcome:
    """Is `run` better? A difference within the spread over repeats is a tie."""
    ours = value(run, figure)
    theirs = value(other, figure)
    if ours is None or theirs is None or figure.less_is_better is None:
        return Outcome.UNKNOWN
    if figure.once:
        is_noise = abs(ours - theirs) <= NEGLIGIBLE * abs(theirs)
    else:
        is_noise = is_tie(run, other, figure)
    if ours == theirs or is_noise:
        return Outcome.TIE
    is_less = ours < theirs
    return Outcome.BETTER if is_less is figure.less_is_better else Outcome.WORSE


def worse_figures(run: Run, other: Run) -> list[Figure]:
    """Those that people ask for, where `run` is worse by enough to act."""
    worse = []
    for key in ASKED_FOR:
        figure = BY_KEY[key]
        if judge(figure, run, other) is not Outcome.WORSE:
            continue
        times = ratio(run, other, figure)
        if times is None or abs(times - 1) >= WORTH:
            worse.append(figure)
    return worse


# -- the plan --------------------------------------------------------------------------


def goal_of(verification: Verification) -> Figure:
    """The figure that decides: what the plan was made for. Less is better."""
    if verification.slo:
        return TIGHTEST_LIMIT
    if verification.workload.arrivals == BATCH:
        return MAKESPAN
    # At a given rate the last request ends when it ends: what differs is how long each
    # waits.
    return BY_KEY["e2e_s.p95"]


def judged(verification: Verification) -> Verification:
    """With a verdict, once the plan was run."""
    plan = verification.run(PLAN)
    if plan is None:
        return verification
    default = verification.run(DEFAULT)
    if default is None and not arguments(plan):
        default = plan
    others = [run for run in verification.runs if run is not plan]
    verdict = _verdict(plan, default, others, goal_of(verification))
    return replace(verification, verdict=verdict)


def _verdict(
    plan: Run, default: Run | None, others: Sequence[Run], goal: Figure
) -> MeasuredVerdict:
    best = _best(plan, default, others, goal)
    use: Run | None = plan
    drop: tuple[str, ...] = ()
    if not plan.ok:
        conclusion, use = Conclusion.PLAN_FAILED, best
    elif best is not None:
        conclusion, use = Conclusion.USE_ANOTHER, best
    elif default is plan:
        conclusion = Conclusion.KEEP_DEFAULT
    elif default is not None and default.ok and not beats(plan, default, goal):
        conclusion, use = Conclusion.DROP_FLAGS, default
        drop = tuple(arguments(plan))
    else:
        conclusion = Conclusion.KEEP_PLAN
    name = use.setting if use else None
    return MeasuredVerdict(conclusion=conclusion, goal=goal.key, use=name, drop=drop)


def _best(
    plan: Run, default: Run | None, others: Sequence[Run], goal: Figure
) -> Run | None:
    """The best of what beats the plan.

    One that only ties with the default gives way to it.
    """
    better = []
    for run in others:
        if run.ok and (not plan.ok or beats(run, plan, goal)):
            better.append(run)
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
        ours = value(run, goal)
        theirs = value(other, goal)
        return ours is not None and theirs is not None and theirs - ours >= WORTH_ROOM
    times = ratio(other, run, goal)
    return times is not None and times - 1 >= WORTH


def arguments(run: Run) -> dict[str, object]:
    """What it sets beyond what all runs have in common."""
    given = run.settings.given()
    return {name: value for name, value in given.items() if name not in COMMON}


# -- answers ---------------------------------------------------------------------------
#
# Batching alone changes floating-point sums, so each engine gets the sample twice: all
# at once, and in the opposite order with half of the prompts under way. What differs
# between those is noise.

Answers = Sequence[Sequence[int]]  # greedy ones, by prompt and token


def equal_share(answers: Answers, others: Answers) -> float:
    """
    >>> equal_share([[7, 8], [9]], [[7, 8], [1]])
    0.5
    """
    equal = 0
    for answer, other in zip(answers, others, strict=True):
        if list(answer) == list(other):
            equal += 1
    return equal / len(answers)


def with_outputs_compared(verification: Verification) -> Verification:
    """With every run's answers compared to those of the reference."""
    reference = _reference(verification)
    if reference is None or reference.outputs is None:
        return verification
    runs = []
    for run in verification.runs:
        if run.outputs is not None:
            outputs = compared(run.outputs, reference.outputs, reference.setting)
            run = replace(run, outputs=outputs)
        runs.append(run)
    return replace(verification, runs=tuple(runs))


def compared(outputs: RunOutputs, reference: RunOutputs, name: str) -> RunOutputs:
    """The outputs with how many equal those of the reference, the run of that name."""
    if outputs is reference:
        return replace(outputs, reference=None, equal=None)
    equal = equal_share(outputs.answers, reference.answers)
    return replace(outputs, reference=name, equal=equal)


def _reference(verification: Verification) -> Run | None:
    """The run without chunks, else vLLM's default, else the first that has answers."""
    answering = [run for run in verification.runs if run.outputs]
    for name in (OFF, DEFAULT):
        for run in answering:
            if run.is_called(name):
                return run
    return answering[0] if answering else None


def is_noise(outputs: RunOutputs, reference: RunOutputs) -> bool:
    """Does sending again, under either setting, change at least as many answers?"""
    if outputs.equal is None:
        return False
    return outputs.equal >= min(outputs.again, reference.again)
