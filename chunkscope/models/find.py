"""A model's name -> its shape: by a folder, the built-in table, or the hub."""

import json
import os
import re
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from chunkscope.artefacts.files import read_text
from chunkscope.errors import InputError, MissingError
from chunkscope.models.checkpoint import Tensor, read_folder, read_hub
from chunkscope.models.config import shape_from_config
from chunkscope.models.fields import Config
from chunkscope.models.shape import ModelShape
from chunkscope.models.table import MODELS, KnownModel, built_in, known_model
from chunkscope.network import expect_hub

__all__ = [
    "MODELS",
    "KnownModel",
    "built_in",
    "find_model",
    "known_model",
    "suggestion",
]

# Where older ModelOpt says how the weights are quantized.
QUANTIZATION_FILE = "hf_quant_config.json"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")  # Qwen/Qwen3-8B
HINT = (
    "pass a folder with the model's config.json, a hub id, or a name like llama-3.1-8b"
)


def find_model(name: str | os.PathLike[str]) -> ModelShape:
    """The shape of a model: a folder or config.json, a built-in name, or a hub id."""
    text = os.fspath(name)
    if not text:
        raise InputError("the name of the model is empty", hint=HINT)
    path = Path(text).expanduser()
    _refuse_gguf(path, text)
    if path.exists():
        return _from_path(path, text)
    if path.is_absolute() or text.startswith((".", "~")) or path.suffix == ".json":
        raise InputError(f"no such model folder: {text}", hint=HINT)
    shape = built_in(text)
    if shape is not None:
        return shape
    if not HUB_ID.fullmatch(text):
        raise MissingError(f"unknown model: {text}", hint=suggestion(text))
    return _from_hub(text)


def suggestion(name: str) -> str:
    """Names that are known and like it."""
    near = [known for known in MODELS if known in name.lower()][-3:]
    near = near or get_close_matches(name.lower(), MODELS, n=3, cutoff=0.5)
    if not near:
        return HINT
    return f"did you mean {' or '.join(near)}? Else {HINT}"


def _refuse_gguf(path: Path, name: str) -> None:
    """InputError for a GGUF file, a folder of them, or a hub id that says so."""
    if path.is_dir():
        has_config = (path / "config.json").is_file()
        is_gguf = not has_config and any(path.glob("*.gguf"))
    else:
        is_gguf = "gguf" in name.lower() and path.suffix != ".json"
    if is_gguf:
        raise InputError(
            f"{name} is a GGUF model, and chunkscope does not read GGUF files",
            hint="pass the hub id or the config.json of the original model",
        )


def _from_path(path: Path, name: str) -> ModelShape:
    file = path / "config.json" if path.is_dir() else path
    config = _object(file)
    if not config:
        read_text(file, hint=HINT)  # or it says why it cannot be read
        raise InputError(f"{file} is not a JSON object, or empty", hint=HINT)
    folder = file.parent
    return shape_from_config(
        _with_quantization(config, folder),
        name=name,
        source=str(file),
        hub_id=str(folder),
        tensors=read_folder(folder),
    )


def _from_hub(hub_id: str) -> ModelShape:
    """By config.json and the headers of the weights' files: cached, or downloaded."""
    file = _hub_config(hub_id)
    config = _object(file)
    if not config:
        raise InputError(f"the config.json of {hub_id} is empty", hint=HINT)
    return shape_from_config(
        _with_quantization(config, file.parent),
        name=hub_id,
        source="the hub",
        hub_id=hub_id,
        tensors=_hub_tensors(hub_id, file.parent),
    )


def _hub_tensors(hub_id: str, folder: Path) -> list[Tensor] | None:
    from huggingface_hub import constants

    tensors = read_folder(folder)
    if tensors is None and not constants.HF_HUB_OFFLINE:
        tensors = read_hub(hub_id)
    return tensors


def _with_quantization(config: Config, folder: Path) -> Config:
    beside = _object(folder / QUANTIZATION_FILE).get("quantization")
    return {"quantization_config": beside, **config}


def _object(file: Path) -> Config:
    """Nothing where the file is not there, or is no JSON object."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(file.read_bytes())
        return content if isinstance(content, dict) else {}
    return {}


def _hub_config(hub_id: str) -> Path:
    """In the hub's cache, else downloaded."""
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(hub_id, "config.json")
    if isinstance(cached, str):
        return Path(cached)
    if not constants.HF_HUB_OFFLINE:
        expect_hub()
    try:
        config = Path(hf_hub_download(hub_id, "config.json"))
    except Exception as error:  # the hub's library raises its own, and httpx' errors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MissingError(
            f"the config.json of {hub_id} could not be downloaded: {reason}",
            hint=suggestion(hub_id),
        ) from error
    with suppress(Exception):  # most have none
        hf_hub_download(hub_id, QUANTIZATION_FILE)
    return config
