"""A verification as blocks: the verdict, what was measured, what had been predicted."""

import shlex
from collections.abc import Sequence

from chunkscope.artefacts.figures import (
    BY_KEY,
    ITL_MAX,
    ITL_P99,
    MAKESPAN,
    TTFT_P95,
    Figure,
)
from chunkscope.artefacts.numbers import (
    SHARE,
    change,
    gib,
    plural,
    seconds,
    share,
)
from chunkscope.planning.plan import Plan
from chunkscope.planning.search import WORTH
from chunkscope.report.blocks import (
    Block,
    Cell,
    Details,
    Headline,
    Look,
    Notes,
    Table,
    Text,
    Written,
    table,
)
from chunkscope.report.charts import Bar, StackedBars
from chunkscope.report.notes import sentence
from chunkscope.report.phrases import (
    DEFAULT_NAME,
    DEFAULTS,
    RUN_NAMES,
    listed,
    machine_text,
    settings_text,
)
from chunkscope.report.pictures import (
    Setting,
    measured_memory_bar,
    memory_bars,
    predicted_against_measured,
    predicted_memory_bar,
    spreads,
    trade_off,
)
from chunkscope.report.run_figures import (
    HEADINGS,
    figures_table,
    run_name,
    run_title,
    value_of,
    value_text,
)
from chunkscope.report.simulation import sent_when
from chunkscope.verification.result import (
    DEFAULT,
    PLAN,
    Conclusion,
    MeasuredVerdict,
    Run,
    RunOutputs,
    Verification,
)
from chunkscope.verification.verdict import (
    TIE_OF_ONE,
    Outcome,
    arguments,
    goal_of,
    is_noise,
    judge,
    ratio,
    worse_figures,
)
from chunkscope.vllm.flags import command_line
from chunkscope.vllm.settings import Settings

MOST_WORSE = 3  # figures that got worse, in a sentence
SHOWN = (MAKESPAN, TTFT_P95, ITL_P99, ITL_MAX)
LOOKS = {Outcome.BETTER: Look.GOOD, Outcome.WORSE: Look.WORSE}
HITS = BY_KEY["prefix_hit_rate"]
# Of the same requests, simulated and measured.
PREDICTED = (MAKESPAN, BY_KEY["ttft_s.p50"], TTFT_P95, HITS)


def verification_blocks(verification: Verification) -> list[Block]:
    ran = [run for run in verification.runs if run.ok]
    return [
        Headline(headline(verification)),
        *[Text(text) for text in worse_sentences(verification)],
        Text(measured_on(verification)),
        *result_blocks(verification),
        Details("Memory", (memory_picture(ran), memory_table(ran))),
    ]


def result_blocks(verification: Verification) -> list[Block]:
    """What came of each setting, without the answer, its price and the memory."""
    ran = [run for run in verification.runs if run.ok]
    use = verification.verdict.use if verification.verdict else None
    strong = [place for place, run in enumerate(ran) if use and run.is_called(use)]
    notes = []
    for run in verification.runs:
        notes += [f"{run.setting}: {sentence(note)}" for note in run.notes]
    blocks: list[Block] = [
        *[Text(text) for text in failures(verification)],
        *pictures(ran),
        runs_table(ran, strong=strong),
        *[Text(text) for text in outputs_sentences(verification)],
        Notes(tuple(notes)),
    ]
    figures: list[Block] = [figures_table(ran)]
    if verification.workload.has_turns:
        blocks.append(predicted_table(ran))
    else:
        figures.append(predicted_table(ran))
    settings = (Text(method(verification)), settings_table(verification.runs))
    blocks.append(Details("Every figure", tuple(figures)))
    return [*blocks, Details("Settings", settings)]


def failure(run: Run) -> str:
    """Which run failed, and how."""
    return f"{RUN_NAMES.get(run.setting, run.setting)}: {failure_reason(run)}"


def failure_reason(run: Run) -> str:
    if run.failure is None:
        return run.status.replace("_", " ")
    return sentence(run.failure)


def failures(verification: Verification) -> list[str]:
    """Runs that failed, besides the first, which the headline is about."""
    return [f"{failure(run)}." for run in verification.runs[1:] if not run.ok]


def figure_text(figure: Figure, run: Run) -> str:
    return f"{figure.title} {value_text(figure, run)}"


