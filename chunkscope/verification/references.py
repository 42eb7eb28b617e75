"""Which run the outputs of the others are compared with, and the comparison."""

from collections.abc import Mapping
from dataclasses import replace

from chunkscope.verification.outputs import SpokenOutputs, compared
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.settings import DEFAULT
from chunkscope.vllm.enums import Mode


def reference_of(v: Verification) -> Run | None:
    """Without chunks where that was measured, else vLLM's default, else the first."""
    there = [run for run in v.runs if run.outputs is not None]
    for name in (Mode.OFF.value, DEFAULT):
        for run in there:
            if name in (run.setting, *run.same_as):
                return run
    return there[0] if there else None


def with_references(v: Verification, spoken: Mapping[str, SpokenOutputs]) -> Verification:
    """`spoken`: by setting, what was answered. What is not known any more stays as it was."""
    reference = reference_of(v)
    if reference is None or reference.setting not in spoken:
        return v
    said = spoken[reference.setting]
    return replace(v, runs=tuple(_beside(run, reference, said, spoken) for run in v.runs))


def _beside(
    run: Run, reference: Run, said: SpokenOutputs, spoken: Mapping[str, SpokenOutputs]
) -> Run:
    if run.outputs is None or (run is not reference and run.setting not in spoken):
        return run
    if run is reference:
        outputs = replace(run.outputs, against=None, beside=None)
    else:
        found = compared(said, spoken[run.setting])
        outputs = replace(run.outputs, against=reference.setting, beside=found)
    return replace(run, outputs=outputs)
