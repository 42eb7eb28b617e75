"""Does the model fit the GPU at all, and at which context and with how many requests at once?"""

from dataclasses import replace

from chunkscope.errors import InputError
from chunkscope.hardware.gpus import GIB
from chunkscope.hardware.memory import Memory
from chunkscope.planning.problem import FEWEST_SEQS, LADDER, Problem
from chunkscope.vllm.settings import Settings

LEAST = Settings(
    max_num_batched_tokens=LADDER[0], max_num_seqs=FEWEST_SEQS, long_prefill_token_threshold=1
)
ROUND = 256


def with_room(p: Problem) -> Problem:
    """The problem with a context that the KV cache holds: the model's own, or as much as fits.

    A shorter context costs nothing as long as every request has room; only then fewer requests at
    once. InputError when the model cannot run on that GPU at all.
    """
    start = p.own.max_num_seqs
    own_context = p.own.max_model_len
    if not p.knows_memory or start is None or own_context is None:
        return p
    tried = None
    for shift in range(start.bit_length()):
        seqs = max(FEWEST_SEQS, start >> shift)
        tried = p.memory(replace(LEAST, max_num_seqs=seqs))
        if tried is None or tried.kv_cache_tokens >= p.need:
            break
    else:
        raise _does_not_fit(p, tried) if tried else AssertionError("vLLM runs no request at all")
    base = p.base if seqs == start else replace(p.base, max_num_seqs=seqs)
    own = replace(p, base=base).memory()
    if own is not None and own.kv_cache_tokens < own_context and not p.asked_context:
        base = replace(base, max_model_len=_fitting(replace(p, base=base)))
    return replace(p, base=base)


def _fitting(p: Problem) -> int:
    """The longest context that fits beside vLLM's own budget; at least the longest request."""
    own = p.memory()
    tokens = own.kv_cache_tokens // ROUND * ROUND if own else 0
    return max(tokens, p.need)


def _does_not_fit(p: Problem, memory: Memory) -> InputError:
    shape, gpu = p.deployment.shape, p.deployment.gpu
    if shape is None or gpu is None:
        raise AssertionError("memory is known only with a model and a GPU")
    many = f"{p.parallel.gpus} x " if p.parallel.gpus > 1 else ""
    if memory.kv_cache_tokens:
        need = p.need * shape.kv_bytes_per_token(p.tp, p.base.kv_element_bytes) / GIB
        why = (
            f"one request of {p.need:,} tokens needs {need:,.1f} GiB of KV cache, "
            f"{memory.kv_cache_gib:,.1f} GiB are left"
        )
    else:
        weights = memory.line("weights").gib
        why = f"{weights:,.1f} GiB of weights per GPU, {memory.requested_gib:,.1f} GiB to use"
    hint = _way_out(p, shape.attention.heads)
    return InputError(f"{shape.name} does not fit {many}{gpu.title}: {why}", hint=hint)


def _way_out(p: Problem, heads: int) -> str:
    for tp in (2, 4, 8, 16):
        if tp <= p.tp or heads % tp:
            continue
        memory = p.memory(replace(LEAST, tensor_parallel_size=tp))
        if memory is not None and memory.kv_cache_tokens >= p.need:
            return f"--tp {tp} would fit; or take a larger GPU, or a quantized checkpoint"
    return "take a larger GPU, a quantized checkpoint or a smaller model; or shorten the prompts"
