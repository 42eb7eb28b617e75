"""Runs as sections: simulated ones, measured ones, the demo. One table of runs serves all."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from chunkscope.artefacts.figures import (
    FIGURES,
    ITL_MAX,
    ITL_P99,
    MAKESPAN,
    TTFT_P95,
    Figure,
)
from chunkscope.artefacts.numbers import (
    SECONDS,
    change,
    exceeds,
    gib,
    per_second,
    seconds,
    share,
)
from chunkscope.reference.demo import Demonstration
from chunkscope.report.section import Cell, Chart, Section, Table, Written, table_of
from chunkscope.report.words import runs as words
from chunkscope.report.words import sentence
from chunkscope.report.words.plan import ACCURACY, ASSUMED, listed, phrases
from chunkscope.simulation.result import SimulatedRun, Simulation, TimelineStep
from chunkscope.simulation.slo import LatencyLimit
from chunkscope.verification.result import EngineKind, Run, Verification
from chunkscope.verification.verdict import Outcome, judge, value

Named = Sequence[tuple[str, SimulatedRun | Run]]
DEMO = {
    "first token, short": words.SHORT_WAIT,
    "time": MAKESPAN,
    "longest gap": ITL_MAX,
}
LOOKS = {Outcome.BETTER: "good", Outcome.WORSE: "worse"}
MOST_NAMED = 2
ACTIVATIONS = ("activation", "experts", "sampler", "compiling")  # as vLLM profiles them
PARTS = (  # of a GPU's memory: the title, vLLM's figure and the memory model's lines
    ("weights", "weights_gib", ("weights",)),
    ("activations", "profiled_activation_gib", ACTIVATIONS),
    ("CUDA graphs", "cuda_graphs_gib", ("cuda_graphs",)),
    ("outside torch", "non_torch_gib", ("overhead",)),
    ("KV cache", "kv_cache_gib", ()),
)


def simulated_sections(simulation: Simulation) -> list[Section]:
    named = [(words.run_name(run), run) for run in simulation.runs]
    cautions = phrases(
        simulation.notes, ACCURACY, ASSUMED[1]
    )  # the setup says the latter
    steps = [(f"First steps: {name}", steps_table(run.timeline)) for name, run in named]
    return [
        Section(
            sentences=(
                words.simulated_answer(simulation),
                words.simulated_setup(simulation),
            ),
            table=runs_table(named),
        ),
        *(Section(title=title, table=table) for title, table in steps),
        Section(sentences=tuple(words.observations(simulation)), notes=tuple(cautions)),
        Section(
            title="Step times" if simulation.is_sweep else "Every figure",
            sentences=(words.step_times(simulation),),
            table=None if simulation.is_sweep else every_figure(named),
            notes=tuple(phrases([n for n in simulation.notes if n.code == ACCURACY])),
            details=True,
        ),
    ]


def measured_sections(v: Verification) -> list[Section]:
    ran = [(words.run_name(run), run) for run in v.runs if run.ok]
    answered = v.measured is not EngineKind.DEMO  # by the first
    failed = [f"{words.failure(run)}." for run in v.runs[answered:] if not run.ok]
    use = v.verdict.use if v.verdict else None
    short = words.SHORT if answered else DEMO
    strong = [
        at for at, (_, run) in enumerate(ran) if use is not None and run.is_called(use)
    ]
    settings = [
        (words.run_name(run), listed(run.settings) or "vLLM's defaults")
        for run in v.runs
    ]
    return [
        Section(sentences=(words.measured_answer(v), words.measured_on(v)), top=True),
        Section(
            sentences=(*words.worse(v), *failed),
            table=runs_table(ran, short, strong=strong),
        ),
        Section(
            sentences=tuple(words.outputs(v)),
            chart=_chart(v.runs),
            notes=tuple(
                f"{run.setting}: {sentence(n)}" for run in v.runs for n in run.notes
            ),
        ),
        Section(
            title="Every figure",
            table=every_figure(ran, v.workload.long_over),
            details=True,
        ),
        Section(title="Memory", table=_memory(ran), details=True),
        Section(
            title="Settings",
            sentences=(words.method(v),),
            table=table_of(("setting", "sets"), settings, words=("sets",)),
            details=True,
        ),
    ]


def demo_sections(demo: Demonstration) -> list[Section]:
    _, *others = measured_sections(demo.measured)
    timelines = {name: run.run.timeline[:3] for name, run in demo.runs.items()}
    steps = [
        Section(title=f"First steps {n}", table=steps_table(t))
        for n, t in timelines.items()
    ]
    first = Section(
        sentences=(words.measured_answer(demo.measured), *words.demo_setup(demo))
    )
    return [first, *others[:1], *steps, *others[1:]]


# -- tables --------------------------------------------------------------------------------------


def runs_table(
    named: Named,
    figures: Mapping[str, Figure] = words.SHORT,
    *,
    strong: Collection[int] = (),
) -> Table | None:
    """The figures that decide. Measured runs are compared with the first, broken limits marked."""
    runs: list[Any] = [run for _, run in named]
    first: Any = runs[0] if runs else None
    is_simulated = isinstance(first, SimulatedRun)
    limits = first.slo.limits if is_simulated and first.slo else ()
    columns: dict[str, Callable[[Any], Written]] = {}
    if is_simulated and first.rate:
        columns["sustains"] = lambda run: per_second(
            run.rate.rate_per_s
        )  # figures are at it
        columns["limited by"] = lambda run: run.rate.breaks or ""
    for limit in limits:
        columns[f"{limit.name} ({seconds(limit.seconds)})"] = partial(_limited, limit)
    shown = (MAKESPAN, ITL_MAX) if limits else tuple(figures.values())
    if is_simulated and first.backlog is not None:  # arrivals decide the time
        shown = (TTFT_P95, ITL_P99)
    for heading, figure in figures.items():
        is_known = any(value(run, figure) is not None for run in runs)
        if (
            is_known
            and figure in shown
            and figure.promise not in {one.name for one in limits}
        ):
            columns[heading] = partial(cell, figure, first)
            if figure is MAKESPAN and not is_simulated and len(runs) > 1:
                columns["change"] = partial(_changed, MAKESPAN, first)
    if "change" in columns:
        columns.pop("gap p99", None)  # there is no room for both
    rows = [
        (name, *(column(run) for column in columns.values())) for name, run in named
    ]
    return table_of(("setting", *columns), rows, strong=strong, words=("limited by",))


def cell(figure: Figure, first: Any, run: Any) -> Written:
    """The figure as text, long times in the first run's unit; coloured if it was measured."""
    is_measured = isinstance(run, Run)
    number, usual = value(run, figure), value(first, figure)
    if number is None and is_measured:
        is_reference = figure.key.startswith("outputs.") and run.outputs is not None
        return Cell(
            text="the reference" if is_reference else "not measured", look="none"
        )
    is_long = figure.unit is SECONDS and min(number or 0.0, usual or 0.0) >= 60
    text = None if number is None else figure.unit.brief(number)
    text = seconds(number, like=usual) if is_long else text
    if not is_measured or run is first:
        return text
    return Cell(text=str(text), look=LOOKS.get(judge(figure, run, first), ""))


