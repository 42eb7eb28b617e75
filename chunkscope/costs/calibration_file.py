"""Reading a calibration back: a file may come from another machine, so every field is checked."""

from dataclasses import asdict, fields
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from chunkscope.artefacts.checked import Checked
from chunkscope.costs.calibration import MADE_BY, SCHEMA, CalibratedModel, Calibration, StepSamples
from chunkscope.errors import InputError

Seconds = Annotated[float, Field(gt=0, lt=1e6, allow_inf_nan=False)]
Gib = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Steps(Checked):
    setting: list[str]
    prefill_tokens: list[NonNegativeInt]
    prefill_pairs: list[NonNegativeInt]
    prefill_requests: list[NonNegativeInt]
    decode_requests: list[NonNegativeInt]
    decode_context_tokens: list[NonNegativeInt]
    duration_s: list[Seconds]


class _Model(Checked):
    name: str
    hub_id: str | None
    weight_bytes: PositiveInt
    active_parameters: PositiveInt
    kv_bytes_per_token: PositiveInt
    pair_flops: NonNegativeInt
    read_bytes: PositiveInt


class _File(Checked):
    schema_name: str = Field(alias="schema")
    chunkscope: str
    created: str
    gpu: str
    gpu_memory_gib: Gib | None
    device: str
    model: _Model
    tp: PositiveInt
    vllm: str
    torch: str | None
    eager: bool
    async_scheduling: bool | None
    method: str
    steps: _Steps


def document(calibration: Calibration) -> dict[str, Any]:
    from chunkscope._version import __version__

    plain = asdict(calibration)
    plain["steps"] = {name: list(column) for name, column in plain["steps"].items()}
    version = plain.pop("version") or __version__
    created = plain.pop("created")
    return {"schema": SCHEMA, "chunkscope": version, "created": created, **plain}


def parse(found: dict[str, Any]) -> Calibration:
    try:
        file = _File.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _damaged(f"{where}: {first['msg']}") from None
    if file.schema_name != SCHEMA:
        raise _damaged(f"its schema is {file.schema_name!r}, not {SCHEMA!r}")
    columns = file.steps.model_dump()
    if len({len(column) for column in columns.values()}) != 1:
        raise _damaged("the columns of steps differ in length")
    plain = file.model_dump(exclude={"schema_name", "chunkscope", "model", "steps"})
    return Calibration(
        **plain,
        version=file.chunkscope,
        model=CalibratedModel(**file.model.model_dump()),
        steps=StepSamples(**{part.name: tuple(columns[part.name]) for part in fields(StepSamples)}),
    )


def _damaged(why: str) -> InputError:
    return InputError(f"the calibration is damaged: {why}", hint=f"make it again: `{MADE_BY}`")
