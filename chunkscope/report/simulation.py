"""A simulation as blocks: what a setting takes, beside others, step by step."""

import shlex
from collections.abc import Sequence

from chunkscope.artefacts.figures import ITL_MAX, ITL_P99, MAKESPAN, TTFT_P95, Figure
from chunkscope.artefacts.numbers import (
    about,
    exceeds,
    per_second,
    plural,
    seconds,
    share,
)
from chunkscope.report.blocks import (
    Block,
    Cell,
    Details,
    Heading,
    Headline,
    Look,
    Notes,
    Table,
    Text,
    Written,
    table,
)
from chunkscope.report.notes import sentences
from chunkscope.report.phrases import (
    DEFAULT_NAME,
    NOT_VALIDATED,
    OUTPUT_ASSUMED,
    load_state,
    machine_text,
    settings_text,
    validated_text,
)
from chunkscope.report.pictures import Setting, split_prompts, timeline, trade_off
from chunkscope.report.run_figures import (
    HEADINGS,
    figures_table,
    run_name,
    run_title,
    value_text,
)
from chunkscope.report.wording import capital
from chunkscope.simulation.result import SimulatedRun, Simulation, TimelineStep
from chunkscope.simulation.slo import LatencyLimit
from chunkscope.simulation.workload import BATCH
from chunkscope.vllm.enums import SendOrder
from chunkscope.vllm.flags import command_line

WORTH = 0.03  # a smaller difference in time is a tie
WAITS = 1.15  # times the GPU's own time: from here on the run waits for the host
# Of such runs from their median (reports/h200/qwen2.5-1.5b-mixed).
LEAST_HOST, MOST_HOST = -0.18, 0.29
MOST_NAMED = 2  # prompts, in a step's row
ORDERS = {SendOrder.LONGEST: "longest first", SendOrder.SHUFFLED: "shuffled"}
SENT = {
    "batch": "all at once",
    "given": "arriving as given",
    "trace": "as in the trace",
    "highest": "at the highest rate of each setting",
}


def simulation_blocks(simulation: Simulation) -> list[Block]:
    named = named_runs(simulation)
    return [
        Headline(headline(simulation)),
        Text(setup(simulation)),
        *pictures(simulation),
        runs_table(named),
        *steps_blocks(simulation),
        *remarks(simulation),
        Details("Every figure", every_figure(simulation)),
    ]


def named_runs(simulation: Simulation) -> list[tuple[str, SimulatedRun]]:
    return [(run_name(run), run) for run in simulation.runs]


def steps_blocks(simulation: Simulation) -> list[Block]:
    """The first steps of each run, where they were asked for."""
    blocks: list[Block] = []
    for name, run in named_runs(simulation):
        if run.timeline:
            blocks += [Heading(f"First steps: {name}"), steps_table(run.timeline)]
    return blocks


def remarks(simulation: Simulation) -> list[Block]:
    """What to be careful about."""
    notes = []
    for note in simulation.notes:
        if note.code not in (NOT_VALIDATED, OUTPUT_ASSUMED):  # said elsewhere
            notes.append(note)
    return [Text(host_sentence(simulation)), Notes(sentences(notes))]


def every_figure(simulation: Simulation) -> tuple[Block, ...]:
    """All figures, and how near predictions came to what was measured."""
    notes = [note for note in simulation.notes if note.code == NOT_VALIDATED]
    source, accuracy = Text(step_times(simulation)), Notes(sentences(notes))
    if simulation.is_sweep:
        return source, accuracy
    return source, accuracy, figures_table(simulation.runs)


def pictures(simulation: Simulation) -> list[Block]:
    """Each setting by time and longest gap; the steps of runs that have a name."""
    named = named_runs(simulation)
    default = default_of(simulation.runs) or simulation.runs[0]
    settings = [drawn_setting(name, run, default) for name, run in named]
    trade = trade_off(settings, is_open=is_open(default))
    steps = timeline([(name, run.timeline) for name, run in named if run.setting])
    return [picture for picture in (trade, steps) if picture is not None]


