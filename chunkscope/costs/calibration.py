"""The calibration: what each step of a real engine held and how long it took, as an artefact.

`verify` writes it; `simulate` fits its step-time model to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chunkscope.artefacts import codec
from chunkscope.errors import InputError

SCHEMA = "chunkscope/calibration/1"
MADE_BY = "chunkscope verify"
DEFAULT_PATH = Path("reports/calibration.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSamples:
    """Columns of equal length, one entry per engine step.

    `prefill_pairs` counts (token, context token) pairs: a chunk of n tokens after `computed` others
    has n * computed + n * (n + 1) // 2. `decode_context_tokens` is the sum of context lengths of
    the decoding requests.
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

    @classmethod
    def concatenated(cls, parts: "Sequence[StepSamples]") -> "StepSamples":
        names = [field.name for field in fields(cls)]
        return cls(**{n: tuple(value for p in parts for value in getattr(p, n)) for n in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedModel:
    """What another model is scaled by. `pair_flops`: attention, per (token, context token)."""

    name: str
    hub_id: str | None
    weight_bytes: int
    active_parameters: int
    kv_bytes_per_token: int
    pair_flops: int
    read_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The steps of one model on one kind of GPU. `method` says how durations were taken."""

    gpu: str  # its title, as torch names it
    gpu_memory_gib: float | None
    device: str  # "cuda" or "cpu"
    model: CalibratedModel
    tp: int
    vllm: str
    torch: str | None
    eager: bool
    async_scheduling: bool | None
    method: str
    steps: StepSamples
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = ""

    def to_json(self) -> dict[str, Any]:
        from chunkscope.costs.calibration_file import document

        return document(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Calibration":
        """Read back what `to_json` wrote; InputError when it is not that."""
        from chunkscope.costs.calibration_file import parse

        return parse(document)

    def save(self, path: Path = DEFAULT_PATH) -> None:
        codec.write_atomically(path, codec.dump(self.to_json()))

    @classmethod
    def load(cls, path: Path = DEFAULT_PATH) -> "Calibration":
        return cls.from_json(codec.read(path, SCHEMA, made_by=MADE_BY))


SAME = ("gpu", "tp", "vllm", "eager", "async_scheduling")


def together(calibrations: Sequence[Calibration]) -> Calibration:
    """The steps of several workloads of one engine: each shows what the others do not."""
    first, *others = calibrations
    for other in others:
        _check_same(first, other)
    steps = StepSamples.concatenated([calibration.steps for calibration in calibrations])
    if others:
        names = (f"{n}: {name}" for n, c in enumerate(calibrations, 1) for name in c.steps.setting)
        steps = replace(steps, setting=tuple(names))
    return replace(first, steps=steps)


def _check_same(one: Calibration, other: Calibration) -> None:
    differs = next((name for name in SAME if getattr(one, name) != getattr(other, name)), None)
    if differs is None and one.model.name == other.model.name:
        return
    name = differs or "model"
    first, second = (getattr(c, name) if differs else c.model.name for c in (one, other))
    raise InputError(
        f"the calibrations are of different engines: {name} is {first} in one, {second} in another",
        hint="pass those of one GPU, model and vLLM version",
    )