def _changed(figure: Figure, first: Run, run: Run) -> str:
    is_tie = judge(figure, run, first) is Outcome.TIE
    by = "tie" if is_tie else change(value(first, figure), value(run, figure))
    return "" if run is first else by


def every_figure(named: Named, long_over: int = 0) -> Table | None:
    """Figures down, settings across; two times also by the length of the prompts, in tokens."""
    kinds = {
        "short": f"prompts up to {long_over:,}",
        "long": f"prompts over {long_over:,}",
    }
    some = [
        replace(figure, key=f"{kind}.{figure.key}", title=f"{figure.title}, {which}")
        for kind, which in kinds.items()
        for figure in (TTFT_P95, ITL_P99)
    ]
    runs: list[Any] = [run for _, run in named]
    figures = [
        f for f in (*FIGURES, *some) if any(value(run, f) is not None for run in runs)
    ]
    rows = [(f.title, *(cell(f, runs[0], run) for run in runs)) for f in figures]
    return table_of(("figure", *(name for name, _ in named)), rows)


def _limited(limit: LatencyLimit, run: SimulatedRun) -> Written:
    number = run.slo.found_of(limit) if run.slo else None
    is_broken = number is not None and exceeds(number, limit.seconds)
    return (
        Cell(text=f"! {seconds(number)}", look="bad") if is_broken else seconds(number)
    )


def steps_table(steps: Sequence[TimelineStep]) -> Table | None:
    """The first steps of a run; a letter for each prompt that takes several."""
    pieces = [
        c for step in steps for c in step.chunks if c.end - c.start < c.prompt_tokens
    ]
    split = dict.fromkeys(piece.request for piece in pieces)
    letters = {
        request: chr(ord("A") + place % 26) for place, request in enumerate(split)
    }
    rows = []
    for step in steps:
        chunks = [c for c in step.chunks if c.request in letters]
        parts = [
            f"{letters[c.request]} {share(c.end / c.prompt_tokens)}" for c in chunks
        ]
        parts[MOST_NAMED:] = (
            [f"+{len(parts) - MOST_NAMED}"] if parts[MOST_NAMED:] else []
        )
        if whole := len(step.chunks) - len(chunks):
            parts.append(f"{whole:,} whole")
        if step.preempted:
            parts.append(f"{len(step.preempted):,} preempted")
        times = (seconds(step.start_s), seconds(step.duration_s))
        counts = (step.decode_requests, sum(c.end - c.start for c in step.chunks))
        rows.append((f"{step.number:,}", *times, *counts, "  ".join(parts) or "-"))
    heads = (
        "step",
        "start",
        "took",
        "decodes",
        "prompt tokens",
        "prompts (done so far)",
    )
    return table_of(heads, rows, words=heads[-1:])


def _memory(ran: Sequence[tuple[str, Run]]) -> Table | None:
    """What vLLM logged at its start for the fullest GPU, with the prediction in parentheses."""
    rows = []
    bills = [run.predicted for _, run in ran]
    for title, name, lines in PARTS:
        most = [
            max((getattr(w, name) or 0 for w in run.workers), default=0)
            for _, run in ran
        ]
        if any(most):
            sums = [
                sum(x.gib for x in b.lines if x.name in lines) if b else None
                for b in bills
            ]
            model = sums if lines else [b.kv_cache_gib if b else None for b in bills]
            both = zip(most, model, strict=True)
            rows.append(
                (title, *(gib(x) + (f" ({gib(y)})" if y else "") for x, y in both))
            )
    return table_of(("memory (predicted)", *(title for title, _ in ran)), rows)


def _chart(runs: Sequence[Run]) -> Chart | None:
    """For the page: the percentiles of each setting's times, in s."""
    spreads = [
        {
            "setting": words.run_name(run),
            **{
                n: [float(f"{x:.4g}") for x in times or ()]
                for n, times in asdict(spread).items()
            },
        }
        for run in runs
        if (spread := run.distribution)
    ]
    return Chart(name="measured", data=spreads) if spreads else None