def drawn_setting(
    name: str, run: SimulatedRun, default: SimulatedRun, *, strong: bool = False
) -> Setting:
    """A point of the picture, with the flags that lead to it."""
    changed = run.settings.changed_from(default.settings).given()
    flags = shlex.join(command_line(changed))
    return Setting(name=name, flags=flags, figures=run.figures, strong=strong)


def is_open(run: SimulatedRun) -> bool:
    """Do requests come by themselves, so that arrivals decide how long all takes?"""
    return run.backlog is not None


def default_of(runs: Sequence[SimulatedRun]) -> SimulatedRun | None:
    """The run with vLLM's default."""
    for run in runs:
        if "default" in (run.setting, *run.same_as):
            return run
    return None


# -- the answer ------------------------------------------------------------------------


def headline(simulation: Simulation) -> str:
    first, *others = simulation.runs
    if first.rate is not None:
        return best_rate(simulation.runs)
    if simulation.is_sweep:
        return best_of_sweep(simulation.runs)
    default = default_of(others)
    if first.slo or first.queue_grows:
        return limits_sentence(first, default)
    if is_open(first):
        return waiting_sentence(first, default)
    return time_sentence(first, default)


def limits_sentence(run: SimulatedRun, default: SimulatedRun | None) -> str:
    text = f"{run_title(run)}: {load_state(run)} (simulated)."
    if default is None:
        return text
    return f"{text} With {DEFAULT_NAME}, {load_state(default)}."


def waiting_sentence(run: SimulatedRun, default: SimulatedRun | None) -> str:
    """For requests at a rate: how long the first token takes."""
    text = f"{run_title(run)}: {TTFT_P95.title} {value_text(TTFT_P95, run)}"
    if default is not None:
        text += f", {value_text(TTFT_P95, default)} with {DEFAULT_NAME}"
    return f"{text} (simulated)."


def time_sentence(run: SimulatedRun, default: SimulatedRun | None) -> str:
    """For requests that are all there: how long they take together."""
    took = run.figures.makespan_s
    text = f"{run_title(run)} takes {seconds(took)} for all requests"
    if default is None:
        return f"{text} (simulated)."
    gain = default.figures.makespan_s / took - 1
    if abs(gain) < WORTH:
        return f"{text}, within {share(WORTH)} of {DEFAULT_NAME} (simulated)."
    return f"{text}: {throughput(gain)} (simulated)."


def throughput(gain: float | None) -> str:
    """
    >>> throughput(0.13)
    "13 % more throughput than vLLM's default"
    >>> throughput(0.0)
    "as fast as vLLM's default"
    """
    rounded = round(gain or 0.0, 3)
    if rounded > 0:
        return f"{share(rounded)} more throughput than {DEFAULT_NAME}"
    if rounded < 0:
        return f"{share(-rounded)} less throughput than {DEFAULT_NAME}"
    return f"as fast as {DEFAULT_NAME}"


def best_rate(runs: Sequence[SimulatedRun]) -> str:
    """The setting with the highest rate; vLLM's default if no other is better."""
    best, default = max(runs, key=rate_of), default_of(runs)
    if not rate_of(best):
        breaks = runs[0].rate.breaks if runs[0].rate else None
        return f"No setting keeps the limits at any rate: {breaks} breaks (simulated)."
    if default is not None and rate_of(best) < rate_of(default) * (1 + WORTH):
        sustained = per_second(rate_of(default))
        return (
            f"{DEFAULT_NAME} sustains {sustained} (simulated). No other setting "
            f"sustains {share(WORTH)} more."
        )
    changes = settings_text(best.settings.changed_from(runs[0].settings))
    name = capital(changes or run_name(best))
    text = f"{name} sustains {per_second(rate_of(best))} (simulated)."
    if default is None:
        return text
    return f"{text} {DEFAULT_NAME} sustains {per_second(rate_of(default))}."


def rate_of(run: SimulatedRun) -> float:
    if run.rate is None:
        return 0.0
    return run.rate.rate_per_s or 0.0


