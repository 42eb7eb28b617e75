"""A small model with weights of its own: random, and so large that one token clearly wins.

What vLLM makes for `--load-format dummy` is so small that all tokens are all but equally likely:
then rounding decides which comes first.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

DECISIVE = 3.0  # the standard deviation of logits, before the scale of the hidden state


def save_model(
    folder: Path, config: dict[str, Any], *, dtype: type = np.float32, seed: int = 0
) -> None:
    """config.json and model.safetensors of a Llama of this shape."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    chance = np.random.default_rng(seed)
    tensors = {
        name: _tensor(name, shape, chance).astype(dtype) for name, shape in _shapes(config).items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _tensor(name: str, shape: tuple[int, ...], chance: np.random.Generator) -> np.ndarray:
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    scale = {"embed_tokens": 1.0, "lm_head": DECISIVE / shape[-1] ** 0.5}
    usual = 2.0 / shape[-1] ** 0.5  # layers that say something beside the residual stream
    part = next((value for key, value in scale.items() if key in name), usual)
    return chance.standard_normal(shape, np.float32) * np.float32(part)


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, wide, vocab = (
        config[key] for key in ("hidden_size", "intermediate_size", "vocab_size")
    )
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or hidden // heads
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (heads * size, hidden),
        "self_attn.k_proj": (groups * size, hidden),
        "self_attn.v_proj": (groups * size, hidden),
        "self_attn.o_proj": (hidden, heads * size),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
    }
    for number in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{number}.{k}.weight": v for k, v in layer.items()}
    return shapes
