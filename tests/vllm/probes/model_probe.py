"""Run by the interpreter that has vLLM: what it makes of each config.json, split over GPUs.

Reads [[folder, tensor_parallel_size], ...] from stdin as JSON; writes None where vLLM refuses.
"""

import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ["HF_HUB_OFFLINE"] = "1"

from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models import registry

MARK = "model-probe:"
registry._run_in_subprocess = lambda look: look()  # one process is enough, and ten times faster


def facts(folder, tp):
    args = EngineArgs(
        model=folder, load_format="dummy", skip_tokenizer_init=True, tensor_parallel_size=tp
    )
    try:
        config = args.create_engine_config()
    except Exception as error:
        return {"refused": str(error)}
    model, parallel = config.model_config, config.parallel_config
    values = 1 if model.use_mla else 2  # a latent, or keys and values
    heads = model.get_num_kv_heads(parallel) * model.get_head_size()
    return {
        "limit": model.max_model_len,
        "kv_bytes_per_token": 2 * values * heads * model.get_num_layers(parallel),
        "v2_runner": config._is_default_v2_model_runner_model(),
    }


if __name__ == "__main__":
    print(MARK + json.dumps([facts(*question) for question in json.load(sys.stdin)]))