def best_of_sweep(runs: Sequence[SimulatedRun]) -> str:
    """The fastest and the smoothest of the settings that keep the limits."""
    keeping = [run for run in runs if run.slo is None or run.slo.is_met]
    parts = []
    if not keeping:
        parts.append("No setting that was tried keeps the limits.")
    elif keeping[0].slo:
        parts.append(f"{len(keeping)} of {len(runs)} settings keep the limits.")
    fastest = min(keeping or runs, key=by_speed)
    smoothest = min(keeping or runs, key=by_smoothness)
    parts.append(f"Fastest is {run_name(fastest)}: {sweep_text(fastest)}.")
    if by_smoothness(smoothest) < by_smoothness(fastest):
        smooth = sweep_text(smoothest)
        parts.append(f"Smoothest is {run_name(smoothest)}: {smooth}.")
    return " ".join(parts)


def sweep_axes(run: SimulatedRun) -> tuple[Figure, Figure]:
    """What a sweep trades: speed, and how evenly tokens come."""
    if is_open(run):
        return TTFT_P95, ITL_P99
    return MAKESPAN, ITL_MAX


def by_speed(run: SimulatedRun) -> float:
    return sweep_axes(run)[0].value(run.figures) or 0.0


def by_smoothness(run: SimulatedRun) -> float:
    return sweep_axes(run)[1].value(run.figures) or 0.0


def sweep_text(run: SimulatedRun) -> str:
    parts = []
    for figure in sweep_axes(run):
        parts.append(f"{HEADINGS[figure.key]} {figure_text(figure, run, run)}")
    return f"{', '.join(parts)} (simulated)"


# -- what it rests on ------------------------------------------------------------------


def setup(simulation: Simulation) -> str:
    """Model, machine, vLLM and the requests."""
    cost, work, run = simulation.cost_model, simulation.workload, simulation.runs[0]
    machine = machine_text(cost.model, cost.gpu, run.settings.parallel.gpus)
    sent = [sent_when(work.arrivals, work.concurrency, work.samples_at_once)]
    if run.phases:
        sent = [f"one dataset after the other, each {sent[0]}"]
    if work.order in ORDERS:
        sent.append(ORDERS[work.order])
    tokens_in = f"{plural(run.input_tokens, 'token')} in"
    if run.cached_tokens:
        tokens_in += f" ({share(run.cached_tokens / run.input_tokens)} cached)"
    tokens_out = f"{run.output_tokens:,} out"
    for note in simulation.notes:
        if note.code == OUTPUT_ASSUMED:
            tokens_out += f" ({note.values['tokens']} each where unknown; --output)"
    machine += f"{validated_text(simulation.notes)}, vLLM {simulation.vllm}"
    requests = f"{plural(work.requests, 'request')} from {work.source}"
    return f"{machine}. {requests}, {', '.join(sent)}: {tokens_in}, {tokens_out}."


def sent_when(arrivals: str, requests: int | None, samples: int | None = None) -> str:
    """
    >>> sent_when("batch", None), sent_when("8/s", None), sent_when("batch", 4)
    ('all at once', 'arriving at 8/s', 'at most 4 at once')
    >>> sent_when("batch", None, 8)
    'at most 8 samples at once'
    """
    parts = [SENT.get(arrivals, f"arriving at {arrivals}")]
    if samples is not None:
        parts.append(f"at most {plural(samples, 'sample')} at once")
    if requests is not None:
        parts.append(f"at most {requests:,} at once")
    if arrivals == BATCH and len(parts) > 1:
        del parts[0]
    return ", ".join(parts)


def host_sentence(simulation: Simulation) -> str:
    """That the GPU waits for the CPU, and what that does to the time; else empty."""
    run = simulation.runs[0]
    took = run.figures.makespan_s
    if simulation.is_sweep or is_open(run) or took < WAITS * run.gpu_s:
        return ""
    least = seconds(took * (1 + LEAST_HOST))
    most = seconds(took * (1 + MOST_HOST))
    waiting = share(1 - run.gpu_s / took)
    return f"The GPU waits for the CPU {waiting} of the time: expect {least} to {most}."


