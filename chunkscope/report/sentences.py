"""What is said about chunks, refusals, capacity, forecasts and samples: once, for every format."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import (
    change,
    duration,
    money,
    number,
    per_second,
    plural,
    seconds,
    share,
)
from chunkscope.artefacts.units import SECONDS
from chunkscope.lengths.profile import Profile
from chunkscope.report.words import sentence
from chunkscope.report.words.plan import VARIATIONS

if TYPE_CHECKING:  # `analyze` needs none of it to show a profile
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.rule import Chunks
    from chunkscope.simulation.result import SimulatedRun, Simulation

NOTHING_TO_SET = "(nothing to set)"
NOTHING_TO_COPY = "# nothing to set"  # pasted into a shell, it does nothing
# What the length rule's words mean, below a table of them.
OF_EACH = "This describes the data, each set by itself; the arguments are for all together."
BENEFIT = (
    "Benefit, by the longest prompt: skip under 1K tokens, optional under 2K, consider under 4K, "
    "recommended under 8K, then required."
)
RULE_WORDS = (
    f"{OF_EACH} Over: prompts that a chunk of that size would split (none: disabled, some: "
    f"selective, all: always on). {BENEFIT}"
)
KNEE = "Knee: past it, a little more of one costs much of the other."
# A run waits for the host if it takes so many times what the GPU computes. Repeats of such runs
# differed by so much from their median (reports/h200/qwen2.5-1.5b-mixed).
WAITS = 1.15
HOST_SPREAD = (-0.18, 0.29)
NOTHING_CHANGED = "Nothing that was compared changed."


def prompts(profile: Profile) -> str:
    datasets = plural(len(profile.datasets), "dataset")
    return f"{plural(profile.overall.count, 'prompt')} in {datasets}"


def samples(profile: Profile) -> Iterator[str]:
    """A sentence for each dataset of which only a sample was counted."""
    for dataset in profile.datasets:
        if (part := dataset.sample) is not None:
            of = f"{part.rows:,} of {part.out_of:,} rows of {dataset.name}"
            yield f"Sampled: {of} (seed {part.seed})"


def uncounted(profile: Profile, most: int = 5) -> Iterator[str]:
    """What the prompts may lack, with the datasets of which the same is to be said together."""
    names: dict[str, list[str]] = {}
    for dataset in profile.datasets:
        for note in dataset.uncounted:
            names.setdefault(sentence(note), []).append(dataset.name)
    for said, found in list(names.items())[:most]:
        of = found[0] if len(found) == 1 else f"{found[0]} and {len(found) - 1:,} more"
        yield f"Not all of it is counted. {of}: {said}."
    if len(names) > most:
        yield f"Not all of it is counted in {len(names) - most:,} more ways: see the profile."


def arguments(plan: "Plan") -> str:
    return " ".join(plan.cli_args()) or NOTHING_TO_SET


def chunks(found: "Chunks") -> str:
    if not found.prompts:
        return "No prompt has to be split."
    return (
        f"{share(found.share)} of the prompts are over {number(found.size)} tokens and are read "
        f"in chunks: the median of them in {found.median}, the longest in {found.longest}."
    )


def refused(plan: "Plan") -> str | None:
    """What a context that is too short does to scores; None where none is known."""
    found = plan.refused
    if plan.model is None and plan.settings.max_model_len is None:
        return None
    context = found.room_tokens + plan.output.tokens
    if not found.prompts:
        return (
            f"No prompt is refused, cut or stopped early: the longest leaves room in {context:,} "
            f"tokens for {answers(plan)}."
        )
    too_long = found.too_long
    parts = []
    if too_long:
        parts.append(
            f"{_of(too_long, found.of)} fill the context of {context:,} tokens or are longer: "
            "vLLM refuses them, and a harness that truncates cuts them"
        )
    if (rest := found.prompts - too_long) > 0:
        parts.append(
            f"{_of(rest, found.of)} are over {found.room_tokens:,} tokens, which leaves no room "
            f"for {answers(plan)}: a server refuses them where max_tokens asks for so many, "
            "lm-eval cuts them, the LLM class stops their answers early"
        )
    return ". ".join(parts) + "."


def _of(some: int, count: int) -> str:
    return f"{some:,} of {plural(count, 'prompt')} ({share(some / count)})"


def answers(plan: "Plan") -> str:
    """How long they are, and whether anybody knows."""
    output = plan.output
    return f"{plural(output.tokens, 'output token')}{' (assumed)' if output.assumed else ''}"


def cost(plan: "Plan") -> str | None:
    """What the run takes, before it is run."""
    found, output = plan.cost, plan.output
    if found is None:
        return None
    each = f" ({output.tokens:,} each, assumed)" if output.assumed else ""
    where = f"{found.gpus} GPUs" if found.gpus > 1 else "this GPU"
    said = (
        f"The run takes {found.input_tokens:,} tokens in, {found.output_tokens:,} out{each} and "
        f"{duration(found.hours)} on {where} (predicted, without loading the model); "
        f"{duration(found.least_hours)} to {duration(found.most_hours)} if one thing turns out "
        f"otherwise ({', '.join(VARIATIONS[code] for code in found.varied)})."
    )
    if found.price_per_hour is None:
        return said
    each_hour = found.gpus * found.price_per_hour
    hours = (found.hours, found.least_hours, found.most_hours)
    usual, least, most = (money(one * each_hour) for one in hours)
    per = "per GPU and hour" if found.gpus > 1 else "an hour"
    return f"{said} At {money(found.price_per_hour)} {per} that is {usual} ({least} to {most})."


def client(plan: "Plan") -> str | None:
    """How many requests it takes to fill the engine."""
    many = plan.requests_in_flight
    if many is None:
        return None
    simulated = plan.run is not None
    why = "as many run at once in the simulation" if simulated else "more would wait in its queue"
    return f"A client has to keep {plural(many, 'request')} in flight to fill the engine: {why}."


def capacity(plan: "Plan") -> str | None:
    fits = plan.capacity
    if plan.memory is None or fits is None:
        return None
    return (
        f"The KV cache has room for {plan.memory.kv_cache_tokens:,} tokens: "
        f"{plural(fits.p50, 'request')} of median length at once, {fits.p95:,} of p95 length, "
        f"{fits.longest:,} of the longest, each with {answers(plan)} and nothing shared."
    )


def forecast(plan: "Plan") -> str | None:
    ours, own = plan.run, plan.default_run
    if ours is None:
        return None
    each = f" of {answers(plan)}" if plan.output.assumed else ""
    lead = f"Simulated with {plural(ours.requests, 'request')}{each}"
    if own is None:
        gap = ours.figures.longest_gap_s
        gaps = "" if gap is None else f", longest gap between tokens {seconds(gap)}"
        done = f"{lead}: all done in {seconds(ours.figures.makespan_s)}{gaps}"
        return f"{done}; vLLM's own setting would not run."
    if own is ours:
        return f"{lead}: all done in {seconds(ours.figures.makespan_s)}."
    parts = [
        instead("all done in", ours.figures.makespan_s, own.figures.makespan_s),
        instead(
            "longest gap between tokens", ours.figures.longest_gap_s, own.figures.longest_gap_s
        ),
    ]
    return f"{lead}, against vLLM's own setting: {'; '.join(filter(None, parts))}."


def instead(what: str, mine: float | None, other: float | None) -> str:
    if mine is None or other is None:
        return ""
    if seconds(mine) == seconds(other):
        return f"{what} {seconds(mine)}, no difference"
    return f"{what} {seconds(mine)} instead of {seconds(other)} ({change(other, mine)})"


def length_rule(plan: "Plan") -> str:
    """The length rule's word as what it is: a description of the data."""
    said = plan.decision
    what = f"cap chunks at {said.threshold:,} tokens" if said.threshold else "switch chunking off"
    figures = f"p95 {number(said.p95)} tokens, longest {said.longest:,}"
    return f"By lengths alone the rule would {what} ({said.by_rule}: {figures})."


