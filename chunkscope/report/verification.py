"""A verification as blocks: the verdict, what was measured, what had been predicted."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from chunkscope.artefacts.figures import (
    BY_KEY,
    FIGURES,
    ITL_MAX,
    ITL_P99,
    MAKESPAN,
    TTFT_P95,
    Figure,
)
from chunkscope.artefacts.numbers import (
    SECONDS,
    SHARE,
    change,
    gib,
    plural,
    seconds,
    share,
)
from chunkscope.hardware.memory import Memory
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
from chunkscope.report.charts import StackedBars
from chunkscope.report.notes import capital, sentence
from chunkscope.report.phrases import (
    DEFAULT_NAME,
    DEFAULTS,
    RUN_NAMES,
    listed,
    machine_text,
    settings_text,
)
from chunkscope.report.pictures import (
    ACTIVATIONS,
    Setting,
    measured_memory_bar,
    memory_bars,
    predicted_against_measured,
    predicted_memory_bar,
    spreads,
    trade_off,
)
from chunkscope.report.simulation import HEADINGS, sent_when
from chunkscope.verification.result import (
    DEFAULT,
    PLAN,
    Conclusion,
    EngineKind,
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
    value,
    worse_figures,
)
from chunkscope.vllm.flags import command_line
from chunkscope.vllm.settings import Settings

MOST_WORSE = 3  # figures that got worse, in a sentence
SHOWN = (MAKESPAN, TTFT_P95, ITL_P99, ITL_MAX)
LOOKS = {Outcome.BETTER: Look.GOOD, Outcome.WORSE: Look.WORSE}
LONG_S = 60  # times from here on are written in the unit of the first run's


def verification_blocks(verification: Verification) -> list[Block]:
    ran = [run for run in verification.runs if run.ok]
    memory = (memory_picture(ran), memory_table(ran))
    return [
        Headline(headline(verification)),
        Text(measured_on(verification)),
        *result_blocks(verification),
        Details("Memory", memory),
    ]


def result_blocks(verification: Verification) -> list[Block]:
    """What came of each setting, without the answer and the memory."""
    ran = [run for run in verification.runs if run.ok]
    blocks: list[Block] = []
    for text in (*worse_sentences(verification), *failures(verification)):
        blocks.append(Text(text))
    blocks += measured_pictures(ran)
    blocks.append(runs_table(ran, strong=used_rows(verification, ran)))
    for text in outputs_sentences(verification):
        blocks.append(Text(text))
    blocks.append(Notes(run_notes(verification)))
    long_over = verification.workload.long_over
    settings = (Text(method(verification)), settings_table(verification.runs))
    return [
        *blocks,
        predicted_table(ran),
        Details("Every figure", (figures_table(ran, long_over),)),
        Details("Settings", settings),
    ]


def used_rows(verification: Verification, ran: Sequence[Run]) -> list[int]:
    """The place of the run whose settings are to be used."""
    use = verification.run(verification.verdict.use) if verification.verdict else None
    return [place for place, run in enumerate(ran) if run is use]


def run_notes(verification: Verification) -> tuple[str, ...]:
    sentences = []
    for run in verification.runs:
        for note in run.notes:
            sentences.append(f"{run.setting}: {sentence(note)}")
    return tuple(sentences)


# -- names -----------------------------------------------------------------------------


def run_name(run: Run) -> str:
    """`the plan (vLLM's default)`."""
    name = RUN_NAMES.get(run.setting, run.setting)
    if not run.same_as:
        return name
    names = [RUN_NAMES.get(alias, alias) for alias in run.same_as]
    return f"{name} ({', '.join(names)})"


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


def shown_value(figure: Figure, run: Run | None) -> str:
    return figure.unit.brief(value(run, figure) if run else None)


def figure_text(figure: Figure, run: Run | None) -> str:
    return f"{figure.title} {shown_value(figure, run)}"


# -- the answer ------------------------------------------------------------------------


def headline(verification: Verification) -> str:
    """Which settings to use, by which figure."""
    plan, verdict = verification.run(PLAN), verification.verdict
    if plan is None or verdict is None:
        return server_sentence(verification)
    match verdict.conclusion:
        case Conclusion.PLAN_FAILED:
            return plan_failed(verification, plan, verdict)
        case Conclusion.USE_ANOTHER:
            return use_another(verification, plan, verdict)
        case Conclusion.DROP_FLAGS:
            return drop_flags(verification, plan, verdict)
        case Conclusion.KEEP_DEFAULT:
            return keep_default(verification, plan, verdict)
    return keep_plan(verification, plan, verdict)


def server_sentence(verification: Verification) -> str:
    """A server that runs: nothing is compared."""
    run = verification.runs[0]
    if not run.ok:
        return f"{capital(failure(run))}."
    measured = figure_text(goal_of(verification), run)
    return f"{capital(run_name(run))}: {measured} (measured)."


def plan_failed(verification: Verification, plan: Run, verdict: MeasuredVerdict) -> str:
    text = f"The plan does not run: {failure_reason(plan)}."
    use = verification.run(verdict.use)
    if use is None:
        return text
    goal = BY_KEY[verdict.goal]
    return f"{text} {capital(run_name(use))} does: {figure_text(goal, use)} (measured)."


def use_another(verification: Verification, plan: Run, verdict: MeasuredVerdict) -> str:
    use = verification.run(verdict.use)
    if use is None:
        raise AssertionError("the verdict names the run to use")
    settings = settings_text(Settings.of(arguments(use))) or DEFAULTS
    compared = compared_text(BY_KEY[verdict.goal], use, plan)
    return f"Use {settings} instead of the plan: {compared}."


def drop_flags(verification: Verification, plan: Run, verdict: MeasuredVerdict) -> str:
    goal = BY_KEY[verdict.goal]
    without = shown_value(goal, verification.run(verdict.use))
    return (
        f"Leave out {listed(verdict.drop)}: a tie, {figure_text(goal, plan)} with it, "
        f"{without} without (measured)."
    )


def keep_default(
    verification: Verification, plan: Run, verdict: MeasuredVerdict
) -> str:
    defaults = DEFAULTS
    if plan.settings.given():
        defaults = f"{DEFAULTS} with {settings_text(plan.settings)}"
    measured = figure_text(BY_KEY[verdict.goal], plan)
    if len(verification.runs) == 1:
        return f"Keep {defaults}: {measured} (measured)."
    return (
        f"Keep {defaults}: {measured}, and no other setting is clearly better "
        "(measured)."
    )


def keep_plan(verification: Verification, plan: Run, verdict: MeasuredVerdict) -> str:
    goal, default = BY_KEY[verdict.goal], verification.run(DEFAULT)
    if default is None or not default.ok:
        return (
            f"Keep the plan: {figure_text(goal, plan)} (measured). {DEFAULT_NAME} was "
            "not measured."
        )
    return f"Keep the plan: {compared_text(goal, plan, default)}."


def compared_text(goal: Figure, run: Run, other: Run) -> str:
    """`time 10.0 s instead of 12.0 s with the plan (-17 %, measured)`, as a clause."""
    basis = "measured"
    difference = change(value(other, goal), value(run, goal))
    if difference:
        basis = f"{difference}, measured"
    return (
        f"{figure_text(goal, run)} instead of {shown_value(goal, other)} with "
        f"{run_name(other)} ({basis})"
    )


def worse_sentences(verification: Verification) -> list[str]:
    """The figures that get worse with what is advised."""
    verdict = verification.verdict
    use = verification.run(verdict.use) if verdict else None
    other = verification.run(DEFAULT) or verification.run(PLAN)
    if use is None or other is None or use is other:
        return []
    parts = []
    for figure in worse_figures(use, other)[:MOST_WORSE]:
        parts.append(
            f"{figure_text(figure, use)} instead of {shown_value(figure, other)}"
        )
    if not parts:
        return []
    return [f"Worse: {', '.join(parts)}."]


# -- what it rests on ------------------------------------------------------------------


def measured_on(verification: Verification) -> str:
    return f"Measured: {', '.join(circumstances(verification))}."


def circumstances(verification: Verification) -> list[str]:
    """Machine, version, requests and repeats."""
    work = verification.workload
    parts = [where_measured(verification)]
    if verification.machine is not None and verification.machine.vllm:
        parts.append(f"vLLM {verification.machine.vllm}")
    if verification.model.dummy:
        parts.append("random weights")
    parts.append(plural(len(work.requests), "request"))
    parts += ["greedy sampling", sent_when(work.arrivals, work.concurrency)]
    if verification.repeats > 1 and any(run.ok for run in verification.runs):
        parts.append(f"median of {plural(verification.repeats, 'repeat')}")
    return parts


def where_measured(verification: Verification) -> str:
    machine, model = verification.machine, verification.model.name
    if machine is None:
        return machine_text(model, None)
    if machine.gpu is not None:
        return machine_text(model, machine.gpu, max(1, machine.gpus))
    if machine.device == "cpu":
        return f"{model} on a CPU"
    return f"{model} on a server"


def method(verification: Verification) -> str:
    """How many tokens of what were sent, and what counts as a tie."""
    work = verification.workload
    prompts = ["random tokens"]
    if verification.source.datasets:
        prompts = ["real prompts"]
        if verification.source.repeated:
            prompts.append(f"{verification.source.repeated:,} of them again")
    prompts.append(f"seed {work.seed}")
    if work.left_out:
        prompts.append(f"{work.left_out:,} too long and left out")
    noise = f"of less than {share(TIE_OF_ONE)}"
    if verification.repeats > 1:
        noise = "within the spread of repeats"
    return (
        f"{plural(work.input_tokens, 'token')} in, {work.output_tokens:,} out; "
        f"{', '.join(prompts)}. A difference {noise} is a tie."
    )


def outputs_sentences(verification: Verification) -> list[str]:
    """How many answers are equal; nothing without `--check-outputs`."""
    sentences = []
    for run in verification.runs:
        outputs = run.outputs
        if outputs is None or outputs.equal is None:
            continue
        reference = verification.run(outputs.reference)
        if reference is not None and reference.outputs is not None:
            is_dummy = verification.model.dummy
            explained = why_unequal(outputs, reference.outputs, is_dummy=is_dummy)
            again = min(outputs.again, reference.outputs.again)
            sentences.append(
                f"{capital(run_name(run))}: {share(outputs.equal)} of "
                f"{len(outputs.answers):,} answers equal those of "
                f"{run_name(reference)}, {share(again)} when sent again{explained}."
            )
    return sentences


def why_unequal(outputs: RunOutputs, reference: RunOutputs, *, is_dummy: bool) -> str:
    if outputs.equal == 1:
        return ""
    if is_dummy:
        return "; with random weights rounding decides"
    if is_noise(outputs, reference):
        return ", so batching explains it"
    return ""


def measured_elsewhere(plan: Plan, verification: Verification) -> list[str]:
    """How model, vLLM and GPU of the measurement differ from the plan's."""
    sentences = []
    machine, model = verification.machine, verification.model.name
    if plan.model is not None and verification.measured is EngineKind.VLLM:
        if model not in (plan.model.load_name, plan.model.name):
            sentences.append(
                f"Planned for {plan.model.load_name}, measured with {model}, which may "
                "count other lengths."
            )
    planned = plan.deployment.release.text
    if machine is None:
        return sentences
    if machine.vllm and planned.split(".")[:2] != machine.vllm.split(".")[:2]:
        sentences.append(
            f"Planned for vLLM {planned}, measured with {machine.vllm}: recommend "
            "again with --vllm-version."
        )
    if machine.gpu and plan.gpu is not None and plan.gpu.title != machine.gpu:
        sentences.append(f"Planned for {plan.gpu.title}, measured on {machine.gpu}.")
    return sentences


