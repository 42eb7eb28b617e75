"""Likelihood evals: prompt_logprobs needs memory that vLLM neither profiles nor sets aside."""

from collections.abc import Iterator
from dataclasses import dataclass

from chunkscope.errors import InputError
from chunkscope.planning.problem import Problem
from chunkscope.vllm.settings import Settings

SMALLEST_CHUNK = 256
USUAL_BUDGET = 2_048
LOWEST_UTILIZATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeChunk:
    """A chunk and a utilization under which prompt_logprobs does not run out of memory."""

    tokens: int
    utilization: float
    shrunk: bool


def safe_chunk(p: Problem, threshold: int) -> SafeChunk:
    """The largest chunk up to the threshold whose logits fit outside vLLM's budget."""
    wanted = min(threshold, max(1, p.longest))
    for share in _utilizations(p.own.gpu_memory_utilization or 0.0):
        for chunk in _chunks(wanted):
            if _survives(p, chunk, share):
                shrunk = chunk < wanted
                tokens = chunk if shrunk else threshold
                return SafeChunk(tokens=tokens, utilization=share, shrunk=shrunk)
    raise InputError(
        "prompt_logprobs would need more memory than this GPU can spare",
        hint="take a larger GPU or more of them with --tp",
    )


def _survives(p: Problem, chunk: int, share: float) -> bool:
    """At a small budget and at a large one: a larger step sets more memory aside to reuse."""
    bills = [
        p.memory(
            Settings(
                max_num_batched_tokens=budget,
                long_prefill_token_threshold=chunk,
                gpu_memory_utilization=share,
            )
        )
        for budget in (
            min(USUAL_BUDGET, max(SMALLEST_CHUNK, chunk)),
            max(USUAL_BUDGET, chunk),
        )
    ]
    return all(memory is None or memory.survives_logprobs for memory in bills)


def _chunks(wanted: int) -> Iterator[int]:
    yield wanted
    chunk = 1 << (max(1, wanted - 1).bit_length() - 1)
    while chunk >= SMALLEST_CHUNK:
        yield chunk
        chunk //= 2


def _utilizations(first: float) -> Iterator[float]:
    percent = round(first * 100)
    while percent >= LOWEST_UTILIZATION * 100:
        yield percent / 100
        percent -= 1
