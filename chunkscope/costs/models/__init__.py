"""config.json -> ModelShape: weights, KV bytes and activation bytes per token."""

from chunkscope.costs.models.config import shape_from_config
from chunkscope.costs.models.find import built_in_config, find_model
from chunkscope.costs.models.shape import Attention, Experts, Latent, ModelShape, Parameters
from chunkscope.costs.models.table import MODELS

__all__ = [
    "MODELS",
    "Attention",
    "Experts",
    "Latent",
    "ModelShape",
    "Parameters",
    "built_in_config",
    "find_model",
    "shape_from_config",
]