# -- the runs --------------------------------------------------------------------------


def runs_table(
    runs: Sequence[Run],
    columns: dict[str, Figure] | None = None,
    strong: Sequence[int] = (),
) -> Table:
    """The figures that decide, each run compared with the first."""
    if columns is None:
        columns = {HEADINGS[figure.key]: figure for figure in SHOWN}
    shown = {}
    for heading, figure in columns.items():
        if any(value(run, figure) is not None for run in runs):
            shown[heading] = figure
    has_change = len(runs) > 1 and MAKESPAN in shown.values()
    if has_change and ITL_P99 in shown.values():  # there is no room for both
        del shown[HEADINGS[ITL_P99.key]]
    headings = ["setting"]
    for heading, figure in shown.items():
        headings.append(heading)
        if has_change and figure is MAKESPAN:
            headings.append("change")
    rows = []
    for run in runs:
        row: list[Written] = [run_name(run)]
        for figure in shown.values():
            row.append(figure_cell(figure, run, runs[0]))
            if has_change and figure is MAKESPAN:
                row.append(change_text(run, runs[0]))
        rows.append(row)
    return table(headings, rows, strong=strong)


def figure_cell(figure: Figure, run: Run, first: Run) -> Cell:
    """Long times in the first run's unit; coloured where the difference matters."""
    measured, usual = value(run, figure), value(first, figure)
    if measured is None:
        is_reference = figure.key.startswith("outputs.") and run.outputs is not None
        text = "the reference" if is_reference else "not measured"
        return Cell(text=text, look=Look.UNKNOWN)
    text = figure.unit.brief(measured)
    if figure.unit is SECONDS and usual is not None and min(measured, usual) >= LONG_S:
        text = seconds(measured, like=usual)
    return Cell(text=text, look=look_of(figure, run, first))


