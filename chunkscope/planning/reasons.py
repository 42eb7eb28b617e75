"""Why each argument has its value: of what is set, and of what was left to vLLM."""

from collections.abc import Iterator

from chunkscope.artefacts.note import Values
from chunkscope.planning.case import Case
from chunkscope.planning.plan import Advice, Basis, Reason, advised_settings
from chunkscope.planning.rule import Decision
from chunkscope.vllm.settings import NAMES, Value

THRESHOLD = "long_prefill_token_threshold"
SIZES = ("max_num_batched_tokens", "max_num_seqs", THRESHOLD)


def reasons(case: Case, advice: Advice, decision: Decision) -> Iterator[Reason]:
    """One for each argument of which something is to be said."""
    own = case.engine.complete()
    settings = advised_settings(advice, case.request, case.engine)
    for name in NAMES:
        code = reason_code(name, case, advice, decision)
        if code is None:
            continue
        values: Values = {
            "own": getattr(own, name),
            "value": getattr(settings, name),
            "best": best_value(name, case, advice),
            "gain": advice.gain,
            "least": advice.least_gain,
            "doubt": advice.doubt,
            "threshold": decision.threshold,
        }
        yield Reason(argument=name, code=f"why_{code}", values=values)


def reason_code(
    name: str, case: Case, advice: Advice, decision: Decision
) -> str | None:
    """The first of the reasons that holds; None where nothing is to be said."""
    if getattr(advice.settings, name) is not None:
        return set_code(case, advice)
    if getattr(advice.needed, name) is not None:
        off = decision.forced and not decision.threshold
        return "length_rule" if off and name == "max_model_len" else f"needed_{name}"
    if is_asked(name, case, advice):
        return "asked_kv_cache" if name == "kv_cache_dtype" else "asked"
    return left_code(name, case, advice, decision)


def set_code(case: Case, advice: Advice) -> str:
    """Of an argument that is set."""
    if case.request.slo:
        return "keeps_limits"
    if advice.basis is Basis.SIMULATED:
        return "gains"
    return "length_rule"


def is_asked(name: str, case: Case, advice: Advice) -> bool:
    """Did the user fix it, to something else than vLLM's own?"""
    if getattr(case.request.settings, name) is None:
        return False
    settings = advised_settings(advice, case.request, case.engine)
    own = case.engine.complete()
    return bool(getattr(settings, name) != getattr(own, name))


def left_code(name: str, case: Case, advice: Advice, decision: Decision) -> str | None:
    """Of an argument that is left to vLLM."""
    if best_value(name, case, advice) is not None:
        return "gain_in_doubt" if advice.doubt else "too_little_gain"
    if advice.basis is Basis.SIMULATED:
        settings = advised_settings(advice, case.request, case.engine)
        weighed = name in SIZES and getattr(settings, name)
        return "default_is_best" if weighed else None
    if name == THRESHOLD and decision.threshold:
        return "threshold_ends_nothing"
    return None


def best_value(name: str, case: Case, advice: Advice) -> Value | None:
    """Its value in the best settings, where those were not worth it."""
    if advice.gain is None or case.request.slo or advice.alternative is None:
        return None
    value: Value | None = getattr(advice.alternative, name)
    return value
