"""A diagnosis as sections: what limited the engine and what to change, then what it did."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.numbers import gib, number, share
from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport
from chunkscope.diagnosis.phases import Bound
from chunkscope.report.section import Chart, Section, Table, fact_table, table_of
from chunkscope.report.words import doctor as words
from chunkscope.report.words import sentence
from chunkscope.vllm.log.timeline import LogWindow

if TYPE_CHECKING:
    from rich.console import Group

MOST_ENGINES = 8  # the last of them
MOST_SYMPTOMS = 5  # of an engine, in the short answer
MOST_WINDOWS = 400  # of an engine on the page: more are narrower than a line
MOST_PHASES = 60


def sections(diagnosis: Diagnosis) -> list[Section]:
    engines = list(enumerate(diagnosis.engines, start=1))[-MOST_ENGINES:]
    count = f"{diagnosis.lines:,} lines, {diagnosis.understood:,} of them understood."
    return [
        Section(sentences=(words.answer(diagnosis),), notes=tuple(map(sentence, diagnosis.notes))),
        *(
            section
            for place, engine in engines
            for section in _engine(engine, place, len(diagnosis.engines))
        ),
        Section(sentences=(count,) if diagnosis.lines else (), details=True),
    ]


def _engine(engine: EngineReport, place: int, count: int) -> Iterator[Section]:
    yield Section(
        title=words.heading(engine, place, count),
        sentences=(words.happened(engine), *words.symptoms(engine, MOST_SYMPTOMS)),
        notes=(*words.differences(engine), *words.cautions(engine)),
    )
    if engine.windows:
        yield Section(
            title="What limited it when",
            chart=Chart(name=f"engine-{place - 1}", data=_windows(engine)),
            table=_bounds(engine),
        )
    yield Section(title="Memory", table=_memory(engine), details=True)
    yield Section(title="Settings", table=fact_table(words.configured(engine)), details=True)
    yield Section(title="Phase by phase", table=_phases(engine), details=True)


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
        "full-length requests": (facts.kv_concurrency, None, number),
    }
    rows = [
        (name, write(log), *([write(predicted) if predicted else ""] if model else []))
        for name, (log, predicted, write) in logged.items()
        if log is not None
    ]
    source = "by the log" if engine.last_line else "by /metrics"
    return table_of(("memory", source, *([f"predicted ({engine.gpu})"] if model else [])), rows)


def _phases(engine: EngineReport) -> Table | None:
    rows = [
        (
            *(f"{phase.begin_s:,.0f} to {phase.window.end_s:,.0f} s", phase.bound.value),
            *(phase.window.prompt_tokens_per_s, phase.window.output_tokens_per_s),
            *(phase.window.running, f"{phase.window.waiting:,}{' (burst)' * phase.burst}"),
            share(phase.window.kv_use),
        )
        for phase in engine.phases[:MOST_PHASES]
    ]
    figures = ("prompt/s", "output/s", "running", "waiting", "KV use")
    return table_of(("when", "held back by", *figures), rows, words=("held back by",))


def _windows(engine: EngineReport) -> dict[str, Any]:
    """For the page: rates, requests and KV cache over time, and what held it back."""
    names = dict.fromkeys(window.engine for window in engine.windows)
    series = [[w for w in engine.windows if w.engine == name] for name in names]
    return {
        "windows": [
            [
                *(place, round(w.end_s - w.seconds, 1), round(w.end_s, 1)),
                *(round(w.prompt_tokens_per_s, 1), round(w.output_tokens_per_s, 1)),
                *(w.running, w.waiting, round(w.kv_use, 4)),
            ]
            for place, windows in enumerate(series)
            for w in _fewer(windows)
        ],
        "phases": [[p.begin_s, p.window.end_s, p.bound.value] for p in engine.phases],
    }


def _fewer(windows: list[LogWindow]) -> Iterator[LogWindow]:
    many = max(1, -(-len(windows) // MOST_WINDOWS))
    for start in range(0, len(windows), many):
        joined = windows[start]
        for window in windows[start + 1 : start + many]:
            joined = joined.joined(window)
        yield joined


def live_view(diagnosis: Diagnosis) -> "Group":
    """The engine that runs now, in a few lines that are drawn over."""
    from rich.console import Group
    from rich.text import Text

    happened = [words.happened(engine) for engine in diagnosis.engines[-1:]]
    return Group(Text(words.answer(diagnosis), style="bold"), *map(Text, happened))
