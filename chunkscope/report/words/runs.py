"""Sentences about simulated and measured runs: answer, reason, setup, method."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from chunkscope.artefacts.figures import (
    BY_KEY,
    ITL_MAX,
    ITL_P99,
    MAKESPAN,
    TTFT_P95,
    Figure,
)
from chunkscope.artefacts.numbers import change, per_second, plural, seconds, share
from chunkscope.planning.plan import Plan
from chunkscope.reference.demo import Demonstration
from chunkscope.report.words import Template, capital, sentence
from chunkscope.report.words.plan import (
    ASSUMED,
    NAMES,
    limit_state,
    listed,
    throughput,
    where,
)
from chunkscope.simulation.result import SimulatedRun, Simulation
from chunkscope.verification.result import (
    DEFAULT,
    PLAN,
    Conclusion,
    EngineKind,
    Run,
    Verification,
)
from chunkscope.verification.verdict import (
    TIE_OF_ONE,
    arguments,
    goal_of,
    is_noise,
    value,
    worse_figures,
)
from chunkscope.vllm.settings import Settings

SHORT = {
    "time": MAKESPAN,
    "first token p95": TTFT_P95,
    "gap p99": ITL_P99,
    "longest gap": ITL_MAX,
}
MOST_WORSE = 3  # figures that got worse, in a sentence
SHORT_WAIT = replace(TTFT_P95, key="short.ttft_s.mean")
WORTH = 0.03  # a smaller difference in time is a tie
WAITS = 1.15  # times the GPU's own time: from here on the run waits for the host
HOST_SPREAD = (
    -0.18,
    0.29,
)  # of such runs from their median (reports/h200/qwen2.5-1.5b-mixed)

SENT = {
    "batch": "all at once",
    "given": "arriving as given",
    "trace": "as in the trace",
    "highest": "at the highest rate of each setting",
}

SENTENCES: dict[str, Template] = {
    "context_too_short": "max_model_len is {max_model_len}, the longest request {longest} tokens",
    "engine_silent": "no answer and no line in its log for {seconds:,.0f} s while {phase}",
    "engine_out_of_memory": "out of memory while {phase}: {detail}",
    "engine_refused": "refused while {phase}: {detail}",
    "engine_died": "died while {phase}: {detail}",
    "engine_killed": "killed by {signal} while {phase} (SIGKILL: often out of memory)",
    "engine_ended": "ended with code {code} and no message while {phase}",
    "server_failed": "the server {detail} (while {phase}, {answered} of {sent} answered)",
    "server_timeout": "no end after {seconds:g} s (while {phase}, {answered} of {sent} answered)",
    "requests_trickled_in": "the first steps ran while requests were still being sent",
    "prefix_cache_not_emptied": "the prefix cache was not emptied: earlier repeats may give hits",
    "kv_tokens_are_blocks": "KV cache tokens are blocks x block size: too many for a hybrid model",
    "answers_not_counted": "{answers} answers lack a token count: each piece of a stream is one",
    "answers_ended_early": "{answers} of {of} answers ended before the length asked for",
    "texts_sent_again": "every repeat sends the same texts: a prefix cache may have them",
    "server_is_shared": "others use the server: its preemptions and cache hits are left out",
    "prompts_counted_otherwise": "the server counts {counted} prompt tokens, the workload {sent}: "
    "another tokenizer, or special tokens",
}


# -- simulated runs ------------------------------------------------------------------------------


def run_name(run: SimulatedRun | Run) -> str:
    """`the plan (vLLM's default)`; for a setting of a sweep its arguments."""
    names = [NAMES.get(name, name) for name in (run.setting, *run.same_as)]
    if not run.setting and isinstance(run, SimulatedRun):
        most = run.settings.long_prefill_token_threshold
        capped = f", {most:,} a prompt" if most else ""
        names[0] = f"{plural(run.settings.step_tokens, 'token')} a step{capped}"
    return f"{names[0]} ({', '.join(names[1:])})" if names[1:] else names[0]


def sent_when(arrivals: str, concurrency: int | None) -> str:
    """
    >>> sent_when("batch", None), sent_when("8/s", None), sent_when("batch", 4)
    ('all at once', 'arriving at 8/s', 'at most 4 at once')
    """
    words = SENT.get(arrivals, arrivals)
    words = f"arriving at {words}" if words[:1].isdigit() else words
    most = f", at most {concurrency:,} at once" if concurrency else ""
    return f"{words}{most}".removeprefix("all at once, ")


def simulated_answer(simulation: Simulation) -> str:
    first, *others = simulation.runs
    if first.rate:
        return _best_rate(simulation.runs)
    if simulation.is_sweep:
        return _best_of_sweep(simulation)
    name = capital(run_name(first))
    other = next(
        (run for run in others if "default" in (run.setting, *run.same_as)), None
    )
    if first.slo:
        comparison = f"; with vLLM's default {limit_state(other)}" if other else ""
        return f"{name}: {limit_state(first)}{comparison} (simulated)."
    axis = MAKESPAN if first.backlog is None else TTFT_P95  # arrivals decide the other
    ours = axis.value(first.figures) or 0.0
    text = f"{name}: {axis.title} {seconds(ours)}"
    if other is not None:
        theirs = axis.value(other.figures) or 0.0
        gain = throughput(theirs / ours - 1)  # as the plan says it
        gain = (
            gain
            if axis is MAKESPAN
            else f"{change(theirs, ours)} against vLLM's default"
        )
        if abs(theirs - ours) < WORTH * ours:
            gain = f"within {share(WORTH)} of vLLM's default"
        text += f", {gain}"
    return f"{text} (simulated)."


def _best_rate(runs: Sequence[SimulatedRun]) -> str:
    """The setting with the highest rate; vLLM's default if no other is better by WORTH."""
    rates = {
        run: run.rate.rate_per_s for run in runs if run.rate and run.rate.rate_per_s
    }
    if not rates:
        broken = sorted(
            {run.rate.breaks for run in runs if run.rate and run.rate.breaks}
        )
        return f"No setting keeps the limits at any rate: {', '.join(broken)} breaks (simulated)."
    best = max(rates, key=lambda run: rates[run])
    default = next(
        (run for run in rates if "default" in (run.setting, *run.same_as)), None
    )
    best = default if default and rates[best] < rates[default] * (1 + WORTH) else best
    others = (
        f"; {NAMES['default']} up to {per_second(rates[default])}" if default else ""
    )
    others = "; no other setting sustains 3 % more" if best is default else others
    name = listed(best.settings.changed_from(runs[0].settings)) or run_name(runs[0])
    name = NAMES["default"] if best is default else name
    holds = f"{'keeps the limits' if best.slo else 'serves'} up to"
    return f"{capital(name)} {holds} {per_second(rates[best])} (simulated){others}."


