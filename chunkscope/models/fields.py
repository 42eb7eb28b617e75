"""The fields of a config.json, by whatever name a family gives them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from chunkscope.errors import InputError

Config = Mapping[str, object]

# What we call a field -> the names that families give it.
NAMES: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("names.json").read_bytes()
)
# What the code of some model types knows and config.json does not say.
FAMILIES: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("families.json").read_bytes()
)
MOST_LAYERS = 10_000  # they are looked at one by one
LARGEST = 2**53  # the largest whole number that JSON readers agree on
# The language model of a multimodal config is one level down.
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True, slots=True)
class Fields:
    """One language model's config: valid values, or InputError that names the field."""

    config: Config
    name: str

    @property
    def kind(self) -> str:
        return str(self.config.get("model_type") or "")

    def is_of(self, family: str) -> bool:
        """Is the model's type one of a row of families.json?"""
        return self.kind in FAMILIES[family]

    @property
    def layers(self) -> int:
        count = self.maybe("layers") or len(self.words("layers_block_type") or ())
        if not count:
            count = self.number("layers")
        if count > MOST_LAYERS:
            raise InputError(
                f"the config.json of {self.name} describes a model of {count} layers"
            )
        return count

    def number(self, what: str) -> int:
        """A whole number that has to be there, and not 0."""
        value = self.maybe(what)
        if not value:
            raise InputError(
                f"the config.json of {self.name} has no {NAMES[what][0]}, or 0",
                hint="chunkscope plans for decoders with attention whose layers are of "
                "one size",
            )
        return value

    def maybe(self, what: str) -> int | None:
        """The first whole number that is stated under one of the field's names."""
        for key in NAMES.get(what, [what]):
            value = self.config.get(key)
            if (
                isinstance(value, list)
                and value
                and value.count(value[0]) == len(value)
            ):
                value = value[0]  # the same in each layer
            if value is None or value == "auto":
                continue
            if is_whole(value) and 0 <= value < LARGEST:
                return value
            raise InputError(
                f"the config.json of {self.name} has no valid {key}: {value!r:.40}"
            )
        return None

    def all_of(self, *names: str) -> list[int] | None:
        """All of these numbers, or None where one is missing or 0."""
        values = []
        for name in names:
            value = self.maybe(name)
            if not value:
                return None
            values.append(value)
        return values

    def words(self, key: str) -> list[str] | None:
        """A list that has a word for each layer."""
        stated = self.config.get(key)
        if not isinstance(stated, list):
            return None
        return [str(word) for word in stated]

    def part(self, key: str) -> Config:
        """An object inside the config; empty where there is none."""
        stated = self.config.get(key)
        return stated if isinstance(stated, Mapping) else {}

    def says(self, key: str) -> bool:
        return bool(self.config.get(key))


def is_whole(value: object) -> TypeGuard[int]:
    """Is it a whole number? True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def text_part(config: Config) -> dict[str, object]:
    """The language model's own fields, with those of the whole where it states none."""
    for key in NESTED:
        nested = config.get(key)
        if isinstance(nested, Mapping) and nested:
            return {**config, **text_part(nested)}
    merged: dict[str, object] = {}
    for key in ("attn_config", "ffn_config"):  # DBRX and MPT
        part = config.get(key)
        if isinstance(part, Mapping):
            merged.update(part)
    return {**merged, **config}