# -- the answer ------------------------------------------------------------------------


def headline(verification: Verification) -> str:
    """Which settings to use, by which figure."""
    plan, verdict = verification.run(PLAN), verification.verdict
    if plan is None or verdict is None:
        return server_sentence(verification)
    use = verification.run(verdict.use)
    if use is None or verdict.conclusion is Conclusion.PLAN_FAILED:
        return plan_failed(plan, use, BY_KEY[verdict.goal])
    match verdict.conclusion:
        case Conclusion.USE_ANOTHER:
            return use_another(plan, use, BY_KEY[verdict.goal])
        case Conclusion.DROP_FLAGS:
            return drop_flags(plan, use, verdict)
        case Conclusion.KEEP_DEFAULT:
            return keep_default(verification, plan, BY_KEY[verdict.goal])
    return keep_plan(plan, verification.run(DEFAULT), BY_KEY[verdict.goal])


def server_sentence(verification: Verification) -> str:
    """A server that runs: nothing is compared."""
    run = verification.runs[0]
    if not run.ok:
        return f"{run_title(run)}: {failure_reason(run)}."
    measured = figure_text(goal_of(verification), run)
    return f"{run_title(run)}: {measured} (measured)."


def plan_failed(plan: Run, use: Run | None, goal: Figure) -> str:
    text = f"The plan does not run: {failure_reason(plan)}."
    if use is None:
        return text
    return f"{text} {run_title(use)} does: {figure_text(goal, use)} (measured)."


def use_another(plan: Run, use: Run, goal: Figure) -> str:
    settings = settings_text(Settings.of(arguments(use))) or DEFAULTS
    return f"Use {settings} instead of the plan: {compared_text(goal, use, plan)}."


def drop_flags(plan: Run, use: Run, verdict: MeasuredVerdict) -> str:
    goal = BY_KEY[verdict.goal]
    return (
        f"Leave out {listed(verdict.drop)}: a tie, {figure_text(goal, plan)} with it, "
        f"{value_text(goal, use)} without (measured)."
    )


def keep_default(verification: Verification, plan: Run, goal: Figure) -> str:
    defaults = DEFAULTS
    if plan.settings.given():
        defaults = f"{DEFAULTS} with {settings_text(plan.settings)}"
    text = f"Keep {defaults}: {figure_text(goal, plan)} (measured)."
    if len(verification.runs) == 1:
        return text
    return f"{text} No other setting is clearly better."


def keep_plan(plan: Run, default: Run | None, goal: Figure) -> str:
    if default is not None and default.ok:
        return f"Keep the plan: {compared_text(goal, plan, default)}."
    return (
        f"Keep the plan: {figure_text(goal, plan)} (measured). {DEFAULT_NAME} was not "
        "measured."
    )


def compared_text(goal: Figure, run: Run, other: Run) -> str:
    """`time 10.0 s instead of 12.0 s with the plan (-17 %, measured)`, as a clause."""
    difference = change(value_of(goal, other), value_of(goal, run)) or "no change"
    return (
        f"{figure_text(goal, run)} instead of {value_text(goal, other)} with "
        f"{run_name(other)} ({difference}, measured)"
    )


def worse_sentences(verification: Verification) -> list[str]:
    """The figures that get worse with what is advised."""
    use = verification.run(verification.verdict.use if verification.verdict else None)
    other = verification.run(DEFAULT) or verification.run(PLAN)
    if use is None or other is None or use is other:
        return []
    parts = []
    for figure in worse_figures(use, other)[:MOST_WORSE]:
        parts.append(
            f"{figure_text(figure, use)} instead of {value_text(figure, other)}"
        )
    if not parts:
        return []
    return [f"Worse: {', '.join(parts)}."]


# -- what it rests on ------------------------------------------------------------------


def measured_on(verification: Verification) -> str:
    """Machine, version, requests and repeats."""
    work, machine = verification.workload, verification.machine
    parts = [where_measured(verification)]
    if machine is not None and machine.vllm:
        parts.append(f"vLLM {machine.vllm}")
    if verification.model.dummy:
        parts.append("random weights")
    parts.append(plural(len(work.requests), "request"))
    parts.append("real prompts" if verification.source.datasets else "random tokens")
    parts.append(sent_when(work.arrivals, work.concurrency, work.samples_at_once))
    if verification.repeats > 1 and any(run.ok for run in verification.runs):
        parts.append(f"median of {plural(verification.repeats, 'repeat')}")
    return f"Measured: {', '.join(parts)}."


