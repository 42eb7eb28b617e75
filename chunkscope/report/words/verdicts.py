"""Sentences about measured runs: the verdict, one run beside another, outputs, the demo."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chunkscope.artefacts.figures import BY_KEY, TIGHTEST_LIMIT, Figure, Group
from chunkscope.artefacts.numbers import NOT_MEASURED, change, plural, seconds, share
from chunkscope.report.words import sentence
from chunkscope.report.words.plan import listed, where
from chunkscope.report.words.simulation import arrivals_in_words
from chunkscope.simulation.workload import BATCH
from chunkscope.verification.outputs import TOKENS, is_noise, reference_run
from chunkscope.verification.result import (
    DEFAULT,
    PLAN,
    Conclusion,
    MeasuredVerdict,
    PromptSource,
    Run,
    Verification,
)
from chunkscope.verification.verdict import Outcome, arguments, outcomes, value
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


def prompts_sent(source: PromptSource) -> str:
    if not source.datasets:
        return "random tokens"
    names, more = ", ".join(source.datasets[:3]), len(source.datasets) - 3
    again = f" ({source.repeated:,} of them sent before)" if source.repeated else ""
    return f"real prompts of {names}{f' and {more} more' if more > 0 else ''}{again}"


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
    return f"{text[0].upper()}{text[1:]}.{worse}"


def short_verdict(v: Verification, found: MeasuredVerdict) -> str:
    """The same without a full stop, to go on with."""
    plan, default, use = v.run(PLAN), v.run(DEFAULT), v.run(found.use)
    goal = BY_KEY[found.goal]
    assert plan is not None  # noqa: S101  (there is a verdict)
    if found.conclusion is Conclusion.PLAN_FAILED:
        best = f"; {_name(use)} does: {_goal(use, goal)}" if use else ", nor does anything else"
        return f"the plan does not run ({failure(plan).partition(': ')[2]}){best}"
    if found.conclusion is Conclusion.USE_ANOTHER and use is not None:
        change_to = _beside(use, plan, goal, "the plan")
        sets = listed(Settings.of(arguments(use)))
        return f"{_name(use)} is better than the plan: {change_to}; {sets or 'it sets nothing'}"
    if found.conclusion is Conclusion.DROP_FLAGS and use is not None:
        them = "them" if len(found.drop) > 1 else "it"
        both = f"{_goal(plan, goal)} with {them}, {shown(goal, use)} without"
        return f"leave out {' and '.join(found.drop)}, which brings nothing: {both} (measured)"
    if found.conclusion is Conclusion.KEEP_DEFAULT:
        others = " and no other setting is better" if len(v.runs) > 1 else ""
        return f"keep vLLM's defaults: {_goal(plan, goal)}{others} (measured)"
    if default is not None and default.ok:
        return f"keep the plan: {_beside(plan, default, goal, 'vLLM' + chr(39) + 's default')}"
    return f"keep the plan: {_goal(plan, goal)} (measured; vLLM's default was not)"


def _beside(run: Run, other: Run, goal: Figure, name: str) -> str:
    by = change(value(other, goal), value(run, goal))
    part = f" ({by}, measured)" if by else " (measured)"
    return f"{_goal(run, goal)} instead of {_goal(other, goal)} with {name}{part}"


def _worse(run: Run, other: Run) -> str:
    figures = [figure for figure, outcome in outcomes(run, other) if outcome is Outcome.WORSE]
    if not figures:
        return ""
    parts = [
        f"{figure.title} {shown(figure, run)} instead of {shown(figure, other)}"
        for figure in figures[:MOST_WORSE]
    ]
    more = f" and {len(figures) - MOST_WORSE} more" if len(figures) > MOST_WORSE else ""
    return f" Worse: {', '.join(parts)}{more}."


def _name(run: Run) -> str:
    return "vLLM's default" if run.is_called(DEFAULT) else run.setting


def _goal(run: Run, goal: Figure) -> str:
    number = value(run, goal)
    if number is None:
        return NOT_MEASURED
    if goal is TIGHTEST_LIMIT:
        return f"{share(number)} of the tightest limit"  # over 100 % it is broken
    return f"{goal.title} {goal.unit.brief(number)}"


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
    workload, machine = v.workload, v.machine
    yield (
        f"{workload.input_tokens:,} tokens in, {workload.output_tokens:,} out, greedy; "
        f"{prompts_sent(v.source)}, seed {workload.seed}. Prompts over {workload.long_over:,} "
        "tokens count as long."
    )
    if workload.left_out:
        yield f"{plural(workload.left_out, 'prompt')} of the profile would not fit."
    if v.repeats > 1:
        yield "A difference within the spread of the repeats is a tie."
    if machine is not None and machine.device == "cuda":
        yield (
            "Activations: torch's peak in the worker beyond what it held when it was ready. The "
            "device's peak hardly moves, because vLLM fills what is free with KV cache."
        )


def memory_lead(findings: "Findings") -> str:
    v, plan = findings.verification, findings.plan
    on_cpu = v is not None and v.machine is not None and v.machine.device == "cpu"
    if on_cpu:
        return "Memory of the process by setting, beyond the weights."
    gpu = plan.gpu.title if plan and plan.gpu else v.machine.gpu if v and v.machine else None
    one = f"One GPU ({gpu})" if gpu else "One GPU"
    return (
        f"{one}, by setting. vLLM gives what is left to the KV cache. Faint bars are predicted, "
        "full ones measured."
    )


def outputs(v: Verification) -> Iterator[str]:
    """Of `--check-outputs`; nothing where no answers were compared."""
    reference = reference_run(v)
    if reference is None or reference.outputs is None:
        return
    prompts = len(reference.outputs.answers)
    yield (
        f"Answers of up to {TOKENS} tokens to {plural(prompts, 'prompt')} were compared with "
        f"{reference.setting}'s, and with the same requests sent again: what differs then is noise "
        "of batching."
    )
    if v.model.dummy:
        yield (
            "Random weights: all tokens are nearly equally likely, so rounding decides. This says "
            "nothing about a model with real weights."
        )
    for run in v.runs:
        if run.outputs is None or run.outputs.equal is None or run.outputs.equal == 1:
            continue
        equal, again = share(run.outputs.equal), min(run.outputs.again, reference.outputs.again)
        why = f"but {share(again)} when they are sent again"
        if is_noise(run.outputs, reference.outputs):
            why = "no fewer than when the same requests are sent again"
        yield f"{run.setting}: {equal} of the answers equal {run.outputs.reference}'s, {why}."


# -- two folders ---------------------------------------------------------------------------------


def changed(old: "Findings", new: "Findings", changes: int, ties: int) -> str:
    names = f"from {old.folder} to {new.folder}"
    if not changes:
        return f"Nothing changed {names}."
    more = f"; {ties:,} more differ within the spread" if ties else ""
    return f"{plural(changes, 'figure')} changed {names}{more}."


def not_comparable(old: "Findings", new: "Findings") -> Iterator[str]:
    for name in ("profile", "plan", "verification", "simulation"):
        before, after = getattr(old, name), getattr(new, name)
        if (before is None) != (after is None):
            yield f"only {new.folder if before is None else old.folder} has a {name}"
    if old.profile and new.profile:
        names = [profile.tokenizer.name for profile in (old.profile, new.profile)]
        if old.profile.tokenizer.digest != new.profile.tokenizer.digest:
            yield f"lengths are of different tokenizers ({' and '.join(names)}): not compared"
    if old.verification and new.verification:
        before, after = measured_on(old.verification), measured_on(new.verification)
        if before != after:
            yield f"measured differently. Before: {before} Now: {after}"
        elif old.verification.workload.requests != new.verification.workload.requests:
            yield "different requests were sent"


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
    model, machine, over = found.measured.model, found.measured.machine, _long_over(found)
    long = [len(request.prompt) for request in found.requests if len(request.prompt) > over]
    early = sum(request.arrival_s == 0 for request in found.requests)
    late = len(found.requests) - len(long) - early
    place = machine.gpu if machine and machine.gpu else "a CPU"
    size = f"{(model.parameters or 0) / 1e6:,.1f} M parameters"
    return (
        f"{model.name} ({size}) on {place}. {early} short requests are being answered when "
        f"{len(long)} prompts of {long[0]:,} tokens arrive, with {late} short ones behind them."
    )


def _long_over(found: "Demonstration") -> int:
    return found.measured.workload.long_over


def demo_answers(found: "Demonstration") -> str:
    same, total = found.same_answers, len(found.requests)
    if same == total:
        return f"All {total} answers are the same, token by token."
    return (
        f"{same} of {total} answers are the same; logits differ by up to {found.logits_apart:.2g}, "
        "by rounding."
    )
