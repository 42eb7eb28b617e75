"""What an emitter hands back: the text for stdout, and what its reader must know."""

from collections.abc import Mapping
from dataclasses import dataclass

from chunkscope.errors import UsageError
from chunkscope.planning.plan import Plan

PLACEHOLDER = "MODEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """`lost`: what the plan holds and this form cannot say. `notes`: how to use the text."""

    text: str
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def model_of(plan: Plan) -> str | None:
    """What to load: the hub id or folder; None when the plan was made without a model."""
    return plan.model.hub_id or plan.model.name if plan.model else None


def pairs(items: Mapping[str, object]) -> str:
    """`a=1,b=2`, as harnesses take it; a comma in a value would end it early."""
    for key, value in items.items():
        if "," in str(value) or "=" in str(value):
            raise UsageError(
                f"{key} = {value} cannot be written as key=value,key=value",
                hint="use a model path without commas and equal signs",
            )
    return ",".join(f"{key}={value}" for key, value in items.items())
