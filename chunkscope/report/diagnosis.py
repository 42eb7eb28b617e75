"""A diagnosis as sections: what limited the engine, what to change, what it did."""

from collections.abc import Iterator
from dataclasses import asdict

from chunkscope.artefacts.note import note
from chunkscope.artefacts.numbers import gib, number, share
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.report.runs import ACTIVATIONS
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.words import doctor, sentence
from chunkscope.vllm.log.start import Bound, EngineStart

MOST_ENGINES = 8  # the last of them
MOST_SYMPTOMS = 5  # of an engine, in the short answer


def sections(diagnosis: Diagnosis) -> list[Section]:
    count = len(diagnosis.engines)
    sentences = [doctor.answer(diagnosis)]
    if count == 1 and diagnosis.symptoms:
        sentences.append(doctor.remedy(diagnosis.symptoms[0]))
    notes = tuple(sentence(warning) for warning in diagnosis.notes)
    parts = [Section(sentences=tuple(sentences), notes=notes)]
    places = list(enumerate(diagnosis.engines, start=1))
    for place, engine in places[-MOST_ENGINES:]:
        parts += _engine(engine, place, count)
    return parts


def _engine(engine: EngineStart, place: int, count: int) -> Iterator[Section]:
    sentences = [doctor.happened(engine)]
    for rank, symptom in enumerate(engine.symptoms[:MOST_SYMPTOMS]):
        said = f"{doctor.title(symptom)} {doctor.remedy(symptom)}"
        if rank > 0:
            sentences.append(f"Also: {said}")
        elif count > 1:  # of the only engine the first is said on top
            sentences.append(said)
    differences = []
    for difference in engine.differences:
        differences.append(sentence(note("not_as_planned", **asdict(difference))))
    yield Section(
        title=doctor.heading(engine, place, count),
        sentences=tuple(sentences),
        notes=tuple(differences),
    )
    yield Section(title="Arguments", notes=tuple(doctor.cautions(engine)), details=True)
    yield Section(title="Where the time went", table=_bounds(engine), details=True)
    yield Section(title="Memory", table=_memory(engine), details=True)


# -- tables --------------------------------------------------------------------


def _bounds(engine: EngineStart) -> Table | None:
    """How long each limit held, the longest first."""
    held = sorted(Bound, key=engine.seconds_of, reverse=True)
    rows = []
    for bound in held:
        seconds = engine.seconds_of(bound)
        part = None if bound is Bound.IDLE else engine.share_of(bound)
        if seconds > 0:
            rows.append((bound.value, f"{seconds:,.0f} s", share(part)))
    return table_of(("held back by", "time", "of the busy time"), rows)


def _memory(engine: EngineStart) -> Table | None:
    """The log's figures, and the memory model's where the GPU is known."""
    facts = engine.facts
    model = engine.predicted
    logged = {
        "weights": gib(facts.weights_gib),
        "activations": gib(facts.activation_gib),
        "CUDA graphs": gib(facts.graphs_gib),
        "KV cache": gib(facts.kv_cache_gib),
        "tokens in it": number(facts.kv_cache_tokens),
    }
    predicted = {}
    headings = ["memory", "by the log" if engine.last_line else "by /metrics"]
    if model:
        profiled = sum(line.gib for line in model.lines if line.name in ACTIVATIONS)
        predicted = {
            "weights": gib(model.line("weights").gib),
            "activations": gib(profiled),
            "KV cache": gib(model.kv_cache_gib),
            "tokens in it": number(model.kv_cache_tokens),
        }
        headings.append(f"predicted ({engine.gpu})")
    rows = []
    for name, size in logged.items():
        if size != gib(None):
            row = [name, size]
            if model:
                row.append(predicted.get(name, gib(None)))
            rows.append(row)
    return table_of(tuple(headings), rows)


def diagnosis_blocks(artefact: Diagnosis) -> "list[Block]":
    return blocks_of(sections(artefact))
