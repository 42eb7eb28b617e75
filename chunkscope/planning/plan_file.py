"""The plan on disk: the figures people look for first, then everything, checked when read."""

from dataclasses import asdict
from typing import Any

import orjson
from pydantic import Field, ValidationError

from chunkscope.artefacts.checked import Checked, first_fault
from chunkscope.artefacts.labels import Label
from chunkscope.costs.gpus import Gpu
from chunkscope.costs.memory import Memory
from chunkscope.engine.choices import Mode
from chunkscope.engine.flags import Release, Value
from chunkscope.errors import InputError
from chunkscope.planning.plan import (
    MADE_BY,
    SCHEMA,
    Argument,
    Capacity,
    DatasetDecision,
    Forecast,
    Inputs,
    ModelInfo,
    Plan,
    Reason,
    Refused,
    StepEstimate,
)
from chunkscope.planning.policy import Chunks, Decision

GIB_LINES = ("weights", "activation", "sampler", "logprobs", "cuda_graphs", "overhead")


def document(plan: Plan) -> dict[str, Any]:
    """Plan -> JSON. What stands before `plan` is derived from it, for readers and for jq."""
    from chunkscope._version import __version__

    parts = {name: _plain(getattr(plan, name)) for name in _Parts.model_fields}
    if not plan.inputs.command:
        del parts["inputs"]["command"]  # a plan without one, read back, gives the same bytes
    return {
        "schema": SCHEMA,
        "chunkscope": plan.version or __version__,
        "created": plan.created,
        "vllm": plan.release.text,
        "profile_digest": plan.inputs.profile_digest,
        **_summary(plan),
        "plan": parts,
    }


def _summary(plan: Plan) -> dict[str, Any]:
    refused = plan.refused
    return {
        "mode": plan.mode.value,
        "threshold": plan.threshold,
        "reasons": [_plain(reason) for reason in plan.reasons],
        "args": plan.args,
        "memory": memory_summary(plan.memory),
        "refused_prompts": {
            "count": refused.prompts,
            "of": refused.of,
            "share": refused.share,
            "room_tokens": refused.room_tokens,
        },
    }


def memory_summary(memory: Memory | None) -> dict[str, Any] | None:
    """Each figure with its label; a figure that does not apply is null."""
    if memory is None:
        return None
    known = {line.name: line for line in memory.lines}
    lines = {
        f"{name}_gib": (
            {"value": known[name].gib, "label": known[name].label.value, "note": known[name].note}
            if name in known
            else None
        )
        for name in GIB_LINES
    }
    predicted = Label.PREDICTED.value
    left = "what is left for it"
    return {
        **lines,
        "kv_cache_gib": {"value": memory.kv_cache_gib, "label": predicted, "note": left},
        "kv_cache_tokens": {"value": memory.kv_cache_tokens, "label": predicted, "note": left},
    }


def _plain(part: Any) -> Any:
    """Dataclasses as dictionaries, all the way down."""
    if isinstance(part, tuple):
        return [_plain(item) for item in part]
    return asdict(part) if hasattr(part, "__dataclass_fields__") else part


class _Parts(Checked):
    mode: Mode
    threshold: int | None
    decision: Decision
    decisions: tuple[DatasetDecision, ...]
    chunks: Chunks
    arguments: tuple[Argument, ...]
    adjustments: tuple[Reason, ...]
    lost: tuple[str, ...]
    warnings: tuple[str, ...]
    refused: Refused
    inputs: Inputs
    release: Release
    model: ModelInfo | None
    gpu: Gpu | None
    memory: Memory | None
    capacity: Capacity | None
    step: StepEstimate | None
    forecast: Forecast | None = None


class _File(Checked):
    schema_name: str = Field(alias="schema")
    chunkscope: str
    created: str
    vllm: str
    profile_digest: str
    mode: Mode
    threshold: int | None
    reasons: list[dict[str, Any]]
    args: dict[str, Value]
    memory: dict[str, Any] | None
    refused_prompts: dict[str, Any]
    plan: _Parts


def parse(found: dict[str, Any]) -> Plan:
    try:
        file = _File.model_validate_json(orjson.dumps(found))
    except (ValidationError, TypeError) as error:
        raise _damaged(first_fault(error)) from None
    if file.schema_name != SCHEMA:
        raise _damaged(f"its schema is {file.schema_name!r}, not {SCHEMA!r}")
    parts = {name: getattr(file.plan, name) for name in _Parts.model_fields}
    plan = Plan(**parts, created=file.created, version=file.chunkscope)
    again = orjson.loads(orjson.dumps(_summary(plan)))
    changed = [name for name, value in again.items() if found[name] != value]
    if changed:
        raise _damaged(f"its {changed[0]} does not follow from the rest")
    return plan


def _damaged(why: str) -> InputError:
    return InputError(f"the plan is damaged: {why}", hint=f"make it again: `{MADE_BY}`")
