"""How long one engine step takes: a roofline with four efficiencies. An estimate until verified.

The efficiencies are fitted to the step model measured on one H200 with a Llama-3.1-8B shape under
vLLM 0.24.0 (section 11 of the project's notes): 4.8 ms + 18 us per token + 1.1 ns per prefill token
x context token + 38 ns per decode context token. Other GPUs and models are extrapolated.
"""

from dataclasses import dataclass

from chunkscope.hardware import Gpu
from chunkscope.models.shape import ModelShape

FITTED_ON = "one H200, Llama-3.1-8B shape, vLLM 0.24.0"
MATMUL_EFFICIENCY = 0.84  # 15.0 GFLOP per token in 18 us, of 989 TFLOP/s
ATTENTION_EFFICIENCY = 0.48  # 524,288 FLOP per token pair in 1.1 ns
BANDWIDTH_EFFICIENCY = 0.72  # 128 KiB of KV per context token in 38 ns, of 4.8 TB/s
LAUNCH_S = 0.45e-3  # what 4.8 ms leave after reading 15.0 GB of weights at that efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """Seconds of one step, linear in what it holds."""

    fixed_s: float
    per_token_s: float
    per_prefill_pair_s: float
    per_decode_context_s: float
    origin: str

    def seconds(
        self, *, tokens: int, context: int = 0, decode_context: int = 0, prefill: int | None = None
    ) -> float:
        """A step of `tokens`; its `prefill` part (all by default) looks back over `context`."""
        pairs = (tokens if prefill is None else prefill) * context
        return (
            self.fixed_s
            + tokens * self.per_token_s
            + pairs * self.per_prefill_pair_s
            + decode_context * self.per_decode_context_s
        )

    def tokens_per_second(self, tokens: int) -> float:
        return tokens / self.seconds(tokens=tokens)


def step_model(shape: ModelShape, gpu: Gpu, tp: int = 1) -> StepModel | None:
    """None where the GPU's speed is not known."""
    if gpu.bandwidth_gb_s is None or gpu.dense_tflops is None:
        return None
    bytes_per_s = gpu.bandwidth_gb_s * 1e9 * BANDWIDTH_EFFICIENCY
    flops_per_s = gpu.dense_tflops * 1e12
    read = shape.weight_bytes - (0 if shape.tied else shape.parameters.embedding * 2)
    a = shape.attention
    head = a.latent.nope_dim + a.latent.rope_dim if a.latent else a.head_dim
    pair_flops = 4 * a.heads * head * (shape.layers - a.stateful_layers)
    matmul = flops_per_s * MATMUL_EFFICIENCY * tp
    return StepModel(
        fixed_s=read / tp / bytes_per_s + LAUNCH_S,
        per_token_s=2 * shape.active_parameters / matmul,
        per_prefill_pair_s=pair_flops / (flops_per_s * ATTENTION_EFFICIENCY * tp),
        per_decode_context_s=shape.kv_bytes_per_token(tp) / bytes_per_s,
        origin=f"a roofline fitted on {FITTED_ON}, scaled to this model and GPU",
    )
