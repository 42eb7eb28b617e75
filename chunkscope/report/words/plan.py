"""What is said of a plan and of a simulated run: advice, reasons, warnings."""

from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import number, plural
from chunkscope.report.words import Template

if TYPE_CHECKING:
    from chunkscope.vllm.footprint import Footprint

SENTENCES: dict[str, Template] = {
    # How prompts are cut into chunks, by the policy that was simulated.
    "policy_vllm": "vLLM's own scheduling",
    "policy_fixed": "a fixed threshold, which vLLM runs with long_prefill_token_threshold",
    "policy_interactive-first": "prompts up to 1,024 tokens first, which vLLM runs with its "
    "priority scheduling and a priority in each request",
    "policy_by-length": "chunks of 512, 1,024 or 2,048 tokens by prompt length: an experiment, "
    "vLLM cannot run it",
    "policy_adaptive": "the chunk halves under decode pressure and doubles while steps take less "
    "than 50 ms: an experiment, vLLM cannot run it",
}

MEMORY_PARTS = {
    "activation": "activations",
    "experts": "expert buffers",
    "cuda_graphs": "CUDA graphs",
    "logprobs": "prompt logprobs",
    "correction": "correction",
}


# -- memory --------------------------------------------------------------------------------------


def where(model: str, gpu: str | None, gpus: int = 1) -> str:
    """
    >>> where("Qwen3-8B", "NVIDIA H100 80GB HBM3"), where("Qwen3-8B", "NVIDIA A100", 2)
    ('Qwen3-8B on one H100 80GB HBM3', 'Qwen3-8B on 2 x A100')
    """
    if gpu is None:
        return model
    many = f"{gpus} x" if gpus > 1 else "one"
    return f"{model} on {many} {gpu.removeprefix('NVIDIA ')}"


def fits(footprint: "Footprint") -> str:
    settings = footprint.settings
    place = where(footprint.shape.name, footprint.gpu.title, settings.parallel.gpus)
    if footprint.refusals:
        return f"{place} does not run: {'; '.join(footprint.refusals)}."
    longest, most = footprint.requests_of(footprint.context), settings.max_num_seqs or 0
    each = " per replica" if settings.parallel.data > 1 else ""
    held = f"{footprint.memory.kv_cache_tokens:,} tokens of KV cache{each}"
    if longest >= most:
        return f"{place} fits: {held}, enough for all {most:,} requests at full length."
    full = f"{plural(longest, 'request')} of the full {footprint.context:,} tokens"
    return f"{place} fits: {held}, enough for {full}."


def footprint_setup(footprint: "Footprint") -> str:
    settings = footprint.settings
    return (
        f"Predicted for vLLM {footprint.deployment.release.text} ({footprint.deployment.entry}): "
        f"{number(settings.max_num_batched_tokens)} tokens per step, at most "
        f"{number(settings.max_num_seqs)} requests at once."
    )


def kv_per_token(footprint: "Footprint") -> str:
    memory = footprint.memory
    if not memory.kv_cache_tokens:
        return ""
    kib = memory.kv_cache_bytes / memory.kv_cache_tokens / 1024
    return f"A token takes {kib:,.4g} KiB of KV cache on each GPU."
