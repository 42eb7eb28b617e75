"""The weights of a model as transformers builds it, without memory.

`python -m tests.models.built NAME ...` prints the `parameters` of models of the table.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from chunkscope.models import MODELS
from chunkscope.models.checkpoint import Checkpoint, Tensor, sum_up
from chunkscope.models.fields import Fields, text_part
from chunkscope.models.quantization import Quantization

# Types without a class in transformers, and those that are built alike.
CALLED = {"KimiK25ForConditionalGeneration": "Kimi_K25ForConditionalGeneration"}
BUILT_AS = {"kimi_k2": "deepseek_v3", "mimo": "qwen2"}


def built(config: Mapping[str, Any]) -> list[Tensor]:
    """All tensors of the model that a config.json describes."""
    import transformers

    stated = _buildable(config)
    settings = transformers.AutoConfig.for_model(**stated)
    architecture = (stated.get("architectures") or [""])[0]
    architecture = CALLED.get(architecture, architecture)
    return tensors_of(settings, getattr(transformers, architecture, None))


def tensors_of(settings: Any, model_class: Any = None) -> list[Tensor]:
    """All tensors of transformers' model of these settings, by its names."""
    import torch
    import transformers

    with torch.device("meta"):
        if model_class is not None:
            model = model_class._from_config(settings)
        else:
            model = transformers.AutoModelForCausalLM.from_config(settings)
    return [
        Tensor(
            name=name,
            dtype="BF16",
            shape=tuple(weight.shape),
            stored_bytes=2 * weight.numel(),
        )
        for name, weight in model.named_parameters()
    ]


def _buildable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of 16 bits, and by types that transformers knows."""
    stated = dict(config)
    stated.pop("quantization_config", None)
    stated["model_type"] = BUILT_AS.get(stated["model_type"], stated["model_type"])
    if "text_config" in stated:
        stated["text_config"] = _buildable(stated["text_config"])
    return stated


def counted(config: Mapping[str, Any]) -> Checkpoint:
    """The weights of a model that transformers builds from a config.json, by kind."""
    layers = Fields(text_part(config), "built").layers
    return sum_up(built(config), layers=layers, tied=False, quantization=Quantization())


if __name__ == "__main__":
    for name in sys.argv[1:]:
        counts = asdict(counted(MODELS[name].config).parameters)
        print(json.dumps({name: {kind: n for kind, n in counts.items() if n}}))
