"""What is said of simulated runs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import change, number, per_second, plural, seconds, share
from chunkscope.report.words import capital
from chunkscope.report.words.plan import SENTENCES as PLAN_SENTENCES
from chunkscope.report.words.plan import limit_state, where
from chunkscope.vllm.enums import ChunkPolicy, SendOrder

if TYPE_CHECKING:
    from chunkscope.simulation.result import SimulatedRun, Simulation

WORTH = 0.03  # a smaller difference in time is no difference
WAITS = 1.15  # times what the GPU computes: from there on the run waits for the host
HOST_SPREAD = (-0.18, 0.29)  # of such runs from their median (reports/h200/qwen2.5-1.5b-mixed)
NAMES = {
    "default": "vLLM's default",
    "plan": "the plan",
    "asked": "your setting",
    "length-rule": "length rule",
    "best": "best found",
}
ORDERS = {
    SendOrder.DATA: "in the data's order",
    SendOrder.LONGEST: "longest first",
    SendOrder.SHUFFLED: "shuffled",
}


def arrivals_in_words(arrivals: str) -> str:
    """
    >>> arrivals_in_words("batch"), arrivals_in_words("8/s"), arrivals_in_words("as in the trace")
    ('all at once', 'at 8/s', 'as in the trace')
    """
    words = {"batch": "all at once", "given": "as given"}.get(arrivals, arrivals)
    return f"at {words}" if words[:1].isdigit() else words


def run_name(run: "SimulatedRun") -> str:
    """`the plan (vLLM's default)`, or the arguments that tell a setting of a sweep apart."""
    names = [NAMES.get(name, name) for name in (run.setting, *run.same_as) if name]
    also = f" ({', '.join(names[1:])})" if names[1:] else ""
    return f"{names[0]}{also}" if names else in_arguments(run)


def run_names(runs: "Sequence[SimulatedRun]") -> list[str]:
    """Unique: with the number of requests at once where the rest does not tell them apart."""
    names = [run_name(run) for run in runs]
    several = {name for name, times in Counter(names).items() if times > 1}
    return [
        f"{name}, {run.settings.most_running:,} requests" if name in several else name
        for name, run in zip(names, runs, strict=True)
    ]


def in_arguments(run: "SimulatedRun") -> str:
    parts = [f"{run.settings.step_tokens:,} tokens per step"]
    if run.settings.long_prefill_token_threshold:
        parts.append(f"at most {threshold(run)} of one prompt")
    if not run.settings.enable_chunked_prefill:
        parts.append("chunking off")
    if run.policy is not ChunkPolicy.VLLM:
        parts.append(run.policy)
    return ", ".join(parts)


def threshold(run: "SimulatedRun") -> str:
    adapts = ", adaptive" if run.settings.long_prefill_token_threshold_adaptive else ""
    return number(run.settings.long_prefill_token_threshold or None) + adapts


def _is_default(run: "SimulatedRun") -> bool:
    return "default" in (run.setting, *run.same_as)


def simulated_answer(simulation: "Simulation") -> str:
    first, *others = simulation.runs
    if first.rate:
        return _best_rate(simulation.runs)
    if simulation.pareto:
        return _best_of_sweep(simulation)
    name, is_open = capital(run_name(first)), first.backlog is not None
    what = "p95 first token" if is_open else f"{plural(first.requests, 'request')} take"

    def took(run: "SimulatedRun") -> float:
        return run.figures.ttft_s.p95 if is_open else run.figures.makespan_s

    text = f"{name}: {what} {seconds(took(first))} (simulated)"
    other = next(filter(_is_default, others), None)
    if other is None:
        return f"{text}."
    if abs(1 - took(first) / took(other)) < WORTH:
        return f"{text}; with vLLM's default the same, within {share(WORTH)}."
    difference = change(took(other), took(first))
    return f"{text}; with vLLM's default {seconds(took(other))} ({difference})."


def _best_rate(runs: "Sequence[SimulatedRun]") -> str:
    """Which setting sustains most; by less than WORTH is no more."""
    rates = {run: run.rate.rate_per_s for run in runs if run.rate and run.rate.rate_per_s}
    if not rates:
        broken = sorted({run.rate.breaks for run in runs if run.rate and run.rate.breaks})
        return f"No setting keeps the limits at any rate: {', '.join(broken)} breaks (simulated)."
    best = max(rates, key=lambda run: rates[run])
    default = next((rate for run, rate in rates.items() if _is_default(run)), None)
    if default is not None and rates[best] < default * (1 + WORTH):
        return (
            f"vLLM's default sustains {per_second(default)} (simulated). No other setting sustains "
            f"{share(WORTH)} more."
        )
    more = f"; vLLM's default {per_second(default)}" if default is not None else ""
    return f"Best: {in_arguments(best)}, {per_second(rates[best])} (simulated){more}."


def _best_of_sweep(simulation: "Simulation") -> str:
    """The ends of the front, and where it bends."""
    from chunkscope.simulation.sweep import axes

    runs = simulation.runs
    across, up = axes(runs)

    def told(run: "SimulatedRun") -> str:
        gap = up.value(run.figures)
        more = "" if gap is None else f", {up.title} {seconds(gap)}"
        return f"{run_name(run)}, {seconds(across.value(run.figures))}{more}"

    front = [runs[place] for place in simulation.pareto]
    parts = [f"Fastest: {told(front[0])}"]
    if len(front) > 1:
        parts.append(f"Smoothest: {told(front[-1])}")
    if simulation.knee is not None:
        parts.append(f"In between: {told(runs[simulation.knee])}")
    return f"{'. '.join(parts)} (simulated)."


def simulated_setup(simulation: "Simulation") -> str:
    cost, work, run = simulation.cost_model, simulation.workload, simulation.runs[0]
    sent = arrivals_in_words(work.arrivals)
    if work.concurrency is not None:
        sent = f"{sent}, at most {work.concurrency:,} in flight".removeprefix("all at once, ")
    order = f", {ORDERS[work.order]}" if work.order else ""
    cached = f" ({share(run.cached_tokens / run.input_tokens)} cached)" if run.cached_tokens else ""
    return (
        f"{where(cost.model, cost.gpu)}, vLLM {simulation.vllm}. "
        f"{plural(work.requests, 'request')} from {work.source}, {sent}{order}: "
        f"{run.input_tokens:,} tokens in{cached}, {run.output_tokens:,} out."
    )


def simulated_findings(simulation: "Simulation") -> Iterator[str]:
    """Overload, waiting for the CPU, the tightest limit."""
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
    if first.slo is not None:
        yield f"With {run_name(first)} {limit_state(first)}."


def simulated_basis(simulation: "Simulation") -> dict[str, str | None]:
    """What the step times rest on, by label."""
    cost, seed = simulation.cost_model, simulation.workload.seed
    off = f"; median error {share(cost.error)}" if cost.error is not None else ""
    return {
        "step times": f"{cost.step.origin}{off}",
        "model": cost.kind,
        "scheduling": str(PLAN_SENTENCES[f"policy_{simulation.runs[0].policy}"]),
        "seed": None if seed is None else str(seed),
    }