def where_measured(verification: Verification) -> str:
    machine, model = verification.machine, verification.model.name
    if machine is not None and machine.gpu is not None:
        return machine_text(model, machine.gpu, machine.gpus)
    if machine is not None and machine.device == "cpu":
        return f"{model} on a CPU"
    return f"{model} on a server"


def method(verification: Verification) -> str:
    """How many tokens were sent, and what counts as a tie."""
    work, repeated = verification.workload, verification.source.repeated
    tokens = f"{plural(work.input_tokens, 'token')} in, {work.output_tokens:,} out"
    parts = [tokens, "greedy sampling", f"seed {work.seed}"]
    if repeated:
        parts.append(f"{plural(repeated, 'prompt')} sent again")
    if work.left_out:
        parts.append(f"{plural(work.left_out, 'prompt')} left out as too long")
    noise = "within the spread of repeats"
    if verification.repeats == 1:
        noise = f"of less than {share(TIE_OF_ONE)}"
    return f"{'; '.join(parts)}. A difference {noise} is a tie."


def outputs_sentences(verification: Verification) -> list[str]:
    """How many answers are equal; nothing without `--check-outputs`."""
    sentences = []
    for run in verification.runs:
        outputs = run.outputs
        reference = verification.run(outputs.reference) if outputs else None
        if not outputs or outputs.equal is None or not reference:
            continue
        equal = f"{share(outputs.equal)} of {plural(len(outputs.answers), 'answer')}"
        text = f"{run_title(run)}: {equal} equal those of {run_name(reference)}"
        text += f", {share(outputs.again)} when sent again"
        explained = why_unequal(outputs, reference, is_dummy=verification.model.dummy)
        sentences.append(f"{text}{explained}.")
    return sentences


def why_unequal(outputs: RunOutputs, reference: Run, *, is_dummy: bool) -> str:
    if outputs.equal == 1 or reference.outputs is None:
        return ""
    if is_dummy:
        return "; with random weights rounding decides"
    if is_noise(outputs, reference.outputs):
        return ", so batching explains it"
    return ""


def measured_elsewhere(plan: Plan, verification: Verification) -> list[str]:
    """What it was planned for, where that is not what was measured."""
    machine, model = verification.machine, verification.model.name
    sentences = []
    if plan.model is not None and model != plan.model.name:
        if model != plan.model.load_name:
            sentences.append(f"The plan is for {plan.model.load_name}.")
    version = plan.deployment.release.text
    if machine is not None and machine.vllm and minor(machine.vllm) != minor(version):
        sentences.append(f"The plan is for vLLM {version}.")
    if machine is not None and machine.gpu and plan.gpu is not None:
        if machine.gpu != plan.gpu.title:
            sentences.append(f"The plan is for {plan.gpu.title}.")
    return sentences


def minor(version: str) -> list[str]:
    """
    >>> minor("0.24.1")
    ['0', '24']
    """
    return version.split(".")[:2]


# -- the runs --------------------------------------------------------------------------


def runs_table(
    runs: Sequence[Run],
    columns: dict[str, Figure] | None = None,
    strong: Sequence[int] = (),
) -> Table:
    """The figures that decide, each run compared with the first."""
    if columns is None:
        columns = {HEADINGS[figure.key]: figure for figure in SHOWN}
    shown = shown_columns(runs, columns)
    headings = ["setting", *shown]
    rows = []
    for run in runs:
        row: list[Written] = [run_name(run)]
        row += [figure_cell(figure, run, runs[0]) for figure in shown.values()]
        rows.append(row)
    if len(runs) > 1 and HEADINGS[MAKESPAN.key] in shown:
        place = headings.index(HEADINGS[MAKESPAN.key]) + 1
        headings.insert(place, "change")
        for run, row in zip(runs, rows, strict=True):
            row.insert(place, change_text(run, runs[0]))
    return table(headings, rows, strong=strong)


