"""What vLLM is given as its model: a folder, a hub id, or a folder made from the built-in table."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chunkscope.artefacts.codec import write_atomically
from chunkscope.artefacts.folders import cache_folder
from chunkscope.errors import MissingError
from chunkscope.models import built_in_config, find_model
from chunkscope.models.shape import ModelShape

DUMMY = "dummy"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf", "*.npz")


def model_for_engine(name: str, load_format: str) -> tuple[str, ModelShape]:
    """The engine's `model`, and the shape of it for what is predicted."""
    shape = find_model(name)
    path = Path(name).expanduser()
    if path.exists():
        folder = path if path.is_dir() else path.parent
        if load_format != DUMMY and not any(
            True for pattern in WEIGHTS for _ in folder.glob(pattern)
        ):
            raise MissingError(
                f"{folder} holds no weights",
                hint="add `--load-format dummy` to measure memory and speed without them",
            )
        return str(folder.absolute()), shape
    config = built_in_config(name) if load_format == DUMMY else None
    if config is None:
        return shape.hub_id or name, shape
    return str(_kept_folder(name, config)), shape


def _kept_folder(name: str, config: Mapping[str, Any]) -> Path:
    """Always the same place: vLLM finds what it compiled before by the model's path."""
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name.lower())
    file = cache_folder() / "models" / slug / "config.json"
    write_atomically(file, json.dumps(config).encode())
    return file.parent
