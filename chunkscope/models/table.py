"""The models that are known by name, without a network and without transformers.

A row of table.json holds the part of the published config.json that decides memory and
speed: what is its own beside that of a model it is `like`. `parameters` are the exact
weights by kind; the model's makers state a count (`published`) or a `size`, and
`source` says where the config was read. Models that are known to split text alike,
whatever their special tokens, have the same `tokenizer`.
`python -m tests.models.built NAME` counts the weights of a row.
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
    tokenizer: str
    config: Mapping[str, Any]
    parameters: Parameters
    source: str
    published: int | None = None
    size: str | None = None
    quantized: tuple[str, ...] | None = None  # kinds of weights, if not all that can be

    @property
    def stated_parameters(self) -> float:
        """As its makers count them, or name it: "30B"."""
        if self.published is not None:
            return self.published
        return float((self.size or "0B").removesuffix("B")) * 1e9


def _read(file: Path) -> dict[str, KnownModel]:
    models: dict[str, KnownModel] = {}
    for name, row in json.loads(file.read_bytes()).items():
        config = row.get("config", {})
        if "like" in row:
            config = {**models[row["like"]].config, **config}
        if "parameters" in row:
            parameters = Parameters(**row["parameters"])
        else:
            parameters = models[row["like"]].parameters
        models[name] = KnownModel(
            hub_ids=tuple(row["hub_ids"]),
            tokenizer=row["tokenizer"],
            config=config,
            parameters=parameters,
            source=row["source"],
            published=row.get("published"),
            size=row.get("size"),
            quantized=tuple(row["quantized"]) if "quantized" in row else None,
        )
    return models


MODELS = _read(Path(__file__).with_name("table.json"))


def known_model(name: str) -> KnownModel | None:
    """A model of the table, by its name or one of its hub ids.

    Capitals do not matter, as on the hub.
    """
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
