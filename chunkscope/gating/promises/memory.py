"""[gate.memory]: what is predicted and what was measured, each against its own limits."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Any

from chunkscope.artefacts.figures import Better
from chunkscope.artefacts.units import COUNT
from chunkscope.costs.memory import Memory
from chunkscope.costs.models.shape import BLOCK_TOKENS
from chunkscope.gating.budget import PEAKS, MemoryPromises, PeakPromises
from chunkscope.gating.evidence import Evidence, run_of
from chunkscope.gating.verdict import Verdict, at_least, at_most

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
    def told(key: str) -> dict[str, Any]:
        return {
            "promise": f"memory.{kind}.{key}",
            "subject": setting,
            "found": found.get(key),
            "note": why if found.get(key) is None else "",
        }

    for figure in PEAKS:
        if (limit := getattr(limits, figure.promise)) is not None:
            relation = at_least if figure.better is Better.MORE else at_most
            yield _limited(relation, limit, told(figure.promise), figure.unit, kind)
    if (limit := limits.kv_requests_of_p95) is not None:
        yield _limited(at_least, limit, told("kv_requests_of_p95"), COUNT, kind)


def _limited(relation: Any, limit: float, told: dict[str, Any], unit: Any, kind: str) -> Verdict:
    verdict: Verdict = relation(limit=limit, unit=unit, **told)
    if verdict.found_value is None:
        return replace(verdict, found=f"not {kind}")
    return replace(verdict, found=f"{verdict.found} ({kind})")


def _predicted(evidence: Evidence) -> tuple[Figures, str]:
    plan = evidence.plan
    if plan.memory is None:
        return {}, "the plan was made without a model or a GPU: `chunkscope recommend --model ...`"
    return {
        "activation_peak": activation_peak(plan.memory),
        "device_peak": device_peak(plan.memory),
        "kv_requests_of_p95": plan.capacity.p95 if plan.capacity else None,
    }, "the plan does not say"


def activation_peak(memory: Memory) -> float:
    """What a step needs beside the weights: activations, sampler, logits of prompt_logprobs."""
    return memory.line("activation").gib + memory.line("sampler").gib + memory.unprofiled_gib


def device_peak(memory: Memory) -> float:
    """vLLM fills what it may use with KV cache; what it does not profile comes on top."""
    outside = sum(x.gib for x in memory.lines if not x.profiled and x.name != "logprobs")
    return memory.requested_gib + outside + memory.unprofiled_gib


def _measured(evidence: Evidence, setting: str, *, with_requests: bool) -> tuple[Figures, str]:
    run, why = run_of(evidence.verification, setting)
    if run is None:
        return {}, why
    return {
        **{figure.promise: figure.of(run) for figure in PEAKS},
        # Only then is a profile needed beside.
        "kv_requests_of_p95": (_requests(run.kv_cache_tokens, evidence) if with_requests else None),
    }, "this run did not measure it"


def _requests(kv_cache_tokens: int | None, evidence: Evidence) -> int | None:
    """How many requests of p95 length fit, in whole blocks as vLLM hands them out."""
    p95 = evidence.profile.overall.percentile(95)
    if kv_cache_tokens is None or p95 is None:
        return None
    each = ceil((p95 + evidence.output_tokens) / BLOCK_TOKENS)
    return kv_cache_tokens // BLOCK_TOKENS // max(1, each)
