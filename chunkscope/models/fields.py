"""The fields of a config.json by whatever name a family gives them, and what a family leaves out.

A row of families.json holds what the code of its model types knows and config.json does not say.
Each is compared with the model that transformers builds (tests/models/test_families.py), or is one
of those under another name; some with what vLLM builds (tests/hardware/test_kv_groups.py).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError

Config = Mapping[str, Any]

NAMES = json.loads(Path(__file__).with_name("names.json").read_bytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    tied: bool = False
    gated: bool = True
    norms_per_layer: int = 2
    norm_bias: bool = False
    qkv_bias: bool = False
    mlp_biases: bool = False
    all_biases: bool = False
    qk_norm: bool = False
    gated_attention: bool = (
        False  # its output is multiplied, by a gate as wide as the queries
    )
    learned_positions: bool = False
    latent_cache: bool = True  # vLLM keeps the latent, and not what it expands to
    state_beside: bool = False  # each layer has both attention and a state
    defaults: Config = field(default_factory=dict)


LIKE_LLAMA = Family()
FAMILIES = {
    model_type: Family(**row)
    for row in json.loads(Path(__file__).with_name("families.json").read_bytes())
    for model_type in row.pop("model_types")
}


@dataclass(frozen=True, slots=True)
class Fields:
    """One config with its family's defaults: whole numbers, or InputError that names the field."""

    config: Config
    name: str
    family: Family = LIKE_LLAMA

    @property
    def kind(self) -> str:
        return str(self.config.get("model_type") or "")

    @property
    def layers(self) -> int:
        listed = self.words("layers_block_type")
        count = (
            len(listed)
            if listed and self.maybe("layers") is None
            else self.number("layers")
        )
        if not 1 <= count <= 10_000:  # they are looked at one by one
            raise InputError(
                f"the config.json of {self.name} describes a model of {count} layers"
            )
        return count

    def number(self, what: str) -> int:
        if value := self.maybe(what):
            return value
        raise InputError(
            f"the config.json of {self.name} has no {NAMES[what][0]}, or 0",
            hint="it must have attention and layers of one size: no Mamba, no Nemotron-NAS",
        )

    def maybe(self, what: str) -> int | None:
        for key in NAMES.get(what, (what,)):
            value = self.config.get(key)
            if isinstance(value, list) and value and value == value[:1] * len(value):
                value = value[0]  # the same in each layer
            if value is None or value == "auto":
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, int)
                or not 0 <= value < 2**53
            ):
                raise InputError(
                    f"the config.json of {self.name} has no valid {key}: {value!r:.40}"
                )
            return value
        return None

    def all_of(self, *names: str) -> tuple[int, ...] | None:
        """All of them, or None where one is missing or zero."""
        values = tuple(value for name in names if (value := self.maybe(name)))
        return values if len(values) == len(names) else None

    def words(self, key: str) -> list[str] | None:
        """A list with a word for each layer."""
        stated = self.config.get(key)
        return [str(word) for word in stated] if isinstance(stated, list) else None

    def says(self, key: str) -> bool:
        return bool(self.config.get(key))
