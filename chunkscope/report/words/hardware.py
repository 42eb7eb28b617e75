"""What is said of models, GPUs, memory and step times: what is assumed, and from what."""

from chunkscope.artefacts.numbers import by
from chunkscope.report.words import Template


def _weights(billions: float, kind: str, gpus: int, *, shares_experts: bool) -> str:
    what = "the size of the weight files" if kind == "files" else kind
    split = f", split over {gpus} GPUs" if gpus > 1 and not shares_experts else ""
    split = f"; replicas on {gpus} GPUs share the experts" if shares_experts else split
    return f"{billions:,.2f} billion parameters, {what}{split}"


def _activation(tokens: int, kib: float, *, expands: bool) -> str:
    if expands:
        return f"{tokens:,} tokens in one step, and the context that they look back on, expanded"
    return f"{tokens:,} tokens x {kib:,.0f} KiB in one step; fitted on an H200, vLLM 0.24"


def _unlike(kind: str, nearest: str, models: str, least: float, most: float) -> str:
    return (
        f"no model like this one ({kind}) was measured: of the nearest kind that was ({nearest}: "
        f"{models}), predicted makespans were {by(least)} to {by(most)} off"
    )


def _scaled(**differing: list[str]) -> str:
    pairs = ", ".join(f"{there}, not {here}" for there, here in differing.values())
    return f"the calibration is of {pairs}: its step times are scaled"


def _stateful(layers: int, *, known: bool, weighed: bool) -> str:
    return (
        f"{layers} layers hold no KV cache"
        + ("" if known else ", and the size of their state is not known")
        + ("" if weighed else ", their weights are roughly counted")
    )


SENTENCES: dict[str, Template] = {
    # Models.
    "unknown_model_type": lambda name, weighed: (
        (f"model_type {name!r} is not known" if name else "no model_type is stated")
        + f": {'KV cache and shape' if weighed else 'weights and KV cache'} follow from its fields "
        "alone, and may be off"
    ),
    "unknown_quantization": lambda method: (
        f"quantization {method or 'without a method'!r} is not known: 16-bit assumed"
    ),
    "vision_tower": "the vision tower is counted roughly, its activations are not",
    "sliding_window": "{layers} layers look back {tokens:,} tokens: a long request holds less KV "
    "cache than its tokens say",
    "stateful_layers": _stateful,
    "encoder_decoder": "an encoder-decoder model: vLLM switches chunked prefill off by itself",
    "unlike_measured": _unlike,
    # GPUs and step times.
    "gpu_unchecked": "the {figure} of {gpu} is assumed: not compared with a source",
    "roofline_steps": "step times are a roofline's, fitted on {fitted_on}: not measured here",
    "scaled_steps": _scaled,
    "trace_unshared": "the hash_ids of the trace do not fit its lengths in blocks of any size: its "
    "prompts are taken to share nothing",
    # The lines of a memory bill.
    "memory_weights": _weights,
    "memory_activation": _activation,
    "memory_experts": "{tokens:,} tokens x {kib:,.0f} KiB, which the experts' kernel keeps",
    "memory_sampler": "{requests:,} requests x {vocab:,} logits, beyond the activations",
    "memory_overhead": lambda several: (
        "CUDA context and buffers: 0.30 GiB, from an H200 with vLLM 0.24"
        + ("; 0.70 GiB for communication, not measured" if several else "")
    ),
    "memory_cuda_graphs": lambda layers, counted: (
        f"of {layers} layers, from three models on an H200 with vLLM 0.24"
        + ("" if counted else "; this version takes it from outside its budget")
    ),
    "memory_logprobs": "prompt_logprobs of {tokens:,} tokens x {vocab:,} entries, not profiled by "
    "vLLM; fitted on an H200, vLLM 0.24",
    "memory_in_log": "as {log} says",
    "memory_peak_in_log": "the peak, as {log} says",
    "memory_in_activation": "in the activation, as it was measured",
    "memory_activation_and_log": lambda log, more_gib, **line: (
        f"{_activation(**line)}, and {more_gib:+.2f} GiB, as {log} says of its own setting"
    ),
    "memory_correction": "what else {log} takes: its KV cache has {tokens:,} tokens",
}
