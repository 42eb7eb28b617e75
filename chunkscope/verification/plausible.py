"""Can a run's figures be true? They follow from its repeats, and no clock or GPU shows anything."""

from collections.abc import Iterator
from dataclasses import fields
from math import isclose
from typing import Any

from chunkscope.simulation.workload import Workload
from chunkscope.verification.latencies import median_of
from chunkscope.verification.outputs import impossible
from chunkscope.verification.references import reference_of
from chunkscope.verification.result import Figures, Latency, Machine, Quantiles, Run, Verification

ALMOST = 1e-6  # figures are written as they were computed: only rounding may differ


def contradiction(run: Run, of: Verification) -> str:
    """What cannot be true of a run that ended well; empty when nothing speaks against it."""
    return next(_contradictions(run, of.workload, of.machine), "") or _wrongly_compared(run, of)


def _contradictions(run: Run, workload: Workload, machine: Machine | None) -> Iterator[str]:
    if run.figures is None or not run.repeats:
        if run.figures is not None or run.repeats:
            yield "there are figures or repeats, and not the other"
    elif not _same(run.figures, median_of(run.repeats)):
        yield "the figures are not the median of the repeats"
    for repeat in run.repeats:
        yield from _impossible(repeat, workload)
    yield from _impossible_memory(run, machine)
    if run.outputs is not None:
        yield from impossible(run.outputs, workload)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=ALMOST)
    if hasattr(one, "__dataclass_fields__") and type(one) is type(other):
        return all(_same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)


def _impossible(found: Figures, workload: Workload) -> Iterator[str]:
    whole, makespan = found.e2e_s.all.max, found.makespan_s
    if not (makespan > 0 and found.ttft_s.all.p50 > 0):
        yield "the first tokens came in no time, or everything did"
    times = {"time to first token": found.ttft_s, "whole answer": found.e2e_s}
    if found.itl_s is not None:
        times["gap between tokens"] = found.itl_s
    for name, latency in times.items():
        yield from _impossible_times(name, latency, whole)
    if _more(whole, makespan):
        yield f"one answer took {whole:,.3f} s, and all of them {makespan:,.3f} s"
    outputs = sum(request.output_tokens for request in workload.requests)
    if not isclose(found.input_tokens_per_s * makespan, workload.input_tokens, rel_tol=ALMOST):
        yield "the input tokens per second are not those of the workload"
    if _more(found.output_tokens_per_s * makespan, outputs) or found.output_tokens_per_s < 0:
        yield "the output tokens per second are not those of the workload"


def _impossible_times(name: str, latency: Latency, most: float) -> Iterator[str]:
    for part in (latency.all, latency.short, latency.long):
        if part is not None and not _in_order(part):
            yield f"the {name} is {part.p50:,.3f} s at p50 and {part.max:,.3f} s at most"
    parts = [part.max for part in (latency.short, latency.long) if part]
    if _more(latency.all.max, most) or (parts and not isclose(max(parts), latency.all.max)):
        yield f"the longest {name} of all is {latency.all.max:,.3f} s, which its parts contradict"


def _in_order(q: Quantiles) -> bool:
    steps = ((q.p50, q.p95), (q.p95, q.p99), (q.p99, q.max))
    return q.p50 >= 0 and not any(_more(lower, upper) for lower, upper in steps)


def _impossible_memory(run: Run, machine: Machine | None) -> Iterator[str]:
    total = machine.gpu_memory_gib if machine else None
    for worker in run.workers:
        for peak in (worker.activation_peak_gib, worker.device_peak_gib):
            if peak is not None and (peak <= 0 or (total is not None and _more(peak, total))):
                yield f"a peak of {peak:,.2f} GiB on a GPU of {total or 0:,.2f} GiB"
    blocks, size = run.engine.get("num_gpu_blocks"), run.engine.get("block_size")
    if run.kv_cache_tokens is None or not isinstance(blocks, int) or not isinstance(size, int):
        return
    if not 0 < run.kv_cache_tokens <= blocks * size:
        yield f"a KV cache of {run.kv_cache_tokens:,} tokens in {blocks:,} blocks of {size:,}"


def _more(one: float, other: float) -> bool:
    return one > other * (1 + ALMOST)


def _wrongly_compared(run: Run, of: Verification) -> str:
    """Outputs are compared with those of one and the same run, which has none beside it."""
    reference = reference_of(of)
    if run.outputs is None or reference is None:
        return ""
    expected = None if run is reference else reference.setting
    return "" if run.outputs.against == expected else "outputs are compared with another run's"
