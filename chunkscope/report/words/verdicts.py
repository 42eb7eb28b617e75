"""Sentences about measured runs: the verdict, one run beside another, outputs, the demo."""

from collections.abc import Iterator

from chunkscope.artefacts.figures import BY_KEY, MAKESPAN, TIGHTEST_LIMIT, Figure, Group
from chunkscope.artefacts.numbers import NOT_MEASURED, by, change, plural, seconds, share
from chunkscope.planning.search import WORTH, WORTH_ROOM
from chunkscope.report.words import sentence
from chunkscope.verification.outputs import TOKENS, is_noise, reference_run
from chunkscope.verification.result import (
    DEFAULT,
    PLAN,
    Conclusion,
    PromptSource,
    Run,
    Verification,
)
from chunkscope.verification.verdict import (
    Outcome,
    arguments,
    is_tie,
    outcomes,
    ratio,
    value,
)
from chunkscope.vllm.log.fate import Status

STATUS = {
    Status.OK: "ok",
    Status.OUT_OF_MEMORY: "out of memory",
    Status.TIMEOUT: "timed out",
    Status.REFUSED: "refused by vLLM",
    Status.DIED: "the engine died",
}


def failure(run: Run) -> str:
    """`off: out of memory at 8,192 tokens per step, while loading: ...`"""
    return f"{run.setting}: {sentence(run.failure) if run.failure else STATUS[run.status]}"


def prompts_sent(source: PromptSource) -> str:
    if not source.datasets:
        return "random token ids"
    names, more = ", ".join(source.datasets[:3]), len(source.datasets) - 3
    again = f" ({source.repeated:,} of them sent before)" if source.repeated else ""
    return f"real prompts of {names}{f' and {more} more' if more > 0 else ''}{again}"


# -- figures -------------------------------------------------------------------------------------


def shown(figure: Figure, run: Run) -> str:
    number = value(run, figure)
    if number is None and figure.group is Group.OUTPUTS and run.outputs is not None:
        return "the reference"
    return NOT_MEASURED if number is None else figure.unit.brief(number)


def difference(figure: Figure, run: Run, other: Run) -> str:
    """`longest gap between tokens 52.1 ms instead of 301 ms (-83 %)`"""
    by_how_much = change(value(other, figure), value(run, figure))
    part = f" ({by_how_much})" if by_how_much else ""
    return f"{figure.title} {shown(figure, run)} instead of {shown(figure, other)}{part}"


def comparison(run: Run, other: Run, *, without: Figure | None = None) -> str:
    """What is better, what is worse, and what makes no difference."""
    judged = [pair for pair in outcomes(run, other) if pair[0] is not without]
    parts = [
        f"{word}: {', '.join(difference(figure, run, other) for figure in figures)}"
        for word in (Outcome.BETTER, Outcome.WORSE)
        if (figures := [figure for figure, outcome in judged if outcome is word])
    ]
    if any(outcome is Outcome.TIE for _, outcome in judged):
        parts.append("a tie in all else" if parts or without else "a tie in every figure")
    return f"Against {other.setting}, {'; '.join(parts) or 'nothing to compare'}."


# -- the verdict ---------------------------------------------------------------------------------


def verdict(v: Verification) -> str:
    """What to do after measuring, and why; empty without a plan to judge."""
    plan, found = v.run(PLAN), v.verdict
    if plan is None or found is None:
        return ""
    goal, use = BY_KEY[found.goal], v.run(found.use)
    default = v.run(DEFAULT)
    others = [run for run in v.runs if run is not plan]
    ours = f"{goal.title} {_goal(plan, goal)}"
    match found.conclusion:
        case Conclusion.PLAN_FAILED:
            lead = f"The plan does not run here ({failure(plan).partition(': ')[2]})"
            if use is None:
                return f"{lead}, and nothing else did."
            best = f"the best of what did is {_name(use)}: {goal.title} {_goal(use, goal)}"
            return f"{lead}; {best}. {_arguments(use)}."
        case Conclusion.USE_ANOTHER if use is not None:
            times = f"{_goal(use, goal)} instead of {_goal(plan, goal)} ({_by(use, plan, goal)})"
            return (
                f"{_name(use)} is better than the plan: {goal.title} {times}. {_arguments(use)}. "
                f"{comparison(use, plan, without=goal)}"
            )
        case Conclusion.DROP_FLAGS if use is not None:
            lead = f"The {'flag' if len(found.drop) == 1 else 'flags'} can go: {ours}"
            theirs = f"{_goal(use, goal)} with vLLM's default ({_by(plan, use, goal)}, "
            return (
                f"{lead} with {', '.join(found.drop)} and {theirs}{_why_tie(plan, use, goal)}). "
                f"{comparison(plan, use, without=goal)}"
            )
        case Conclusion.KEEP_DEFAULT:
            lead = f"Keep vLLM's defaults: they are the plan, {ours}"
            return f"{'; '.join([lead, *(_against_plan(run, plan, goal) for run in others)])}."
    more = ""
    if default is None:
        ours += "; vLLM's default was not measured"
    elif default.ok:
        change_to = f"({_by(plan, default, goal)})"
        ours += f" instead of {_goal(default, goal)} with vLLM's default {change_to}"
        more = f" {comparison(plan, default, without=goal)}"
        others = [run for run in others if run is not default]
    parts = [f"Keep the plan: {ours}", *(_against_plan(run, plan, goal) for run in others)]
    return f"{'; '.join(parts)}.{more}"


