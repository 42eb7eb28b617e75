"""`chunkscope memory`."""

from typing import Annotated

from chunkscope.commands.options import (
    SETTING,
    WORKLOAD,
    Dp,
    Ep,
    Gpu,
    Json,
    KvCacheDtype,
    Model,
    Tp,
    VllmVersion,
    option,
)
from chunkscope.commands.printing import show
from chunkscope.errors import UsageError
from chunkscope.vllm.enums import KvCacheType, Task


def checked_share(share: float | None) -> float | None:
    if share is None or 0 < share <= 1:
        return share
    raise UsageError(f"--gpu-memory-utilization is {share}, not over 0 and up to 1")


def memory(
    model: Model = None,
    gpu: Gpu = None,
    tp: Tp = 1,
    dp: Dp = 1,
    ep: Ep = False,
    kv_cache_dtype: KvCacheDtype = None,
    vllm_version: VllmVersion = None,
    max_num_batched_tokens: Annotated[
        int | None,
        option(
            SETTING,
            "Tokens per step. [default: vLLM's]",
            "--max-num-batched-tokens",
            metavar="N",
            min=1,
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        option(
            SETTING,
            "Requests at once. [default: vLLM's]",
            "--max-num-seqs",
            metavar="N",
            min=1,
        ),
    ] = None,
    max_model_len: Annotated[
        int | None,
        option(
            SETTING,
            "Longest context. [default: the model's]",
            "--max-model-len",
            metavar="N",
            min=1,
        ),
    ] = None,
    long_prefill_token_threshold: Annotated[
        int | None,
        option(
            SETTING,
            "Tokens of one prompt per step. [default: no limit]",
            "--long-prefill-token-threshold",
            metavar="N",
            min=0,
        ),
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        option(
            SETTING,
            "Part of the GPU's memory to use. [default: vLLM's]",
            "--gpu-memory-utilization",
            metavar="SHARE",
            callback=checked_share,
        ),
    ] = None,
    task: Annotated[
        Task, option(WORKLOAD, "Generate answers or score choices.", "--task")
    ] = Task.GENERATE,
    json: Json = False,
) -> None:
    """Show where every GiB of a GPU goes, and how many requests fit. Needs no data.

    Example: chunkscope memory --model qwen3-8b --gpu h100
    """
    from chunkscope.vllm.footprint import memory as footprint

    if model is None:
        raise UsageError(
            "--model is missing", hint="`chunkscope models` lists those known by name"
        )
    shown = footprint(
        model,
        gpu,
        tp=tp,
        dp=dp,
        ep=ep,
        kv_cache_dtype=kv_cache_dtype or KvCacheType.AUTO,
        vllm_version=vllm_version,
        task=task,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        long_prefill_token_threshold=long_prefill_token_threshold,
        gpu_memory_utilization=gpu_memory_utilization,
    )
    show(shown, json=json)