def _best_of_sweep(simulation: Simulation) -> str:
    """The fastest and the smoothest of the settings that keep the limits."""
    kept = [run for run in simulation.runs if not run.slo or run.slo.is_met]
    none = "" if kept else "No setting that was tried keeps the limits. "
    fastest = "Fastest within the limits" if kept and kept[0].slo else "Fastest"
    is_open, runs = simulation.runs[0].backlog is not None, kept or simulation.runs
    axes = ("first token p95", "gap p99") if is_open else ("time", "longest gap")
    points = [
        ([SHORT[axis].value(run.figures) or 0.0 for axis in axes], run) for run in runs
    ]
    ends = [min(points, key=lambda p: p[0]), min(points, key=lambda p: p[0][::-1])]
    parts = [
        f"{end} is {run_name(run)}: {axes[0]} {seconds(time)}, {axes[1]} {seconds(gap)}"
        for end, ((time, gap), run) in zip((fastest, "Smoothest"), ends, strict=True)
    ]
    shown = parts if ends[1][0][1] < ends[0][0][1] else parts[:1]
    return f"{none}{'. '.join(shown)} (simulated)."


def simulated_setup(simulation: Simulation) -> str:
    cost, work, run = simulation.cost_model, simulation.workload, simulation.runs[0]
    machine = where(cost.model, cost.gpu, run.settings.parallel.gpus, simulation.notes)
    order = {"longest": ", longest first", "shuffled": ", shuffled"}.get(
        work.order or "", ""
    )
    cached = (
        f" ({share(run.cached_tokens / run.input_tokens)} cached)"
        if run.cached_tokens
        else ""
    )
    assumed = [
        one.values["tokens"] for one in simulation.notes if one.code == ASSUMED[1]
    ]
    each = f" ({assumed[0]} each where unknown; --max-output)" if assumed else ""
    return (
        f"{machine}, vLLM {simulation.vllm}. {plural(work.requests, 'request')} from "
        f"{work.source}, {sent_when(work.arrivals, work.concurrency)}{order}: "
        f"{plural(run.input_tokens, 'token')} in{cached}, {run.output_tokens:,} out{each}."
    )