def look_of(figure: Figure, run: Run, first: Run) -> Look:
    """A difference within the spread, or too small to act on, has no colour."""
    if run is first:
        return Look.PLAIN
    times = ratio(run, first, figure)
    if times is not None and abs(times - 1) < WORTH:
        return Look.PLAIN
    return LOOKS.get(judge(figure, run, first), Look.PLAIN)


def change_text(run: Run, first: Run) -> str:
    if run is first:
        return ""
    if judge(MAKESPAN, run, first) is Outcome.TIE:
        return "tie"
    return change(value(first, MAKESPAN), value(run, MAKESPAN))


def figures_table(runs: Sequence[Run], long_over: int = 0) -> Table:
    """Figures down, settings across; two times also by the length of the prompts."""
    by_length = []
    for kind, which in (("short", "up to"), ("long", "over")):
        for figure in (TTFT_P95, ITL_P99):
            title = f"{figure.title}, prompts {which} {long_over:,}"
            by_length.append(replace(figure, key=f"{kind}.{figure.key}", title=title))
    rows = []
    for figure in (*FIGURES, *by_length):
        if all(value(run, figure) is None for run in runs):
            continue
        cells = [figure_cell(figure, run, runs[0]) for run in runs]
        rows.append([figure.title, *cells])
    return table(["figure", *(run_name(run) for run in runs)], rows)


