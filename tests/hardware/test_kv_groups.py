"""KV groups and pages: what vLLM itself makes of small models with the ratios of real ones."""

import json

import pytest

from chunkscope.hardware.kv_groups import kv_layout
from chunkscope.models import find_model, shape_from_config
from chunkscope.models.layers import KvKind

KINDS = {
    "SlidingWindowSpec": KvKind.SLIDING,
    "FullAttentionSpec": KvKind.FULL,
    "MLAAttentionSpec": KvKind.FULL,
    "MambaSpec": KvKind.STATE,
}
COMMON = {
    "torch_dtype": "bfloat16",
    "vocab_size": 2_048,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8_192,
    "tie_word_embeddings": False,  # vLLM does not tie all that say so
}
GEMMA = {
    **COMMON,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 64,
}
LATENT = {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "n_group": 2,
    "topk_group": 1,
}
DELTA_NET = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
MAMBA = {
    "mamba_num_heads": 16,
    "mamba_head_dim": 64,
    "n_groups": 2,
    "ssm_state_size": 64,
    "conv_kernel": 4,
    "chunk_size": 128,
    "use_conv_bias": True,
    "mlp_bias": False,
    "mlp_hidden_act": "relu2",
    "layer_norm_epsilon": 1e-5,
}
CONFIGS = {
    "gemma-2": {
        **GEMMA,
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "num_hidden_layers": 6,
        "sliding_window": 4_096,
    },
    "gemma-3": {  # 1 in 6, and a rest: groups of 2 and less
        **GEMMA,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 14,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
    },
    "gemma-4": {  # full attention has wider heads: blocks of the windows are as much longer
        **GEMMA,
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "num_hidden_layers": 12,
        "sliding_window": 512,
        "global_head_dim": 128,
        "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": 2_048,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 2,
    },
    "gemma-4, fewer heads": {  # which hold the keys alone
        **GEMMA,
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "num_hidden_layers": 12,
        "num_key_value_heads": 4,
        "sliding_window": 512,
        "global_head_dim": 128,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 2,
    },
    "gpt-oss": {
        **COMMON,
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": 4,
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "mistral": {
        **COMMON,
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "num_hidden_layers": 4,
        "sliding_window": 1_024,
    },
    "nearly as many of both": {
        **COMMON,
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": 7,
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": [*["sliding_attention", "full_attention"] * 3, "sliding_attention"],
    },
    "deepseek-v2": {
        **COMMON,
        **LATENT,
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "topk_method": "greedy",
        "num_hidden_layers": 3,
    },
    "deepseek-v3": {
        **COMMON,
        **LATENT,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_hidden_layers": 3,
        "q_lora_rank": 96,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
    },
    "qwen3-next": {
        **COMMON,
        **DELTA_NET,
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_hidden_layers": 8,
    },
    "nemotron-h": {
        **COMMON,
        **MAMBA,
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "num_hidden_layers": 13,
        "hybrid_override_pattern": "M-M-M*-M-M-M*",
    },
    "falcon": {  # states as many KV heads as heads, and has one
        **{k: v for k, v in COMMON.items() if k not in ("head_dim", "intermediate_size")},
        "architectures": ["FalconForCausalLM"],
        "model_type": "falcon",
        "num_hidden_layers": 4,
        "num_kv_heads": 4,
        "multi_query": True,
        "new_decoder_architecture": False,
        "parallel_attn": True,
        "bias": False,
        "ffn_hidden_size": 1_024,
        "tie_word_embeddings": True,
    },
    "minicpm-3": {  # latent attention, of which vLLM keeps the keys and values
        **COMMON,
        "architectures": ["MiniCPM3ForCausalLM"],
        "model_type": "minicpm3",
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 64,
        "q_lora_rank": 96,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 32,
        "rope_scaling": None,
    },
    "jamba": {
        **COMMON,
        "architectures": ["JambaForCausalLM"],
        "model_type": "jamba",
        "num_hidden_layers": 8,
        "attn_layer_period": 4,
        "attn_layer_offset": 2,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": 16,
    },
    "falcon-h1": {  # attention and a state in each layer
        **COMMON,
        "architectures": ["FalconH1ForCausalLM"],
        "model_type": "falcon_h1",
        "num_hidden_layers": 4,
        "mamba_d_ssm": 512,
        "mamba_n_heads": 8,
        "mamba_d_head": 64,
        "mamba_n_groups": 1,
        "mamba_d_state": 64,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "lfm-2": {
        **COMMON,
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "num_hidden_layers": 8,
        "tie_word_embeddings": True,
        "conv_L_cache": 3,
        "conv_dim": 256,
        "block_dim": 256,
        "conv_bias": False,
        "block_ff_dim": 768,
        "block_auto_adjust_ff_dim": True,
        "block_multiple_of": 64,
        "block_ffn_dim_multiplier": 1.0,
        "layer_types": ["conv", "conv", "full_attention", "conv"] * 2,
    },
    "granite-4": {
        **COMMON,
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 8,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 128,
        "mamba_n_heads": 16,
        "mamba_d_head": 32,
        "mamba_n_groups": 1,
        "mamba_d_state": 64,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "layer_types": ["mamba", "mamba", "mamba", "attention"] * 2,
    },
}
AMOUNTS = (50_000_000, 1_234_567_890)
BUDGETS = (512, 8_192)
CACHING = (False, True)


@pytest.fixture(scope="module")
def made(probe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    asked = []
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        for budget in BUDGETS:
            for caching in CACHING:
                engine = {
                    "max_model_len": 8_192,
                    "max_num_batched_tokens": budget,
                    "max_num_seqs": 8,
                }
                engine |= {"enable_prefix_caching": caching}
                question = {"folder": str(folder / name), "engine": engine, "bytes": AMOUNTS}
                asked.append(((name, budget, caching), question))
    answers = probe("kv_probe", [question for _, question in asked])
    return {key: answer for (key, _), answer in zip(asked, answers, strict=True)}


@pytest.mark.real
@pytest.mark.parametrize("caching", CACHING)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", CONFIGS)
def test_groups_pages_and_capacity_are_vllms(made, name, budget, caching):
    shape = shape_from_config(CONFIGS[name], name=name, source="test")
    layout, seen = kv_layout(shape, caches_states=caching), made[name, budget, caching]
    assert "refused" not in seen, seen
    groups = [(KINDS[kind], layers, size) for kind, layers, size in seen["groups"]]
    ours = [(g.kind, g.layers, g.block_tokens) for g in layout.groups]
    sized = [group[:2] if group[0] is KvKind.STATE else group for group in (*groups, *ours)]
    assert sorted(sized[: len(groups)]) == sorted(sized[len(groups) :])
    assert layout.page_bytes == seen["page"]
    blocks = [layout.blocks(amount) for amount in AMOUNTS]
    assert blocks == seen["blocks"]
    tokens = [layout.tokens(n, context=8_192, step=budget) for n in blocks]
    assert tokens == seen["tokens"]


@pytest.mark.real
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_those_that_vllm_makes(made, name):
    """Of mamba and of linear attention, too. vLLM pads a vocabulary to a multiple of 64."""
    shape = shape_from_config(CONFIGS[name], name=name, source="test")
    seen = made[name, BUDGETS[0], False]["parameters"]
    assert shape.parameters.total == pytest.approx(seen, rel=0.005)


def test_a_request_holds_a_window_and_what_a_step_computes():
    layout = kv_layout(find_model("gemma-2-9b"))
    full, sliding = layout.groups
    assert (full.blocks_of(8_000), sliding.blocks_of(8_000)) == (500, 257)
    assert sliding.blocks_of(8_000, step=2_048) == 385
    assert sliding.blocks_of(160) == 10
    assert layout.blocks_of(8_000) == 757


def test_a_dense_model_is_one_group():
    layout = kv_layout(find_model("llama-3.1-8b"))
    assert [(g.kind, g.layers) for g in layout.groups] == [(KvKind.FULL, 32)]
    assert layout.tokens(layout.blocks(10**9), context=100, step=512) == 10**9 // 2**21 * 16
