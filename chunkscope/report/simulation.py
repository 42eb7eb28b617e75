"""A simulation as blocks: what a setting takes, beside others, step by step."""

import shlex
from collections.abc import Sequence

from chunkscope.artefacts.figures import (
    FIGURES,
    ITL_MAX,
    ITL_P99,
    MAKESPAN,
    TTFT_P95,
    Figure,
)
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
from chunkscope.report.notes import capital, sentence
from chunkscope.report.phrases import (
    DEFAULT_NAME,
    NOT_VALIDATED,
    OUTPUT_ASSUMED,
    RUN_NAMES,
    load_state,
    machine_text,
    settings_text,
    validated_text,
)
from chunkscope.report.pictures import Setting, split_prompts, timeline, trade_off
from chunkscope.simulation.result import (
    SimulatedRun,
    Simulation,
    TimelineStep,
)
from chunkscope.simulation.slo import LatencyLimit
from chunkscope.vllm.flags import command_line
from chunkscope.vllm.settings import Settings

HEADINGS = {
    MAKESPAN.key: "time",
    TTFT_P95.key: "first token p95",
    ITL_P99.key: "gap p99",
    ITL_MAX.key: "longest gap",
}
WORTH = 0.03  # a smaller difference in time is a tie
WAITS = 1.15  # times the GPU's own time: from here on the run waits for the host
# Of such runs from their median (reports/h200/qwen2.5-1.5b-mixed).
LEAST_HOST, MOST_HOST = -0.18, 0.29
MOST_NAMED = 2  # prompts, in a step's row
ORDERS = {"longest": "longest first", "shuffled": "shuffled"}
SENT = {
    "batch": "all at once",
    "given": "arriving as given",
    "trace": "as in the trace",
    "highest": "at the highest rate of each setting",
}


