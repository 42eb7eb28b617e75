"""[gate.outputs]: are answers the same without chunks? `verify --check-outputs` compares them."""

from collections.abc import Iterator

from chunkscope.artefacts.figures import EQUAL_OUTPUTS
from chunkscope.artefacts.numbers import share
from chunkscope.gating.budget import OutputPromises
from chunkscope.gating.evidence import Evidence, run_of
from chunkscope.gating.verdict import Verdict, limited
from chunkscope.verification.result import Run, Verification

TIES = "random weights: ties decide; verify a model with its own weights"


def check_outputs(limits: OutputPromises, evidence: Evidence) -> Iterator[Verdict]:
    verification = evidence.verification
    run, why = run_of(verification, limits.setting)
    if limits.equal is None:
        return
    equal = output_figure(verification, run, "equal")
    note = _noise(run) if equal is not None and run else why or _why(verification, run)
    yield limited(
        "outputs.equal",
        limits.equal,
        equal,
        EQUAL_OUTPUTS.unit,
        better=EQUAL_OUTPUTS.better,
        subject=limits.setting,
        note=note,
    )


def output_figure(of: Verification, run: Run | None, _key: str) -> float | None:
    """None where there is no evidence, as of random weights."""
    return None if of.model.dummy or run is None else EQUAL_OUTPUTS.value(run)


def _noise(run: Run) -> str:
    if run.outputs is None or run.outputs.equal in (None, 1):
        return ""
    return f"{share(run.outputs.again)} when the same setting is sent again"


def _why(of: Verification, run: Run | None) -> str:
    if run is None or run.outputs is None:
        return "outputs were not compared: `chunkscope verify --check-outputs`"
    if run.outputs.equal is None:
        return "the other settings are compared with it, and it with none"
    return TIES if of.model.dummy else ""
