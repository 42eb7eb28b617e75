"""Run by a Python that has vLLM: the KV cache of the layers that it builds.

Reads [folder, ...] from stdin as JSON; writes for each the bytes of one token in all
layers that keep keys and values. The layers are built without memory for weights.
"""

import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from vllm import distributed
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.v1.kv_cache_interface import AttentionSpec

MARK = "layers-probe:"


def kv_bytes_per_token(folder):
    args = EngineArgs(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=2_048,
        enforce_eager=True,
    )
    config = args.create_engine_config()
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            store = f"file://{folder}/rendezvous"
            distributed.init_distributed_environment(1, 0, store, 0, backend="gloo")
            distributed.ensure_model_parallel_initialized(1, 1)
        with torch.device("meta"):
            initialize_model(vllm_config=config)
    size = 0
    for layer in config.compilation_config.static_forward_context.values():
        if not isinstance(layer, AttentionLayerBase):
            continue
        spec = layer.get_kv_cache_spec(config)
        if isinstance(spec, AttentionSpec):
            size += spec.page_size_bytes // spec.block_size
    return size


if __name__ == "__main__":
    print(MARK + json.dumps([kv_bytes_per_token(x) for x in json.load(sys.stdin)]))
