"""Does the model fit the GPU at all, and with how many requests at once?"""

from dataclasses import replace

from chunkscope.costs.gpus import GIB
from chunkscope.costs.memory import Engine, Memory
from chunkscope.errors import InputError
from chunkscope.planning.problem import SEQS_IF_UNKNOWN, Situation

SMALLEST_BUDGET = 512
FEWEST_SEQS = 8


def with_room(s: Situation) -> Situation:
    """The situation with as many running requests as leave KV cache for one of full length.

    InputError when the model cannot run on that GPU at all.
    """
    start = s.default_seqs or SEQS_IF_UNKNOWN
    tried = None
    for shift in range(start.bit_length()):
        seqs = max(FEWEST_SEQS, start >> shift)
        tried = s.memory(SMALLEST_BUDGET, chunk=1, seqs=seqs)
        if tried is None or tried.kv_cache_tokens >= s.context:
            return s if seqs == start else replace(s, seqs=seqs)
    if tried is None or s.engine is None:
        return s
    raise _does_not_fit(s, s.engine, tried)


def _does_not_fit(s: Situation, engine: Engine, memory: Memory) -> InputError:
    many = f"{s.tp} x " if s.tp > 1 else ""
    what = f"{engine.shape.name} does not fit {many}{engine.gpu.title}"
    if memory.kv_cache_tokens:
        need = s.context * engine.shape.kv_bytes_per_token(s.tp) / GIB
        why = (
            f"one request of {s.context:,} tokens needs {need:,.1f} GiB of KV cache, "
            f"{memory.kv_cache_gib:,.1f} GiB are left"
        )
    else:
        weights = memory.line("weights").gib
        why = f"{weights:,.1f} GiB of weights per GPU, {memory.requested_gib:,.1f} GiB to use"
    return InputError(f"{what}: {why}", hint=_way_out(s, engine))


def _way_out(s: Situation, engine: Engine) -> str:
    utilization = s.release.gpu_memory_utilization
    for tp in (2, 4, 8, 16):
        if tp <= s.tp or engine.shape.attention.heads % tp:
            continue
        wider = replace(engine, tp=tp)
        memory = wider.memory(budget=SMALLEST_BUDGET, seqs=FEWEST_SEQS, utilization=utilization)
        if memory.kv_cache_tokens >= s.context:
            return f"--tp {tp} would fit; or take a larger GPU, or a quantized checkpoint"
    return "take a larger GPU, a quantized checkpoint or a smaller model; or shorten the prompts"
