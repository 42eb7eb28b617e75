"""A diagnosis as sections: what limited the engine and what to change, then what it did."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chunkscope.artefacts.numbers import as_written, gib, number, plural, share
from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport, Symptom
from chunkscope.diagnosis.phases import Bound
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.words import capital, sentence

MOST_ENGINES = 8  # the last of them
MOST_SYMPTOMS = 5  # of an engine, in the short answer


def sections(diagnosis: Diagnosis) -> list[Section]:
    engines = list(enumerate(diagnosis.engines, start=1))[-MOST_ENGINES:]
    return [
        Section(sentences=(answer(diagnosis),), notes=tuple(map(sentence, diagnosis.notes))),
        *(
            section
            for place, engine in engines
            for section in _engine(engine, place, len(diagnosis.engines))
        ),
    ]


def _engine(engine: EngineReport, place: int, count: int) -> Iterator[Section]:
    some = enumerate(engine.symptoms[:MOST_SYMPTOMS], start=1)
    symptoms = (f"{rank}. {_symptom(symptom)}." for rank, symptom in some)
    yield Section(
        title=_heading(engine, place, count),
        sentences=(_happened(engine), *symptoms),
        notes=tuple(_cautions(engine)),
    )
    yield Section(title="Where the time went", table=_bounds(engine))
    yield Section(title="Memory", table=_memory(engine), details=True)


# -- what is said --------------------------------------------------------------------------------


def answer(diagnosis: Diagnosis) -> str:
    """What limited it most, and how many other things did."""
    if not diagnosis.symptoms:
        return "Nothing in it limits the engine."
    title = capital(sentence(diagnosis.symptoms[0].title)).rstrip(".")
    more = f" {len(diagnosis.symptoms) - 1} more below." if len(diagnosis.symptoms) > 1 else ""
    return f"{title}.{more}"


def _heading(engine: EngineReport, place: int, count: int) -> str:
    which = f"Engine {place} of {count} in {Path(engine.source).name}: " if count > 1 else ""
    lines = f" (lines {engine.first_line:,} to {engine.last_line:,})" if engine.last_line else ""
    version = f"vLLM {engine.facts.version}" if engine.facts.version else "vLLM (version unknown)"
    several = f", {engine.engines} engines" if engine.engines > 1 else ""
    return f"{which}{engine.facts.model or 'unknown model'}, {version}{several}{lines}"


def _symptom(symptom: Symptom) -> str:
    """What it is, what shows it and where, and what to change."""
    lines = ", ".join(f"{line:,}" for line in symptom.lines)
    where = f"line{'s' if len(symptom.lines) > 1 else ''} {lines}" if lines else ""
    seen = "; ".join(filter(None, (*map(sentence, symptom.evidence), where)))
    title = capital(sentence(symptom.title)).rstrip(".")
    return f"{title}{f' ({seen})' if seen else ''}. Try: {sentence(symptom.change)}"


def _happened(engine: EngineReport) -> str:
    if not engine.windows:
        return "The log has no periodic line, so nothing is known of its work."
    busy = engine.busy_s or 1.0
    hits = f", prefix cache hits {share(engine.hit_rate)}" if engine.hit_rate is not None else ""
    return (
        f"Busy for {engine.busy_s:,.0f} s: {engine.prompt_tokens / busy:,.0f} prompt and "
        f"{engine.output_tokens / busy:,.0f} output tokens/s; at most "
        f"{plural(engine.peak_running, 'request')} running and {engine.peak_waiting:,} waiting; "
        f"KV cache up to {share(engine.peak_kv_use)}{hits}."
    )


def _cautions(engine: EngineReport) -> Iterator[str]:
    """What was set, where the plan says otherwise, and what a log's figures leave out."""
    if given := [f"{name} {as_written(value)}" for name, value in engine.arguments.items()]:
        yield f"arguments that are not vLLM's defaults: {', '.join(given)}"
    for one in engine.differences:
        yield f"the plan says {one.name} {one.planned}, the engine has {one.actual}"
    if not engine.windows or not engine.last_line:
        return
    if engine.preemptions is None:
        yield "vLLM does not log preemptions; `chunkscope doctor URL` reads them from /metrics"
    if engine.hit_rate:
        yield (
            "a log's prompt tokens/s leave out cached tokens; its hit rate is of the last 1,000 "
            "requests, and too high up to vLLM 0.26"
        )


# -- tables --------------------------------------------------------------------------------------


def _bounds(engine: EngineReport) -> Table | None:
    """How long each limit held, the longest first."""
    held = sorted(((engine.seconds_of(bound), bound) for bound in Bound), reverse=True)
    busy = sum(seconds for seconds, _ in held) or 1.0
    rows = [(bound.value, f"{s:,.0f} s", share(s / busy)) for s, bound in held if s]
    return table_of(("held back by", "time", "share"), rows)


def _memory(engine: EngineReport) -> Table | None:
    """By the log, and by the memory model where the GPU is known."""
    facts, model = engine.facts, engine.predicted
    logged: dict[str, tuple[float | None, Any, Callable[[float | None], str]]] = {
        "weights": (facts.weights_gib, model and model.line("weights").gib, gib),
        "activations": (facts.activation_gib, model and model.line("activation").gib, gib),
        "CUDA graphs": (facts.graphs_gib, None, gib),
        "KV cache": (facts.kv_cache_gib, model and model.kv_cache_gib, gib),
        "tokens in it": (facts.kv_cache_tokens, model and model.kv_cache_tokens, number),
    }
    rows = [
        (name, write(log), *([write(predicted) if predicted else ""] if model else []))
        for name, (log, predicted, write) in logged.items()
        if log is not None
    ]
    source = "by the log" if engine.last_line else "by /metrics"
    return table_of(("memory", source, *([f"predicted ({engine.gpu})"] if model else [])), rows)
