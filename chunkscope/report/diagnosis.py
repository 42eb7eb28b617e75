"""A diagnosis as sections: what limited the engine and what to change, then what it did."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.numbers import share
from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport
from chunkscope.diagnosis.phases import Bound
from chunkscope.report.section import Chart, Column, Section, Table, fact_table, figures
from chunkscope.report.words import doctor as words
from chunkscope.report.words import sentence
from chunkscope.vllm.log.timeline import LogWindow, together

if TYPE_CHECKING:
    from rich.console import Group

MOST_ENGINES = 8  # the last of them
MOST_SYMPTOMS = 5  # of an engine, in the short answer
MOST_WINDOWS = 400  # of an engine on the page: more are narrower than a line
MOST_PHASES = 60
LINE_CELLS = 50
_BLOCKS = " ▁▂▃▄▅▆▇█"


def sections(diagnosis: Diagnosis) -> list[Section]:
    first = max(0, len(diagnosis.engines) - MOST_ENGINES)
    lines = ""
    if diagnosis.lines:
        lines = f"{diagnosis.lines:,} lines, {diagnosis.understood:,} of them understood."
    return [
        Section(sentences=(words.answer(diagnosis),), notes=tuple(map(sentence, diagnosis.notes))),
        *(
            section
            for place, engine in enumerate(diagnosis.engines[first:], start=first)
            for section in _engine(engine, place, len(diagnosis.engines))
        ),
        Section(
            title="Lines that were not understood",
            sentences=(lines,) if lines else (),
            table=_unknown(diagnosis),
            details=True,
        ),
    ]


def _engine(engine: EngineReport, place: int, count: int) -> Iterator[Section]:
    yield Section(
        title=words.heading(engine, place + 1, count),
        sentences=(words.happened(engine), *words.symptoms(engine, MOST_SYMPTOMS)),
        notes=(*words.differences(engine), *words.cautions(engine)),
    )
    if engine.windows:
        yield Section(
            title="What limited it when",
            chart=Chart(name=f"engine-{place}", data=_windows(engine)),
            table=_bounds(engine),
        )
    yield Section(title="Memory", table=_fitted(engine), details=True)
    yield Section(title="Settings", table=fact_table(words.configured(engine)), details=True)
    yield Section(title="Over time", table=_sparklines(engine), details=True)
    yield Section(title="Phase by phase", table=_phases(engine), details=True)


def _bounds(engine: EngineReport) -> Table | None:
    """How long each limit held, the longest first."""
    held = sorted(((engine.seconds_of(bound), bound) for bound in Bound), reverse=True)
    busy = sum(seconds for seconds, _ in held) or 1.0
    rows = tuple((b.value, f"{s:,.0f} s", share(s / busy)) for s, b in held if s)
    return Table(columns=figures("held back by", "time", "share"), rows=rows) if rows else None


def _fitted(engine: EngineReport) -> Table | None:
    """By the log, and by the memory model where the GPU is known."""
    facts, model = engine.facts, engine.predicted
    rows = [
        ("weights", _gib(facts.weights_gib), _gib(model.line("weights").gib if model else None)),
        (
            "activations",
            _gib(facts.activation_gib),
            _gib(model.line("activation").gib if model else None),
        ),
        ("CUDA graphs", _gib(facts.graphs_gib), ""),
        ("KV cache", _gib(facts.kv_cache_gib), _gib(model.kv_cache_gib if model else None)),
        (
            "tokens in it",
            _count(facts.kv_cache_tokens),
            _count(model.kv_cache_tokens if model else None),
        ),
        ("full-length requests", _count(facts.kv_concurrency), ""),
    ]
    known = [row if model else row[:2] for row in rows if row[1]]
    source = "by the log" if engine.last_line else "by /metrics"
    heads = (source, *([f"predicted ({engine.gpu})"] if model else []))
    return Table(columns=figures("memory", *heads), rows=tuple(known)) if known else None


def _gib(value: float | None) -> str:
    return f"{value:,.2f} GiB" if value is not None else ""


def _count(value: float | None) -> str:
    return f"{value:,}" if value is not None else ""


def _phases(engine: EngineReport) -> Table | None:
    columns = (
        Column(heading="when", right=False),
        Column(heading="held back by", right=False),
        *figures("", "prompt/s", "output/s", "running", "waiting", "KV use")[1:],
    )
    rows = tuple(
        (
            f"{phase.begin_s:,.0f} to {phase.window.end_s:,.0f} s",
            phase.bound.value,
            f"{phase.window.prompt_tokens_per_s:,.0f}",
            f"{phase.window.output_tokens_per_s:,.0f}",
            f"{phase.window.running:,}",
            f"{phase.window.waiting:,}" + (" (burst)" if phase.burst else ""),
            share(phase.window.kv_use),
        )
        for phase in engine.phases[:MOST_PHASES]
    )
    return Table(columns=columns, rows=rows) if rows else None


def _sparklines(engine: EngineReport) -> Table | None:
    if not engine.windows:
        return None
    columns = (Column(heading="", right=False), Column(heading="over time", right=False))
    rows = tuple((name, line, most) for name, line, most in _lines(engine))
    return Table(columns=(*columns, Column(heading="most")), rows=rows)


def _lines(engine: EngineReport) -> Iterator[tuple[str, str, str]]:
    windows = together(engine.windows)
    for name, values in {
        "prompt tokens/s": [w.prompt_tokens_per_s for w in windows],
        "output tokens/s": [w.output_tokens_per_s for w in windows],
        "running": [float(w.running) for w in windows],
        "waiting": [float(w.waiting) for w in windows],
        "KV cache": [w.kv_use for w in windows],
    }.items():
        is_share = name == "KV cache"
        most = 1.0 if is_share else max(values)
        shown = share(max(values)) if is_share else f"{most:,.0f}"
        yield name, sparkline(values, most, LINE_CELLS), shown


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


def _unknown(diagnosis: Diagnosis) -> Table | None:
    counts = sorted(diagnosis.unknown.items(), key=lambda pair: -pair[1])
    rows = tuple((place, f"{count:,}") for place, count in counts)
    return Table(columns=figures("line of vLLM's sources", "lines"), rows=rows) if rows else None


def _windows(engine: EngineReport) -> dict[str, Any]:
    """For the page: rates, requests and KV cache over time, and what held it back."""
    names = dict.fromkeys(window.engine for window in engine.windows)
    series = [[w for w in engine.windows if w.engine == name] for name in names]
    return {
        "windows": [
            [
                place,
                round(w.end_s - w.seconds, 1),
                round(w.end_s, 1),
                round(w.prompt_tokens_per_s, 1),
                round(w.output_tokens_per_s, 1),
                w.running,
                w.waiting,
                round(w.kv_use, 4),
            ]
            for place, windows in enumerate(series)
            for w in _fewer(windows)
        ],
        "phases": [[p.begin_s, p.window.end_s, p.bound.value] for p in engine.phases],
    }


def _fewer(windows: list[LogWindow]) -> Iterator[LogWindow]:
    each = -(-len(windows) // MOST_WINDOWS)
    for start in range(0, len(windows), max(1, each)):
        joined = windows[start]
        for window in windows[start + 1 : start + each]:
            joined = joined.joined(window)
        yield joined


def live_view(diagnosis: Diagnosis) -> "Group":
    """The engine that runs now, in a few lines that are drawn over."""
    from rich.console import Group
    from rich.text import Text

    if not diagnosis.engines:
        return Group(Text("no line of vLLM so far"))
    engine = diagnosis.engines[-1]
    lines = [Text(words.answer(diagnosis), style="bold"), Text(words.happened(engine))]
    if engine.windows:
        lines += [Text(f"{name:<16} {line} {most}") for name, line, most in _lines(engine)]
    return Group(*lines)