def step_times(simulation: Simulation) -> str:
    """Where the times of single steps come from."""
    cost = simulation.cost_model
    source = "fitted on an H200"
    if cost.samples:
        source = plural(cost.samples, "measured step")
    text = f"Step times: {cost.source}, {source}"
    if cost.error is None:
        return f"{text}."
    return f"{text} (median error {share(cost.error)})."


# -- tables ----------------------------------------------------------------------------


def runs_table(
    named: Sequence[tuple[str, SimulatedRun]], strong: Sequence[int] = ()
) -> Table:
    """The figures that decide, a row for each run; broken limits are marked."""
    if not named:
        return table(["setting"], [])
    first = named[0][1]
    limits = first.slo.limits if first.slo else ()
    figures = shown_figures(first)
    headings = ["setting"]
    if first.rate is not None:
        headings += ["sustains", "limited by"]
    headings += [f"{limit.name} ({seconds(limit.seconds)})" for limit in limits]
    headings += [HEADINGS[figure.key] for figure in figures]
    rows = []
    for name, run in named:
        row: list[Written] = [name]
        if run.rate is not None:
            row += [per_second(run.rate.rate_per_s), run.rate.breaks or ""]
        row += [limit_cell(limit, run) for limit in limits]
        row += [figure_text(figure, run, first) for figure in figures]
        rows.append(row)
    return table(headings, rows, words=["limited by"], strong=strong)


def shown_figures(run: SimulatedRun) -> list[Figure]:
    """Those that decide, besides the limits."""
    figures = [MAKESPAN, TTFT_P95, ITL_P99, ITL_MAX]
    limited = set()
    if run.slo is not None:
        figures = [MAKESPAN, ITL_MAX]
        limited = {limit.name for limit in run.slo.limits}
    if is_open(run):  # arrivals decide the time
        figures = [TTFT_P95, ITL_P99]
    shown = []
    for figure in figures:
        if figure.promise not in limited and figure.value(run.figures) is not None:
            shown.append(figure)
    return shown


def figure_text(figure: Figure, run: SimulatedRun, first: SimulatedRun) -> str:
    """A time in the unit of the first run's; the longest gap only roughly."""
    value = figure.value(run.figures)
    if figure is ITL_MAX and not is_open(run):
        return about(value)
    if figure is MAKESPAN:
        return seconds(value, like=first.figures.makespan_s)
    return seconds(value)


def limit_cell(limit: LatencyLimit, run: SimulatedRun) -> Cell:
    value = run.slo.found_of(limit) if run.slo else None
    if value is not None and exceeds(value, limit.seconds):
        return Cell(text=f"! {seconds(value)}", look=Look.BAD)
    return Cell(text=seconds(value))


# -- steps -----------------------------------------------------------------------------


def steps_table(steps: Sequence[TimelineStep]) -> Table:
    """The first steps of a run; a letter for each prompt that takes several."""
    letters = split_prompts(steps)
    rows = []
    for step in steps:
        tokens = sum(chunk.end - chunk.start for chunk in step.chunks)
        row: list[Written] = [f"{step.number:,}"]
        row += [seconds(step.start_s), seconds(step.duration_s)]
        row += [step.decode_requests, tokens, prompts_text(step, letters)]
        rows.append(row)
    last = "prompts (done so far)"
    headings = ["step", "start", "took", "decodes", "prompt tokens", last]
    return table(headings, rows, words=[last])


def prompts_text(step: TimelineStep, letters: dict[int, str]) -> str:
    """How far each prompt is that takes several steps, and what else was read."""
    parts = []
    for chunk in step.chunks:
        if chunk.request in letters:
            done = share(chunk.end / chunk.prompt_tokens)
            parts.append(f"{letters[chunk.request]} {done}")
    whole = len(step.chunks) - len(parts)
    hidden = len(parts) - MOST_NAMED
    if hidden > 0:
        parts = [*parts[:MOST_NAMED], f"+{hidden}"]
    if whole:
        parts.append(f"{whole:,} whole")
    if step.preempted:
        parts.append(f"{len(step.preempted):,} preempted")
    return "  ".join(parts) or "-"
