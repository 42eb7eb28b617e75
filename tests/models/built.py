"""The weights of a model as transformers builds it, without memory: what a checkpoint would hold.

`python -m tests.models.built NAME ...` prints the `parameters` of models of the table.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from chunkscope.models import MODELS
from chunkscope.models.checkpoint import Checkpoint, Tensor, sum_up
from chunkscope.models.fields import text_part
from chunkscope.models.quantization import Quantization

# Types that the hub calls otherwise: transformers has no class of that name.
CALLED = {"kimi_k2": "deepseek_v3", "deepseek_v32": "deepseek_v32"}


def built(config: Mapping[str, Any]) -> list[Tensor]:
    """All tensors, by the names that transformers gives them."""
    import torch
    import transformers

    stated = {k: v for k, v in config.items() if k != "quantization_config"}
    kind = str(stated["model_type"])
    stated["model_type"] = CALLED.get(kind, kind)
    settings = transformers.AutoConfig.for_model(**stated)
    architecture = (stated.get("architectures") or [""])[0]
    model_class = getattr(transformers, architecture, None)
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


def counted(config: Mapping[str, Any]) -> Checkpoint:
    """The weights of a model that transformers builds from a config.json, by kind."""
    text = text_part(config)
    layers = text.get("num_hidden_layers") or text.get("n_layer")
    assert isinstance(layers, int)
    return sum_up(
        built(config), layers=layers, tied=False, quantization=Quantization()
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        counts = asdict(counted(MODELS[name].config).parameters)
        print(json.dumps({name: {kind: n for kind, n in counts.items() if n}}))