def simulation_blocks(simulation: Simulation) -> list[Block]:
    return [
        Headline(headline(simulation)),
        Text(setup(simulation)),
        *pictures(simulation),
        runs_table(named_runs(simulation)),
        *steps_blocks(simulation),
        *remarks(simulation),
        Details("Every figure", every_figure(simulation, named_runs(simulation))),
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
    """What is odd about the runs, and what to be careful about."""
    blocks: list[Block] = [Text(text) for text in observations(simulation)]
    blocks.append(Notes(cautions(simulation)))
    return blocks


def pictures(simulation: Simulation) -> list[Block]:
    """Each setting by time and longest gap; the steps of runs that have a name."""
    runs = simulation.runs
    steps = timeline([(run_name(run), run.timeline) for run in runs if run.setting])
    default = default_of(runs) or runs[0]
    settings = [drawn_setting(run_name(run), run, default) for run in runs]
    trade = trade_off(settings, is_open=is_open(runs[0]))
    return [chart for chart in (trade, steps) if chart is not None]


def drawn_setting(
    name: str, run: SimulatedRun, default: SimulatedRun, *, strong: bool = False
) -> Setting:
    """A point of the picture, with the flags that lead to it."""
    changed = run.settings.changed_from(default.settings)
    return Setting(
        name=name,
        flags=shlex.join(command_line(changed.given())),
        figures=run.figures,
        strong=strong,
    )


def cautions(simulation: Simulation) -> tuple[str, ...]:
    """Its notes without those that the setup or the details have."""
    sentences = []
    for note in simulation.notes:
        if note.code not in (NOT_VALIDATED, OUTPUT_ASSUMED):
            sentences.append(sentence(note))
    return tuple(sentences)


# -- names -----------------------------------------------------------------------------


def run_name(run: SimulatedRun) -> str:
    """`the plan (vLLM's default)`; for a setting of a sweep its arguments."""
    if not run.setting:
        return point_name(run.settings)
    name = RUN_NAMES.get(run.setting, run.setting)
    if not run.same_as:
        return name
    names = [RUN_NAMES.get(alias, alias) for alias in run.same_as]
    return f"{name} ({', '.join(names)})"


def point_name(settings: Settings) -> str:
    """
    >>> point_name(Settings(max_num_batched_tokens=512))
    '512 tokens a step'
    """
    name = f"{plural(settings.step_tokens, 'token')} a step"
    threshold = settings.long_prefill_token_threshold
    if threshold:
        return f"{name}, {threshold:,} a prompt"
    return name


def sent_when(arrivals: str, concurrency: int | None) -> str:
    """
    >>> sent_when("batch", None), sent_when("8/s", None), sent_when("batch", 4)
    ('all at once', 'arriving at 8/s', 'at most 4 at once')
    """
    words = SENT.get(arrivals, f"arriving at {arrivals}")
    if concurrency is None:
        return words
    most = f"at most {concurrency:,} at once"
    if arrivals == "batch":
        return most
    return f"{words}, {most}"


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
    if first.slo:
        return limits_sentence(first, default)
    if is_open(first):
        return waiting_sentence(first, default)
    return time_sentence(first, default)


def limits_sentence(run: SimulatedRun, default: SimulatedRun | None) -> str:
    text = f"{capital(run_name(run))}: {load_state(run)} (simulated)."
    if default is None:
        return text
    return f"{text} With {DEFAULT_NAME}, {load_state(default)}."


def waiting_sentence(run: SimulatedRun, default: SimulatedRun | None) -> str:
    """For requests at a rate: how long the first token takes."""
    ours = TTFT_P95.value(run.figures)
    text = f"{capital(run_name(run))}: {TTFT_P95.title} {seconds(ours)}"
    if default is None:
        return f"{text} (simulated)."
    theirs = TTFT_P95.value(default.figures)
    return f"{text}, {seconds(theirs)} with {DEFAULT_NAME} (simulated)."


def time_sentence(run: SimulatedRun, default: SimulatedRun | None) -> str:
    """For requests that are all there: how long they take together."""
    took = run.figures.makespan_s
    text = f"{capital(run_name(run))} takes {seconds(took)} for all requests"
    if default is None:
        return f"{text} (simulated)."
    gain = default.figures.makespan_s / took - 1
    if abs(gain) < WORTH:
        return f"{text}, within {share(WORTH)} of {DEFAULT_NAME} (simulated)."
    return f"{text}: {throughput(gain)} (simulated)."


def throughput(gain: float | None) -> str:
    """
    >>> throughput(0.13), throughput(-0.02), throughput(0.0)
    ("13 % more throughput than vLLM's default", "2 % less throughput than \
vLLM's default", "as fast as vLLM's default")
    """
    rounded = round(gain or 0.0, 3)
    if rounded > 0:
        return f"{share(rounded)} more throughput than {DEFAULT_NAME}"
    if rounded < 0:
        return f"{share(-rounded)} less throughput than {DEFAULT_NAME}"
    return f"as fast as {DEFAULT_NAME}"


def best_rate(runs: Sequence[SimulatedRun]) -> str:
    """The setting with the highest rate; vLLM's default if no other is better."""
    served = [run for run in runs if rate_of(run) > 0]
    if not served:
        return no_rate(runs)
    best = max(served, key=rate_of)
    default = default_of(served)
    does = "keeps the limits" if best.slo else "serves"
    if default is not None and rate_of(best) < rate_of(default) * (1 + WORTH):
        return (
            f"{DEFAULT_NAME} {does} up to {per_second(rate_of(default))} (simulated). "
            f"No other setting sustains {share(WORTH)} more."
        )
    changes = settings_text(best.settings.changed_from(runs[0].settings))
    name = changes or run_name(runs[0])
    text = f"{capital(name)} {does} up to {per_second(rate_of(best))} (simulated)."
    if default is None:
        return text
    return f"{text} {DEFAULT_NAME} does up to {per_second(rate_of(default))}."


def rate_of(run: SimulatedRun) -> float:
    if run.rate is None:
        return 0.0
    return run.rate.rate_per_s or 0.0


def no_rate(runs: Sequence[SimulatedRun]) -> str:
    broken = set()
    for run in runs:
        if run.rate is not None and run.rate.breaks:
            broken.add(run.rate.breaks)
    names = ", ".join(sorted(broken))
    return f"No setting keeps the limits at any rate: {names} breaks first (simulated)."


def best_of_sweep(runs: Sequence[SimulatedRun]) -> str:
    """The fastest and the smoothest of the settings that keep the limits."""
    keeping = [run for run in runs if run.slo is None or run.slo.is_met]
    sentences = []
    if not keeping:
        sentences.append("No setting that was tried keeps the limits.")
    elif keeping[0].slo:
        sentences.append(f"{len(keeping)} of {len(runs)} settings keep the limits.")
    candidates = keeping or runs
    fastest = min(candidates, key=speed_order)
    smoothest = min(candidates, key=smoothness_order)
    sentences.append(f"Fastest is {run_name(fastest)}: {sweep_figures(fastest)}.")
    if speed_order(smoothest)[1] < speed_order(fastest)[1]:
        smooth = sweep_figures(smoothest)
        sentences.append(f"Smoothest is {run_name(smoothest)}: {smooth}.")
    return f"{' '.join(sentences)[:-1]} (simulated)."


def sweep_axes(run: SimulatedRun) -> tuple[Figure, Figure]:
    """What a sweep trades: speed, and how evenly tokens come."""
    if is_open(run):
        return TTFT_P95, ITL_P99
    return MAKESPAN, ITL_MAX


def speed_order(run: SimulatedRun) -> tuple[float, float]:
    speed, smoothness = sweep_axes(run)
    return speed.value(run.figures) or 0.0, smoothness.value(run.figures) or 0.0


def smoothness_order(run: SimulatedRun) -> tuple[float, float]:
    speed, smoothness = speed_order(run)
    return smoothness, speed


def sweep_figures(run: SimulatedRun) -> str:
    if is_open(run):
        first, gap = TTFT_P95.value(run.figures), ITL_P99.value(run.figures)
        return f"first token p95 {seconds(first)}, gap p99 {seconds(gap)}"
    gap = ITL_MAX.value(run.figures)
    return f"time {seconds(run.figures.makespan_s)}, longest gap {about(gap)}"


# -- what it rests on ------------------------------------------------------------------


def setup(simulation: Simulation) -> str:
    """Model, machine and vLLM, then the requests."""
    cost, run = simulation.cost_model, simulation.runs[0]
    machine = machine_text(cost.model, cost.gpu, run.settings.parallel.gpus)
    machine += validated_text(simulation.notes)
    return f"{machine}, vLLM {simulation.vllm}. {requests_sentence(simulation)}"


def requests_sentence(simulation: Simulation) -> str:
    work, run = simulation.workload, simulation.runs[0]
    sent = [sent_when(work.arrivals, work.concurrency)]
    if work.order in ORDERS:
        sent.append(ORDERS[work.order])
    tokens_in = f"{plural(run.input_tokens, 'token')} in"
    if run.cached_tokens:
        tokens_in += f" ({share(run.cached_tokens / run.input_tokens)} cached)"
    tokens_out = f"{run.output_tokens:,} out"
    for note in simulation.notes:
        if note.code == OUTPUT_ASSUMED:
            tokens_out += f" ({note.values['tokens']} each where unknown; --max-output)"
    return (
        f"{plural(work.requests, 'request')} from {work.source}, {', '.join(sent)}: "
        f"{tokens_in}, {tokens_out}."
    )


def observations(simulation: Simulation) -> list[str]:
    """What a reader should know about overload and about waiting for the CPU."""
    first = simulation.runs[0]
    sentences = []
    growing = [run_name(run) for run in simulation.runs if run.queue_grows]
    if growing:
        names = ", ".join(growing)
        sentences.append(
            f"The queue keeps growing with {names}: requests come too fast."
        )
    took = first.figures.makespan_s
    waits = not is_open(first) and took >= WAITS * first.gpu_s
    if waits and not simulation.is_sweep:
        least, most = seconds(took * (1 + LEAST_HOST)), seconds(took * (1 + MOST_HOST))
        part = share(1 - first.gpu_s / took)
        sentences.append(
            f"The GPU waits for the CPU {part} of the time: expect {least} to {most}."
        )
    return sentences


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
    if is_open(run):  # arrivals decide the time
        figures = [TTFT_P95, ITL_P99]
    elif run.slo is not None:
        figures = [MAKESPAN, ITL_MAX]
    limited = set()
    if run.slo is not None:
        limited = {limit.name for limit in run.slo.limits}
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


def every_figure(
    simulation: Simulation, named: Sequence[tuple[str, SimulatedRun]]
) -> tuple[Block, ...]:
    """All figures, settings across, and how near predictions came."""
    blocks: list[Block] = [Text(step_times(simulation))]
    if not simulation.is_sweep:
        blocks.append(figures_table(named))
    notes = [note for note in simulation.notes if note.code == NOT_VALIDATED]
    blocks.append(Notes(tuple(sentence(note) for note in notes)))
    return tuple(blocks)


def figures_table(named: Sequence[tuple[str, SimulatedRun]]) -> Table:
    rows = []
    for figure in FIGURES:
        values = [figure.value(run.figures) for _, run in named]
        if all(value is None for value in values):
            continue
        texts = [
            None if value is None else figure.unit.brief(value) for value in values
        ]
        rows.append([figure.title, *texts])
    return table(["figure", *(name for name, _ in named)], rows)


# -- steps -----------------------------------------------------------------------------


def steps_table(steps: Sequence[TimelineStep]) -> Table:
    """The first steps of a run."""
    letters = split_prompts(steps)
    rows = []
    for step in steps:
        rows.append(
            (
                f"{step.number:,}",
                seconds(step.start_s),
                seconds(step.duration_s),
                step.decode_requests,
                prompt_tokens(step),
                prompts_text(step, letters) or "-",
            )
        )
    last = "prompts (done so far)"
    headings = ("step", "start", "took", "decodes", "prompt tokens", last)
    return table(headings, rows, words=[last])


def prompt_tokens(step: TimelineStep) -> int:
    return sum(chunk.end - chunk.start for chunk in step.chunks)


def prompts_text(step: TimelineStep, letters: dict[int, str]) -> str:
    """How far each prompt is that takes several steps, and what else was read."""
    parts = []
    whole = 0
    for chunk in step.chunks:
        if chunk.request in letters:
            done = share(chunk.end / chunk.prompt_tokens)
            parts.append(f"{letters[chunk.request]} {done}")
        else:
            whole += 1
    hidden = len(parts) - MOST_NAMED
    if hidden > 0:
        parts = [*parts[:MOST_NAMED], f"+{hidden}"]
    if whole:
        parts.append(f"{whole:,} whole")
    if step.preempted:
        parts.append(f"{len(step.preempted):,} preempted")
    return "  ".join(parts)
