"""`chunkscope memory`."""

from typing import Annotated

from chunkscope.commands import options as shared
from chunkscope.commands.options import options
from chunkscope.vllm.enums import Entry, KvCacheType, Task

OPTIONS = options("""
Setting:
  --max-num-batched-tokens N        [default: vLLM's]
  --max-num-seqs N                  [default: vLLM's]
  --max-model-len N                 [default: the model's context]
  --long-prefill-token-threshold N  [default: none]
  --gpu-memory-utilization SHARE    [default: vLLM's]
""")


def memory(
    model: Annotated[str, shared.SHARED["model"]],
    gpu: shared.GpuName = None,
    tp: shared.TensorParallel = 1,
    dp: shared.DataParallel = 1,
    ep: shared.ExpertParallel = False,
    kv_cache_dtype: shared.KvCacheDtype = KvCacheType.AUTO,
    vllm_version: shared.VllmVersion = None,
    entry: shared.EntryPoint = Entry.SERVE,
    max_num_batched_tokens: Annotated[int | None, OPTIONS["max_num_batched_tokens"]] = None,
    max_num_seqs: Annotated[int | None, OPTIONS["max_num_seqs"]] = None,
    max_model_len: Annotated[int | None, OPTIONS["max_model_len"]] = None,
    long_prefill_token_threshold: Annotated[
        int | None, OPTIONS["long_prefill_token_threshold"]
    ] = None,
    gpu_memory_utilization: Annotated[float | None, OPTIONS["gpu_memory_utilization"]] = None,
    task: shared.TaskKind = Task.GENERATE,
    details: shared.Details = False,
    as_json: shared.Json = False,
) -> None:
    """Where every GiB of a GPU goes, and how many requests fit. Needs no data.

    Example: chunkscope memory --model qwen3-8b --gpu h100
    """
    from chunkscope.vllm.footprint import memory as run

    footprint = run(
        model,
        **shared.gpu_and_memory(gpu),
        tp=tp,
        dp=dp,
        ep=ep,
        vllm_version=vllm_version,
        entry=entry,
        task=task,
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        long_prefill_token_threshold=long_prefill_token_threshold,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_cache_dtype=kv_cache_dtype,
    )
    shared.show(footprint, as_json=as_json, details=details)
