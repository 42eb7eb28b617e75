"""Likelihood evals: prompt_logprobs needs memory that vLLM neither profiles nor sets aside."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from chunkscope.errors import InputError
from chunkscope.planning.budget import FIRST_RUNG
from chunkscope.planning.problem import Situation

SMALLEST_CHUNK = 256
LOWEST_UTILIZATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Safe:
    """A chunk and a utilization under which prompt_logprobs does not run out of memory."""

    chunk: int | None
    utilization: float
    shrunk: bool


def safe_logprobs(s: Situation, threshold: int | None) -> Safe:
    """The largest chunk up to the threshold whose logits fit outside vLLM's budget."""
    utilization = s.release.gpu_memory_utilization
    wanted = min(threshold or s.longest, max(1, s.longest))
    for share in _utilizations(utilization):
        for chunk in _chunks(wanted):
            if _survives(replace(s, utilization=share), chunk):
                shrunk = chunk < wanted
                return Safe(chunk=chunk if shrunk else threshold, utilization=share, shrunk=shrunk)
    raise InputError(
        "prompt_logprobs would need more memory than this GPU can spare",
        hint="take a larger GPU or more of them with --tp",
    )


def _survives(s: Situation, chunk: int) -> bool:
    """At a small budget and at a large one: a larger step sets more memory aside to reuse."""
    budgets = (min(FIRST_RUNG, max(SMALLEST_CHUNK, chunk)), max(FIRST_RUNG, chunk))
    bills = [s.memory(budget, chunk=chunk) for budget in budgets]
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
