"""What is said of a folder of results: the first screen, and what changed since another one."""

from collections.abc import Iterator

from chunkscope.artefacts.numbers import gib, number, plural
from chunkscope.findings import Findings
from chunkscope.gating.gate import stale
from chunkscope.planning.plan import Plan
from chunkscope.report.words import capital, plan, runs, sentence
from chunkscope.verification.result import Verification

GLOSSARY = (
    ("token", "about four characters of text"),
    ("step", "one pass of the model, for many requests"),
    ("chunk", "the part of a long prompt read in one step"),
    ("KV cache", "GPU memory for the tokens of running requests"),
    ("preemption", "the KV cache is full: a request is stopped and computed again"),
    ("first token, ttft", "the wait until an answer begins"),
    ("gap, itl", "the time between two tokens of an answer"),
    ("p95", "19 of 20 are at most this long"),
)
MARKS = {  # lengths that matter to the engine
    "long_prefill_token_threshold": "tokens of one prompt per step",
    "max_num_batched_tokens": "tokens per step",
    "max_model_len": "context",
}
NO_SCRIPTS = "Charts need scripts. Every figure is in the tables."


def headline(planned: Plan, v: Verification | None) -> str:
    """The answer in one sentence, for somebody who has never seen this tool."""
    text = runs.verdict(v)[0] if v and v.verdict else plan.advice(planned)
    prompts = f"{plural(planned.refused.of, 'prompt')} for {plan.place(planned)}"
    return f"{prompts}, vLLM {planned.release.text}: {text[0].lower()}{text[1:]}."


def lead(planned: Plan | None, v: Verification | None) -> Iterator[str]:
    """How long it takes, how sure that is, and what would save most."""
    if planned is not None and v is not None and v.verdict is not None:
        yield f"{capital(runs.verdict(v)[1])}."
    elif planned is not None:
        yield capital(plan.because(planned))
    if planned is not None and planned.cost is not None and not planned.request.is_open:
        usual, least, most = plan.times(planned.cost)
        untried = "" if v is not None else ", not measured"
        yield f"The run takes about {usual} ({least} to {most}): simulated{untried}."
    if v is not None:
        yield runs.measured_on(v)
    yield from map(plan.saving, planned.savings if planned else ())


def notes(findings: Findings) -> Iterator[str]:
    """Results that do not belong together, what was not read, and the plan's own."""
    for command, cause in stale(findings).items():
        yield f"{sentence(cause)}: run `chunkscope {command}`"
    if findings.profile is not None:
        if findings.profile.skipped:
            yield f"{plural(findings.profile.skipped, 'bad row')} skipped"
        for dataset in findings.profile.datasets:
            if dataset.failure:
                yield f"{dataset.name} was not read to its end: {sentence(dataset.failure)}"
    if findings.plan is not None:
        yield from plan.told(findings.plan.notes)


def tiles(findings: Findings, v: Verification | None) -> Iterator[tuple[str, str, str]]:
    """A title, a value, what it means."""
    data, planned = findings.profile, findings.plan
    if data is not None:
        p95 = number(data.overall.percentile(95))
        yield "longest prompt", number(data.overall.max), f"tokens; 19 of 20 have at most {p95}"
    run = v.run("plan") if v else None
    if run is not None and run.kv_cache_tokens is not None:
        peak = f", beside {gib(run.activation_peak_gib)} of activations (measured)"
        yield "KV cache", number(run.kv_cache_tokens), f"tokens that fit at the same time{peak}"
    shown = ("time", "memory") if run else ("time",)  # in the lead, and by what was measured
    yield from (tile for tile in (plan.facts(planned) if planned else ()) if tile[0] not in shown)


# -- what changed --------------------------------------------------------------------------------


def what_changed(
    old: Findings, new: Findings, changed: int | None, *, known: bool
) -> Iterator[str]:
    """First of the data, then of the answer."""
    state = "the same" if known else "the same by its lengths; the rows could not be compared"
    if changed is None:
        state = "not compared"
    elif changed:
        state = f"not the same: {plural(changed, 'dataset')} changed, came or went"
    yield f"From {old.folder} to {new.folder} the data is {state}."
    if old.plan is not None and new.plan is not None:
        before, after = map(plan.answer, (old.plan, new.plan))
        same = f"The answer is the same: {after}"
        yield same if before == after else f"The answer changed. Before: {before} Now: {after}"


def not_comparable(old: Findings, new: Findings) -> Iterator[str]:
    for name in ("profile", "plan", "verification", "simulation"):
        before, after = getattr(old, name), getattr(new, name)
        if (before is None) != (after is None):
            yield f"only {new.folder if before is None else old.folder} has a {name}"
    tokenizers = [one.profile.tokenizer for one in (old, new) if one.profile]
    if len({tokenizer.digest for tokenizer in tokenizers}) > 1:
        names = " and ".join(tokenizer.name for tokenizer in tokenizers)
        yield f"lengths of different tokenizers ({names}) are not compared"
    if old.verification and new.verification:
        before, after = map(runs.measured_on, (old.verification, new.verification))
        if before != after:
            yield f"measured differently. Before: {before} Now: {after}"
