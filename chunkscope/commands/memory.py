"""`chunkscope memory`."""

from typing import Annotated

import typer

from chunkscope import console
from chunkscope.commands import options
from chunkscope.vllm.choices import Entry, KvCacheType, Task

Tokens = Annotated[int | None, typer.Option(metavar="N", min=1, help="[default: vLLM's own]")]


def memory(
    model: Annotated[
        str,
        options.model_option(options.MODEL_HELP),
    ],
    gpu: options.GpuName = None,
    gpu_memory: options.GpuMemory = None,
    tp: options.Parallel = 1,
    dp: options.Replicas = 1,
    ep: options.ByExpert = False,
    max_num_batched_tokens: Tokens = None,
    max_num_seqs: Tokens = None,
    max_model_len: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="[default: the model's context]")
    ] = None,
    long_prefill_token_threshold: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="[default: none]")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(metavar="SHARE", help="[default: vLLM's own]")
    ] = None,
    kv_cache_dtype: options.KvCacheKind = KvCacheType.AUTO,
    task: options.AskedTask = Task.GENERATE,
    vllm_version: options.VllmVersion = None,
    entry: options.StartedAs = Entry.SERVE,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Say where every GiB of a GPU goes, and how much fits.

    No data is needed.

    Example: chunkscope memory --model qwen3-8b --gpu h100
    """
    from chunkscope.vllm.footprint import memory as run

    found = run(
        model,
        gpu,
        gpu_memory=gpu_memory,
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
    if as_json:
        from chunkscope.artefacts.codec import dump

        console.emit(dump(found.to_json()))
    else:
        from chunkscope.report.terminal.memory import show_footprint

        console.show(lambda out: show_footprint(found, out))
    for line in found.notes:
        console.say(f"note: {line}")
