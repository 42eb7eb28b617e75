"""How many requests run at once: vLLM's own number, unless fewer free KV cache."""

from chunkscope.artefacts.labels import Label
from chunkscope.planning.budget import WORTH_KV, kv_gain
from chunkscope.planning.problem import Choice, Situation


def choose_seqs(s: Situation, budget: int | None, *, chunk: int | None) -> Choice:
    """vLLM's own, unless fewer would free a good part of the KV cache."""
    default = s.default_seqs
    if s.seqs is not None and s.seqs != default:
        reason = "with more, the KV cache would not hold one request of full length"
        return Choice(value=s.seqs, default=default, reason=reason, label=Label.PREDICTED)
    if default is None:
        return Choice(value=None, default=None, reason="the GPU is not known: left to vLLM")
    if budget is not None and budget < default:
        reason = f"may not be over the budget of {budget:,} tokens"
        return Choice(value=budget, default=default, reason=reason)
    memory = s.memory(budget, chunk=chunk) if budget is not None else None
    if memory is None or budget is None:
        reason = f"vLLM {s.release.text} takes {default:,} by itself on this GPU"
        return Choice(value=default, default=default, reason=reason)
    at_once = memory.kv_cache_tokens // max(1, s.typical_tokens)
    fewer = max(8, 1 << max(0, at_once - 1).bit_length())
    less = s.memory(budget, chunk=chunk, seqs=fewer)
    gain = kv_gain(memory, less)
    holds = f"the KV cache holds {at_once:,} requests of median length"
    if fewer < default and gain >= WORTH_KV:
        reason = f"{holds}; {fewer:,} instead of {default:,} frees {gain:.0%} more KV cache"
        return Choice(value=fewer, default=default, reason=reason, label=Label.PREDICTED)
    return Choice(value=default, default=default, reason=f"{holds}; vLLM's own {default:,} is fine")
