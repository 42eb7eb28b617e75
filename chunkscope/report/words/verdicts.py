"""Sentences about measured runs: the verdict, one run beside another, outputs, the demo."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from chunkscope.artefacts.figures import BY_KEY, TIGHTEST_LIMIT, Figure, Group
from chunkscope.artefacts.numbers import NOT_MEASURED, change, plural, seconds, share
from chunkscope.report.words import capital, sentence
from chunkscope.report.words.plan import advice as plan_advice
from chunkscope.report.words.plan import listed, where
from chunkscope.report.words.simulation import arrivals_in_words
from chunkscope.simulation.workload import BATCH
from chunkscope.verification.outputs import TOKENS, is_noise, reference_run
from chunkscope.verification.result import (
    DEFAULT,
    PLAN,
    Conclusion,
    MeasuredVerdict,
    Run,
    Verification,
)
from chunkscope.verification.verdict import arguments, value, worse_figures
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings

if TYPE_CHECKING:
    from chunkscope.findings import Findings
    from chunkscope.reference.demo import Demonstration

STATUS = {
    Status.OK: "ok",
    Status.OUT_OF_MEMORY: "out of memory",
    Status.TIMEOUT: "timed out",
    Status.REFUSED: "refused by vLLM",
    Status.DIED: "the engine died",
}
MOST_WORSE = 3  # figures that got worse, in a sentence
DEMO_KEY = (
    "short wait: mean time to the first token of a short prompt; prompt step: mean time of a step "
    "that reads prompts; memory: peak beyond the weights"
)


def failure(run: Run) -> str:
    """`off: out of memory at 8,192 tokens per step, while loading: ...`"""
    return f"{run.setting}: {sentence(run.failure) if run.failure else STATUS[run.status]}"


def shown(figure: Figure, run: Run) -> str:
    number = value(run, figure)
    if number is None and figure.group is Group.OUTPUTS and run.outputs is not None:
        return "the reference"
    return NOT_MEASURED if number is None else figure.unit.brief(number)


# -- the verdict ---------------------------------------------------------------------------------


def verdict(v: Verification) -> str:
    """What to do after measuring, and what it costs; empty without a plan to judge."""
    if v.run(PLAN) is None or v.verdict is None:
        return ""
    text = short_verdict(v, v.verdict)
    use, other = v.run(v.verdict.use), v.run(DEFAULT) or v.run(PLAN)
    worse = _worse(use, other) if use and other and use is not other else ""
    return f"{capital(text)}.{worse}"


def short_verdict(v: Verification, found: MeasuredVerdict) -> str:
    """The same without a full stop, to go on with."""
    plan, default, use = v.run(PLAN), v.run(DEFAULT), v.run(found.use)
    goal = BY_KEY[found.goal]
    assert plan is not None  # noqa: S101  (there is a verdict)
    if found.conclusion is Conclusion.PLAN_FAILED:
        best = f"; {_name(use)} does: {_goal(use, goal)}" if use else ", nor does anything else"
        return f"the plan does not run ({failure(plan).partition(': ')[2]}){best}"
    if found.conclusion is Conclusion.USE_ANOTHER and use is not None:
        sets = listed(Settings.of(arguments(use))) or "vLLM's defaults"
        return f"use {sets} instead of the plan: {_beside(use, plan, goal)}"
    if found.conclusion is Conclusion.DROP_FLAGS and use is not None:
        both = f"{_goal(plan, goal)} with, {shown(goal, use)} without"
        return f"leave out {' and '.join(found.drop)}, a tie: {both} (measured)"
    if found.conclusion is Conclusion.KEEP_DEFAULT:
        others = ", and no other setting is better" if len(v.runs) > 1 else ""
        return f"keep vLLM's defaults: {_goal(plan, goal)}{others} (measured)"
    if default is not None and default.ok:
        return f"keep the plan: {_beside(plan, default, goal)}"
    return f"keep the plan: {_goal(plan, goal)} (measured; vLLM's default was not)"


def _beside(run: Run, other: Run, goal: Figure) -> str:
    by = change(value(other, goal), value(run, goal))
    part = f"{by}, measured" if by else "measured"
    return f"{_goal(run, goal)} instead of {shown(goal, other)} with {_name(other)} ({part})"


def _worse(run: Run, other: Run) -> str:
    parts = [
        f"{figure.title} {shown(figure, run)} instead of {shown(figure, other)}"
        for figure in worse_figures(run, other)[:MOST_WORSE]
    ]
    return f" Worse: {', '.join(parts)}." if parts else ""


def _name(run: Run) -> str:
    return "vLLM's default" if run.is_called(DEFAULT) else run.setting.replace("plan", "the plan")


def _goal(run: Run, goal: Figure) -> str:
    number = value(run, goal)
    if number is not None and goal is TIGHTEST_LIMIT:
        return f"{share(number)} of the tightest limit"  # over 100 % it is broken
    return f"{goal.title} {shown(goal, run)}"


def without_plan(v: Verification) -> str:
    return f"{plural(len(v.runs), 'setting')} measured, without a plan to judge."


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
    sent = arrivals_in_words(workload.arrivals)
    sent = sent if workload.arrivals == BATCH else f"arriving {sent}"
    if workload.concurrency is not None:
        sent = f"{sent}, at most {workload.concurrency:,} in flight"
    repeats = f", median of {plural(v.repeats, 'repeat')}" if v.repeats > 1 else ""
    return (
        f"Measured: {where_measured(v)}{engine}{dummy}; "
        f"{plural(len(workload.requests), 'request')} {sent}{repeats}."
    )


def method(v: Verification) -> Iterator[str]:
    """For those who check it."""
    workload = v.workload
    left = f", {workload.left_out:,} too long and left out" if workload.left_out else ""
    prompts = "real prompts" if v.source.datasets else "random tokens"
    yield (
        f"{workload.input_tokens:,} tokens in, {workload.output_tokens:,} out, greedy sampling; "
        f"{prompts}, seed {workload.seed}{left}. Prompts over {workload.long_over:,} tokens are "
        "long."
    )
    if v.repeats > 1:
        yield "A difference within the spread of the repeats is a tie."


def memory_lead(findings: "Findings") -> str:
    machine = findings.verification.machine if findings.verification else None
    if machine is not None and machine.device == "cpu":
        return "Memory of the process by setting, beyond the weights."
    return (
        "One GPU, by setting. vLLM gives what is left to the KV cache. Faint bars are predicted, "
        "full ones measured."
    )


def outputs(v: Verification) -> Iterator[str]:
    """Of `--check-outputs`; nothing where no answers were compared."""
    reference = reference_run(v)
    if reference is None or reference.outputs is None:
        return
    random = "; random weights, so rounding decides" if v.model.dummy else ""
    yield (
        f"Answers to {plural(len(reference.outputs.answers), 'prompt')}, up to {TOKENS} tokens, "
        f"compared with those of {reference.setting} and of the same requests sent again{random}."
    )
    for run in v.runs:
        if run.outputs is None or run.outputs.equal is None or run.outputs.equal == 1:
            continue
        again = min(run.outputs.again, reference.outputs.again)
        noise = ", so batching explains it" if is_noise(run.outputs, reference.outputs) else ""
        yield (
            f"{run.setting}: {share(run.outputs.equal)} of the answers are equal, {share(again)} "
            f"when they are sent again{noise}."
        )


# -- two folders ---------------------------------------------------------------------------------


def what_changed(
    old: "Findings", new: "Findings", rows: Sequence[Mapping[str, int | None]] | None
) -> Iterator[str]:
    """First of the data (of each changed dataset, how many rows how), then of the answer."""
    names = f"from {old.folder} to {new.folder}"
    if rows is not None:
        yield f"{_rows_changed(rows)}, {names}." if rows else f"The data is the same {names}."
    if old.plan is not None and new.plan is not None:
        before, after = plan_advice(old.plan), plan_advice(new.plan)
        same = f"The answer is the same: {after}"
        yield same if before == after else f"The answer changed. Before: {before} Now: {after}"


def figures_changed(changes: int, ties: int) -> str:
    more = f"; {ties:,} more differ within the spread" if ties else ""
    return f"{plural(changes, 'figure')} changed{more}." if changes else f"No figure changed{more}."


def _rows_changed(rows: Sequence[Mapping[str, int | None]]) -> str:
    """`Rows changed in 2 datasets (12 added, 3 changed)`"""
    counts = {kind: sum(one[kind] or 0 for one in rows) for kind in ("added", "removed", "changed")}
    parts = [f"{count:,} {kind}" for kind, count in counts.items() if count]
    counted = f" ({', '.join(parts)})" if parts else ""
    return f"Rows changed in {plural(len(rows), 'dataset')}{counted}"


def not_comparable(old: "Findings", new: "Findings") -> Iterator[str]:
    for name in ("profile", "plan", "verification", "simulation"):
        before, after = getattr(old, name), getattr(new, name)
        if (before is None) != (after is None):
            yield f"only {new.folder if before is None else old.folder} has a {name}"
    if old.profile and new.profile:
        before, after = old.profile.tokenizer, new.profile.tokenizer
        if before.digest != after.digest:
            yield f"lengths of different tokenizers ({before.name}, {after.name}): not compared"
    if old.verification and new.verification:
        before, after = measured_on(old.verification), measured_on(new.verification)
        if before != after:
            yield f"measured differently. Before: {before} Now: {after}"


# -- the demo ------------------------------------------------------------------------------------


def demo(v: Verification) -> str:
    """`Short prompts waited 2.1 s without chunks, 0.2 s with chunks of 256 (mean).`"""
    means = {
        run.setting: run.figures.short.ttft_s.mean
        for run in v.runs
        if run.figures and run.figures.short
    }
    parts = [f"{seconds(mean)} {setting}" for setting, mean in means.items()]
    return f"Short prompts waited {', '.join(parts)} for their first token (mean)."


def demo_setup(found: "Demonstration") -> str:
    model, machine = found.measured.model, found.measured.machine
    lengths = [len(request.prompt) for request in found.requests]
    long = [tokens for tokens in lengths if tokens > found.measured.workload.long_over]
    early = sum(request.arrival_s == 0 for request in found.requests)
    place = machine.gpu if machine and machine.gpu else "a CPU"
    return (
        f"{model.name} ({(model.parameters or 0) / 1e6:,.1f} M parameters) on {place}. {early} "
        f"short requests are being answered when {len(long)} prompts of {long[0]:,} tokens arrive, "
        f"with {len(lengths) - len(long) - early} short ones behind them."
    )


def demo_answers(found: "Demonstration") -> str:
    same, total = found.same_answers, len(found.requests)
    if same == total:
        return f"All {total} answers are the same, token by token."
    apart = f"{found.logits_apart:.2g}"
    return f"{same} of {total} answers are the same; by rounding, logits differ by up to {apart}."
