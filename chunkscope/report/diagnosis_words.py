"""A diagnosis in words and cells: the same for the terminal, Markdown and the page."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from chunkscope.artefacts.numbers import as_written, share
from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport, Symptom
from chunkscope.diagnosis.phases import Bound, LoadPhase
from chunkscope.errors import ChunkscopeError
from chunkscope.vllm.flags import release

NOTHING = "Nothing in it limits the engine."
_BLOCKS = " ▁▂▃▄▅▆▇█"
# Up to 0.26 a request that waits is counted again at every step.
_INFLATED_UNTIL = (0, 26, 999)


def heading(engine: EngineReport, place: int, of: int) -> str:
    facts = engine.facts
    which = f"engine {place} of {of} in {Path(engine.source).name}, " if of > 1 else ""
    lines = f" (lines {engine.first_line:,} to {engine.last_line:,})" if engine.last_line else ""
    model = facts.model or "a model that it does not name"
    several = f", {engine.engines} engines" if engine.engines > 1 else ""
    return f"{which}{model} on vLLM {facts.version or 'of an unknown version'}{several}{lines}"


def configured(engine: EngineReport) -> Iterator[tuple[str, str]]:
    facts = engine.facts
    parallel = {
        "tensor": facts.tensor_parallel_size,
        "pipeline": facts.pipeline_parallel_size,
        "data": facts.data_parallel_size,
    }
    used = [f"{name} {size}" for name, size in parallel.items() if size and size > 1]
    yield from _known(
        {
            "context": facts.max_model_len,
            "tokens per step": facts.max_num_batched_tokens,
            "chunked prefill": _switch(facts.enable_chunked_prefill),
            "prefix caching": _switch(facts.enable_prefix_caching),
            "weights as": " ".join(filter(None, (facts.dtype, facts.quantization))) or None,
            "KV cache as": None if facts.kv_cache_dtype in (None, "auto") else facts.kv_cache_dtype,
            "attention": facts.attention_backend,
            "eager mode": "on" if facts.enforce_eager else None,
            "parallel": ", ".join(used) or None,
        }
    )
    if engine.arguments:
        given = ", ".join(f"{name} {as_written(v)}" for name, v in engine.arguments.items())
        yield "not vLLM's own", given


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _known(rows: dict[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in rows.items():
        if value is not None:
            yield name, as_written(value)


def fitted(engine: EngineReport) -> Iterator[tuple[str, str, str]]:
    """What, by the log, by the memory model."""
    facts, model = engine.facts, engine.predicted
    tokens = model.kv_cache_tokens if model else None
    rows = [
        ("weights", _gib(facts.weights_gib), _gib(model.weights_gib if model else None)),
        ("activation", _gib(facts.activation_gib), _gib(model.activation_gib if model else None)),
        ("CUDA graphs", _gib(facts.graphs_gib), ""),
        ("KV cache", _gib(facts.kv_cache_gib), _gib(model.kv_cache_gib if model else None)),
        ("tokens in it", _count(facts.kv_cache_tokens), _count(tokens)),
        ("full-length requests", _count(facts.kv_concurrency), ""),
    ]
    yield from (row for row in rows if row[1])


def _gib(value: float | None) -> str:
    return f"{value:,.2f} GiB" if value is not None else ""


def _count(value: float | None) -> str:
    return f"{value:,}" if value is not None else ""


def start_up(engine: EngineReport) -> str:
    facts = engine.facts
    parts = {
        "loading": facts.load_s,
        "start-up": facts.init_s,
        "of it compiling" if facts.init_s is not None else "compiling": facts.compile_s,
        "and graphs" if facts.compile_s is not None else "graphs": facts.graphs_s,
    }
    return ", ".join(f"{name} {value:,.0f} s" for name, value in parts.items() if value is not None)


def differences(engine: EngineReport) -> list[str]:
    return [f"The plan says {d.name} {d.planned}, not {d.found}." for d in engine.differences]


def happened(engine: EngineReport) -> str:
    if not engine.windows:
        return "It logged no periodic line: nothing is known of its work."
    busy = engine.busy_s or 1.0
    hits = f", prefix hit rate {share(engine.hit_rate)}" if engine.hit_rate is not None else ""
    return (
        f"Busy for {engine.busy_s:,.0f} s: {engine.prompt_tokens / busy:,.0f} prompt and "
        f"{engine.output_tokens / busy:,.0f} output tokens/s on average; at most "
        f"{engine.peak_running:,} running and {engine.peak_waiting:,} waiting, KV cache up to "
        f"{share(engine.peak_kv_use)}{hits}."
    )


def caution(engine: EngineReport) -> str | None:
    """What the hit rate of this version means."""
    off = engine.facts.enable_prefix_caching is False
    if off or engine.hit_rate is None or not engine.facts.version or not engine.last_line:
        return None
    try:
        inflated = release(engine.facts.version).version <= _INFLATED_UNTIL
    except ChunkscopeError:
        return None
    recent = "The hit rate is of the last 1,000 requests"
    if inflated:
        return f"{recent}; up to vLLM 0.26 requests that wait are counted again, so it is too high."
    return f"{recent}."


def phase_cells(phase: LoadPhase) -> tuple[str, ...]:
    """When, what bound it, rates, requests, KV use, lines."""
    waited = f"{phase.waiting:,}" + (" (a burst)" if phase.burst else "")
    return (
        f"{phase.begin_s:,.0f} to {phase.end_s:,.0f} s",
        phase.bound.value,
        f"{phase.prompt_tokens_per_s:,.0f}",
        f"{phase.output_tokens_per_s:,.0f}",
        f"{phase.running:,}",
        waited,
        share(phase.kv_use),
    )


PHASE_HEADINGS = ("prompt/s", "output/s", "running", "waiting", "KV use")


def sparkline(values: list[float], most: float, width: int) -> str:
    """
    >>> sparkline([0, 5, 10], 10, 3)
    ' ▄█'
    """
    if len(values) > width:
        per = len(values) / width
        edges = [int(place * per) for place in range(width)] + [len(values)]
        values = [max(values[a:b]) for a, b in pairwise(edges)]
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(top, round(value / most * top)) if most else 0] for value in values)


def told(symptom: Symptom) -> str:
    lines = ", ".join(f"{line:,}" for line in symptom.lines)
    where = f" (line{'s' if len(symptom.lines) > 1 else ''} {lines})" if symptom.lines else ""
    return f"{'; '.join(symptom.evidence)}{where}".lstrip()


def answer(diagnosis: Diagnosis) -> str:
    """The headline."""
    symptoms = diagnosis.symptoms
    if not symptoms:
        return NOTHING
    first = symptoms[0]
    more = f" ({len(symptoms) - 1} more below)" if len(symptoms) > 1 else ""
    return f"{first.title[0].upper()}{first.title[1:]}{more}."


def bound_times(engine: EngineReport) -> str:
    """How long each bound held, the longest first."""
    found = {bound: engine.seconds_of(bound) for bound in Bound}
    held = sorted(((s, b) for b, s in found.items() if s), key=lambda pair: -pair[0])
    return ", ".join(f"{bound.value} {seconds:,.0f} s" for seconds, bound in held)
