"""Checkpoint and config.json -> ModelShape: weights, KV and activation bytes."""

from chunkscope.models.config import shape_from_config
from chunkscope.models.find import MODELS, find_model, known_model
from chunkscope.models.shape import ModelShape

__all__ = ["MODELS", "ModelShape", "find_model", "known_model", "shape_from_config"]
