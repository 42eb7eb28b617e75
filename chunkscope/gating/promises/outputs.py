"""[gate.outputs]: are answers the same without chunks? `verify --check-outputs` compares them."""

from collections.abc import Iterator

from chunkscope.artefacts.figures import EQUAL_OUTPUTS, FLIPPED_CHOICES
from chunkscope.artefacts.numbers import share
from chunkscope.gating.budget import OutputPromises
from chunkscope.gating.evidence import Evidence, run_of
from chunkscope.gating.verdict import Verdict, limited
from chunkscope.verification.result import Run, Verification

FIGURES = {"equal": EQUAL_OUTPUTS, "flipped_choices": FLIPPED_CHOICES}
TIES = "random weights: ties decide; verify a model with its own weights"


def check_outputs(limits: OutputPromises, evidence: Evidence) -> Iterator[Verdict]:
    verification = evidence.verification
    run, why = run_of(verification, limits.setting)
    for key, figure in FIGURES.items():
        if (limit := getattr(limits, key)) is None:
            continue
        found = output_figure(verification, run, key)
        note = _noise(run) if found is not None and run else why or _why(verification, run, key)
        told = {"subject": limits.setting, "note": note}
        yield limited(f"outputs.{key}", limit, found, figure.unit, better=figure.better, **told)


def output_figure(of: Verification, run: Run | None, key: str) -> float | None:
    """By its key in a budget; None where there is no evidence, as of random weights."""
    return None if of.model.dummy or run is None else FIGURES[key].value(run)


def _noise(run: Run) -> str:
    outputs = run.outputs
    if outputs is None or outputs.beside is None or not outputs.beside.different:
        return ""
    again = outputs.again
    if again.flipped_choices is not None:
        return f"{again.flipped_choices:,} flip when the same setting is sent again"
    return f"{share(again.equal)} when the same setting is sent again"


def _why(of: Verification, run: Run | None, key: str) -> str:
    outputs = run.outputs if run else None
    if outputs is None:
        return "outputs were not compared: `chunkscope verify --check-outputs`"
    if outputs.beside is None:
        return "the other settings are compared with it, and it with none"
    if of.model.dummy:
        return TIES
    return f"{key} is of likelihood tasks: `chunkscope verify --task loglikelihood`"
