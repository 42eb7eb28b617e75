"""[gate.memory]: what is predicted and what was measured, each against its own limits."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from chunkscope.artefacts.figures import Better
from chunkscope.artefacts.units import COUNT
from chunkscope.gating.budget import PEAKS, MemoryPromises, PeakPromises
from chunkscope.gating.evidence import Evidence, run_of
from chunkscope.gating.verdict import Verdict, limited
from chunkscope.hardware.memory import Memory
from chunkscope.models.shape import BLOCK_TOKENS
from chunkscope.verification.result import Run

Figures = dict[str, float | None]


def check_memory(limits: MemoryPromises, evidence: Evidence) -> Iterator[Verdict]:
    if limits.predicted:
        figures, why = _predicted(evidence)
        yield from _held(limits.predicted, figures, "predicted", "plan", why)
    if limits.measured:
        counted = limits.measured.kv_requests_of_p95 is not None
        figures, why = _measured(evidence, limits.setting, with_requests=counted)
        yield from _held(limits.measured, figures, "measured", limits.setting, why)


def _held(
    limits: PeakPromises, found: Figures, kind: str, setting: str, why: str
) -> Iterator[Verdict]:
    promises = [(figure.promise, figure.unit, figure.better) for figure in PEAKS]
    for key, unit, better in (*promises, ("kv_requests_of_p95", COUNT, Better.MORE)):
        if (limit := getattr(limits, key)) is None:
            continue
        value = found.get(key)
        note = why if value is None else ""
        verdict = limited(
            f"memory.{kind}.{key}", limit, value, unit, better=better, subject=setting, note=note
        )
        told = f"not {kind}" if value is None else f"{verdict.found} ({kind})"
        yield replace(verdict, found=told)


def _predicted(evidence: Evidence) -> tuple[Figures, str]:
    plan = evidence.plan
    if plan.memory is None:
        return {}, "the plan was made without a model or a GPU: `chunkscope recommend --model ...`"
    return {
        **predicted_peaks(plan.memory),
        "kv_requests_of_p95": plan.capacity.p95 if plan.capacity else None,
    }, "the plan does not say"


def predicted_peaks(memory: Memory) -> dict[str, float]:
    """By their keys in a budget.

    A step needs activations, the sampler and logits of prompt_logprobs beside the weights. vLLM
    fills what it may use with KV cache; what it does not profile comes on top.
    """
    outside = sum(x.gib for x in memory.lines if not x.profiled and x.name != "logprobs")
    step = memory.line("activation").gib + memory.line("sampler").gib
    return {
        "activation_peak": step + memory.unprofiled_gib,
        "device_peak": memory.requested_gib + outside + memory.unprofiled_gib,
    }


def measured_peaks(run: Run) -> Figures:
    return {figure.promise: figure.value(run) for figure in PEAKS}


def _measured(evidence: Evidence, setting: str, *, with_requests: bool) -> tuple[Figures, str]:
    run, why = run_of(evidence.verification, setting)
    if run is None:
        return {}, why
    return {
        **measured_peaks(run),
        # Only then is a profile needed beside.
        "kv_requests_of_p95": _requests(run.kv_cache_tokens, evidence) if with_requests else None,
    }, "this run did not measure it"


def _requests(kv_cache_tokens: int | None, evidence: Evidence) -> int | None:
    """How many requests of p95 length fit, in whole blocks as vLLM hands them out."""
    p95 = evidence.profile.overall.percentile(95)
    if kv_cache_tokens is None or p95 is None:
        return None
    each = ceil((p95 + evidence.output_tokens) / BLOCK_TOKENS)
    return kv_cache_tokens // BLOCK_TOKENS // max(1, each)
