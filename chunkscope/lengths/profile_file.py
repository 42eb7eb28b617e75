"""Reading a profile back: a file may come from anywhere, so every field is checked."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from chunkscope.errors import InputError
from chunkscope.lengths.profile import (
    MADE_BY,
    SCHEMA,
    DatasetProfile,
    Profile,
    TokenizerInfo,
    dataset_from_json,
    shares,
)


class _Checked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Tokenizer(_Checked):
    name: str
    digest: str
    kind: str
    engine: str
    reference: str
    special_tokens_added: int
    chat_template: str | None
    notes: list[str]


class _Long(_Checked):
    tokens: NonNegativeInt
    position: int


class _Bad(_Checked):
    position: int
    reason: str


class _Sample(_Checked):
    rows: NonNegativeInt
    out_of: NonNegativeInt
    seed: int


class _Dataset(_Checked):
    name: str
    group: str
    path: str
    format: str
    kind: str
    field: str
    rows: NonNegativeInt
    skipped: NonNegativeInt
    bytes: int | None
    sha256: str | None
    chars: int | None
    chars_per_token: float | None
    tokens: dict[str, int | float | None]
    over: dict[str, float | None]
    output_field: str | None
    output_tokens: dict[str, int | float | None] | None
    unit: str
    engine: str | None
    longest: list[_Long]
    bad_rows: list[_Bad]
    failure: str | None
    notes: list[str]
    sample: _Sample | None
    histogram: dict[str, NonNegativeInt]
    output_histogram: dict[str, NonNegativeInt] | None


class _File(_Checked):
    schema_name: str = Field(alias="schema")
    chunkscope: str
    created: str
    tokenizer: _Tokenizer
    options: dict[str, Any]
    overall: dict[str, Any]
    groups: list[dict[str, Any]]
    datasets: list[_Dataset]


def parse(document: dict[str, Any]) -> Profile:
    try:
        file = _File.model_validate(document)
        datasets = tuple(_dataset(dataset) for dataset in file.datasets)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _damaged(f"{where}: {first['msg']}") from None
    if file.schema_name != SCHEMA:
        raise _damaged(f"its schema is {file.schema_name!r}, not {SCHEMA!r}")
    tokenizer = {**file.tokenizer.model_dump(), "notes": tuple(file.tokenizer.notes)}
    return Profile(
        tokenizer=TokenizerInfo(**tokenizer),
        datasets=datasets,
        options=file.options,
        created=file.created,
        version=file.chunkscope,
    )


def _dataset(checked: _Dataset) -> DatasetProfile:
    lengths = (*checked.histogram, *(checked.output_histogram or ()))
    if not all(length.isascii() and length.isdigit() for length in lengths):
        raise _damaged(f"{checked.name!r} has a length that is no number")
    dataset = dataset_from_json(checked.model_dump())
    outputs = dataset.output_lengths
    figures = (dataset.rows, dataset.lengths.summary(), shares(dataset.lengths))
    output_figures = outputs.summary() if outputs else None
    if (checked.rows, checked.tokens, checked.over) != figures or (
        checked.output_tokens != output_figures
    ):
        raise _damaged(f"the figures of {checked.name!r} do not follow from its histogram")
    return dataset


def _damaged(why: str) -> InputError:
    return InputError(f"the profile is damaged: {why}", hint=f"make it again: `{MADE_BY}`")
