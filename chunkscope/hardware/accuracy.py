"""What kind of model it is, and how near predictions came to kinds that were measured."""

from chunkscope.artefacts.note import Note, note
from chunkscope.hardware.gpus import Gpu
from chunkscope.models.shape import ModelShape

EXPERTS, LATENT, WINDOWS = "a mixture of experts", "latent attention", "sliding windows"
STATES, EIGHT_BIT, FOUR_BIT = (
    "layers that keep a state",
    "8-bit weights",
    "4-bit weights",
)
# Models with these traits on one H200, and the least and most error of their makespans, where the
# host was not faster than assumed; tests/hardware/test_measured.py computes them again.
MEASURED: dict[tuple[str, ...], tuple[float, float]] = {
    (): (-0.18, 0.06),
    (EXPERTS,): (-0.23, 0.08),
    (EXPERTS, LATENT): (-0.03, 0.07),
    (LATENT,): (0.04, 0.04),
    (WINDOWS,): (-0.02, 0.06),
    (EIGHT_BIT,): (-0.06, 0.01),
    (EXPERTS, WINDOWS, FOUR_BIT): (-0.06, 0.02),
}


def traits_of(shape: ModelShape) -> tuple[str, ...]:
    """What makes it other than dense, 16-bit and looking back on everything."""
    a, bits = shape.attention, shape.quantization.bits
    traits = {
        EXPERTS: shape.experts is not None,
        LATENT: a.latent is not None,
        WINDOWS: a.sliding_layers > 0,
        STATES: shape.hybrid,
        EIGHT_BIT: 4 < bits <= 8,
        FOUR_BIT: bits <= 4,
    }
    return tuple(trait for trait, has in traits.items() if has)


def nearest_measured(shape: ModelShape) -> tuple[tuple[str, ...], float, float]:
    """The kind that was measured, and how much too short and too long predictions of it were."""
    traits = {*traits_of(shape)}
    nearest = min(
        MEASURED, key=lambda measured: len(traits.symmetric_difference(measured))
    )
    return nearest, *MEASURED[nearest]


def unlike_measured(shape: ModelShape, gpu: Gpu | None, gpus: int = 1) -> Note | None:
    """What of this was never measured, and how near predictions of the nearest came."""
    traits, (nearest, least, most) = traits_of(shape), nearest_measured(shape)
    kind, like = (", ".join(some) or "a dense model" for some in (traits, nearest))
    unlike = {
        "kind": kind if traits != nearest else None,
        "gpu": gpu.title if gpu and gpu.name != "h200" else None,
        "gpus": gpus if gpus > 1 else None,
    }
    values = {**unlike, "nearest": like, "least": least, "most": most}
    return note("unlike_measured", **values) if any(unlike.values()) else None