def settings_table(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        rows.append((run_name(run), settings_text(run.settings) or DEFAULTS))
    return table(("setting", "sets"), rows, words=["sets"])


# -- predicted beside measured ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure that was predicted, and what was measured."""

    run: Run
    figure: Figure
    predicted: float
    measured: float


HITS = BY_KEY["prefix_hit_rate"]
PREDICTED = {
    "makespan_s": "time",
    "ttft_s.p50": "first token p50",
    "ttft_s.p95": "first token p95",
    "itl_s.p99": "gap p99",
    "prefix_hit_rate": "served from the cache",
}


def compared_figures(runs: Sequence[Run]) -> list[Compared]:
    """What the simulator predicted for the same requests and was measured, too."""
    compared = []
    for run in runs:
        for figure in (BY_KEY[key] for key in PREDICTED):
            predicted = figure.value(run.predicted_figures)
            if figure is HITS and run.predicted_prefix_hit_rate is not None:
                predicted = run.predicted_prefix_hit_rate  # with the KV cache it had
            measured = value(run, figure)
            if predicted is not None and measured is not None:
                compared.append(
                    Compared(
                        run=run, figure=figure, predicted=predicted, measured=measured
                    )
                )
    return compared


def predicted_table(runs: Sequence[Run]) -> Table:
    """Measured beside predicted, with how far the prediction was off."""
    rows = []
    for compared in compared_figures(runs):
        brief = compared.figure.unit.brief
        rows.append(
            (
                run_name(compared.run),
                PREDICTED[compared.figure.key],
                brief(compared.measured),
                brief(compared.predicted),
                off_text(compared),
            )
        )
    headings = ("setting", "figure", "measured", "predicted", "off")
    return table(headings, rows, words=["figure"])


def off_text(compared: Compared) -> str:
    """Shares differ by points, times by a part of the measured one."""
    if compared.figure.unit is SHARE:
        points = 100 * (compared.predicted - compared.measured)
        return f"{points:+.1f} points"
    return change(compared.measured, compared.predicted)


# -- pictures --------------------------------------------------------------------------


def measured_pictures(runs: Sequence[Run]) -> list[Block]:
    """Each setting by time and longest gap, its waits and gaps, and the predictions."""
    named = [(run_name(run), run) for run in runs]
    settings = []
    distributions = []
    for name, run in named:
        if run.figures is not None:
            flags = shlex.join(command_line(arguments(run)))
            settings.append(Setting(name=name, flags=flags, figures=run.figures))
        if run.distribution is not None:
            distributions.append((name, run.distribution))
    pictures: list[Block] = []
    trade = trade_off(settings)
    if trade is not None:
        pictures.append(trade)
    pictures += spreads(distributions)
    predicted = predicted_against_measured(named)
    if predicted is not None:
        pictures.append(predicted)
    return pictures


# -- memory ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedPart:
    """A part of a GPU's memory: vLLM's own figure, and the lines of our bill for it."""

    title: str
    name: str
    lines: tuple[str, ...]

    def measured(self, run: Run) -> float:
        """Of the fullest GPU, in GiB; 0 where vLLM does not say."""
        sizes = [getattr(worker, self.name) or 0.0 for worker in run.workers]
        return max(sizes, default=0.0)

    def predicted(self, memory: Memory) -> float:
        if not self.lines:
            return memory.kv_cache_gib
        return sum(line.gib for line in memory.lines if line.name in self.lines)


LOGGED_PARTS = (
    LoggedPart(title="weights", name="weights_gib", lines=("weights",)),
    LoggedPart(title="activations", name="profiled_activation_gib", lines=ACTIVATIONS),
    LoggedPart(title="CUDA graphs", name="cuda_graphs_gib", lines=("cuda_graphs",)),
    LoggedPart(title="outside torch", name="non_torch_gib", lines=("overhead",)),
    LoggedPart(title="KV cache", name="kv_cache_gib", lines=()),
)


def memory_table(runs: Sequence[Run]) -> Table:
    """What vLLM logged at its start, with the prediction in parentheses."""
    rows = []
    for part in LOGGED_PARTS:
        if any(part.measured(run) for run in runs):
            rows.append([part.title, *(memory_cell(part, run) for run in runs)])
    return table(["memory (predicted)", *(run_name(run) for run in runs)], rows)


def memory_cell(part: LoggedPart, run: Run) -> str:
    measured = gib(part.measured(run))
    if run.predicted is None:
        return measured
    predicted = part.predicted(run.predicted)
    if not predicted:
        return measured
    return f"{measured} ({gib(predicted)})"


def memory_picture(runs: Sequence[Run]) -> StackedBars:
    """A bar for what each run took, under the one that was predicted for it."""
    bars = []
    total_gib = None
    for run in runs:
        if run.predicted is not None:
            name = f"{run_name(run)}, predicted"
            bars.append(predicted_memory_bar(name, run.predicted))
            total_gib = run.predicted.total_gib
        measured = measured_memory_bar(f"{run_name(run)}, measured", run.workers)
        if measured is not None:
            bars.append(measured)
    return memory_bars(bars, total_gib)
