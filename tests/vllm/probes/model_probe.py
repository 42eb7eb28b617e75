"""Run by a Python that has vLLM: what it makes of each config.json, split over GPUs.

Reads [[folder, tensor_parallel_size], ...] from stdin as JSON; writes why where vLLM
refuses.
"""

import json
import os
import sys
from types import SimpleNamespace

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.linear import QKVParallelLinear
from vllm.model_executor.models import registry

MARK = "model-probe:"
registry._run_in_subprocess = lambda look: (
    look()
)  # one process is enough, and ten times faster


def load_heads(model, tp):
    """What vLLM says when it builds the layers of the model's heads, on `tp` GPUs."""
    parallel_state._TP = SimpleNamespace(world_size=tp, rank_in_group=0)
    heads = (model.hf_text_config.num_attention_heads, model.get_total_num_kv_heads())
    if not model.use_mla:
        with torch.device("meta"):
            QKVParallelLinear(64, model.get_head_size(), *heads, bias=False)


def facts(folder, tp):
    args = EngineArgs(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        tensor_parallel_size=tp,
    )
    try:
        config = args.create_engine_config()
        with set_current_vllm_config(config):
            load_heads(config.model_config, tp)
    except Exception as error:
        return {"refused": str(error) or type(error).__name__}
    model, parallel = config.model_config, config.parallel_config
    values = 1 if model.use_mla else 2  # a latent, or keys and values
    heads = model.get_num_kv_heads(parallel) * model.get_head_size()
    layers = model.get_num_layers(parallel)
    if model.is_hybrid:
        layers = model.get_num_layers_by_block_type(parallel, "attention")
    return {
        "limit": model.max_model_len,
        "kv_bytes_per_token": 2 * values * heads * layers,
        "v2_runner": config._is_default_v2_model_runner_model(),
    }


if __name__ == "__main__":
    print(MARK + json.dumps([facts(*question) for question in json.load(sys.stdin)]))
