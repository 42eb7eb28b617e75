"""Tables of runs: simulated, tried for a plan, swept or measured, one setting a row."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from chunkscope.artefacts.figures import (
    ACTIVATION,
    BY_PROMISE,
    ITL_MAX,
    ITL_P99,
    KV_TOKENS,
    MAKESPAN,
    OUTPUT_RATE,
    TTFT_P95,
    Figure,
)
from chunkscope.artefacts.numbers import NOT_MEASURED, change, seconds, share
from chunkscope.artefacts.units import SECONDS, exceeds
from chunkscope.report.section import Cell, Table, Written, table_of
from chunkscope.report.words import verdicts as words
from chunkscope.simulation.result import SimulatedRun, TimelineStep
from chunkscope.simulation.slo import Limit
from chunkscope.verification.result import Run
from chunkscope.verification.verdict import Outcome, judge, value

AnyRun = SimulatedRun | Run
Named = Sequence[tuple[str, AnyRun]]
SHORT = {
    "time": MAKESPAN,
    "first token p95": TTFT_P95,
    "gap p50": BY_PROMISE["itl_p50"],
    "gap p99": ITL_P99,
    "longest gap": ITL_MAX,
    "activations": ACTIVATION,
    "output tokens/s": OUTPUT_RATE,
    "KV tokens": KV_TOKENS,
}
WIDE = ("gap p50", "activations", "output tokens/s", "KV tokens", "preempted", "KV use")
LOOKS = {Outcome.BETTER: "good", Outcome.WORSE: "worse"}
MOST_NAMED = 2


def runs_table(named: Named, *, strong: Collection[int] = ()) -> Table | None:
    """The figures that decide; measured ones compared with the first; limited ones marked."""
    runs: list[Any] = [run for _, run in named]
    first = runs[0] if runs else None
    limits = first.slo.limits if isinstance(first, SimulatedRun) and first.slo else ()
    columns: dict[str, Callable[[Any], Written]] = {
        f"{limit.name} ({SECONDS.write(limit.seconds)})": partial(_limited, limit)
        for limit in limits
    }
    for heading, figure in SHORT.items():
        is_limited = limits and figure not in (MAKESPAN, ITL_MAX)
        if not is_limited and any(value(run, figure) is not None for run in runs):
            columns[heading] = partial(cell, figure, first)
            if figure is MAKESPAN and isinstance(first, Run) and len(runs) > 1:
                columns["change"] = partial(changed, MAKESPAN, first)
    if isinstance(first, SimulatedRun):
        columns["preempted"] = lambda run: run.figures.preemptions
        columns["KV use"] = lambda run: share(kv_use(run))
    rows = [(name, *(column(run) for column in columns.values())) for name, run in named]
    wide = WIDE if isinstance(first, SimulatedRun) else (*WIDE, "gap p99")
    return table_of(("setting", *columns), rows, wide=wide, strong=strong)


def cell(figure: Figure, first: Any, run: Any) -> Written:
    """As it is written; measured runs are better or worse than the first."""
    if isinstance(run, SimulatedRun):
        number = figure.value(run.figures)
        return None if number is None else figure.unit.brief(number)
    text = words.shown(figure, run)
    if text == NOT_MEASURED:
        return Cell(text=text, look="none")
    return Cell(text=text, look="" if run is first else LOOKS.get(judge(figure, run, first), ""))


def changed(figure: Figure, first: Run, run: Run) -> str:
    if run is first:
        return ""
    is_tie = judge(figure, run, first) is Outcome.TIE
    return "tie" if is_tie else change(value(first, figure), value(run, figure))


def _limited(limit: Limit, run: SimulatedRun) -> Written:
    number = run.slo.found_of(limit) if run.slo else None
    if number is None or not exceeds(number, limit.seconds):
        return None if number is None else seconds(number)
    return Cell(text=f"! {seconds(number)}", look="bad")


def kv_use(run: SimulatedRun) -> float:
    return run.kv_peak_tokens / (run.pool.num_blocks * run.pool.tokens_per_block)


def steps_table(steps: Sequence[TimelineStep]) -> Table | None:
    """The first steps of a run; a letter for each prompt that takes several."""
    split = dict.fromkeys(c.request for step in steps for c in step.chunks if not c.is_whole)
    letters = {request: chr(ord("A") + place % 26) for place, request in enumerate(split)}

    def prompts(step: TimelineStep) -> str:
        chunks = [c for c in step.chunks if c.request in letters]
        parts = [f"{letters[c.request]} {share(c.end / c.prompt_tokens)}" for c in chunks]
        parts[MOST_NAMED:] = [f"+{len(parts) - MOST_NAMED}"] if parts[MOST_NAMED:] else []
        if whole := len(step.chunks) - len(chunks):
            parts.append(f"{whole:,} whole")
        if step.preempted:
            parts.append(f"{len(step.preempted):,} preempted")
        return "  ".join(parts) or "-"

    rows = [
        (
            *(f"{step.number:,}", seconds(step.start_s), seconds(step.duration_s)),
            *(step.decode_requests, sum(c.end - c.start for c in step.chunks), prompts(step)),
        )
        for step in steps
    ]
    heads = ("step", "start", "took", "decodes", "prompt tokens", "prompts (done so far)")
    return table_of(heads, rows, words=heads[-1:])
