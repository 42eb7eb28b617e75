"""Each family that transformers knows: as the model that it builds, without memory."""

import json

import pytest

from chunkscope.models import find_model
from tests.models.built import tensors_of
from tests.models.headers import write_header

# Families of decoders that vLLM serves.
FAMILIES = [
    "afmoe",
    "apertus",
    "arcee",
    "axk1",
    "bamba",
    "bloom",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "cwm",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone4",
    "exaone_moe",
    "falcon",
    "flex_olmo",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "glm_moe_dsa",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gpt_oss",
    "gptj",
    "granite",
    "granitemoe",
    "granitemoehybrid",
    "granitemoeshared",
    "helium",
    "hunyuan_v1_dense",
    "hy_v3",
    "hyperclovax",
    "iquestcoder",
    "jais2",
    "laguna",
    "lfm2",
    "lfm2_moe",
    "llama",
    "llama4_text",
    "mellum",
    "minimax_m2",
    "ministral",
    "ministral3",
    "mistral",
    "mixtral",
    "mpt",
    "nemotron",
    "nemotron_h",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "opt",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_moe",
    "qwen3_next",
    "seed_oss",
    "smollm3",
    "solar_open",
    "stablelm",
    "starcoder2",
    "vaultgemma",
]
LFM_2_LAYERS = {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8}
# What a family's default config leaves open.
COMPLETED = {
    "hunyuan_v1_dense": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "lfm2_moe": LFM_2_LAYERS,
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
}
# Not only what their default config describes.
VARIANTS = [
    ("bamba", {"attn_layer_indices": [9, 18, 27]}),
    (
        "falcon",
        {
            "new_decoder_architecture": True,
            "num_kv_heads": 8,
            "num_attention_heads": 64,
            "hidden_size": 8_192,
            "ffn_hidden_size": 32_768,
        },
    ),
    ("lfm2", LFM_2_LAYERS),
    (
        "gemma4_text",
        {
            "enable_moe_block": True,
            "num_experts": 16,
            "moe_intermediate_size": 704,
            "top_k_experts": 4,
        },
    ),
]
CASES = [(kind, COMPLETED.get(kind, {})) for kind in FAMILIES] + VARIANTS


@pytest.fixture
def model(request):
    """A family's config as transformers writes it, and the tensors that it builds."""
    pytest.importorskip("torch")
    from transformers import AutoConfig

    kind, changes = request.param
    config = AutoConfig.for_model(kind, **changes)
    stated = json.loads(config.to_json_string(use_diff=False))
    if stated.get("tie_word_embeddings"):  # transformers does not write it
        del stated["tie_word_embeddings"]
    return stated, tensors_of(config)


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("model", CASES, indirect=True, ids=lambda case: case[0])
def test_the_headers_of_a_checkpoint_give_exactly_what_is_built(model, tmp_path):
    config, tensors = model
    (tmp_path / "config.json").write_text(json.dumps(config))
    stored = {tensor.name: (tensor.dtype, tensor.shape) for tensor in tensors}
    write_header(tmp_path / "model.safetensors", stored)
    shape = find_model(tmp_path)
    assert shape.weight_bytes == sum(tensor.stored_bytes for tensor in tensors)
    assert 2 * shape.parameters.total == shape.weight_bytes