def preemptions(plan: "Plan") -> str | None:
    """Requests that lose their place and are read again, and what helps."""
    row = next((row for row in plan.tried if row.chosen), None)
    if row is None or not row.run.figures.preemptions:
        return None
    return (
        f"{plural(row.run.figures.preemptions, 'preemption')}: the longest gap of "
        f"{seconds(row.run.figures.longest_gap_s or 0.0)} comes from that. Fewer "
        "requests at once, --kv-cache-dtype fp8, more GPUs or shorter outputs avoid it."
    )


def settings(run: "SimulatedRun") -> str:
    """All its names, over a column of a table."""
    return " = ".join((setting(run), *run.same_as)).replace("= default", "= vLLM's own")


def setting(run: "SimulatedRun") -> str:
    return "vLLM's own" if run.setting == "default" else run.setting or "setting"


def simulated(simulation: "Simulation") -> Iterator[str]:
    """What a few settings come to: against each other, and each against its limits."""
    runs = simulation.runs
    first, *others = runs
    if not others:
        yield "This is what vLLM does by itself: there is nothing to compare it with."
    for other in others:
        yield _against(first, other)
    yield from _waiting_for_python(first)
    yield from overload(simulation, [setting(run) for run in runs])
    yield from (kept(run) for run in runs if run.slo)


