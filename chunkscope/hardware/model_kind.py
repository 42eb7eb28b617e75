"""What kind of model it is, and how near predictions came to kinds that were measured."""

from dataclasses import dataclass
from enum import StrEnum

from chunkscope.artefacts.numbers import spaced
from chunkscope.models.shape import ModelShape


class Trait(StrEnum):
    """What makes a model other than dense, 16-bit and looking back on everything."""

    EXPERTS = "a mixture of experts"
    LATENT = "latent attention"
    WINDOWS = "sliding windows"
    STATES = "layers that keep a state"
    EIGHT_BIT = "8-bit weights"
    FOUR_BIT = "4-bit weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKind:
    """Models with these traits on an H200, and the least and most error of their makespans.

    tests/hardware/test_kinds_measured.py computes the errors again from reports/h200.
    """

    traits: frozenset[Trait]
    models: str
    least: float
    most: float

    @property
    def name(self) -> str:
        return _joined(self.traits)


MEASURED = (
    MeasuredKind(
        traits=frozenset(), models="Llama-3.1-8B and Qwen2.5-1.5B", least=-0.18, most=0.06
    ),
    MeasuredKind(
        traits=frozenset({Trait.EXPERTS}),
        models="Qwen3-30B-A3B, Qwen1.5-MoE-A2.7B and OLMoE-1B-7B",
        least=-0.19,
        most=0.08,
    ),
    MeasuredKind(
        traits=frozenset({Trait.EXPERTS, Trait.LATENT}),
        models="DeepSeek-V2-Lite and Moonlight-16B-A3B",
        least=-0.17,
        most=0.01,
    ),
    MeasuredKind(
        traits=frozenset({Trait.WINDOWS}),
        models="Gemma-2-9B, Gemma-3-4B and Mistral-7B-v0.1",
        least=-0.01,
        most=0.02,
    ),
)


def traits_of(shape: ModelShape) -> frozenset[Trait]:
    a, q = shape.attention, shape.quantization
    found = {
        Trait.EXPERTS: shape.experts is not None,
        Trait.LATENT: a.latent is not None,
        Trait.WINDOWS: a.sliding_layers > 0,
        Trait.STATES: shape.hybrid,
        Trait.EIGHT_BIT: q is not None and q.bits > 4,
        Trait.FOUR_BIT: q is not None and q.bits <= 4,
    }
    return frozenset(trait for trait, has in found.items() if has)


def kind_of(shape: ModelShape) -> str:
    """In words: what its memory and its steps are taken to be like."""
    return _joined(traits_of(shape))


def unlike_measured(shape: ModelShape) -> str | None:
    """One sentence where no model of this kind was measured: how near the nearest kind came."""
    traits = traits_of(shape)
    nearest = min(MEASURED, key=lambda kind: len(kind.traits ^ traits), default=None)
    if nearest is None or nearest.traits == traits:
        return None
    return (
        f"no model like this one ({_joined(traits)}) was measured: of the nearest kind that was "
        f"({nearest.name}: {nearest.models}), makespans came out {_percent(nearest.least)} to "
        f"{_percent(nearest.most)} off"
    )


def _joined(traits: frozenset[Trait]) -> str:
    return ", ".join(trait for trait in Trait if trait in traits) or "a dense model"


def _percent(share: float) -> str:
    return spaced(f"{share:+.0%}")
