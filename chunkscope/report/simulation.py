"""A simulation as sections: what each setting does, side by side; a timeline of the first steps."""

from collections.abc import Sequence
from typing import Any

from chunkscope.artefacts.figures import BY_PROMISE, MAKESPAN
from chunkscope.artefacts.numbers import per_second, seconds, share
from chunkscope.report.runs import kv_use, runs_table, steps_table
from chunkscope.report.section import Chart, Section, Table, fact_table, table_of
from chunkscope.report.words import sentence
from chunkscope.report.words import simulation as words
from chunkscope.simulation.result import SimulatedRun, Simulation
from chunkscope.simulation.sweep import axes

TIMES = ("ttft_p50", "ttft_p95", "itl_p50", "itl_p99", "itl_max", "e2e_p95")
Named = Sequence[tuple[str, SimulatedRun]]


def sections(simulation: Simulation) -> list[Section]:
    runs = simulation.runs
    named = list(zip(words.run_names(runs), runs, strict=True))
    strong = [simulation.knee] if simulation.knee is not None else []
    is_rate = runs[0].rate is not None
    return [
        Section(
            sentences=(words.simulated_answer(simulation), words.simulated_setup(simulation)),
            table=_rates_table(named) if is_rate else runs_table(named, strong=strong),
            chart=_tradeoff_chart(simulation, named),
        ),
        *(
            Section(title=f"First steps: {name}", table=steps_table(run.timeline))
            for name, run in named
            if run.timeline
        ),
        Section(
            sentences=tuple(words.simulated_findings(simulation)),
            notes=tuple(map(sentence, simulation.notes)),
        ),
        Section(title="Every figure", table=_every_figure(named), details=True),
        Section(
            title="How it was computed",
            table=fact_table(words.simulated_basis(simulation)),
            details=True,
        ),
    ]


def _rates_table(named: Named) -> Table | None:
    """The highest rate of each setting that keeps the limits, and what breaks above it."""
    rows = []
    for name, run in named:
        rate, figures = run.rate, run.figures
        assert rate is not None  # noqa: S101  (a rate was looked for)
        kept = rate.rate_per_s is not None
        rows.append(
            (
                name,
                per_second(rate.rate_per_s) if kept else "no rate",
                per_second(rate.saturation_per_s),
                seconds(figures.ttft_s.p95) if kept else None,
                seconds(figures.itl_s.p99) if kept and figures.itl_s else None,
                rate.breaks or "",
            )
        )
    heads = ("setting", "sustains", "saturated at", "first token p95", "gap p99", "breaks first")
    return table_of(heads, rows, words=heads[-1:])


def _every_figure(named: Named) -> Table | None:
    """Figures down, settings across."""
    runs = [run for _, run in named]
    times = (MAKESPAN, *(BY_PROMISE[name] for name in TIMES))
    figures: dict[str, list[Any]] = {
        "tokens per step": [run.settings.step_tokens for run in runs],
        "tokens per prompt": [words.threshold(run) for run in runs],
        "requests at once": [run.settings.max_num_seqs for run in runs],
        "KV cache, tokens": [run.pool.tokens for run in runs],
        **{time.title: [seconds(time.value(run.figures)) for run in runs] for time in times},
        "tokens per second": [run.figures.tokens_per_s for run in runs],
        "steps": [run.figures.steps for run in runs],
        "prompts in chunks": [run.figures.chunked_prompts for run in runs],
        "most chunks of one": [run.figures.chunks_max for run in runs],
        "preemptions": [run.figures.preemptions for run in runs],
        "KV cache at its fullest": [share(kv_use(run)) for run in runs],
    }
    if any(run.slo for run in runs):
        figures["goodput"] = [per_second(run.figures.goodput_per_s) for run in runs]
    rows = [(title, *values) for title, values in figures.items()]
    return table_of(("", *(name for name, _ in named)), rows)


# -- for the page --------------------------------------------------------------------------------


def _tradeoff_chart(simulation: Simulation, named: Named) -> Chart | None:
    """Two figures of each setting of a sweep; a few settings are better shown by the table."""
    across, up = axes(simulation.runs)
    points = [
        {
            "setting": name,
            "x": across.value(run.figures),
            "y": up.value(run.figures),
            "best": at in simulation.pareto,
            "knee": at == simulation.knee,
            "named": bool(run.setting),
            "details": words.in_arguments(run),
        }
        for at, (name, run) in enumerate(named)
        if up.value(run.figures) is not None
    ]
    if len(points) < 3 or not simulation.pareto:
        return None
    titles = {"x": across.title, "y": up.title}
    return Chart(name="tradeoff", data={"points": points, "axes": titles})
