"""What is said of an engine's log or metrics."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import as_written, share
from chunkscope.errors import ChunkscopeError
from chunkscope.report.words import Template

if TYPE_CHECKING:
    from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport, Symptom

SENTENCES: dict[str, Template] = {}

NOTHING = "Nothing in it limits the engine."
_INFLATED_UNTIL = (0, 26, 999)  # up to 0.26 a request that waits is counted at every step


def answer(diagnosis: "Diagnosis") -> str:
    """What limited it most, and how many other things did."""
    symptoms = diagnosis.symptoms
    if not symptoms:
        return NOTHING
    title = symptoms[0].title
    more = f" {len(symptoms) - 1} more below." if len(symptoms) > 1 else ""
    return f"{title[0].upper()}{title[1:]}.{more}"


def heading(engine: "EngineReport", place: int, count: int) -> str:
    facts = engine.facts
    which = f"Engine {place} of {count} in {Path(engine.source).name}: " if count > 1 else ""
    lines = f" (lines {engine.first_line:,} to {engine.last_line:,})" if engine.last_line else ""
    model = facts.model or "a model that the log does not name"
    several = f", {engine.engines} engines" if engine.engines > 1 else ""
    return f"{which}{model}, vLLM {facts.version or 'of an unknown version'}{several}{lines}"


def symptoms(engine: "EngineReport", most: int) -> Iterator[str]:
    for number, symptom in enumerate(engine.symptoms[:most], start=1):
        title = f"{symptom.title[0].upper()}{symptom.title[1:]}"
        yield f"{number}. {title}: {evidence(symptom)}. Change: {symptom.change}."


def told(symptom: "Symptom") -> str:
    return f"{symptom.title}: {evidence(symptom)}. Change: {symptom.change}"


def evidence(symptom: "Symptom") -> str:
    lines = ", ".join(f"{line:,}" for line in symptom.lines if line)
    where = f" (line{'s' if len(symptom.lines) > 1 else ''} {lines})" if lines else ""
    return f"{'; '.join(symptom.evidence)}{where}".strip()


def configured(engine: "EngineReport") -> dict[str, str | None]:
    facts = engine.facts
    parallel = {
        "tensor": facts.tensor_parallel_size,
        "pipeline": facts.pipeline_parallel_size,
        "data": facts.data_parallel_size,
    }
    used = [f"{name} {size}" for name, size in parallel.items() if size and size > 1]
    given = ", ".join(f"{name} {as_written(value)}" for name, value in engine.arguments.items())
    kv_dtype = facts.kv_cache_dtype
    known = {
        "context": facts.max_model_len,
        "tokens per step": facts.max_num_batched_tokens,
        "chunked prefill": _switch(facts.enable_chunked_prefill),
        "prefix caching": _switch(facts.enable_prefix_caching),
        "weights": " ".join(filter(None, (facts.dtype, facts.quantization))) or None,
        "KV cache type": None if kv_dtype in (None, "auto") else kv_dtype,
        "attention": facts.attention_backend,
        "eager mode": "on" if facts.enforce_eager else None,
        "parallel": ", ".join(used) or None,
        "changed from vLLM's defaults": given or None,
        "start-up": _start_up(engine),
    }
    return {name: None if value is None else as_written(value) for name, value in known.items()}


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _start_up(engine: "EngineReport") -> str | None:
    facts = engine.facts
    parts = {
        "loading": facts.load_s,
        "initialising": facts.init_s,
        "compiling": facts.compile_s,
        "CUDA graphs": facts.graphs_s,
    }
    known = [f"{name} {value:,.0f} s" for name, value in parts.items() if value is not None]
    return ", ".join(known) or None


def happened(engine: "EngineReport") -> str:
    if not engine.windows:
        return "The log has no periodic line, so nothing is known of its work."
    busy = engine.busy_s or 1.0
    hits = f", prefix cache hits {share(engine.hit_rate)}" if engine.hit_rate is not None else ""
    return (
        f"Busy for {engine.busy_s:,.0f} s: {engine.prompt_tokens / busy:,.0f} prompt and "
        f"{engine.output_tokens / busy:,.0f} output tokens/s; at most {engine.peak_running:,} "
        f"requests running and {engine.peak_waiting:,} waiting; KV cache up to "
        f"{share(engine.peak_kv_use)}{hits}."
    )


def cautions(engine: "EngineReport") -> Iterator[str]:
    """What the figures of this version mean."""
    from chunkscope.vllm.flags import release

    off = engine.facts.enable_prefix_caching is False
    if off or engine.hit_rate is None or not engine.facts.version or not engine.last_line:
        return
    try:
        inflated = release(engine.facts.version).version <= _INFLATED_UNTIL
    except ChunkscopeError:
        return
    high = "; up to vLLM 0.26 waiting requests count again, so it is too high" if inflated else ""
    yield f"the hit rate covers the last 1,000 requests{high}"


def differences(engine: "EngineReport") -> Iterator[str]:
    for one in engine.differences:
        yield f"the plan says {one.name} {one.planned}, the engine has {one.found}"
