"""What config.json leaves out because a family's code knows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    tied: bool = False
    gated: bool = True
    norms_per_layer: int = 2
    norm_bias: bool = False
    qkv_bias: bool = False
    mlp_biases: bool = False
    all_biases: bool = False
    qk_norm: bool = False
    gated_attention: bool = False  # its output is multiplied, by a gate as wide as the queries
    learned_positions: bool = False
    latent_cache: bool = (
        True  # vLLM keeps the latent, where there is one, and not what it expands to
    )
    state_beside: bool = False  # each layer has both attention and a state
    defaults: Mapping[str, Any] = field(default_factory=dict)


LIKE_LLAMA = Family()
_NORMED = Family(qk_norm=True)
_CLASSIC = Family(gated=False, norm_bias=True, all_biases=True)
_TIED_CLASSIC = replace(_CLASSIC, tied=True)
_GEMMA_4 = Family(tied=True, norms_per_layer=4, qk_norm=True)
_GEMMA_3 = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}
_PLAIN = [
    "llama",
    "llama4_text",
    "mistral",
    "ministral",
    "ministral3",
    "mixtral",
    "phi3",
    "phimoe",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
    "cohere2_moe",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone4",
    "flex_olmo",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "granite",
    "granitemoe",
    "granitemoehybrid",
    "granitemoeshared",
    "helium",
    "hunyuan_v1_dense",
    "jamba",
    "bamba",
    "kimi_linear",
    "minimax_m2",
    "olmo",
    "olmo2",
    "olmo3",
    "seed_oss",
    "smollm3",
    "solar_open",
    "stablelm",
]
# Each is compared with the model that transformers builds (tests/models/test_families.py), or is
# one of those under another name; some with what vLLM builds (tests/hardware/test_kv_groups.py).
_BY_FAMILY = (
    (LIKE_LLAMA, _PLAIN),
    (
        Family(qkv_bias=True),
        (
            "qwen2",
            "qwen2_moe",
            *("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
        ),
    ),
    (
        _NORMED,
        (
            "qwen3",
            "qwen3_moe",
            "qwen3_vl_text",
            "qwen3_vl_moe_text",
            "olmoe",
            "exaone_moe",
            "hy_v3",
        ),
    ),
    (
        replace(_NORMED, gated_attention=True),
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    ),
    (replace(_NORMED, gated=False), ("apertus",)),
    (replace(_NORMED, tied=True), ("lfm2",)),
    (Family(state_beside=True), ("falcon_h1",)),
    (Family(latent_cache=False), ("minicpm3",)),
    (Family(tied=True), ("gemma",)),
    (Family(tied=True, norms_per_layer=4), ("gemma2",)),
    (Family(tied=True, norms_per_layer=4, qk_norm=True, defaults=_GEMMA_3), ("gemma3_text",)),
    (replace(_GEMMA_4, defaults={"global_head_dim": 512}), ("gemma4_text", "gemma4_unified_text")),
    (Family(tied=True, norms_per_layer=1), ("cohere", "cohere2")),
    (Family(all_biases=True), ("gpt_oss",)),
    (Family(gated=False, norms_per_layer=1), ("nemotron_h",)),
    (Family(gated=False), ("arcee",)),
    (Family(gated=False, norm_bias=True), ("nemotron",)),
    (Family(gated=False, norm_bias=True, norms_per_layer=1, mlp_biases=True), ("gptj",)),
    (Family(gated=False, norm_bias=True, norms_per_layer=1, tied=True), ("falcon",)),
    (Family(gated=False, tied=True), ("mpt",)),
    (_CLASSIC, ("gpt_neox", "phi")),
    (_TIED_CLASSIC, ("starcoder2", "bloom")),
    (replace(_TIED_CLASSIC, learned_positions=True), ("gpt2", "opt", "gpt_bigcode")),
)
FAMILIES = {model_type: family for family, types in _BY_FAMILY for model_type in types}
