"""Run by the interpreter that has vLLM: the KV groups it makes of each config.json.

Reads [{"folder": ..., "engine": {...}, "bytes": [n, ...]}, ...] from stdin as JSON. The
layers are vLLM's own, built without memory; block sizes are those of a GPU, where 16
tokens are the default and hybrids are aligned. Answers with the groups, and for each
amount of memory with the blocks and tokens that vLLM makes of it.
"""

import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from vllm.config import set_current_vllm_config
from vllm.config.vllm import get_layers_from_vllm_config
from vllm.distributed import (
    destroy_model_parallel,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry
from vllm.platforms import current_platform
from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends import fa_utils
from vllm.v1.core import kv_cache_utils

MARK = "kv-probe:"
# What latent attention imports of it is not in the CPU build, and is not called here.
for name in ("compile_flash_attn_varlen_func_from_specs", "flash_attn_varlen_func"):
    setattr(fa_utils, name, getattr(fa_utils, name, None) or print)
fa_utils.is_flash_attn_varlen_func_available = lambda: True
torch.cpu._is_amx_tile_supported = lambda: (
    False
)  # else states are of 32 bits: on CPUs alone
registry._run_in_subprocess = lambda look: look()


class OnGpu:
    """What decides of FlashAttention."""

    @staticmethod
    def get_supported_kernel_block_sizes():
        return [MultipleOf(16)]

    @staticmethod
    def customize_spec(spec):
        return spec


def answer(question):
    try:
        return layout(question)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def layout(question):
    args = EngineArgs(
        model=question["folder"],
        load_format="dummy",
        skip_tokenizer_init=True,
        **question["engine"],
    )
    config = args.create_engine_config()
    config.cache_config.block_size = 16
    config.cache_config.mamba_page_size_padded = None
    if config.model_config.is_hybrid:
        current_platform._align_hybrid_block_size(config, OnGpu)
    config.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, "tcp://127.0.0.1:29543", 0, "gloo")
        destroy_model_parallel()
        initialize_model_parallel(1, 1)  # anew: with experts there is one group more
        with torch.device("meta"):
            model = initialize_model(vllm_config=config)
        layers = get_layers_from_vllm_config(config, AttentionLayerBase)
        specs = {
            name: layer.get_kv_cache_spec(config) for name, layer in layers.items()
        }
        groups = kv_cache_utils.get_kv_cache_groups(config, specs)
        made = [
            kv_cache_utils.get_kv_cache_config_from_groups(config, groups, amount)
            for amount in question["bytes"]
        ]
        return {
            "groups": [
                [
                    type(g.kv_cache_spec).__name__,
                    len(g.layer_names),
                    g.kv_cache_spec.block_size,
                ]
                for g in groups
            ],
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "page": groups[0].kv_cache_spec.page_size_bytes,
            "blocks": [one.num_blocks for one in made],
            "tokens": [
                kv_cache_utils.get_kv_cache_capacity(config, one)[0] for one in made
            ],
        }


if __name__ == "__main__":
    print(MARK + json.dumps([answer(question) for question in json.load(sys.stdin)]))
