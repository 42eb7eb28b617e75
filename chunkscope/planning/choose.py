"""From a case to advice: what the simulator proves, or what the lengths say."""

from dataclasses import replace

from chunkscope.planning.case import Case
from chunkscope.planning.plan import (
    BEST,
    DEFAULT,
    RULE,
    Advice,
    AdviceKind,
    Basis,
    advised_settings,
)
from chunkscope.planning.rule import Decision
from chunkscope.planning.search import Search, advise
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.enums import Mode
from chunkscope.vllm.settings import OWN, Settings

PAYING_STEP = 8_192  # tokens: no larger step paid on an H200; for a GPU nobody knows


def choose(
    search: Search, decision: Decision
) -> tuple[Advice, tuple[SimulatedRun, ...]]:
    """The advice, and the runs with all requests that it rests on.

    Without a model or a known GPU, or with a forced mode, the length rule answers.
    """
    case = search.case
    name = BEST
    if case.can_simulate and not decision.forced:
        found = advise(search)
        advice = found.advice
        other = found.best
    else:
        advice = by_lengths(case, decision)
        other = advised_settings(advice, case.request, case.engine)
        if decision.forced:
            name = RULE
    check_accepted(advice, case)
    if not case.can_simulate:
        return advice, ()
    runs = []
    default = search.whole.attempt(case.default)
    if default is not None:
        runs.append(replace(default, setting=DEFAULT))
    run = search.whole.attempt(other)
    if run is not None and other != case.default:
        runs.append(replace(run, setting=name))
    return advice, tuple(runs)


def check_accepted(advice: Advice, case: Case) -> None:
    """vLLM must never refuse what is advised."""
    refusals = case.engine.refusals(advised_settings(advice, case.request, case.engine))
    if refusals:
        version = case.engine.release.text
        raise AssertionError(f"vLLM {version} refuses {refusals[0]}")


# -- by lengths ------------------------------------------------------------------------


def by_lengths(case: Case, decision: Decision) -> Advice:
    """The length rule's advice; its "off" changes nothing unless it is forced."""
    if decision.forced and decision.mode is Mode.OFF:
        settings = whole_prompts(case)
    else:
        settings = Settings(long_prefill_token_threshold=threshold(case, decision))
    changed = case.complete(settings).changed_from(case.default)
    return Advice(
        kind=AdviceKind.SET if changed != OWN else AdviceKind.KEEP,
        basis=Basis.MODE if decision.forced else Basis.LENGTHS,
        settings=changed,
        needed=case.needed,
    )


def whole_prompts(case: Case) -> Settings:
    """No prompt is chunked: a step holds the longest, and more where that fits."""
    own = case.default.max_num_batched_tokens or PAYING_STEP
    step_tokens = max(own, case.context)
    if not case.fits(Settings(max_num_batched_tokens=step_tokens)):
        step_tokens = case.context
    return Settings(
        max_num_batched_tokens=step_tokens,
        long_prefill_token_threshold=0,
        enable_chunked_prefill=False,
    )


def threshold(case: Case, decision: Decision) -> int:
    """The rule's threshold, or a smaller one that is needed; 0 if it ends nothing."""
    needed = case.needed.long_prefill_token_threshold
    tokens = decision.threshold or needed or 0
    if needed:
        tokens = min(tokens, needed)
    step_tokens = case.default.max_num_batched_tokens or case.longest
    ends_nothing = tokens >= min(case.longest, step_tokens)
    return 0 if ends_nothing else tokens
