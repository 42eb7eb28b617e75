"""A simulation as sections: what it found, for what, and by which step times."""

from collections.abc import Iterator, Sequence

from chunkscope.artefacts.numbers import change, per_second, plural, seconds, share
from chunkscope.report.plan import where
from chunkscope.report.runs import NAMES, every_figure, runs_table, steps_table
from chunkscope.report.section import Section
from chunkscope.report.words import capital, sentence
from chunkscope.simulation.result import SimulatedRun, Simulation
from chunkscope.simulation.sweep import axes
from chunkscope.vllm.enums import SendOrder

WORTH = 0.03  # a smaller difference in time is no difference
WAITS = 1.15  # times what the GPU computes: from there on the run waits for the host
HOST_SPREAD = (-0.18, 0.29)  # of such runs from their median (reports/h200/qwen2.5-1.5b-mixed)
ORDERS = {
    SendOrder.DATA: "in the data's order",
    SendOrder.LONGEST: "longest first",
    SendOrder.SHUFFLED: "shuffled",
}


def sections(simulation: Simulation) -> list[Section]:
    named = [(run_name(run), run) for run in simulation.runs]
    strong = [simulation.knee] if simulation.knee is not None else []
    cost, policy = simulation.cost_model, simulation.runs[0].policy
    off = f" (median error {share(cost.error)})" if cost.error is not None else ""
    measured = plural(cost.samples, "measured step") if cost.samples else "fitted on an H200"
    steps = [
        Section(title=f"First steps: {name}", table=steps_table(run.timeline))
        for name, run in named
        if run.timeline
    ]
    return [
        Section(
            sentences=(answer(simulation), _setup(simulation)),
            table=runs_table(named, strong=strong),
        ),
        *steps,
        Section(
            sentences=tuple(_observations(simulation)),
            notes=tuple(map(sentence, simulation.notes)),
        ),
        Section(
            title="Every figure",
            sentences=(f"Step times: {cost.source}, {measured}{off}. Policy: {policy}.",),
            table=None if simulation.pareto else every_figure(named),
            details=True,
        ),
    ]


def run_name(run: SimulatedRun) -> str:
    """`the plan (vLLM's default)`, or the arguments that tell a setting of a sweep apart."""
    names = [NAMES.get(name, name) for name in (run.shown_as, *run.same_as)]
    return f"{names[0]} ({', '.join(names[1:])})" if names[1:] else names[0]


def sent_when(arrivals: str, concurrency: int | None) -> str:
    """
    >>> sent_when("batch", None), sent_when("8/s", None), sent_when("batch", 4)
    ('all at once', 'arriving at 8/s', 'at most 4 in flight')
    """
    words = {"batch": "all at once", "given": "arriving as given"}.get(arrivals, arrivals)
    words = f"arriving at {words}" if words[:1].isdigit() else words
    if concurrency is None:
        return words
    return f"{words}, at most {concurrency:,} in flight".removeprefix("all at once, ")


# -- what is said --------------------------------------------------------------------------------


def answer(simulation: Simulation) -> str:
    first, *others = simulation.runs
    if first.rate:
        return _best_rate(simulation.runs)
    if simulation.pareto:
        return _best_of_sweep(simulation)
    is_open = first.backlog is not None
    what = "p95 first token" if is_open else f"{plural(first.requests, 'request')} take"

    def took(run: SimulatedRun) -> float:
        return run.figures.ttft_s.p95 if is_open else run.figures.makespan_s

    text = f"{capital(run_name(first))}: {what} {seconds(took(first))} (simulated)"
    other = next((run for run in others if "default" in (run.setting, *run.same_as)), None)
    if other is None:
        return f"{text}."
    if abs(1 - took(first) / took(other)) < WORTH:
        return f"{text}; with vLLM's default the same, within {share(WORTH)}."
    difference = change(took(other), took(first))
    return f"{text}; with vLLM's default {seconds(took(other))} ({difference})."


def _best_rate(runs: Sequence[SimulatedRun]) -> str:
    """Which setting sustains most; the first, vLLM's default, unless another does by WORTH."""
    rates = {run: run.rate.rate_per_s for run in runs if run.rate and run.rate.rate_per_s}
    if not rates:
        broken = sorted({run.rate.breaks for run in runs if run.rate and run.rate.breaks})
        return f"No setting keeps the limits at any rate: {', '.join(broken)} breaks (simulated)."
    best = max(rates, key=lambda run: rates[run])
    default = next((run for run in rates if "default" in (run.setting, *run.same_as)), None)
    if default is not None and rates[best] < rates[default] * (1 + WORTH):
        best = default
    others = f"; {NAMES['default']} {per_second(rates[default])}" if default else ""
    others = "; no other setting sustains 3 % more" if best is default else others
    size = f"{best.settings.step_tokens:,} tokens per step"
    return f"Best: {size}, {per_second(rates[best])} (simulated){others}."


def _best_of_sweep(simulation: Simulation) -> str:
    """The ends of the front, and where it bends."""
    runs, front = simulation.runs, simulation.pareto
    across, up = axes(runs)
    places = {"Fastest": front[0]}
    if len(front) > 1:
        places["Smoothest"] = front[-1]
    if simulation.knee is not None:
        places["In between"] = simulation.knee
    parts = []
    for title, place in places.items():
        time, gap = (figure.value(runs[place].figures) for figure in (across, up))
        more = "" if gap is None else f", {up.title} {seconds(gap)}"
        parts.append(f"{title}: {run_name(runs[place])}, {seconds(time)}{more}")
    return f"{'. '.join(parts)} (simulated)."


def _setup(simulation: Simulation) -> str:
    cost, work, run = simulation.cost_model, simulation.workload, simulation.runs[0]
    order = f", {ORDERS[work.order]}" if work.order else ""
    cached = f" ({share(run.cached_tokens / run.input_tokens)} cached)" if run.cached_tokens else ""
    return (
        f"{where(cost.model, cost.gpu, run.settings.parallel.gpus)}, vLLM {simulation.vllm}. "
        f"{plural(work.requests, 'request')} from {work.source}, "
        f"{sent_when(work.arrivals, work.concurrency)}{order}: "
        f"{run.input_tokens:,} tokens in{cached}, {run.output_tokens:,} out."
    )


def _observations(simulation: Simulation) -> Iterator[str]:
    """Overload, waiting for the CPU."""
    first, runs = simulation.runs[0], simulation.runs
    if first.rate:
        yield "Saturated: requests come faster than they are answered. Arrivals are Poisson."
        return
    grows = [run_name(run) for run in runs if run.backlog and run.backlog.grows]
    if grows:
        yield f"The queue keeps growing with {', '.join(grows)}: requests come too fast."
    if simulation.pareto:
        return
    took = first.figures.makespan_s
    if first.gpu_s is not None and first.backlog is None and took >= WAITS * first.gpu_s:
        least, most = (seconds(took * (1 + off)) for off in HOST_SPREAD)
        part = share(1 - first.gpu_s / took)
        yield f"The GPU waits for the CPU {part} of the time: expect {least} to {most}."
