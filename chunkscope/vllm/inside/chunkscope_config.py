"""What an engine really runs with, by vLLM's own config; for a check and for a measurement."""

from typing import Any


def facts(config: Any) -> "dict[str, Any]":
    scheduler, cache, model = config.scheduler_config, config.cache_config, config.model_config
    names = ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold",
             "enable_chunked_prefill")  # fmt: skip
    return {
        **{name: getattr(scheduler, name) for name in names},
        "async_scheduling": getattr(scheduler, "async_scheduling", None),
        "enable_prefix_caching": cache.enable_prefix_caching,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "block_size": cache.block_size,
        "num_gpu_blocks": cache.num_gpu_blocks,
        "max_model_len": model.max_model_len,
        "enforce_eager": model.enforce_eager,
        "dtype": str(model.dtype).removeprefix("torch."),
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
    }
