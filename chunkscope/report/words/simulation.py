"""What is said of simulated runs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import change, number, per_second, plural, seconds, share
from chunkscope.artefacts.units import SECONDS
from chunkscope.hardware.step_time import NO_HOST
from chunkscope.report.words.plan import SENTENCES as PLAN_SENTENCES
from chunkscope.report.words.plan import where
from chunkscope.vllm.enums import ChunkPolicy, SendOrder

if TYPE_CHECKING:
    from chunkscope.simulation.result import SimulatedRun, Simulation

TIMELINE_KEY = (
    "d: decodes; A, B, C: chunks of prompts that take several steps, and how much of each is done; "
    "-: prompts computed whole."
)
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
    """All its names, or the arguments that tell a setting of a sweep apart."""
    names = [NAMES.get(name, name) for name in (run.setting, *run.same_as) if name]
    return " = ".join(names) or in_arguments(run)


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


def simulated_answer(simulation: "Simulation") -> str:
    runs = simulation.runs
    if runs[0].rate:
        return _best_rate(simulation)
    if simulation.pareto:
        return _best_of_sweep(simulation)
    first, figures = runs[0], runs[0].figures
    name = run_name(first)
    name = f"{name[0].upper()}{name[1:]}"
    if first.backlog is not None:
        gap = f", p99 gap {seconds(figures.itl_s.p99)}" if figures.itl_s else ""
        text = f"{name}: p95 first token {seconds(figures.ttft_s.p95)}{gap}"
    else:
        requests = plural(first.requests, "request")
        text = f"{name}: {requests} take {seconds(figures.makespan_s)}"
    other = next((run for run in runs[1:] if "default" in (run.setting, *run.same_as)), None)
    return f"{text} (simulated){_against(first, other) if other else ''}."


def _against(run: "SimulatedRun", other: "SimulatedRun") -> str:
    if run.backlog is not None:
        ours, theirs = run.figures.ttft_s.p95, other.figures.ttft_s.p95
    else:
        ours, theirs = run.figures.makespan_s, other.figures.makespan_s
    if abs(1 - ours / theirs) < WORTH:
        return f"; with vLLM's default the same, within {share(WORTH)}"
    return f"; with vLLM's default {seconds(theirs)} ({change(theirs, ours)})"


def _best_rate(simulation: "Simulation") -> str:
    """Who sustains most; by less than WORTH is no more."""
    rates = {run: run.rate for run in simulation.runs if run.rate is not None}
    kept = {run: rate.rate_per_s for run, rate in rates.items() if rate.rate_per_s is not None}
    if not kept:
        broken = sorted({rate.breaks for rate in rates.values() if rate.breaks})
        return f"No setting keeps the limits at any rate: {', '.join(broken)} breaks (simulated)."
    best = max(kept, key=lambda run: kept[run])
    default = next((r for run, r in kept.items() if "default" in (run.setting, *run.same_as)), None)
    if default is not None and kept[best] < default * (1 + WORTH):
        return (
            f"vLLM's default sustains {per_second(default)} (simulated). No other setting sustains "
            f"{share(WORTH)} more."
        )
    more = f"; vLLM's default: {per_second(default)}" if default is not None else ""
    return f"Most with {run_name(best)}: {per_second(kept[best])} (simulated){more}."


def _best_of_sweep(simulation: "Simulation") -> str:
    """The ends of the front, and where it bends."""
    from chunkscope.simulation.sweep import axes

    runs = simulation.runs
    across, up = axes(runs)
    front = [runs[place] for place in simulation.pareto]
    first, last = front[0], front[-1]
    text = f"Fastest: {run_name(first)}, {seconds(across.value(first.figures))}"
    if up.value(first.figures) is None:
        return f"{text} (simulated)."
    text += f", {up.title} {seconds(up.value(first.figures))}"
    if last is not first:
        text += f". Smoothest: {run_name(last)}, {seconds(across.value(last.figures))}"
        text += f" and {seconds(up.value(last.figures))}"
    if simulation.knee is not None:
        knee = runs[simulation.knee]
        text += f". In between, {run_name(knee)}: below this, shorter gaps cost much throughput"
    return f"{text} (simulated)."


def simulated_setup(simulation: "Simulation") -> str:
    cost, work, run = simulation.cost_model, simulation.workload, simulation.runs[0]
    sent = arrivals_in_words(work.arrivals)
    if work.concurrency is not None:
        sent = f"{sent}, at most {work.concurrency:,} in flight".removeprefix("all at once, ")
    order = f", {ORDERS[work.order]}" if work.order else ""
    served = ""
    if run.cached_tokens:
        part = share(run.cached_tokens / run.input_tokens)
        served = f" The prefix cache serves {part} of the prompt tokens."
    return (
        f"{where(cost.model, cost.gpu)}, vLLM {simulation.vllm}. "
        f"{plural(work.requests, 'request')} from {work.source}, {sent}{order}: "
        f"{run.input_tokens:,} tokens in, {run.output_tokens:,} out.{served}"
    )


def simulated_findings(simulation: "Simulation") -> Iterator[str]:
    """Overload, waiting for the CPU, limits that are kept or broken."""
    runs = simulation.runs
    if runs[0].rate:
        yield (
            "Saturated: the queue grows, because requests come faster than they are answered. "
            "Arrivals are random (Poisson), the same for every setting."
        )
        return
    if not simulation.pareto:
        yield from _waiting_for_the_host(runs[0])
    grows = [run_name(run) for run in runs if run.backlog and run.backlog.grows]
    if grows:
        yield (
            f"Overloaded {arrivals_in_words(simulation.workload.arrivals)}: the queue keeps "
            f"growing with {', '.join(grows)}, and latencies with it."
        )
    for run in runs if not simulation.pareto else ():
        if run.slo is not None:
            yield limits_kept(run)


def limits_kept(run: "SimulatedRun") -> str:
    found, name = run.slo, run_name(run)
    if found is None:
        return ""
    if found.is_met:
        return f"With {name} every limit holds: {share(1 - found.use)} room to {found.tightest}."
    broken = (
        f"{limit.name} is {seconds(found.found_of(limit))} (limit {SECONDS.write(limit.seconds)})"
        for limit in found.limits
        if found.used(limit) > 1
    )
    return f"With {name} limits are broken: {', '.join(broken)}."


def _waiting_for_the_host(run: "SimulatedRun") -> Iterator[str]:
    """A range instead of a number: where the CPU is the limit, repeats differ."""
    took = run.figures.makespan_s
    if run.gpu_s is None or run.backlog is not None or took < WAITS * run.gpu_s:
        return
    least, most = (took * (1 + off) for off in HOST_SPREAD)
    yield (
        f"The GPU waits for the CPU {share(1 - run.gpu_s / took)} of the time. Such runs vary: "
        f"expect {seconds(least)} to {seconds(most)}."
    )


def simulated_basis(simulation: "Simulation") -> dict[str, str | None]:
    """What the step times rest on, by label."""
    cost, policy = simulation.cost_model, simulation.runs[0].policy
    off = f"; median error {share(cost.error)}" if cost.error is not None else ""
    host = cost.step.host
    cpu = None
    if host != NO_HOST:
        assumed = {name for name in cost.assumed if name.startswith("host.")}
        known = "assumed" if len(assumed) == len(fields(host)) else "measured"
        cpu = (
            f"{seconds(host.fixed_s)} per step, {host.per_request_s * 1e6:.0f} us per request, "
            f"{seconds(host.per_prompt_s)} per prompt, {seconds(host.ungraphed_s)} for steps over "
            f"{cost.step.graphed_tokens:,} tokens ({known})"
        )
    seed = simulation.workload.seed
    return {
        "step times": f"{cost.step.origin}{off}",
        "CPU": cpu,
        "model": cost.kind,
        "scheduling": str(PLAN_SENTENCES[f"policy_{policy}"]),
        "seed": None if seed is None else str(seed),
    }
