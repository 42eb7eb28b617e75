"""What engines did by their logs, for the page: a timeline of each, and words and tables beside."""

from collections.abc import Iterator
from typing import Any

from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport
from chunkscope.report import diagnosis_words as words
from chunkscope.vllm.log.timeline import LogWindow

_MOST_ENGINES = 8  # the last of them
_MOST_WINDOWS = 400  # of an engine: more are narrower than a line
_MOST_PHASES = 60


def engine_charts(found: Diagnosis | None) -> list[dict[str, Any]]:
    """By engine its windows and phases; empty where nothing was logged of its work."""
    return [_chart(engine) for engine in _shown(found)]


def engine_views(found: Diagnosis | None) -> list[dict[str, Any]]:
    engines, many = _shown(found), len(found.engines) if found else 0
    first = many - len(engines) + 1
    return [_view(engine, place, many) for place, engine in enumerate(engines, start=first)]


def _shown(found: Diagnosis | None) -> tuple[EngineReport, ...]:
    return found.engines[-_MOST_ENGINES:] if found else ()


def _chart(engine: EngineReport) -> dict[str, Any]:
    names = dict.fromkeys(window.engine for window in engine.windows)
    series = [[w for w in engine.windows if w.engine == name] for name in names]
    return {
        "windows": [[place, *_figures(w)] for place, one in enumerate(series) for w in _fewer(one)],
        "phases": [[p.begin_s, p.end_s, p.bound.value] for p in engine.phases],
    }


def _fewer(windows: list[LogWindow]) -> Iterator[LogWindow]:
    each = -(-len(windows) // _MOST_WINDOWS)
    for start in range(0, len(windows), max(1, each)):
        joined = windows[start]
        for window in windows[start + 1 : start + each]:
            joined = joined.joined(window)
        yield joined


def _figures(window: LogWindow) -> list[float]:
    rates = [window.prompt_tokens_per_s, window.output_tokens_per_s]
    counts = [window.running, window.waiting]
    end = round(window.end_s, 1)
    begin = round(window.end_s - window.seconds, 1)
    return [begin, end, *(round(rate, 1) for rate in rates), *counts, round(window.kv_use, 4)]


def _view(engine: EngineReport, place: int, of: int) -> dict[str, Any]:
    said = [words.happened(engine), words.caution(engine)]
    held, took = words.bound_times(engine), words.start_up(engine)
    said += [f"What held it back: {held}." if held else None, f"It took: {took}." if took else None]
    return {
        "heading": words.heading(engine, place, of),
        "source": engine.source,
        "sentences": [sentence for sentence in said if sentence],
        "symptoms": [(s.title, words.told(s), s.change.replace("`", "")) for s in engine.symptoms],
        "nothing": words.NOTHING,
        "configured": list(words.configured(engine)),
        "differences": [(d.name, d.planned, d.found) for d in engine.differences],
        "fitted": list(words.fitted(engine)),
        "predicted": engine.predicted is not None,
        "phases": [words.phase_cells(phase) for phase in engine.phases[:_MOST_PHASES]],
        "left_out": max(0, len(engine.phases) - _MOST_PHASES),
        "phase_heads": words.PHASE_HEADINGS,
        "drawn": bool(engine.windows),
    }
