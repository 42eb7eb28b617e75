"""Measured runs as sections: the verdict, the figures that decide, then every figure; the demo."""

from collections.abc import Iterator, Sequence
from typing import Any

from chunkscope.artefacts.figures import BY_KEY, TIGHTEST_LIMIT, Figure
from chunkscope.artefacts.numbers import change, gib, plural, seconds, share
from chunkscope.planning.plan import Plan
from chunkscope.reference.demo import Demonstration
from chunkscope.report.plan import listed, where
from chunkscope.report.runs import NAMES, every_figure, runs_table, steps_table
from chunkscope.report.section import Chart, Section, Table, table_of
from chunkscope.report.simulation import sent_when
from chunkscope.report.words import capital, sentence
from chunkscope.verification.outputs import is_noise, reference_run
from chunkscope.verification.result import (
    DEFAULT,
    PLAN,
    Conclusion,
    EngineKind,
    MeasuredVerdict,
    Run,
    Verification,
)
from chunkscope.verification.verdict import arguments, value, worse_figures
from chunkscope.vllm.settings import Settings

PARTS = {  # of a GPU's memory, as vLLM tells them
    "weights": "weights_gib",
    "activations": "profiled_activation_gib",
    "CUDA graphs": "cuda_graphs_gib",
    "outside torch": "non_torch_gib",
    "KV cache": "kv_cache_gib",
}
MODELLED = {"profiled_activation_gib": "activation_gib", "non_torch_gib": "overhead_gib"}
TIMES = ("ttft_s", "itl_s")
MOST_WORSE = 3  # figures that got worse, in a sentence
STEPS = 3  # of each setting of the demo


def sections(v: Verification) -> list[Section]:
    ran = [(titled(run), run) for run in v.runs if run.ok]
    failed = [f"{failure(run)}." for run in v.runs if not run.ok]
    use = v.verdict.use if v.verdict else None
    strong = [at for at, (_, run) in enumerate(ran) if use is not None and run.is_called(use)]
    settings = [(titled(run), listed(run.settings) or "vLLM's defaults") for run in v.runs]
    return [
        Section(sentences=(answer(v), measured_on(v)), top=True),
        Section(sentences=(*_worse(v), *failed), table=runs_table(ran, strong=strong)),
        Section(chart=_chart(v.runs)),
        Section(
            sentences=tuple(_outputs(v)),
            notes=tuple(f"{run.setting}: {sentence(n)}" for run in v.runs for n in run.notes),
        ),
        Section(title="Every figure", table=every_figure(ran), details=True),
        Section(title="Memory", table=_memory(ran), details=True),
        Section(
            title="Settings",
            sentences=(_method(v),),
            table=table_of(("setting", "sets"), settings, words=("sets",)),
            details=True,
        ),
    ]


def _memory(ran: Sequence[tuple[str, Run]]) -> Table | None:
    """What vLLM said at its start, of the fullest GPU, beside what the memory model says."""
    rows = []
    for title, name in PARTS.items():
        most = [max((getattr(w, name) or 0 for w in run.workers), default=0) for _, run in ran]
        if any(most):
            model = [getattr(run.predicted, MODELLED.get(name, name), None) for _, run in ran]
            both = zip(most, model, strict=True)
            rows.append((title, *(gib(x) + (f" ({gib(y)})" if y else "") for x, y in both)))
    return table_of(("memory (predicted)", *(title for title, _ in ran)), rows)


def titled(run: Run) -> str:
    """A setting by all its names: the same arguments are measured once."""
    return " = ".join((run.setting, *run.same_as))


def failure(run: Run) -> str:
    """`off: out of memory at 8,192 tokens per step, while loading: ...`"""
    return f"{run.setting}: {_reason(run)}"


def _reason(run: Run) -> str:
    return sentence(run.failure) if run.failure else run.status.replace("_", " ")


