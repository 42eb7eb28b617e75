"""A diagnosis as blocks: what limited the engine, what to change, what it did."""

from collections.abc import Iterator
from pathlib import Path

from chunkscope.artefacts.numbers import as_written, gib, number, plural, share
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.report.blocks import (
    Block,
    Details,
    Heading,
    Headline,
    Notes,
    Table,
    Text,
    table,
)
from chunkscope.report.notes import sentence, sentences
from chunkscope.report.wording import capital
from chunkscope.vllm.log.start import Bound, EngineStart, Symptom

MOST_ENGINES = 8  # the last of them
MOST_SYMPTOMS = 5  # of an engine, in the short answer
# What vLLM profiles as activations, in the memory model's lines.
ACTIVATIONS = ("activation", "experts", "sampler", "compiling")


def diagnosis_blocks(diagnosis: Diagnosis) -> list[Block]:
    count = len(diagnosis.engines)
    blocks: list[Block] = [Headline(answer(diagnosis))]
    if count == 1 and diagnosis.symptoms:
        blocks.append(Text(remedy(diagnosis.symptoms[0])))
    blocks.append(Notes(sentences(diagnosis.notes)))
    places = list(enumerate(diagnosis.engines, start=1))
    for place, engine in places[-MOST_ENGINES:]:
        blocks.append(Heading(heading(engine, place, count)))
        blocks += _engine_blocks(engine, is_alone=count == 1)
    return blocks


def _engine_blocks(engine: EngineStart, *, is_alone: bool) -> Iterator[Block]:
    yield Text(happened(engine))
    for rank, symptom in enumerate(engine.symptoms[:MOST_SYMPTOMS]):
        text = f"{title(symptom)} {remedy(symptom)}"
        if rank > 0:
            yield Text(f"Also: {text}")
        elif not is_alone:  # of the only engine the first is the headline
            yield Text(text)
    yield Notes(tuple(differences(engine)))
    yield Details("Arguments", (Notes(tuple(cautions(engine))),))
    yield Details("Where the time went", (bounds_table(engine),))
    yield Details("Memory", (memory_table(engine),))


# -- sentences -------------------------------------------------------------------------


def answer(diagnosis: Diagnosis) -> str:
    """The worst symptom."""
    if not diagnosis.symptoms:
        if all(engine.busy_s for engine in diagnosis.engines):
            return "Nothing limited the engine."
        return "The engine was never seen at work, so its limit is not known."
    worst = title(diagnosis.symptoms[0])
    count = len(diagnosis.engines)
    if count == 1:
        return worst
    return f"Worst of {count} engines: {worst[0].lower()}{worst[1:]}"


def title(symptom: Symptom) -> str:
    return f"{capital(sentence(symptom.title)).rstrip('.')}."


def remedy(symptom: Symptom) -> str:
    """What to change, the evidence, and its lines in the log."""
    seen = list(sentences(symptom.evidence))
    if len(symptom.lines) == 1:
        seen.append(f"line {symptom.lines[0]}")
    elif symptom.lines:
        seen.append(f"lines {', '.join(str(line) for line in symptom.lines)}")
    text = f"Try: {sentence(symptom.change)}."
    if seen:
        text += f" Seen: {'; '.join(seen)}."
    return text


def heading(engine: EngineStart, place: int, count: int) -> str:
    text = engine.facts.model or "unknown model"
    if count > 1:
        text = f"Engine {place} of {count} in {Path(engine.source).name}: {text}"
    text += f", vLLM {engine.facts.version or '(version unknown)'}"
    if engine.engines > 1:
        text += f", {engine.engines} engines"
    if engine.last_line:
        text += f" (lines {engine.first_line} to {engine.last_line})"
    return text


def happened(engine: EngineStart) -> str:
    """What the engine did while it was busy."""
    if not engine.windows:
        return "No throughput was logged."
    busy = engine.busy_s or 1.0
    text = (
        f"Busy for {engine.busy_s:,.0f} s: {engine.prompt_tokens / busy:,.0f} prompt "
        f"and {engine.output_tokens / busy:,.0f} output tokens/s, at most "
        f"{plural(engine.peak_running, 'request')} running and "
        f"{engine.peak_waiting:,} waiting, "
        f"KV cache up to {share(engine.peak_kv_use)} full"
    )
    if engine.hit_rate is not None:
        text += f", prefix-cache hits {share(engine.hit_rate)}"
    return f"{text}."


def differences(engine: EngineStart) -> Iterator[str]:
    """Where the engine is not as the plan says."""
    for difference in engine.differences:
        planned = as_written(difference.planned)
        actual = as_written(difference.actual)
        yield f"{difference.name} is {planned} in the plan and {actual} in the engine."


def cautions(engine: EngineStart) -> Iterator[str]:
    """Arguments that are not defaults, and what the log's figures leave out."""
    if engine.arguments:
        arguments = []
        for name, value in engine.arguments.items():
            arguments.append(f"{name} {as_written(value)}")
        yield f"Arguments that are not vLLM's defaults: {', '.join(arguments)}."
    if not engine.windows or not engine.last_line:
        return
    yield (
        "vLLM does not log preemptions; `chunkscope doctor URL` reads them from "
        "/metrics."
    )
    if engine.hit_rate:
        yield (
            "Prompt tokens/s leave out cached tokens, and hits are those of the last "
            "1,000 requests."
        )


# -- tables ----------------------------------------------------------------------------


def bounds_table(engine: EngineStart) -> Table:
    """How long each limit held, the longest first."""
    rows = []
    for bound in sorted(Bound, key=engine.seconds_of, reverse=True):
        seconds = engine.seconds_of(bound)
        part = None if bound is Bound.IDLE else engine.share_of(bound)
        if seconds > 0:
            rows.append((bound.value, f"{seconds:,.0f} s", share(part)))
    return table(("held back by", "time", "of the busy time"), rows)


def memory_table(engine: EngineStart) -> Table:
    """The log's figures, and the memory model's where the GPU is known."""
    facts = engine.facts
    logged = {
        "weights": gib(facts.weights_gib),
        "activations": gib(facts.activation_gib),
        "CUDA graphs": gib(facts.graphs_gib),
        "KV cache": gib(facts.kv_cache_gib),
        "tokens in it": number(facts.kv_cache_tokens),
    }
    headings = ["memory", "by the log" if engine.last_line else "by /metrics"]
    predicted = predicted_memory(engine)
    if predicted:
        headings.append(f"predicted ({engine.gpu})")
    rows = []
    for name, size in logged.items():
        if size == gib(None):
            continue
        row = [name, size]
        if predicted:
            row.append(predicted.get(name, gib(None)))
        rows.append(row)
    return table(headings, rows)


def predicted_memory(engine: EngineStart) -> dict[str, str]:
    """The same figures by the memory model; empty where the GPU is not known."""
    model = engine.predicted
    if model is None:
        return {}
    activations = 0.0
    for line in model.lines:
        if line.name in ACTIVATIONS:
            activations += line.gib
    return {
        "weights": gib(model.line("weights").gib),
        "activations": gib(activations),
        "KV cache": gib(model.kv_cache_gib),
        "tokens in it": number(model.kv_cache_tokens),
    }