def _waiting_for_python(run: "SimulatedRun") -> Iterator[str]:
    """A range instead of a number: where the host is the limit, repeats differ."""
    if run.gpu_s is None or run.backlog is not None or run.figures.makespan_s < WAITS * run.gpu_s:
        return
    least, most = (run.figures.makespan_s * (1 + off) for off in HOST_SPREAD)
    yield (
        f"The GPU waits for the engine's Python in {share(1 - run.gpu_s / run.figures.makespan_s)} "
        f"of this time: expect {seconds(least)} to {seconds(most)}, as repeats of such runs did."
    )


def overload(simulation: "Simulation", names: Sequence[str]) -> Iterator[str]:
    """Requests that come faster than they are done."""
    runs = zip(simulation.runs, names, strict=True)
    if found := [name for run, name in runs if run.backlog and run.backlog.grows]:
        yield (
            f"Overloaded: requests come {simulation.workload.sent}, and the queue grows with "
            f"{', '.join(found)}. Latencies grow with it, for as long as requests come."
        )


def rates(simulation: "Simulation") -> Iterator[str]:
    """Who sustains most, and what saturation is."""
    found = {run: run.rate for run in simulation.runs if run.rate is not None}
    kept = {run: rate.rate_per_s for run, rate in found.items() if rate.rate_per_s is not None}
    own = next((rate for run, rate in kept.items() if _is_own(run)), None)
    if not kept:
        broken = sorted({rate.breaks for rate in found.values() if rate.breaks})
        yield f"No setting that was tried keeps the limits at any rate: {', '.join(broken)} breaks."
    else:
        best = max(kept, key=lambda run: kept[run])
        if own is not None and kept[best] < own * 1.03:
            yield f"No setting that was tried sustains more than vLLM's own {per_second(own)}."
        else:
            more = f", vLLM's own {per_second(own)} ({change(own, kept[best])})" if own else ""
            yield f"Most with {setting(best)}: {per_second(kept[best])}{more}."
    yield (
        "At saturation the queue begins to grow: requests come faster than they are done. Poisson "
        "arrivals, the same draw at every rate."
    )


def _is_own(run: "SimulatedRun") -> bool:
    return "default" in (run.setting, *run.same_as)


def _against(run: "SimulatedRun", other: "SimulatedRun") -> str:
    from chunkscope.planning.search import WORTH

    name = setting(other)
    if run.backlog or other.backlog:
        gaps = (one.figures.itl_s.p99 if one.figures.itl_s else None for one in (run, other))
        first = instead("p95 time to first token", run.figures.ttft_s.p95, other.figures.ttft_s.p95)
        return f"Against {name}: {'; '.join(filter(None, (first, instead('p99 gap', *gaps))))}."
    shorter = 1 - run.figures.makespan_s / other.figures.makespan_s
    if abs(shorter) < WORTH:
        return f"All requests take as long as with {name}, within {share(WORTH)}."
    word = "sooner" if shorter > 0 else "later"
    return f"All requests are done {share(abs(shorter))} {word} than with {name}."


def kept(run: "SimulatedRun") -> str:
    """Which limits a setting keeps, and with how much room."""
    found = run.slo
    if found is None:
        return ""
    with_it = f"With {'the ' if run.setting == 'plan' else ''}{setting(run)}"
    if found.is_met:
        return f"{with_it} every limit is met: {share(found.room)} room to {found.tightest}."
    broken = (
        f"{limit.name} is {seconds(found.found_of(limit))} (limit {SECONDS.write(limit.seconds)})"
        for limit in found.limits
        if found.used(limit) > 1
    )
    return f"{with_it} limits are broken: {', '.join(broken)}."


def ties(count: int) -> str:
    return f"Measured figures that differ by no more than the spread: {count:,}."
