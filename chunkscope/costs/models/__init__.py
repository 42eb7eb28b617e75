"""config.json -> ModelShape: weights, KV bytes and activation bytes per token."""

from chunkscope.costs.models.config import shape_from_config
from chunkscope.costs.models.find import built_in_config, find_model
from chunkscope.costs.models.shape import ModelShape
from chunkscope.costs.models.table import MODELS

__all__ = [
    "MODELS",
    "ModelShape",
    "built_in_config",
    "find_model",
    "shape_from_config",
]