def observations(simulation: Simulation) -> Iterator[str]:
    """Notes on overload and on waiting for the CPU."""
    first, runs = simulation.runs[0], simulation.runs
    grows = [run_name(run) for run in runs if run.backlog and run.backlog.grows]
    if grows:
        yield f"The queue keeps growing with {', '.join(grows)}: requests come too fast."
    if simulation.is_sweep:
        return
    took = first.figures.makespan_s
    if (
        first.gpu_s is not None
        and first.backlog is None
        and took >= WAITS * first.gpu_s
    ):
        least, most = (seconds(took * (1 + off)) for off in HOST_SPREAD)
        part = share(1 - first.gpu_s / took)
        yield f"The GPU waits for the CPU {part} of the time: expect {least} to {most}."


def step_times(simulation: Simulation) -> str:
    cost = simulation.cost_model
    off = f" (median error {share(cost.error)})" if cost.error is not None else ""
    measured = (
        plural(cost.samples, "measured step") if cost.samples else "fitted on an H200"
    )
    return f"Step times: {cost.source}, {measured}{off}."


# -- measured runs -------------------------------------------------------------------------------


def failure(run: Run) -> str:
    return f"{NAMES.get(run.setting, run.setting)}: {_reason(run)}"


def _reason(run: Run) -> str:
    return sentence(run.failure) if run.failure else run.status.replace("_", " ")


def measured_answer(v: Verification) -> str:
    """The verdict: which setting to use, by which figure."""
    if v.measured is EngineKind.DEMO:
        means = sorted((value(run, SHORT_WAIT) or 0.0, run.setting) for run in v.runs)
        ends = [
            f"{seconds(mean)} {name}"
            for mean, name in dict.fromkeys((means[-1], means[0]))
        ]
        return f"Mean wait of short prompts for their first token: {', '.join(ends)}."
    plan, default, judged = v.run(PLAN), v.run(DEFAULT), v.verdict
    if plan is None or judged is None:
        run = v.runs[0]  # a server
        return f"{capital(run_name(run))}: {_figure(goal_of(v), run) if run.ok else _reason(run)}."
    use, goal = v.run(judged.use), BY_KEY[judged.goal]
    if judged.conclusion is Conclusion.PLAN_FAILED:
        best = f"; {run_name(use)} does: {_figure(goal, use)}" if use else ""
        return f"The plan does not run: {_reason(plan)}{best}."
    if judged.conclusion is Conclusion.USE_ANOTHER and use is not None:
        sets = listed(Settings.of(arguments(use))) or "vLLM's defaults"
        return f"Use {sets} instead of the plan: {_compared(use, plan, goal)}"
    if judged.conclusion is Conclusion.DROP_FLAGS and use is not None:
        tie = f"a tie, {_figure(goal, plan)} with it, {_shown(goal, use)} without (measured)"
        return f"Leave out {' and '.join(judged.drop)}: {tie}."
    if judged.conclusion is Conclusion.KEEP_DEFAULT:
        others = ", and no other setting is clearly better" if len(v.runs) > 1 else ""
        needed = f" with {listed(plan.settings)}" if plan.settings.given() else ""
        return (
            f"Keep vLLM's defaults{needed}: {_figure(goal, plan)}{others} (measured)."
        )
    if default is not None and default.ok:
        return f"Keep the plan: {_compared(plan, default, goal)}"
    return f"Keep the plan: {_figure(goal, plan)} (measured; vLLM's default was not)."


def worse(v: Verification) -> Iterator[str]:
    """The figures that get worse with it."""
    use, other = (
        v.run(v.verdict.use) if v.verdict else None,
        v.run(DEFAULT) or v.run(PLAN),
    )
    figures = worse_figures(use, other) if use and other and use is not other else []
    parts = [
        f"{_figure(one, use)} instead of {_shown(one, other)}"
        for one in figures[:MOST_WORSE]
    ]
    if parts:
        yield f"Worse: {', '.join(parts)}."


def _compared(run: Run, other: Run, goal: Figure) -> str:
    by = change(value(other, goal), value(run, goal))
    part = f"{by}, measured" if by else "measured"
    return f"{_figure(goal, run)} instead of {_shown(goal, other)} with {run_name(other)} ({part})."


