"""Can a plan's figures be true? They follow from its settings, model, GPU and vLLM version."""

from collections.abc import Iterator
from math import isclose

from chunkscope.errors import UsageError
from chunkscope.hardware.memory import Memory
from chunkscope.planning.plan import Plan
from chunkscope.vllm.flags import release

NEAR = 0.01  # another version of chunkscope may count memory a little differently


def contradiction(plan: Plan) -> str:
    """What cannot be true of a plan; empty when nothing speaks against it."""
    try:
        return next(_contradictions(plan), "")
    except (ArithmeticError, LookupError, StopIteration, ValueError):
        return "its numbers go beyond what any model, GPU or vLLM has"


def _contradictions(plan: Plan) -> Iterator[str]:
    if _version_of(plan) != plan.release.version:
        yield f"it is for vLLM {plan.release.text}, and for the rules of another version"
    full = plan.deployment.effective(plan.settings)
    if full.tensor_parallel_size != plan.inputs.tp:
        yield f"it is for {plan.inputs.tp:,} GPUs, and its settings for others"
    context, output = full.max_model_len, plan.inputs.output.tokens
    if output < 1 or (context is not None and plan.refused.room_tokens != context - output):
        yield f"an output of {output:,} tokens does not go with its other lengths"
    longest = min(plan.decision.longest or 1, (context or 1 << 60) - output)
    memory = plan.deployment.memory(plan.settings, longest=max(1, longest))
    if not _alike(plan.memory, memory):
        yield "where it says that memory goes is not where its model and GPU make it go"
    held = plan.capacity
    if held is not None and not held.p50 >= held.p95 >= held.longest >= 0:
        yield "it holds more long requests than short ones"


def _version_of(plan: Plan) -> tuple[int, int, int]:
    try:
        return release(plan.release.text).version
    except UsageError:  # a build from source, taken for the newest of its day
        return plan.release.version


def _alike(one: Memory | None, other: Memory | None) -> bool:
    if one is None or other is None:
        return one is other
    figures = [_figures(memory) for memory in (one, other)]
    return figures[0].keys() == figures[1].keys() and all(
        isclose(value, figures[1][name], rel_tol=NEAR, abs_tol=NEAR)
        for name, value in figures[0].items()
    )


def _figures(memory: Memory) -> dict[str, float]:
    return {
        **{line.name: line.gib for line in memory.lines},
        "all": memory.total_gib,
        "asked for": memory.requested_gib,
        "KV cache": memory.kv_cache_gib,
        "KV tokens": memory.kv_cache_tokens,
        "headroom": memory.headroom_gib,
        "not profiled": memory.unprofiled_gib,
    }
