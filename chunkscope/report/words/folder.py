"""Sentences about a folder of results: the first screen, and the changes between two folders."""

from collections.abc import Iterator, Sequence

from chunkscope.artefacts.numbers import gib, number, plural
from chunkscope.findings import Findings
from chunkscope.gating.check import Check
from chunkscope.gating.remedies import stale
from chunkscope.report.words import plan, runs, sentence
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
MARKS = {  # settings shown as lines in the chart of lengths
    "long_prefill_token_threshold": "tokens of one prompt per step",
    "max_num_batched_tokens": "tokens per step",
    "max_model_len": "context",
}


def opening(findings: Findings, v: Verification | None) -> Iterator[str]:
    """The answer, what was planned or measured, and the largest savings."""
    planned = findings.plan
    answers = (
        v if v and v.verdict else None,
        planned,
        v,
        findings.profile,
        findings.simulation,
    )
    yield next(filter(None, (*answers, findings.diagnosis))).first_sentence()
    if planned is not None and (v is None or any(runs.measured_elsewhere(planned, v))):
        yield plan.planned_for(planned)
    if v is not None:
        yield runs.measured_on(v)
    yield from map(plan.saving, planned.savings if planned else ())


def notes(findings: Findings) -> Iterator[str]:
    """Stale results, data that was not read, and the plan's notes."""
    for command, cause in stale(findings).items():
        yield f"{sentence(cause)}: run `chunkscope {command}`"
    if (data := findings.profile) is not None and data.skipped:
        yield f"{plural(data.skipped, 'bad row')} skipped"
    for dataset in data.datasets if data is not None else ():
        if dataset.failure:
            yield f"{dataset.name} was not read to its end: {sentence(dataset.failure)}"
    if findings.plan is not None:
        yield from plan.cautions(findings.plan)


def tiles(findings: Findings, v: Verification | None) -> Iterator[tuple[str, str, str]]:
    """Title, value and explanation of each key figure."""
    data, planned = findings.profile, findings.plan
    if data is not None:
        p95 = number(data.overall.percentile(95))
        yield "longest prompt", number(data.overall.max), f"tokens; p95 {p95}"
    run = v.run(v.verdict.use if v.verdict else "plan") if v else None
    if run is not None and run.kv_cache_tokens is not None:
        peak = (
            run.activation_peak_gib
            and f"activations {gib(run.activation_peak_gib)} (measured)"
        )
        yield "KV cache", number(run.kv_cache_tokens), f"tokens; {peak or 'measured'}"
    facts = plan.facts(planned) if planned else ()
    yield from (
        tile for tile in facts if not (run and tile[0] == "memory")
    )  # it was measured


# -- what changed --------------------------------------------------------------------------------


def what_changed(
    old: Findings, new: Findings, data: Sequence[Check] | None
) -> Iterator[str]:
    """Whether the data changed, then whether the answer did."""
    same = "the same in length; the rows could not be compared" if data else "the same"
    moved = any(check.value is not None for check in data or ())
    state = "not compared" if data is None else "not the same" if moved else same
    yield f"From {old.folder} to {new.folder} the data is {state}."
    if old.plan is not None and new.plan is not None:
        before, after = map(plan.answer, (old.plan, new.plan))
        same = f"The answer is the same: {after}"
        yield (
            same
            if before == after
            else f"The answer changed. Before: {before} Now: {after}"
        )


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
        both = zip(
            *map(runs.circumstances, (old.verification, new.verification)), strict=True
        )
        changed = [f"{was or '-'}, now {now or '-'}" for was, now in both if was != now]
        if changed:
            yield f"measured differently: {'; '.join(changed)}"