def _chart(runs: Sequence[Run]) -> Chart | None:
    """For the page: how times are spread, as pairs of percentile and seconds of each setting."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for name in TIMES:
        for run in runs:
            values: tuple[float, ...] = getattr(run.distribution, name, None) or ()
            if len(values) > 1:
                last = len(values) - 1
                points = [[100 * i / last, float(f"{x:.4g}")] for i, x in enumerate(values)]
                curves.setdefault(name, []).append({"setting": titled(run), "at": points})
    data = {"settings": [titled(run) for run in runs], "curves": curves}
    return Chart(name="measured", data=data) if curves else None


# -- the verdict ---------------------------------------------------------------------------------


def answer(v: Verification) -> str:
    """What to do after measuring."""
    if v.measured is EngineKind.DEMO:
        means = [
            f"{seconds(run.figures.short.ttft_s.mean)} {run.setting}"
            for run in v.runs
            if run.figures and run.figures.short
        ]
        return f"Mean wait of short prompts for their first token: {', '.join(means)}."
    if v.run(PLAN) is None or v.verdict is None:
        return f"{plural(len(v.runs), 'setting')} measured, without a plan to judge."
    return f"{capital(': '.join(verdict(v, v.verdict)))}."


def _worse(v: Verification) -> Iterator[str]:
    """What that costs."""
    use, other = v.run(v.verdict.use) if v.verdict else None, v.run(DEFAULT) or v.run(PLAN)
    worse = worse_figures(use, other) if use and other and use is not other else []
    parts = [
        f"{figure.title} {_shown(figure, use)} instead of {_shown(figure, other)}"
        for figure in worse[:MOST_WORSE]
    ]
    if parts:
        yield f"Worse: {', '.join(parts)}."


def verdict(v: Verification, judged: MeasuredVerdict) -> tuple[str, str]:
    """What to do, and why; both without a full stop."""
    plan, default, use = v.run(PLAN), v.run(DEFAULT), v.run(judged.use)
    goal = BY_KEY[judged.goal]
    assert plan is not None  # noqa: S101  (there is a verdict)
    if judged.conclusion is Conclusion.PLAN_FAILED:
        best = f"; {_name(use)} does: {_goal(use, goal)}" if use else ", nor does anything else"
        return "the plan does not run", f"{_reason(plan)}{best}"
    if judged.conclusion is Conclusion.USE_ANOTHER and use is not None:
        sets = listed(Settings.of(arguments(use))) or "vLLM's defaults"
        return f"use {sets} instead of the plan", _beside(use, plan, goal)
    if judged.conclusion is Conclusion.DROP_FLAGS and use is not None:
        both = f"{_goal(plan, goal)} with, {_shown(goal, use)} without"
        return f"leave out {' and '.join(judged.drop)}", f"a tie, {both} (measured)"
    if judged.conclusion is Conclusion.KEEP_DEFAULT:
        others = ", and no other setting is better" if len(v.runs) > 1 else ""
        needed = f" with {listed(plan.settings)}" if plan.settings.given() else ""
        return f"keep vLLM's defaults{needed}", f"{_goal(plan, goal)}{others} (measured)"
    if default is not None and default.ok:
        return "keep the plan", _beside(plan, default, goal)
    return "keep the plan", f"{_goal(plan, goal)} (measured; vLLM's default was not)"


def _beside(run: Run, other: Run, goal: Figure) -> str:
    by = change(value(other, goal), value(run, goal))
    part = f"{by}, measured" if by else "measured"
    return f"{_goal(run, goal)} instead of {_shown(goal, other)} with {_name(other)} ({part})"


def _name(run: Run) -> str:
    return NAMES["default"] if run.is_called(DEFAULT) else NAMES.get(run.setting, run.setting)


def _goal(run: Run, goal: Figure) -> str:
    if goal is TIGHTEST_LIMIT:
        return f"{_shown(goal, run)} of the tightest limit"  # over 100 % it is broken
    return f"{goal.title} {_shown(goal, run)}"


def _shown(figure: Figure, run: Run | None) -> str:
    return figure.unit.brief(value(run, figure) if run else None)


# -- where and how -------------------------------------------------------------------------------


def where_measured(v: Verification) -> str:
    machine = v.machine
    if machine is None:
        return v.model.name
    if machine.gpu is None:
        return f"{v.model.name} on {'a CPU' if machine.device == 'cpu' else 'a server'}"
    return where(v.model.name, machine.gpu, max(1, machine.gpus))


def measured_on(v: Verification) -> str:
    machine, workload = v.machine, v.workload
    engine = f", vLLM {machine.vllm}" if machine and machine.vllm else ""
    dummy = " (random weights: times and memory are real, answers are not)" if v.model.dummy else ""
    sent = sent_when(workload.arrivals, workload.concurrency)
    repeats = f", median of {plural(v.repeats, 'repeat')}" if v.repeats > 1 else ""
    return (
        f"Measured: {where_measured(v)}{engine}{dummy}; "
        f"{plural(len(workload.requests), 'request')} {sent}{repeats}."
    )


def _method(v: Verification) -> str:
    """For those who check it."""
    workload = v.workload
    left = f", {workload.left_out:,} too long and left out" if workload.left_out else ""
    prompts = "real prompts" if v.source.datasets else "random tokens"
    return (
        f"{workload.input_tokens:,} tokens in, {workload.output_tokens:,} out, greedy sampling; "
        f"{prompts}, seed {workload.seed}{left}. Prompts over {workload.long_over:,} tokens are "
        "long. A difference within the spread of repeats is a tie."
    )


def _outputs(v: Verification) -> Iterator[str]:
    """Of `--check-outputs`; nothing where no answers were compared."""
    if (reference := reference_run(v)) is None or reference.outputs is None:
        return
    for run in v.runs:
        if run.outputs is None or run.outputs.equal is None:
            continue
        again = min(run.outputs.again, reference.outputs.again)
        noise = ", so batching explains it" if is_noise(run.outputs, reference.outputs) else ""
        noise = "; random weights, so rounding decides" if v.model.dummy else noise
        yield (
            f"{run.setting}: {share(run.outputs.equal)} of {len(run.outputs.answers):,} answers "
            f"equal those of {reference.setting}, {share(again)} when sent again{noise}."
        )


def measured_elsewhere(plan: Plan, v: Verification) -> Iterator[str]:
    """Where the plan was made for another model, vLLM or GPU than was measured."""
    machine, model = v.machine, plan.model
    if (
        model
        and v.measured is EngineKind.VLLM
        and v.model.name not in (model.name, model.load_name)
    ):
        yield f"planned for {model.load_name}, this is {v.model.name}: it may count other lengths"
    planned, here = plan.release.text, machine.vllm if machine else None
    if here and planned.split(".")[:2] != here.split(".")[:2]:
        yield f"planned for vLLM {planned}, this is {here}: recommend again with --vllm-version"
    if machine and machine.gpu and plan.gpu and plan.gpu.title != machine.gpu:
        yield f"planned for {plan.gpu.title}, this is {machine.gpu}"


# -- the demo ------------------------------------------------------------------------------------


def demo_sections(demo: Demonstration) -> list[Section]:
    _, *others = sections(demo.measured)
    steps = [
        Section(title=f"First steps {name}", table=steps_table(run.run.timeline[:STEPS]))
        for name, run in demo.runs.items()
    ]
    same, total = demo.same_answers, len(demo.requests)
    answers = f"All {total} answers are the same, token by token."
    if same < total:
        apart = f"by rounding, logits differ by up to {demo.logits_apart:.2g}"
        answers = f"{same} of {total} answers are the same; {apart}."
    first = Section(sentences=(answer(demo.measured), _demo_setup(demo), answers))
    return [first, *others[:1], *steps, *others[1:]]


def _demo_setup(demo: Demonstration) -> str:
    model = demo.measured.model
    lengths = [len(request.prompt) for request in demo.requests]
    long = [tokens for tokens in lengths if tokens > demo.measured.workload.long_over]
    early = sum(request.arrival_s == 0 for request in demo.requests)
    return (
        f"{where_measured(demo.measured)} ({(model.parameters or 0) / 1e6:,.1f} M parameters). "
        f"{early} short requests are being answered when {len(long)} prompts of {long[0]:,} tokens "
        f"arrive, with {len(lengths) - len(long) - early} short ones behind them."
    )
