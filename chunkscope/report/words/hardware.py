"""What is said of models, GPUs, memory and step times: what is assumed, and from what."""

from chunkscope.report.words import Template

H200 = "(fitted on an H200, vLLM 0.24)"


def _weights(billions: float, kind: str, gpus: int, *, shares_experts: bool) -> str:
    what = "the size of the weight files" if kind == "files" else kind
    how = "experts shared by replicas" if shares_experts else "split"
    return f"{billions:,.2f} billion parameters, {what}" + (
        f", {how} over {gpus} GPUs" if gpus > 1 else ""
    )


def _activation(tokens: int, kib: float, *, expands: bool) -> str:
    if expands:
        return f"{tokens:,} tokens in one step, and the context they attend to, expanded"
    return f"{tokens:,} tokens x {kib:,.0f} KiB in one step {H200}"


def _scaled(**differing: list[str]) -> str:
    pairs = ", ".join(f"{there}, not {here}" for there, here in differing.values())
    return f"the calibration is of {pairs}: step times are scaled"


def _unlike(
    nearest: str,
    least: float,
    most: float,
    kind: str | None,
    gpu: str | None,
    gpus: int | None,
) -> str:
    missing = (kind and f"a model like this ({kind})", gpu, f"{gpus} GPUs" if gpus else None)
    off = f"{100 * least:+.0f} %" + (f" to {100 * most:+.0f} %" if most > least else "")
    return (
        f"never measured: {', '.join(filter(None, missing))}. On one H200 with {nearest}, "
        f"predicted times were {off} off" + ("; communication is assumed" if gpus else "")
    )


SENTENCES: dict[str, Template] = {
    # Models.
    "unknown_model_type": "model_type {name} is not known: its memory may be off",
    "unknown_quantization": "quantization {method} is not known: 16-bit weights assumed",
    "vision_tower": "the vision tower's weights are counted roughly, its activations are not",
    "sliding_window": "{layers} layers attend to the last {tokens} tokens and keep KV for no more",
    "stateful_layers": lambda layers, known, weighed: (
        f"{layers} layers hold a state instead of a KV cache"
        + ("" if known else ", of unknown size")
        + ("" if weighed else ", with weights roughly counted")
    ),
    "encoder_decoder": "an encoder-decoder model: vLLM switches chunked prefill off",
    "unlike_measured": _unlike,
    # GPUs and step times.
    "gpu_unchecked": "the {figure} of {gpu} is assumed",
    "roofline_steps": "step times are predicted from measurements of a few models on one H200",
    "scaled_steps": _scaled,
    # The lines of a memory bill.
    "memory_weights": _weights,
    "memory_activation": _activation,
    "memory_experts": "{tokens} tokens x {kib:,.0f} KiB, which the experts' kernel keeps",
    "memory_sampler": "{requests} requests x {vocab} logits, beyond the activations",
    "memory_overhead": lambda several: (
        f"CUDA context and buffers {H200}" + (", and communication (assumed)" if several else "")
    ),
    "memory_cuda_graphs": lambda layers, counted: (
        f"of {layers} layers {H200}" + ("" if counted else ", outside this version's budget")
    ),
    "memory_logprobs": f"prompt_logprobs: {{tokens}} tokens x {{vocab}} entries {H200}",
    "memory_correction": "{log} shows a KV cache of {tokens} tokens",
}
