"""Measured steps that are alike -> one step: the mean of those that are neither fast nor slow.

A workload repeats some steps a thousand times and others once. A fit to all of them would hardly
see the rare ones, which may be all that a coefficient shows in.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from chunkscope.hardware.calibration import StepSamples

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Sizes within about a third of each other count as the same; numbers of requests must be equal.
SIZES = ("prefill_tokens", "prefill_pairs", "decode_context_tokens")
COUNTS = ("prefill_requests", "decode_requests")
SIZES_PER_E = 3
MANY = 0.05  # of the requests


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKinds:
    """Columns as in StepSamples, one entry per kind, and how many steps were of it."""

    prefill_tokens: Floats
    prefill_pairs: Floats
    prefill_requests: Floats
    decode_requests: Floats
    decode_context_tokens: Floats
    duration_s: Floats
    steps: Floats


def kinds_of(steps: StepSamples, *, only_settled: bool) -> StepKinds:
    """`only_settled`: those beside which the host did the same work as in any other."""
    columns = {
        field.name: np.asarray(getattr(steps, field.name), dtype=float)
        for field in fields(StepSamples)
        if field.name != "setting"
    }
    if only_settled:
        settled = ~(_firsts(steps) | _after_many_ended(steps))
        columns = {name: values[settled] for name, values in columns.items()}
    sizes = [np.round(np.log1p(columns[name]) * SIZES_PER_E) for name in SIZES]
    keys = np.stack([*sizes, *(columns[name] for name in COUNTS)], axis=1)
    _, place, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort((columns["duration_s"], place.ravel()))
    groups = np.split(order, np.cumsum(count)[:-1]) if len(order) else []
    middles = [_middle_half(group) for group in groups]
    found = {
        name: np.asarray([values[middle].mean() for middle in middles])
        for name, values in columns.items()
    }
    return StepKinds(**found, steps=count.astype(float))


def _middle_half(ordered: NDArray[np.intp]) -> NDArray[np.intp]:
    """Steps that something else held up are among the others."""
    outside = len(ordered) // 4
    return ordered[outside : len(ordered) - outside]


def _firsts(steps: StepSamples) -> Flags:
    """The first step of each repeat: nobody decodes, and somebody did in the step before."""
    decodes, setting = np.asarray(steps.decode_requests), np.asarray(steps.setting)
    first: Flags = decodes == 0
    first[1:] &= (decodes[:-1] > 0) | (setting[1:] != setting[:-1])
    return first


def _after_many_ended(steps: StepSamples) -> Flags:
    """The host takes leave of them while this step runs."""
    requests = np.asarray(steps.prefill_requests) + np.asarray(steps.decode_requests)
    fewer = np.zeros(len(requests), dtype=bool)
    fewer[1:] = requests[1:] < (1 - MANY) * requests[:-1]
    return fewer
