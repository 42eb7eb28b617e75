"""`chunkscope memory`."""

from typing import Annotated, Any

from chunkscope.commands import options as shared
from chunkscope.commands.options import option
from chunkscope.vllm.enums import Entry, KvCacheType, Task


def _setting(name: str, text: str) -> Any:
    return option(name, group="Setting", metavar="N", min=0, help=f"[default: {text}]")


def memory(
    model: Annotated[str, shared.model_option(shared.MODEL_HELP)],
    gpu: shared.GpuName = None,
    tp: shared.TensorParallel = 1,
    dp: shared.DataParallel = 1,
    ep: shared.ExpertParallel = False,
    kv_cache_dtype: shared.KvCacheDtype = KvCacheType.AUTO,
    vllm_version: shared.VllmVersion = None,
    entry: shared.EntryPoint = Entry.SERVE,
    max_num_batched_tokens: Annotated[
        int | None, _setting("--max-num-batched-tokens", "vLLM's")
    ] = None,
    max_num_seqs: Annotated[int | None, _setting("--max-num-seqs", "vLLM's")] = None,
    max_model_len: Annotated[int | None, _setting("--max-model-len", "the model's context")] = None,
    long_prefill_token_threshold: Annotated[
        int | None, _setting("--long-prefill-token-threshold", "none")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        option(
            "--gpu-memory-utilization", group="Setting", metavar="SHARE", help="[default: vLLM's]"
        ),
    ] = None,
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
