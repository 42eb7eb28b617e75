"""Models that are not dense, and the workload: measured on an H200 (reports/h200/kinds).

The workload is 120 requests of 60 to 27,000 tokens, sent at once, twice (measure_kinds.py). Kernels
that are compiled when a shape is seen first are compiled in the first round; the second one counts.
"""

import random
from typing import Any

from chunkscope.models.find import MODELS
from chunkscope.simulation.workload import Request
from chunkscope.vllm.settings import Settings

CONTEXT, UTILIZATION = 32_768, 0.9
REQUESTS, SHORTEST, LONGEST = 120, 60, 27_000
OUTPUTS = (32, 128)
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
GEMMA_3 = {"architectures": ["Gemma3ForCausalLM"]}
MOE = {
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
    "hidden_size": 2_048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
}
DEEPSEEK_V3 = {
    **MOE,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1_408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.446,
    "rope_theta": 50000.0,
    "rope_scaling": None,
}
GRANITE = {
    **MOE,
    "architectures": ["GraniteMoeForCausalLM"],
    "model_type": "granitemoe",
    "vocab_size": 49_155,
    "intermediate_size": 512,
    "num_key_value_heads": 8,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": True,
    "attention_multiplier": 0.015625,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 6.0,
    "rope_theta": 10000000.0,
}
# Shapes of published models that the built-in table does not have; from memory, as that is.
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3-8b-fp8": {**MODELS["qwen3-8b"].config, "quantization_config": FP8},
    "qwen3-4b-fp8": {**MODELS["qwen3-4b"].config, "quantization_config": FP8},
    "llama-3.1-8b-fp8": {
        **MODELS["llama-3.1-8b"].config,
        "max_position_embeddings": 32_768,
        "quantization_config": FP8,
    },
    "mistral-7b-v0.1": {
        **MODELS["mistral-7b-v0.3"].config,
        "sliding_window": 4_096,
        "vocab_size": 32_000,
    },
    "deepseek-v2-lite": {**MODELS["deepseek-v2-lite"].config, "n_group": 1, "topk_group": 1},
    "gemma-3-4b-text": {**MODELS["gemma-3-4b"].config["text_config"], **GEMMA_3},
    "gemma-3-12b-text": {**MODELS["gemma-3-12b"].config["text_config"], **GEMMA_3},
    "qwen3-15b-a2b": {**MODELS["qwen3-30b-a3b"].config, "num_hidden_layers": 24},
    "olmoe-1b-7b": {
        **MOE,
        "architectures": ["OlmoeForCausalLM"],
        "model_type": "olmoe",
        "vocab_size": 50_304,
        "intermediate_size": 1_024,
        "num_hidden_layers": 16,
        "num_experts": 64,
        "num_experts_per_tok": 8,
    },
    "qwen1.5-moe-a2.7b": {
        **MOE,
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "vocab_size": 151_936,
        "intermediate_size": 5_632,
        "num_hidden_layers": 24,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1_408,
        "shared_expert_intermediate_size": 5_632,
        "decoder_sparse_step": 1,
        "norm_topk_prob": False,
        "rope_theta": 1000000.0,
    },
    "moonlight-16b-a3b": {
        **DEEPSEEK_V3,
        "vocab_size": 163_840,
        "intermediate_size": 11_264,
        "num_hidden_layers": 27,
        "q_lora_rank": None,
        "first_k_dense_replace": 1,
    },
    # Built as DeepSeek-V3, in the size of a small model.
    "deepseek-v3-small": {
        **DEEPSEEK_V3,
        "vocab_size": 129_280,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 8_192,
        "num_hidden_layers": 20,
        "q_lora_rank": 1_536,
        "first_k_dense_replace": 3,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1_024,
    },
    # The same in another size: fewer, wider experts, other heads.
    "deepseek-v3-medium": {
        **DEEPSEEK_V3,
        "vocab_size": 102_400,
        "hidden_size": 3_072,
        "num_attention_heads": 24,
        "num_key_value_heads": 24,
        "intermediate_size": 9_216,
        "num_hidden_layers": 24,
        "q_lora_rank": 1_024,
        "first_k_dense_replace": 1,
        "n_routed_experts": 48,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1_536,
    },
    "phi-3.5-moe": {
        **MOE,
        "architectures": ["PhiMoEForCausalLM"],
        "model_type": "phimoe",
        "vocab_size": 32_064,
        "hidden_size": 4_096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 6_400,
        "num_hidden_layers": 32,
        "num_local_experts": 16,
        "num_experts_per_tok": 2,
        "attention_bias": True,
        "lm_head_bias": True,
        "rope_theta": 10000.0,
    },
    "ernie-4.5-21b-a3b": {
        **MOE,
        "architectures": ["Ernie4_5_MoeForCausalLM"],
        "model_type": "ernie4_5_moe",
        "vocab_size": 103_424,
        "hidden_size": 2_560,
        "intermediate_size": 12_288,
        "num_hidden_layers": 28,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "tie_word_embeddings": True,
        "use_bias": False,
        "moe_num_experts": 64,
        "moe_k": 6,
        "moe_intermediate_size": 1_536,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": 27,
        "moe_layer_interval": 1,
        "rope_theta": 500000.0,
    },
    # Latent attention alone: no layer has experts.
    "youtu-llm-2b": {
        **DEEPSEEK_V3,
        "vocab_size": 128_256,
        "intermediate_size": 6_144,
        "num_hidden_layers": 32,
        "q_lora_rank": 1_536,
        "first_k_dense_replace": 32,
    },
    "granite-3.1-3b-a800m": {
        **GRANITE,
        "hidden_size": 1_536,
        "num_hidden_layers": 32,
        "num_attention_heads": 24,
        "num_local_experts": 40,
    },
    "granite-3.1-1b-a400m": {
        **GRANITE,
        "hidden_size": 1_024,
        "num_hidden_layers": 24,
        "num_local_experts": 32,
    },
}


def config_of(model: str) -> dict[str, Any]:
    return dict(CONFIGS.get(model) or MODELS[model].config)


def context_of(model: str) -> int:
    return min(CONTEXT, int(config_of(model).get("max_position_embeddings", CONTEXT)))


def settings_of(model: str, budget: int) -> Settings:
    return Settings(
        max_model_len=context_of(model),
        max_num_batched_tokens=budget,
        gpu_memory_utilization=UTILIZATION,
        enable_prefix_caching=False,
    )


def requests_of(context: int) -> tuple[Request, ...]:
    """The same for all models with so long a context, all sent at once."""
    rng, made = random.Random(16), []
    ratio = min(LONGEST, context - OUTPUTS[1] - 64) / SHORTEST
    for _ in range(REQUESTS):
        prompt, output = int(SHORTEST * ratio ** rng.random()), rng.randint(*OUTPUTS)
        made.append(Request(prompt_tokens=prompt, output_tokens=output, arrival_s=0.0))
    return tuple(made)
