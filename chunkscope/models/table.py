"""The models that are known by name, without a network and without transformers.

An entry of table.json holds the part of the published config.json that decides memory and speed:
what its family shares (or the model it is `like`), and what is its own. `parameters` are the exact
weights by kind, `published` is the count that its makers state, and `source` says where the config
was read. Models that are known to split text alike, whatever their special tokens, have the same
`tokenizer`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chunkscope.models.config import shape_of_known
from chunkscope.models.shape import ModelShape, Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    hub_ids: tuple[str, ...]
    published: int
    config: Mapping[str, Any]
    tokenizer: str
    parameters: Parameters
    source: str
    quantized: tuple[str, ...] | None  # kinds of weights; None: all that the method takes


def _read(file: Path) -> dict[str, KnownModel]:
    models: dict[str, KnownModel] = {}
    for family in json.loads(file.read_bytes()):
        for name, row in family["models"].items():
            config = {**family.get("config", {}), **row.get("config", {})}
            parameters = row.get("parameters")
            if "like" in row:
                like = models[row["like"]]
                config = {**like.config, **row.get("config", {})}
                parameters = parameters or like.parameters
            models[name] = KnownModel(
                hub_ids=tuple(row["hub_ids"]),
                published=row["published"],
                config=config,
                tokenizer=row.get("tokenizer") or family["tokenizer"],
                parameters=_parameters(parameters),
                source=row.get("source") or family["source"],
                quantized=_kinds(row.get("quantized") or family.get("quantized")),
            )
    return models


def _parameters(stated: Parameters | dict[str, int]) -> Parameters:
    return stated if isinstance(stated, Parameters) else Parameters(**stated)


def _kinds(stated: list[str] | None) -> tuple[str, ...] | None:
    return None if stated is None else tuple(stated)


MODELS = _read(Path(__file__).with_name("table.json"))


def known_model(name: str) -> KnownModel | None:
    """A model of the table, by its name or one of its hub ids. Capitals do not matter, as there."""
    wanted = name.lower()
    for own, model in MODELS.items():
        if wanted == own or wanted in [hub_id.lower() for hub_id in model.hub_ids]:
            return model
    return None


def built_in(name: str) -> ModelShape | None:
    """The shape of a model in the table, by its name or one of its hub ids."""
    model = known_model(name)
    if model is None:
        return None
    hub_id = model.hub_ids[0]
    for spelled in model.hub_ids:
        if spelled.lower() == name.lower():
            hub_id = spelled
    return shape_of_known(
        model.config,
        model.parameters,
        name=name,
        hub_id=hub_id,
        quantized=model.quantized,
    )
