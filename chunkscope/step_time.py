"""How long one engine step takes, linear in what it holds; by a roofline until it is calibrated.

The roofline's efficiencies are fitted to the step model measured on one H200 with a Llama-3.1-8B
shape under vLLM 0.24.0 (section 11 of the project's notes): 4.8 ms + 18 us per token + 1.1 ns per
prefill token x context token + 38 ns per decode context token. Others are extrapolated.
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
class ModelWork:
    """What a model makes a GPU do: bytes read in any step, FLOPs per token and per token pair."""

    read_bytes: int
    active_parameters: int
    pair_flops: int
    kv_bytes_per_token: int  # on one GPU


def model_work(shape: ModelShape, tp: int = 1) -> ModelWork:
    return ModelWork(
        read_bytes=read_bytes(shape),
        active_parameters=shape.active_parameters,
        pair_flops=pair_flops(shape),
        kv_bytes_per_token=shape.kv_bytes_per_token(tp),
    )


def read_bytes(shape: ModelShape) -> int:
    """Weights that any step reads: all but the look-up in the embedding."""
    return shape.weight_bytes - (0 if shape.tied else shape.parameters.embedding * 2)


def pair_flops(shape: ModelShape) -> int:
    """Attention's work per (token, context token)."""
    a = shape.attention
    head = a.latent.nope_dim + a.latent.rope_dim if a.latent else a.head_dim
    return 4 * a.heads * head * (shape.layers - a.stateful_layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """Seconds of one step. The first `free_tokens` hide behind reading the weights."""

    fixed_s: float
    per_token_s: float
    per_prefill_pair_s: float
    per_decode_context_s: float
    origin: str
    per_request_s: float = 0.0
    free_tokens: int = 0

    def seconds(
        self, *, tokens: int, context: int = 0, decode_context: int = 0, prefill: int | None = None
    ) -> float:
        """A step of `tokens`; its `prefill` part (all by default) looks back over `context`."""
        pairs = (tokens if prefill is None else prefill) * context
        return self.of(tokens, pairs, decode_context)

    def of(self, tokens: int, pairs: int, decode_context: int, requests: int = 0) -> float:
        """A step with so many (token, context token) pairs to read prompts, by `requests`."""
        paid = tokens - self.free_tokens
        return (
            self.fixed_s
            + (paid * self.per_token_s if paid > 0 else 0.0)
            + pairs * self.per_prefill_pair_s
            + decode_context * self.per_decode_context_s
            + requests * self.per_request_s
        )

    def tokens_per_second(self, tokens: int) -> float:
        return tokens / self.seconds(tokens=tokens)


def step_model(shape: ModelShape, gpu: Gpu, tp: int = 1) -> StepModel | None:
    """None where the GPU's speed is not known."""
    return roofline(model_work(shape, tp), gpu, tp)


def roofline(work: ModelWork, gpu: Gpu, tp: int = 1) -> StepModel | None:
    """From the GPU's peak figures and the efficiencies above; None where those are not known."""
    if gpu.bandwidth_gb_s is None or gpu.dense_tflops is None:
        return None
    bytes_per_s = gpu.bandwidth_gb_s * 1e9 * BANDWIDTH_EFFICIENCY
    flops_per_s = gpu.dense_tflops * 1e12
    return StepModel(
        fixed_s=work.read_bytes / tp / bytes_per_s + LAUNCH_S,
        per_token_s=2 * work.active_parameters / (flops_per_s * MATMUL_EFFICIENCY * tp),
        per_prefill_pair_s=work.pair_flops / (flops_per_s * ATTENTION_EFFICIENCY * tp),
        per_decode_context_s=work.kv_bytes_per_token / bytes_per_s,
        origin=f"a roofline fitted on {FITTED_ON}, scaled to this model and GPU",
    )