def shown_columns(runs: Sequence[Run], columns: dict[str, Figure]) -> dict[str, Figure]:
    """Those that were measured. The change takes the place of the p99 gap."""
    shown = {}
    for heading, figure in columns.items():
        is_known = any(value_of(figure, run) is not None for run in runs)
        if is_known and (figure is not ITL_P99 or len(runs) == 1):
            shown[heading] = figure
    return shown


def figure_cell(figure: Figure, run: Run, first: Run) -> Cell:
    """The time in the first run's unit; coloured where the difference matters."""
    measured = value_of(figure, run)
    if measured is None:
        return Cell(text="not measured", look=Look.UNKNOWN)
    text = figure.unit.brief(measured)
    if figure is MAKESPAN:
        text = seconds(measured, like=value_of(figure, first))
    return Cell(text=text, look=look_of(figure, run, first))


def look_of(figure: Figure, run: Run, first: Run) -> Look:
    """A difference within the spread, or too small to act on, has no colour."""
    times = ratio(run, first, figure)
    if run is first or times is None or abs(times - 1) < WORTH:
        return Look.PLAIN
    return LOOKS.get(judge(figure, run, first), Look.PLAIN)


def change_text(run: Run, first: Run) -> str:
    if run is first:
        return ""
    if judge(MAKESPAN, run, first) is Outcome.TIE:
        return "tie"
    return change(value_of(MAKESPAN, first), value_of(MAKESPAN, run))


def settings_table(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        rows.append((run_name(run), settings_text(run.settings) or DEFAULTS))
    return table(("setting", "sets"), rows, words=["sets"])


# -- predicted beside measured ---------------------------------------------------------


def predicted_table(runs: Sequence[Run]) -> Table:
    """Measured beside predicted, with how far the prediction was off."""
    rows = []
    for run in runs:
        for figure in PREDICTED:
            measured, predicted = value_of(figure, run), predicted_value(figure, run)
            if measured is None or predicted is None:
                continue
            off = change(measured, predicted)
            if figure.unit is SHARE:
                off = f"{100 * (predicted - measured):+.1f} points"
            texts = [figure.unit.brief(measured), figure.unit.brief(predicted), off]
            rows.append([run_name(run), figure.title, *texts])
    headings = ["setting", "figure", "measured", "predicted", "off"]
    return table(headings, rows, words=["figure"])


def predicted_value(figure: Figure, run: Run) -> float | None:
    """Of the simulator; hits with the KV cache that the engine had."""
    if figure is HITS and run.predicted_prefix_hit_rate is not None:
        return run.predicted_prefix_hit_rate
    return figure.value(run.predicted_figures)


def pictures(runs: Sequence[Run]) -> list[Block]:
    """Each setting by time and longest gap, its waits and gaps, and the predictions."""
    settings = []
    distributions = []
    for run in runs:
        if run.figures is not None:
            flags = shlex.join(command_line(Settings.of(arguments(run)).given()))
            point = Setting(name=run_name(run), flags=flags, figures=run.figures)
            settings.append(point)
        if run.distribution is not None:
            distributions.append((run_name(run), run.distribution))
    predicted = predicted_against_measured([(run_name(run), run) for run in runs])
    drawn = [trade_off(settings), *spreads(distributions), predicted]
    return [picture for picture in drawn if picture is not None]


# -- memory ----------------------------------------------------------------------------


def memory_of(runs: Sequence[Run]) -> list[Bar]:
    """What each run took, after what was predicted for it."""
    bars = []
    for run in runs:
        name = run_name(run)
        if run.predicted is not None:
            bars.append(predicted_memory_bar(f"{name}, predicted", run.predicted))
        measured = measured_memory_bar(f"{name}, measured", run.workers)
        if measured is not None:
            bars.append(measured)
    return bars


def memory_picture(runs: Sequence[Run]) -> StackedBars:
    sizes = [run.predicted.total_gib for run in runs if run.predicted is not None]
    return memory_bars(memory_of(runs), max(sizes, default=None))


def memory_table(runs: Sequence[Run]) -> Table:
    """The same in numbers: a row for each bar."""
    bars = memory_of(runs)
    names: dict[str, None] = {}
    for bar in bars:
        names.update({part.name: None for part in bar.parts})
    rows = []
    for bar in bars:
        sizes = {part.name: gib(part.value) for part in bar.parts}
        rows.append([bar.name, *(sizes.get(name) for name in names)])
    return table(["per GPU", *names], rows)
