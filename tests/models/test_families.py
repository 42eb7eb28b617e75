"""Every known family: its weights are counted as the model that transformers builds has them."""

import json

import pytest

from chunkscope.models import shape_from_config
from chunkscope.models.fields import FAMILIES

# Not built by themselves: part of a model that sees, or another's under a name of its own.
NOT_BUILT = {
    "qwen2_vl",
    "qwen2_vl_text",
    "qwen2_5_vl",
    "qwen2_5_vl_text",
    "qwen3_vl_text",
}
NOT_BUILT |= {
    "telechat",
    "qwen3_vl_moe_text",
    "kimi_k2",
    "chatglm",
    "exaone",
    "baichuan",
}
NOT_BUILT |= {
    "internlm2",
    "internlm3",
    "minimax_m1",
    "minimax_text_01",
    "dots1",
    "hunyuan_v1_moe",
}
NOT_BUILT |= {"dbrx", "deepseek", "glm4v_text", "glm4v_moe_text", "mimo", "minicpm"}
NOT_BUILT |= {
    "bailing_moe",
    "mistral4",
    "orion",
    "pangu_ultra_moe",
    "sarvam_moe",
    "solar",
}
NOT_BUILT |= {"qwen2_5_omni_text", "qwen3_omni_moe_text"}
# What a family's default config leaves open.
COMPLETED = {
    **{kind: {"head_dim": 128} for kind in ("hunyuan_v1_dense", "ministral")},
    "gemma3n_text": {
        "num_kv_shared_layers": 0
    },  # vLLM makes their keys and values, too
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
}
# Not only what their default config describes.
ALSO = {
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 8, "num_attention_heads": 64,
               "hidden_size": 8_192, "ffn_hidden_size": 32_768},
    "granitemoehybrid": {"num_local_experts": 0},
    "jamba": {"num_experts": 1},
    "lfm2": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "nemotron_h": {"layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba", "moe"]},
}  # fmt: skip
GEMMA_4_EXPERTS = {"enable_moe_block": True, "num_experts": 16, "moe_intermediate_size": 704,
                   "top_k_experts": 4}  # fmt: skip


def counted(kind, changes):
    """(in the model, by us)."""
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **changes)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    stated = json.loads(config.to_json_string(use_diff=False))
    if stated.get("tie_word_embeddings"):  # transformers does not write it
        del stated["tie_word_embeddings"]
    shape = shape_from_config(stated, name=kind, source="test")
    return sum(weight.numel() for weight in model.parameters()), shape.parameters.total


KINDS = [
    (kind, COMPLETED.get(kind, {})) for kind in sorted(FAMILIES.keys() - NOT_BUILT)
]


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:`torch.jit")  # GPT-BigCode's own code
@pytest.mark.parametrize(
    ("kind", "changes"), [*KINDS, *ALSO.items(), ("gemma4_text", GEMMA_4_EXPERTS)]
)
def test_the_weights_are_the_models(kind, changes):
    """But for a norm or a bias here and there."""
    built, ours = counted(kind, changes)
    assert ours == pytest.approx(
        built, rel=5e-4 if (kind, changes) not in KINDS else 2e-4
    )
