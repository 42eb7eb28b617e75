"""Do the answers stay the same? Greedy ones under two settings, or twice under the same one.

Batching alone changes floating-point sums, so each engine gets the sample twice: all at once, and
in the opposite order with half of the prompts under way. What differs between those is noise.
"""

from collections.abc import Sequence
from dataclasses import replace

from chunkscope.simulation.workload import Workload
from chunkscope.verification.result import DEFAULT, OFF, RunOutputs, Verification

PROMPTS = 64
TOKENS = 32  # of an answer at most


def sample_places(workload: Workload) -> list[int]:
    """Which requests are sent: evenly over the lengths, the longest among them."""
    lengths = [request.prompt_tokens for request in workload.requests]
    ranked = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    count = min(len(ranked), PROMPTS)
    return sorted(ranked[i * len(ranked) // count] for i in range(count))


def equal_share(
    some: Sequence[Sequence[int]], others: Sequence[Sequence[int]]
) -> float:
    """
    >>> equal_share([[7, 8], [9]], [[7, 8], [1]])
    0.5
    """
    pairs = list(zip(some, others, strict=True))
    return sum(tuple(one) == tuple(other) for one, other in pairs) / len(pairs)


def with_outputs_compared(v: Verification) -> Verification:
    """Every run's answers against those without chunks, else vLLM's default, else the first."""
    runs, having = list(v.runs), [run for run in v.runs if run.outputs]
    named = (run for name in (OFF, DEFAULT) for run in having if run.is_called(name))
    reference = next(named, having[0] if having else None)
    for place, run in enumerate(runs):
        if run.outputs and reference and reference.outputs:
            name, equal = None, None
            if run is not reference:
                name = reference.setting
                equal = equal_share(run.outputs.answers, reference.outputs.answers)
            outputs = replace(run.outputs, reference=name, equal=equal)
            runs[place] = replace(run, outputs=outputs)
    return replace(v, runs=tuple(runs))


def is_noise(outputs: RunOutputs, reference: RunOutputs) -> bool:
    """Does sending again, under either setting, change at least as many answers?"""
    return outputs.equal is not None and outputs.equal >= min(
        outputs.again, reference.again
    )
