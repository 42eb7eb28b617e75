"""Small random models of several families, and what they answer by themselves."""

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

VOCABULARY = 128
WINDOW = 16
ROUNDINGS = 256  # of the largest logit
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1_024,
    "initializer_range": 0.2,  # decisive: the most likely token stands out
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT2 = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 1_024,
    "vocab_size": VOCABULARY,
}
WITH_WINDOW = {**SMALL, "sliding_window": WINDOW}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("llama", SMALL),
    "Qwen2, one layer with a window": (
        "qwen2",
        {**WITH_WINDOW, "use_sliding_window": True, "max_window_layers": 1},
    ),
    "Mistral with a window": ("mistral", WITH_WINDOW),
    "Gemma 2, which caps its scores": ("gemma2", {**WITH_WINDOW, "head_dim": 8}),
    "Gemma 3": ("gemma3_text", {**WITH_WINDOW, "head_dim": 8}),
    "GPT-2": (
        "gpt2",
        {**GPT2, "initializer_range": 0.2, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "Mixtral": ("mixtral", {**SMALL, "num_local_experts": 4}),
    "Qwen3, a mixture of experts": ("qwen3_moe", {**SMALL, **EXPERTS, "head_dim": 8}),
}


@cache
def model_of(family: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, options = FAMILIES[family]
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **options)
    return AutoModelForCausalLM.from_config(config).eval()


def prompt_of(tokens: int, seed: int = 0) -> list[int]:
    generator = random.Random(f"{seed} {tokens}")
    return [generator.randrange(3, VOCABULARY) for _ in range(tokens)]


def unchunked(model: Any, tokens: Sequence[int]) -> Any:
    """The logits after the last token, by one pass over all of them and no cache."""
    import torch

    with torch.inference_mode():
        ids = torch.tensor([tokens])
        return model(input_ids=ids, use_cache=False).logits[0, -1].float()


def greedy(model: Any, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """Every token by an unchunked pass over all before it."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(unchunked(model, tokens).argmax()))
    return tuple(tokens[len(prompt) :])


def rounding(model: Any, logits: Any) -> float:
    """How far apart sums may be that were added up in another order."""
    import torch

    return ROUNDINGS * torch.finfo(model.dtype).eps * float(logits.abs().max())