def _figure(figure: Figure, run: Run | None) -> str:
    return f"{figure.title} {_shown(figure, run)}"


def _shown(figure: Figure, run: Run | None) -> str:
    return figure.unit.brief(value(run, figure) if run else None)


def where_measured(v: Verification) -> str:
    machine = v.machine
    if machine is not None and machine.gpu is None:
        return f"{v.model.name} on {'a CPU' if machine.device == 'cpu' else 'a server'}"
    return where(
        v.model.name, *((machine.gpu, max(1, machine.gpus)) if machine else (None,))
    )


def measured_on(v: Verification) -> str:
    return f"Measured: {', '.join(filter(None, circumstances(v)))}."


def circumstances(v: Verification) -> tuple[str, ...]:
    work, dummy = v.workload, "random weights" if v.model.dummy else ""
    sent = f"greedy sampling, {sent_when(work.arrivals, work.concurrency)}"
    is_median = v.repeats > 1 and any(run.ok for run in v.runs)
    repeats = f"median of {plural(v.repeats, 'repeat')}" if is_median else ""
    engine = f"vLLM {v.machine.vllm}" if v.machine and v.machine.vllm else ""
    return (
        where_measured(v),
        engine,
        dummy,
        plural(len(work.requests), "request"),
        sent,
        repeats,
    )


def method(v: Verification) -> str:
    left = (
        f", {v.workload.left_out:,} too long and left out"
        if v.workload.left_out
        else ""
    )
    again = f", {v.source.repeated:,} of them again" if v.source.repeated else ""
    prompts = f"real prompts{again}" if v.source.datasets else "random tokens"
    noise = (
        "within the spread of repeats"
        if v.repeats > 1
        else f"of less than {share(TIE_OF_ONE)}"
    )
    return (
        f"{plural(v.workload.input_tokens, 'token')} in, {v.workload.output_tokens:,} out; "
        f"{prompts}, seed {v.workload.seed}{left}. A difference {noise} is a tie."
    )


def outputs(v: Verification) -> Iterator[str]:
    """How many answers are equal; nothing without `--check-outputs`."""
    for run in v.runs:
        ours, reference = (
            run.outputs,
            v.run(run.outputs.reference if run.outputs else None),
        )
        if (
            ours is None
            or ours.equal is None
            or reference is None
            or reference.outputs is None
        ):
            continue
        again = min(ours.again, reference.outputs.again)
        noise = ", so batching explains it" if is_noise(ours, reference.outputs) else ""
        noise = "; with random weights rounding decides" if v.model.dummy else noise
        noise *= ours.equal < 1
        yield (
            f"{capital(run_name(run))}: {share(ours.equal)} of {len(ours.answers):,} answers equal "
            f"those of {run_name(reference)}, {share(again)} when sent again{noise}."
        )


def measured_elsewhere(plan: Plan, v: Verification) -> Iterator[str]:
    """How model, vLLM and GPU of the measurement differ from the plan's."""
    machine, model = v.machine, plan.model
    names = (
        (model.load_name, model.name) if model and v.measured is EngineKind.VLLM else ()
    )
    if names and v.model.name not in names:
        yield f"planned for {names[0]}, this is {v.model.name}: it may count other lengths"
    planned, here = plan.deployment.release.text, machine.vllm if machine else None
    if here and planned.split(".")[:2] != here.split(".")[:2]:
        yield f"planned for vLLM {planned}, this is {here}: recommend again with --vllm-version"
    if machine and machine.gpu and plan.gpu and plan.gpu.title != machine.gpu:
        yield f"planned for {plan.gpu.title}, this is {machine.gpu}"


def demo_setup(demo: Demonstration) -> Iterator[str]:
    """The demo's requests, and whether chunks changed their answers."""
    model = demo.measured.model
    lengths = [len(request.prompt) for request in demo.requests]
    long = [tokens for tokens in lengths if tokens > demo.measured.workload.long_over]
    early = sum(request.arrival_s == 0 for request in demo.requests)
    size = f"{(model.parameters or 0) / 1e6:,.1f} M parameters"
    yield (
        f"Model: {where_measured(demo.measured)} ({size}). {early} short requests are being "
        f"answered when {len(long)} prompts of {long[0]:,} tokens arrive, with "
        f"{len(lengths) - len(long) - early} short ones behind them."
    )
    yield f"{demo.same_answers} of {len(demo.requests)} answers are the same."
