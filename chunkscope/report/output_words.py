"""What is said of outputs that were compared: of which prompts, with what, and what is noise."""

from collections.abc import Iterator

from chunkscope.artefacts.numbers import plural
from chunkscope.verification.outputs import ENDINGS, RunOutputs, only_noise
from chunkscope.verification.references import reference_of
from chunkscope.verification.result import Run, Verification
from chunkscope.vllm.enums import Task

TIES = (
    "Random weights: ties decide. All tokens are all but equally likely, so that rounding chooses; "
    "it says nothing of a model with its own weights."
)


def outputs_said(v: Verification) -> Iterator[str]:
    """Nothing where none were compared."""
    reference = reference_of(v)
    if reference is None or reference.outputs is None:
        return
    yield _compared(v, reference, reference.outputs)
    if v.model.dummy:
        yield TIES
    for run in v.runs:
        if run.outputs is not None and run.outputs.beside is not None:
            yield from _differing(run, run.outputs, reference.outputs)


def _compared(v: Verification, reference: Run, found: RunOutputs) -> str:
    prompts = f"{found.again.prompts:,} of the prompts ({v.source})"
    asked = f"greedy, at most {plural(found.tokens, 'token')} each"
    if v.workload.task is Task.LOGLIKELIHOOD:
        asked = (
            f"each with up to {ENDINGS} endings of {plural(found.tokens, 'token')} from the middle "
            "of the prompts: the likeliest is the choice"
        )
    others = any(run.outputs is not None and run is not reference for run in v.runs)
    beside = f"with {reference.setting}, and " if others else ""
    return (
        f"Outputs: {prompts}, {asked}. Compared {beside}with the same setting when they are sent "
        "again in the opposite order, half of them under way: what differs then is the noise of "
        "batching."
    )


def _differing(run: Run, found: RunOutputs, reference: RunOutputs) -> Iterator[str]:
    if found.beside is None or not (different := len(found.beside.different)):
        return
    noise = max(len(one.again.different) for one in (found, reference))
    what = "choices" if found.beside.flipped_choices is not None else "outputs"
    lead = f"{run.setting}: {different:,} of {found.beside.prompts:,} {what} differ from "
    if only_noise(found, [reference]):
        yield f"{lead}{found.against}'s, no more than when the same setting is sent again."
    else:
        yield f"{lead}{found.against}'s, and {noise:,} when the same setting is sent again."
