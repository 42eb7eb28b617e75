"""What kind of model it is, and how near predictions came to kinds that were measured."""

from enum import StrEnum

from chunkscope.artefacts.note import Note, note
from chunkscope.hardware.gpus import Gpu
from chunkscope.models.shape import ModelShape


class Trait(StrEnum):
    """What makes a model other than dense, 16-bit and looking back on everything."""

    EXPERTS = "a mixture of experts"
    LATENT = "latent attention"
    WINDOWS = "sliding windows"
    STATES = "layers that keep a state"
    EIGHT_BIT = "8-bit weights"
    FOUR_BIT = "4-bit weights"


MEASURED_ON = "h200"
# Models with these traits on one H200, and the least and most error of their makespans, where the
# host was not faster than assumed; tests/hardware/test_measured.py computes them again.
MEASURED = {
    frozenset[Trait](): (-0.18, 0.06),
    frozenset({Trait.EXPERTS}): (-0.12, 0.08),
    frozenset({Trait.EXPERTS, Trait.LATENT}): (-0.03, 0.01),
    frozenset({Trait.LATENT}): (0.03, 0.03),
    frozenset({Trait.WINDOWS}): (-0.01, 0.04),
    frozenset({Trait.EIGHT_BIT}): (-0.06, 0.01),
    frozenset({Trait.EXPERTS, Trait.WINDOWS, Trait.FOUR_BIT}): (0.02, 0.02),
}


def traits_of(shape: ModelShape) -> frozenset[Trait]:
    a, q = shape.attention, shape.quantization
    traits = {
        Trait.EXPERTS: shape.experts is not None,
        Trait.LATENT: a.latent is not None,
        Trait.WINDOWS: a.sliding_layers > 0,
        Trait.STATES: shape.hybrid,
        Trait.EIGHT_BIT: q is not None and 4 < q.bits <= 8,
        Trait.FOUR_BIT: q is not None and q.bits <= 4,
    }
    return frozenset(trait for trait, has in traits.items() if has)


def nearest_measured(shape: ModelShape) -> tuple[frozenset[Trait], float, float]:
    """The kind that was measured, and how much too short and too long predictions of it were."""
    nearest = min(MEASURED, key=lambda measured: len(measured ^ traits_of(shape)))
    return nearest, *MEASURED[nearest]


def unlike_measured(shape: ModelShape, gpu: Gpu | None, gpus: int = 1) -> Note | None:
    """What of this was never measured, and how near predictions of the nearest came."""
    traits = traits_of(shape)
    nearest, least, most = nearest_measured(shape)
    kind = kind_of(traits) if nearest != traits else None
    title = gpu.title if gpu and gpu.name != MEASURED_ON else None
    if kind is None and title is None and gpus == 1:
        return None
    several = gpus if gpus > 1 else None
    like = {"nearest": kind_of(nearest), "least": least, "most": most}
    return note("unlike_measured", kind=kind, gpu=title, gpus=several, **like)


def kind_of(traits: frozenset[Trait]) -> str:
    """In words: what its memory and its steps are taken to be like."""
    return ", ".join(trait for trait in Trait if trait in traits) or "a dense model"
