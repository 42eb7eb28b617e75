"""The calibration: what each step of a real engine held and how long it took.

`verify` writes it; `simulate` fits its step-time model to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from chunkscope.artefacts.artefact import Artefact, now
from chunkscope.errors import InputError
from chunkscope.models.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSamples:
    """Columns of equal length, one entry per engine step.

    `prefill_pairs` counts (token, context token) pairs: a chunk of n tokens after
    `computed` others has n * computed + n * (n + 1) // 2. `decode_context_tokens` is
    the sum of context lengths of the decoding requests; what neighbours in the batch
    share counts as much as it takes.
    """

    setting: tuple[str, ...]  # which run it came from
    prefill_tokens: tuple[int, ...]
    prefill_pairs: tuple[int, ...]
    prefill_requests: tuple[int, ...]
    decode_requests: tuple[int, ...]
    decode_context_tokens: tuple[int, ...]
    duration_s: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.duration_s)


ALL_COLUMNS = tuple(column.name for column in fields(StepSamples))
COLUMNS = tuple(name for name in ALL_COLUMNS if name != "setting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Artefact):
    """The steps of one model on one kind of GPU, by CUDA events or a CPU's clock."""

    schema: ClassVar = "chunkscope/calibration/6"
    made_by: ClassVar = "chunkscope verify"

    created: str = field(default_factory=now)

    gpu: str  # its title, as torch names it
    device: str  # "cuda" or "cpu"
    model: ModelShape
    tp: int
    vllm: str
    eager: bool
    async_scheduling: bool | None
    steps: StepSamples
    version: str = ""


def together(calibrations: Sequence[Calibration]) -> Calibration:
    """The steps of several workloads of one engine: each shows what others do not."""
    first = calibrations[0]
    for calibration in calibrations[1:]:
        _check_same_engine(first, calibration)
    columns = {}
    for name in ALL_COLUMNS:
        entries = []
        for calibration in calibrations:
            entries.extend(getattr(calibration.steps, name))
        columns[name] = tuple(entries)
    return replace(first, steps=StepSamples(**columns))


def _check_same_engine(first: Calibration, second: Calibration) -> None:
    pairs = {"model.name": (first.model.name, second.model.name)}
    for name in ("gpu", "tp", "vllm", "eager", "async_scheduling"):
        pairs[name] = (getattr(first, name), getattr(second, name))
    for name, (one, other) in pairs.items():
        if one != other:
            what = (
                f"the calibrations are of different engines: {name} {one} and {other}"
            )
            hint = "pass those of one GPU, model and vLLM version"
            raise InputError(what, hint=hint)
