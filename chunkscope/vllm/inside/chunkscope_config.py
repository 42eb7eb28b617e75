"""What an engine really runs with, by vLLM's own config."""

from typing import Any

OF_THE_SCHEDULER = (
    *("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold"),
    *("enable_chunked_prefill", "async_scheduling"),
)


def facts(config: Any) -> "dict[str, Any]":
    cache, model = config.cache_config, config.model_config
    return {
        **{
            name: getattr(config.scheduler_config, name, None)
            for name in OF_THE_SCHEDULER
        },
        "enable_prefix_caching": cache.enable_prefix_caching,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "block_size": cache.block_size,
        "num_gpu_blocks": cache.num_gpu_blocks,
        "max_model_len": model.max_model_len,
        "enforce_eager": model.enforce_eager,
        "dtype": str(model.dtype).removeprefix("torch."),
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
    }
