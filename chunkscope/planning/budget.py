"""The step's token budget: the largest that pays and fits, or vLLM's own."""

from chunkscope.artefacts.labels import Label
from chunkscope.costs.memory import Memory
from chunkscope.costs.step_time import StepModel
from chunkscope.planning.problem import Choice, Situation

LADDER = (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
FIRST_RUNG = 2_048
# Past this no budget paid in the H200 measurements; the answer when the GPU's speed is unknown.
PAYING_BUDGET = 8_192
# Judgement, not measurement: a larger budget must make the step model's throughput this much
# better. It lies between what 4096 -> 8192 (3.1 %) and 8192 -> 16384 (1.6 %) give on the H200.
WORTH_SPEED = 0.025
WORTH_KV = 0.05  # a smaller one must free this share of the KV cache
MAX_KV_LOSS = 0.10  # and a larger one may cost no more than this


def paying_budget(s: Situation, *, chunk: int | None = None) -> int:
    """The largest budget that pays and fits: climb while throughput gains and KV is not eaten."""
    lower = [rung for rung in LADDER if rung <= FIRST_RUNG and s.fits(rung, chunk=chunk)]
    if not lower:
        return LADDER[0]
    best = lower[-1]
    first = s.memory(best, chunk=chunk)
    for rung in LADDER:
        if rung <= best:
            continue
        eaten = _eats_cache(first, s.memory(rung, chunk=chunk))
        if eaten or not s.fits(rung, chunk=chunk) or not _pays(s, best, rung):
            break
        best = rung
    return best


def _eats_cache(first: Memory | None, memory: Memory | None) -> bool:
    if first is None or memory is None:
        return False
    return memory.kv_cache_tokens < (1 - MAX_KV_LOSS) * first.kv_cache_tokens


def _pays(s: Situation, budget: int, larger: int) -> bool:
    if s.step is None:
        return larger <= PAYING_BUDGET
    return speed_gain(s.step, budget, larger) >= WORTH_SPEED


def speed_gain(step: StepModel, budget: int, other: int) -> float:
    return step.tokens_per_second(other) / step.tokens_per_second(budget) - 1


def throughput_budget(s: Situation, *, chunk: int | None) -> Choice:
    """The step's token budget of a chunking engine; vLLM's own where nothing is gained."""
    default = s.default_budget
    if default is None or s.engine is None:
        unknown = "the GPU" if s.gpu is None else "the model"
        reason = f"{unknown} is not known, so vLLM's own cannot be bettered"
        return Choice(value=default, default=default, reason=reason)
    paying = paying_budget(s, chunk=chunk)
    if paying == default or _nothing_gained(s, default, paying, chunk):
        return Choice(value=default, default=default, reason=_leave(s, default, paying))
    return Choice(
        value=paying, default=default, reason=_why(s, default, paying, chunk), label=Label.PREDICTED
    )


def _nothing_gained(s: Situation, default: int, other: int, chunk: int | None) -> bool:
    if not s.fits(default, chunk=chunk):
        return False
    if s.step is None:
        faster = default < other
    else:
        faster = speed_gain(s.step, default, other) >= WORTH_SPEED
    return not faster and _kv_gain(s, default, other, chunk) < WORTH_KV


def _kv_gain(s: Situation, default: int, other: int, chunk: int | None) -> float:
    return kv_gain(s.memory(default, chunk=chunk), s.memory(other, chunk=chunk))


def kv_gain(have: Memory | None, would: Memory | None) -> float:
    """The share of KV cache tokens gained; 0 when nothing is known."""
    if have is None or would is None or not have.kv_cache_tokens:
        return 0.0
    return would.kv_cache_tokens / have.kv_cache_tokens - 1


def _leave(s: Situation, default: int, paying: int) -> str:
    said = f"vLLM {s.release.text} takes {default:,} by itself on this GPU"
    if paying == default:
        return f"{said}, and that is the largest budget that pays and fits"
    return f"{said}; {paying:,} would gain less than {WORTH_SPEED:.1%}"


def _why(s: Situation, default: int, paying: int, chunk: int | None) -> str:
    if not s.fits(default, chunk=chunk):
        return f"vLLM's own {default:,} does not fit beside the KV cache; {paying:,} does"
    kv = _kv_gain(s, default, paying, chunk)
    if s.step is None:
        return f"past {PAYING_BUDGET:,} no budget paid on an H200; vLLM would take {default:,}"
    gain = speed_gain(s.step, default, paying)
    cost = f" and {kv:+.0%} KV cache" if abs(kv) >= 0.005 else ""
    return (
        f"{gain:+.0%} prefill throughput{cost} over vLLM's own {default:,} "
        "(step model, not measured)"
    )
