"""A model's name -> its shape: a folder, the built-in table, the hub's local cache, the hub.

An entry of table.json holds the part of the published config.json that decides memory and speed:
what its family shares (or the model it is `like`), and what is its own. `published` is the model's
parameter count; the tests compare it with what is counted from the config. Both were written from
memory; where it says `corroborated` the count was found quoted in public repositories. That of
deepseek-v3 is the main model's: its checkpoint adds a multi-token-prediction layer. Models that are
known to split text alike, whatever their special tokens, have the same `tokenizer`.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from chunkscope.artefacts.files import read_text
from chunkscope.errors import InputError, MissingError
from chunkscope.models.config import shape_from_config
from chunkscope.models.shape import ModelShape
from chunkscope.network import expect_hub

INDEX = "model.safetensors.index.json"
BESIDE = (
    "hf_quant_config.json"  # where older ModelOpt says how the weights are quantized
)
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    hub_ids: tuple[str, ...]
    published: int
    config: Mapping[str, Any]
    tokenizer: str


def _table(file: Path) -> dict[str, KnownModel]:
    models: dict[str, KnownModel] = {}
    for family in json.loads(file.read_bytes()):
        for name, model in family["models"].items():
            shared = (
                models[model["like"]].config
                if "like" in model
                else family.get("config", {})
            )
            models[name] = KnownModel(
                hub_ids=tuple(model["hub_ids"]),
                published=model["published"],
                config={**shared, **model.get("config", {})},
                tokenizer=model.get("tokenizer") or family["tokenizer"],
            )
    return models


MODELS = _table(Path(__file__).with_name("table.json"))


def find_model(name: str | os.PathLike[str]) -> ModelShape:
    """The shape of a model: a folder or config.json, a built-in name, or a hub id."""
    if not (text := os.fspath(name)):
        raise InputError("the name of the model is empty", hint=_HINT)
    if (path := Path(text).expanduser()).exists():
        return _from_path(path, text)
    if path.is_absolute() or text.startswith((".", "~")) or path.suffix == ".json":
        raise InputError(f"no such model folder: {text}", hint=_HINT)
    if shape := built_in(text):
        return shape
    if not HUB_ID.fullmatch(text):
        raise MissingError(f"unknown model: {text}", hint=suggestion(text))
    return replace(_from_path(_hub_config(text), text), source="the hub", hub_id=text)


_HINT = (
    "pass a folder with the model's config.json, a hub id, or a name like llama-3.1-8b"
)


def suggestion(name: str) -> str:
    """Names that are known and like it."""
    inside = [known for known in MODELS if known in name.lower()]
    near = inside[-3:] or get_close_matches(name.lower(), MODELS, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}? Else {_HINT}" if near else _HINT


def known_model(name: str) -> KnownModel | None:
    """A model of the table, by its name or one of its hub ids. Capitals do not matter, as there."""
    wanted = name.lower()
    return next(
        (m for n, m in MODELS.items() if wanted in (n, *map(str.lower, m.hub_ids))),
        None,
    )


def built_in(name: str) -> ModelShape | None:
    """The shape of a model in the table, by its name or one of its hub ids."""
    if (model := known_model(name)) is None:
        return None
    hub_id = next(
        (h for h in model.hub_ids if h.lower() == name.lower()), model.hub_ids[0]
    )
    return shape_from_config(
        model.config, name=name, source="the built-in table", hub_id=hub_id
    )


def _from_path(path: Path, name: str) -> ModelShape:
    file = path / "config.json" if path.is_dir() else path
    if not (config := _object(file)):
        read_text(file, hint=_HINT)  # or it says why it cannot be read
        raise InputError(f"{file} is not a JSON object, or empty", hint=_HINT)
    return shape_from_config(
        {
            "quantization_config": _object(file.with_name(BESIDE)).get("quantization"),
            **config,
        },
        name=name,
        source=str(file),
        hub_id=str(file.parent),
        file_bytes=_loaded_bytes(file.parent, config),
    )


def _object(file: Path) -> dict[str, Any]:
    """Nothing where the file is not there, or is no JSON object."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(file.read_bytes())
        return content if isinstance(content, dict) else {}
    return {}


def _loaded_bytes(folder: Path, config: Mapping[str, Any]) -> int | None:
    """What vLLM loads, by the weights' index; None if that includes layers that predict further
    tokens, which are not loaded. 32-bit weights are cast down."""
    metadata = _object(folder / INDEX).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if (
        not isinstance(total, int)
        or total <= 0
        or config.get("num_nextn_predict_layers")
    ):
        return None
    is_wide = "float32" in (config.get("torch_dtype"), config.get("dtype"))
    return total // 2 if is_wide else total


def _hub_config(hub_id: str) -> Path:
    """In the hub's cache, else downloaded."""
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    if isinstance(cached := try_to_load_from_cache(hub_id, "config.json"), str):
        return Path(cached)
    if not constants.HF_HUB_OFFLINE:
        expect_hub()
    try:
        config = Path(hf_hub_download(hub_id, "config.json"))
    except (
        Exception
    ) as error:  # the hub's library raises its own, requests' and httpx' errors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MissingError(
            f"the config.json of {hub_id} could not be downloaded: {reason}",
            hint=suggestion(hub_id),
        ) from error
    with suppress(Exception):  # most have none
        hf_hub_download(hub_id, BESIDE)
    return config