def _name(run: Run) -> str:
    return "vLLM's default" if run.is_called(DEFAULT) else run.setting


def _arguments(run: Run) -> str:
    words = " ".join(f"{name}={given}" for name, given in arguments(run).items())
    return f"Its arguments: {words}" if words else "It needs no flag"


def _by(run: Run, other: Run, goal: Figure) -> str:
    return by((ratio(run, other, goal) or 1) - 1)


def _goal(run: Run, goal: Figure) -> str:
    number = value(run, goal)
    if number is None:
        return NOT_MEASURED
    if goal is TIGHTEST_LIMIT:
        return f"{number:.0%}".replace("%", " %")  # over 100 % it is broken
    return f"{number:,.2f} s" if number >= 1 else f"{number * 1000:,.1f} ms"


def _why_tie(plan: Run, default: Run, goal: Figure) -> str:
    if is_tie(plan, default, goal):
        return "within the spread"
    return (
        f"less than {share(WORTH_ROOM)} of it"
        if goal is TIGHTEST_LIMIT
        else f"under {share(WORTH)}"
    )


def _against_plan(run: Run, plan: Run, goal: Figure) -> str:
    times = ratio(run, plan, goal)
    if not run.ok or times is None:
        return f"{run.setting}: {STATUS[run.status]}"
    if is_tie(run, plan, goal):
        return f"{run.setting} is a tie ({_by(run, plan, goal)}, within the spread)"
    if goal is TIGHTEST_LIMIT:
        return f"{run.setting} uses {_goal(run, goal)}"
    if goal is not MAKESPAN:
        word = "longer" if times > 1 else "shorter"
        return f"{run.setting}: {goal.title} {share(abs(times - 1))} {word}"
    return f"{run.setting} is {share(abs(times - 1))} {'slower' if times > 1 else 'faster'}"


# -- outputs, and the demo -----------------------------------------------------------------------


def outputs(v: Verification) -> Iterator[str]:
    """Of `--check-outputs`; nothing where no answers were compared."""
    reference = reference_run(v)
    if reference is None or reference.outputs is None:
        return
    prompts = len(reference.outputs.answers)
    yield (
        f"Outputs: greedy answers of up to {TOKENS} tokens to {plural(prompts, 'prompt')} "
        f"({prompts_sent(v.source)}), compared with {reference.setting}'s, and with the same "
        "requests sent again in other batches: what differs then is noise of batching."
    )
    if v.model.dummy:
        yield (
            "Random weights: all tokens are nearly equally likely, so rounding decides. This says "
            "nothing about a model with real weights."
        )
    for run in v.runs:
        if run.outputs is None or run.outputs.equal is None or run.outputs.equal == 1:
            continue
        equal, again = share(run.outputs.equal), min(run.outputs.again, reference.outputs.again)
        why = f"but {share(again)} when they are sent again"
        if is_noise(run.outputs, reference.outputs):
            why = "no fewer than when the same requests are sent again"
        yield f"{run.setting}: {equal} of the answers equal {run.outputs.reference}'s, {why}."


def demo(v: Verification) -> str:
    """`Short prompts waited 2.1 s without chunks, 0.2 s with chunks of 256 (mean).`"""
    means = {
        run.setting: run.figures.short.ttft_s.mean
        for run in v.runs
        if run.figures and run.figures.short
    }
    parts = [f"{seconds(mean)} {setting}" for setting, mean in means.items()]
    return f"Short prompts waited {', '.join(parts)} for their first token (mean)."
