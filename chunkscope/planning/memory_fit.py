"""Does the model fit the GPU at all, and with how many requests at once?"""

from dataclasses import replace

from chunkscope.costs.gpus import GIB
from chunkscope.costs.memory import Memory
from chunkscope.engine.settings import Settings
from chunkscope.errors import InputError
from chunkscope.planning.problem import FEWEST_SEQS, LADDER, Problem

LEAST = Settings(
    max_num_batched_tokens=LADDER[0], max_num_seqs=FEWEST_SEQS, long_prefill_token_threshold=1
)


def with_room(p: Problem) -> Problem:
    """The problem with as many running requests as leave KV cache for one of full length.

    InputError when the model cannot run on that GPU at all.
    """
    start = p.own.max_num_seqs
    if not p.knows_memory or start is None:
        return p
    tried = None
    for shift in range(start.bit_length()):
        seqs = max(FEWEST_SEQS, start >> shift)
        tried = p.memory(replace(LEAST, max_num_seqs=seqs))
        if tried is None or tried.kv_cache_tokens >= p.context:
            return p if seqs == start else replace(p, base=replace(p.base, max_num_seqs=seqs))
    raise _does_not_fit(p, tried) if tried else AssertionError("vLLM runs no request at all")


def _does_not_fit(p: Problem, memory: Memory) -> InputError:
    shape, gpu = p.deployment.shape, p.deployment.gpu
    if shape is None or gpu is None:
        raise AssertionError("memory is known only with a model and a GPU")
    many = f"{p.tp} x " if p.tp > 1 else ""
    if memory.kv_cache_tokens:
        need = p.context * shape.kv_bytes_per_token(p.tp) / GIB
        why = (
            f"one request of {p.context:,} tokens needs {need:,.1f} GiB of KV cache, "
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
        if memory is not None and memory.kv_cache_tokens >= p.context:
            return f"--tp {tp} would fit; or take a larger GPU, or a quantized checkpoint"
    return "take a larger GPU, a quantized checkpoint or a smaller model; or shorten the prompts"
