"""A diagnosis as sections: what limited the engine and what to change, then what it did."""

from collections.abc import Iterator
from dataclasses import asdict

from chunkscope.artefacts.note import note
from chunkscope.artefacts.numbers import gib, number, share
from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport
from chunkscope.diagnosis.phases import Bound
from chunkscope.report.runs import ACTIVATIONS
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.words import doctor, sentence

MOST_ENGINES = 8  # the last of them
MOST_SYMPTOMS = 5  # of an engine, in the short answer


def sections(diagnosis: Diagnosis) -> list[Section]:
    engines = list(enumerate(diagnosis.engines, start=1))[-MOST_ENGINES:]
    notes, count = tuple(map(sentence, diagnosis.notes)), len(diagnosis.engines)
    first = diagnosis.symptoms[
        : count == 1
    ]  # of the only engine, it is all said on top
    answer = Section(
        sentences=(doctor.answer(diagnosis), *map(doctor.remedy, first)), notes=notes
    )
    return [
        answer,
        *(part for place, one in engines for part in _engine(one, place, count)),
    ]


def _engine(engine: EngineReport, place: int, count: int) -> Iterator[Section]:
    titles = [
        f"{doctor.title(s)} {doctor.remedy(s)}" for s in engine.symptoms[:MOST_SYMPTOMS]
    ]
    symptoms = [*titles[:1], *(f"Also: {title}" for title in titles[1:])][count == 1 :]
    yield Section(
        title=doctor.heading(engine, place, count),
        sentences=(doctor.happened(engine), *symptoms),
        notes=tuple(
            sentence(note("not_as_planned", **asdict(d))) for d in engine.differences
        ),
    )
    yield Section(title="Arguments", notes=tuple(doctor.cautions(engine)), details=True)
    yield Section(title="Where the time went", table=_bounds(engine), details=True)
    yield Section(title="Memory", table=_memory(engine), details=True)


# -- tables --------------------------------------------------------------------------------------


def _bounds(engine: EngineReport) -> Table | None:
    """How long each limit held, the longest first."""
    held = sorted(((engine.seconds_of(bound), bound) for bound in Bound), reverse=True)
    busy = sum(seconds for seconds, bound in held if bound is not Bound.IDLE) or 1.0
    parts = [
        (s, bound, None if bound is Bound.IDLE else s / busy) for s, bound in held if s
    ]
    rows = [(bound.value, f"{s:,.0f} s", share(part)) for s, bound, part in parts]
    return table_of(("held back by", "time", "of the busy time"), rows)


def _memory(engine: EngineReport) -> Table | None:
    """The log's figures, and the memory model's where the GPU is known."""
    facts, model = engine.facts, engine.predicted
    names = ("weights", "activations", "CUDA graphs", "KV cache", "tokens in it")
    sizes = (
        facts.weights_gib,
        facts.activation_gib,
        facts.graphs_gib,
        facts.kv_cache_gib,
    )
    columns = [names, (*map(gib, sizes), number(facts.kv_cache_tokens))]
    if model:
        profiled = sum(line.gib for line in model.lines if line.name in ACTIVATIONS)
        sizes = (model.line("weights").gib, profiled, None, model.kv_cache_gib)
        columns.append((*map(gib, sizes), number(model.kv_cache_tokens)))
    logged = [row for row in zip(*columns, strict=True) if row[1] != gib(None)]
    source = "by the log" if engine.last_line else "by /metrics"
    return table_of(
        ("memory", source, *([f"predicted ({engine.gpu})"] if model else [])), logged
    )
