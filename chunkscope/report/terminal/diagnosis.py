"""A diagnosis on a terminal: what limited the engine first, then the evidence."""

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.numbers import share
from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport
from chunkscope.report import diagnosis_words as words
from chunkscope.report.terminal.tables import add_figures, bare_table, figure_table
from chunkscope.vllm.log.timeline import together

if TYPE_CHECKING:
    from rich.console import Console

MOST_PHASES = 20
_LINES = 60


def show_diagnosis(found: Diagnosis, console: "Console", *, unknown: bool = False) -> None:
    console.print(Text(words.answer(found), style="bold"))
    for place, engine in enumerate(found.engines, start=1):
        console.print()
        _show_engine(engine, place, len(found.engines), console)
    if found.lines:
        places = f"{sum(found.unknown.values()):,} lines of vLLM not understood"
        console.print()
        console.print(
            Text(
                f"{found.lines:,} lines, {found.understood:,} of them read; {places}"
                + ("" if unknown or not found.unknown else " (--unknown lists them)"),
                style="dim",
            )
        )
    if unknown and found.unknown:
        console.print(_unknown(found.unknown))


def live_view(found: Diagnosis) -> Group:
    """The engine that runs now, in a few lines that are drawn over."""
    if not found.engines:
        return Group(Text("no line of vLLM so far"))
    engine = found.engines[-1]
    lines = [Text(words.answer(found), style="bold"), Text(words.happened(engine))]
    if engine.windows:
        lines += [Text(f"{name:<18} {line}") for name, line in _sparklines(engine, _LINES)]
    return Group(*lines)


def _show_engine(engine: EngineReport, place: int, of: int, console: "Console") -> None:
    console.print(Text(words.heading(engine, place, of), style="bold"))
    facts = bare_table(heading="")
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    for name, value in words.configured(engine):
        facts.add_row(Text(name), Text(value))
    console.print(facts)
    for difference in words.differences(engine):
        console.print(Text(difference))
    if rows := list(words.fitted(engine)):
        console.print()
        console.print(_fitted(rows, engine))
    if took := words.start_up(engine):
        console.print(Text(f"It took: {took}."))
    console.print()
    _show_work(engine, console)
    for number, symptom in enumerate(engine.symptoms, start=1):
        console.print()
        console.print(Text(f"{number}. {symptom.title}", style="bold"))
        console.print(Text(f"   seen: {words.told(symptom)}"))
        console.print(Text(f"   change: {symptom.change}"))
    if not engine.symptoms:
        console.print(Text(words.NOTHING))


def _fitted(rows: list[tuple[str, str, str]], engine: EngineReport) -> Table:
    beside = engine.predicted is not None
    model = f"predicted ({engine.predicted.gpu})" if engine.predicted else ""
    table = figure_table("what fitted", ["by the log", *([model] if beside else [])])
    for name, logged, predicted in rows:
        table.add_row(name, logged, *([predicted] if beside else []))
    return table


def _show_work(engine: EngineReport, console: "Console") -> None:
    console.print(Text(words.happened(engine)))
    if caution := words.caution(engine):
        console.print(Text(caution))
    if not engine.windows:
        return
    if held := words.bound_times(engine):
        console.print(Text(f"What held it back: {held}."))
    console.print()
    width = min(_LINES, console.width - 30)
    for name, line in _sparklines(engine, width):
        console.print(Text(f"{name:<18} {line}"))
    console.print()
    table = bare_table()
    table.add_column("when", no_wrap=True)
    table.add_column("held back by", no_wrap=True)
    add_figures(table, words.PHASE_HEADINGS)
    for phase in engine.phases[:MOST_PHASES]:
        table.add_row(*words.phase_cells(phase))
    console.print(table)
    if (left := len(engine.phases) - MOST_PHASES) > 0:
        console.print(Text(f"... and {left:,} phases more: --json has them"))


def _sparklines(engine: EngineReport, width: int) -> list[tuple[str, str]]:
    windows = together(engine.windows)
    series = {
        "prompt tokens/s": [w.prompt_tokens_per_s for w in windows],
        "output tokens/s": [w.output_tokens_per_s for w in windows],
        "running": [float(w.running) for w in windows],
        "waiting": [float(w.waiting) for w in windows],
        "KV cache": [w.kv_use for w in windows],
    }
    lines = []
    for name, values in series.items():
        most = 1.0 if name == "KV cache" else max(values)
        shown = share(max(values)) if name == "KV cache" else f"{most:,.0f}"
        lines.append((name, f"{words.sparkline(values, most, width)} max {shown}"))
    return lines


def _unknown(unknown: dict[str, int]) -> Table:
    table = figure_table("line of vLLM's sources", ["lines"])
    for place, count in sorted(unknown.items(), key=lambda pair: -pair[1]):
        table.add_row(Text(place), f"{count:,}")
    return table
