"""The calibration: what each step of a real engine held and how long it took, as an artefact.

`verify` writes it; `simulate` fits its step-time model to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from operator import attrgetter
from typing import ClassVar

from chunkscope.artefacts.artefact import Artefact, now
from chunkscope.errors import InputError
from chunkscope.models.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSamples:
    """Columns of equal length, one entry per engine step.

    `prefill_pairs` counts (token, context token) pairs: a chunk of n tokens after `computed` others
    has n * computed + n * (n + 1) // 2. `decode_context_tokens` is the sum of context lengths of
    the decoding requests; what neighbours in the batch share counts as much as it takes.
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


COLUMNS = tuple(field.name for field in fields(StepSamples) if field.name != "setting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Artefact):
    """The steps of one model on one kind of GPU, by CUDA events; on a CPU, by the clock."""

    schema: ClassVar = "chunkscope/calibration/6"
    made_by: ClassVar = "chunkscope verify"

    created: str = field(default_factory=now)

    gpu: str  # its title, as torch names it
    device: str  # "cuda" or "cpu"
    model: ModelShape  # what another model is scaled by
    tp: int
    vllm: str
    eager: bool
    async_scheduling: bool | None
    steps: StepSamples
    version: str = ""


SAME = ("model.name", "gpu", "tp", "vllm", "eager", "async_scheduling")


def together(calibrations: Sequence[Calibration]) -> Calibration:
    """The steps of several workloads of one engine: each shows what the others do not."""
    for name in SAME:
        values = dict.fromkeys(str(attrgetter(name)(one)) for one in calibrations)
        if len(values) > 1:
            hint, both = (
                "pass those of one GPU, model and vLLM version",
                " and ".join(values),
            )
            raise InputError(
                f"the calibrations are of different engines: {name} {both}", hint=hint
            )
    columns = {
        name: tuple(chain.from_iterable(getattr(c.steps, name) for c in calibrations))
        for name in ("setting", *COLUMNS)
    }
    return replace(calibrations[0], steps=StepSamples(**columns))
