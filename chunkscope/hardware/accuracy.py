"""The kind of a model, and how near predictions came to kinds that were measured."""

from dataclasses import dataclass

from chunkscope.artefacts.note import Note, note
from chunkscope.hardware.gpus import Gpu
from chunkscope.models.shape import ModelShape

EXPERTS = "a mixture of experts"
LATENT = "latent attention"
WINDOWS = "sliding windows"
STATES = "layers that keep a state"
EIGHT_BIT = "8-bit weights"
FOUR_BIT = "4-bit weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKind:
    """Models with these traits on one H200, and the errors of their makespans.

    -0.18 is 18 % too short. Where the host was faster than assumed is left out.
    """

    traits: tuple[str, ...]
    least: float
    most: float


# tests/hardware/test_measured.py computes them again.
MEASURED = (
    MeasuredKind(traits=(), least=-0.18, most=0.06),
    MeasuredKind(traits=(EXPERTS,), least=-0.23, most=0.08),
    MeasuredKind(traits=(EXPERTS, LATENT), least=-0.03, most=0.07),
    MeasuredKind(traits=(LATENT,), least=0.04, most=0.04),
    MeasuredKind(traits=(WINDOWS,), least=-0.02, most=0.06),
    MeasuredKind(traits=(EIGHT_BIT,), least=-0.06, most=0.01),
    MeasuredKind(traits=(EXPERTS, WINDOWS, FOUR_BIT), least=-0.06, most=0.02),
)


def traits_of(shape: ModelShape) -> tuple[str, ...]:
    """What makes it other than dense, 16-bit and looking back on everything."""
    attention, bits = shape.attention, shape.quantization.bits
    traits = {
        EXPERTS: shape.experts is not None,
        LATENT: attention.latent is not None,
        WINDOWS: attention.sliding_layers > 0,
        STATES: shape.hybrid,
        EIGHT_BIT: 4 < bits <= 8,
        FOUR_BIT: bits <= 4,
    }
    return tuple(trait for trait, has in traits.items() if has)


def nearest_measured(shape: ModelShape) -> MeasuredKind:
    """The kind that was measured and has most traits in common."""
    traits = set(traits_of(shape))
    return min(MEASURED, key=lambda kind: len(traits.symmetric_difference(kind.traits)))


def unlike_measured(shape: ModelShape, gpu: Gpu | None, gpus: int = 1) -> Note | None:
    """What of this was never measured, and how near predictions of the nearest came."""
    traits, nearest = traits_of(shape), nearest_measured(shape)
    other_kind, other_gpu, other_gpus = None, None, None
    if traits != nearest.traits:
        other_kind = _named(traits)
    if gpu is not None and gpu.name != "h200":
        other_gpu = gpu.title
    if gpus > 1:
        other_gpus = gpus
    if other_kind is None and other_gpu is None and other_gpus is None:
        return None
    return note(
        "unlike_measured",
        kind=other_kind,
        gpu=other_gpu,
        gpus=other_gpus,
        nearest=_named(nearest.traits),
        least=nearest.least,
        most=nearest.most,
    )


def _named(traits: tuple[str, ...]) -> str:
    return ", ".join(traits) or "a dense model"
