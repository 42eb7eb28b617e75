"""Well-known models, so that `--model llama-3.1-8b` needs no network.

An entry of table.json holds the part of the published config.json that decides memory and speed:
what its family shares (or the model it is `like`), and what is its own. `published` is the model's
parameter count; the tests compare it with what is counted from the config. Both were written from
memory, without a network: the hub was not read. Where it says `corroborated` the count was found
quoted in public repositories; elsewhere config and count merely agree with each other. The count of
deepseek-v3 is the main model's: its checkpoint adds a multi-token-prediction layer. Models that are
known to split text alike, whatever their special tokens, have the same `tokenizer`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    hub_ids: tuple[str, ...]
    published: int
    config: Mapping[str, Any]
    tokenizer: str
    corroborated: bool = False


def _read(file: Path) -> dict[str, KnownModel]:
    found: dict[str, KnownModel] = {}
    for family in json.loads(file.read_bytes()):
        for name, model in family["models"].items():
            shared = found[model["like"]].config if "like" in model else family.get("config", {})
            found[name] = KnownModel(
                hub_ids=tuple(model["hub_ids"]),
                published=model["published"],
                config={**shared, **model.get("config", {})},
                tokenizer=model.get("tokenizer") or family["tokenizer"],
                corroborated=model.get("corroborated", False),
            )
    return found


MODELS = _read(Path(__file__).with_suffix(".json"))
