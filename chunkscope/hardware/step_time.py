"""How long one engine step takes: what the GPU needs, or the host, whichever is longer.

With async scheduling the host prepares a step while the GPU computes the one before, so the longer
of the two counts. The GPU's part is linear in what a step holds; until it is calibrated, it comes
from a roofline. Its efficiencies and the host's times are fitted to the long and the short workload
of both models in reports/h200, the time per prompt to the mixed one: one H200 and its host, vLLM
0.24.0. Others are extrapolated.
"""

from dataclasses import dataclass, replace

from chunkscope.artefacts.schema import Count, Positive
from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.parallel import ALONE, Parallel
from chunkscope.models.shape import BYTES, Attention, ModelShape

FITTED_ON = (
    "one H200 and its host, Llama-3.1-8B, Qwen2.5-1.5B, Gemma-2-9B, Qwen3-30B-A3B and "
    "DeepSeek-V2-Lite, vLLM 0.24.0"
)
# Of the peak, without the head: 22 us per token of 14.0 GFLOP (0.64, Llama-3.1-8B), 4.0 of 2.6
# (0.67, Qwen2.5-1.5B), 25.5 of 16.6 (0.66, Gemma-2-9B).
MATMUL_EFFICIENCY = 0.64
ATTENTION_EFFICIENCY = 0.60  # 0.81 to 0.88 ns per pair of 524,288 FLOP, 1.28 of 786,432 (0.62)
FEW_HEADS, WITH_FEW_HEADS = 16, 1.12  # 12 heads take longer: 0.31 to 0.33 ns of 172,032 (0.55)
WEIGHTS_EFFICIENCY = (
    0.90  # of the bandwidth: 5.1 ms for 15.0 GB and 2.0 ms for 3.1 GB, launch included
)
KV_EFFICIENCY = 0.80  # 37 ns per token of 128 KiB (0.74), 7.2 of 28 (0.83), 35 of 144 (0.88), ...
# ... and 26 of 96 (0.79, with experts). Heads of 256 take longer: 93 of 336 KiB (0.77, Gemma-2-9B).
USUAL_HEAD, WIDE_HEADS = 128, 1.10
LATENT_SLOWNESS = 1.27  # 10.3 ns per token of 30 KiB (DeepSeek-V2-Lite)
# Of that time, where the request before it in the batch has just read the same blocks: they are in
# the L2 cache. Measured with Qwen3-8B (reports/h200/shared-decode.jsonl): 0.60 to 0.65; blocks
# that others read, but not its neighbours, took 0.94 to 0.96.
READ_AGAIN = 0.62
# Of the 16-bit peak: products of 8-bit weights and activations, and those inside experts.
EIGHT_BIT_EFFICIENCY = 1.2
EXPERTS_EFFICIENCY = 0.43  # 11.6 us per token of Qwen3-30B-A3B, 3.6 of its 5.4 GFLOP in experts
# Where vLLM has no tuned kernel and says so: DeepSeek-V2-Lite. Of 16-bit experts it has them for
# these numbers and widths (the H200's of `fused_moe/configs`, 0.24).
UNTUNED_EFFICIENCY = 0.37
TUNED = {
    8: (1_792, 2_048, 3_584, 4_096, 7_168, 14_336),
    16: (1_024, 2_048),
    64: (320, 640, 1_280, 2_560),
    128: (96, 192, 384, 512, 768, 1_024),
    512: (64, 128, 256, 512),
}
EXPERTS_READ_EFFICIENCY = 0.82  # of the bandwidth: 14.7 ms for its 58 GB, once all are chosen
EIGHT_BIT_EXPERTS_EFFICIENCY = 0.8
# Kernels start one after the other, in each layer: 50, 45 and 49 us of Llama-3.1-8B, Qwen2.5-1.5B
# and Gemma-2-9B; 61 of Qwen3-30B-A3B, which has more of them to choose experts.
LAYER_S = 42e-6
EXPERT_LAYER_S = 19e-6
LATENT_LAYER_S = 22e-6  # DeepSeek-V2-Lite: 3.4 ms for one token, ...
LATENT_REQUEST_S = 0.25e-6  # ... and 11 us for one more
# Tokens that hide behind reading the weights on an H200, with the larger models; as many more on
# another GPU as it computes more FLOP for each byte that it reads.
FREE_TOKENS, FITTED_FLOP_PER_BYTE = 84, 989e12 / 4800e9
# Where a step reads prompts, too, attention takes longer for each token of a decoding request's
# context: 1.54 (Llama-3.1-8B), 1.59 (Gemma-2-9B) and 1.55 times (Qwen3-30B-A3B).
MIXED = 1.55
# Of the engine's Python, by a profile of Qwen2.5-1.5B with 200 requests: 1.5 of 5 seconds went into
# the results of a step, the rest into the step to come.
HAND_OUT_SHARE = 0.3
# GPUs that talk over NVLink (or AMD's Infinity Fabric), or over PCIe: bytes a second that one of
# them sends, and what an exchange takes however little is sent. Assumed, as nobody measured it.
NVLINK, PCIE = (300e9, 10e-6), (20e9, 25e-6)
# vLLM captures CUDA graphs up to so many tokens, and 2 x max_num_seqs if that is less.
GRAPHED_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the engine's own Python takes for a step: it schedules, prepares and hands out.

    A step over the graphs' size is launched kernel by kernel: `ungraphed_s`.
    """

    fixed_s: float = 0.0
    per_request_s: float = 0.0
    per_prompt_s: float = 0.0  # one more that is read in this step
    ungraphed_s: float = 0.0


NO_HOST = Host()
ASSUMED_HOST = Host(fixed_s=0.5e-3, per_request_s=27e-6, per_prompt_s=0.08e-3)
# The launch of a step over the graphs' size: the same with 28 to 36 dense layers (Qwen2.5-1.5B,
# Llama-3.1-8B, Qwen3-8B), and taken to grow with more of them. A layer with experts takes 2 ms: 94
# ms with 48 (Qwen3-30B-A3B), 48 with 24 (gpt-oss-20b), 29 to 36 with 16 (OLMoE-1B-7B). Latent
# attention comes on top: 80 ms with 27 layers (DeepSeek-V2-Lite).
LAUNCH_S, LAUNCH_LAYERS = 18.5e-3, 36
EXPERT_LAUNCH_S = 1.85e-3
LATENT_LAUNCH_S = 1.05e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWindow:
    """How far a token's attention looks back: in `share` of the layers no further than `tokens`.

    `expanding`: what a chunk pays for each token of its context before it looks at it, in pairs: a
    latent is made keys and values again.
    """

    tokens: Count = 0
    share: float = 0.0
    expanding: float = 0.0

    def context(self, length: int) -> float:
        """What a decoding request with so much behind it reads."""
        if length <= self.tokens or not self.tokens:
            return length
        return length - self.share * (length - self.tokens)

    def pairs(self, chunk: int, computed: int) -> float:
        """Of a chunk with so much behind it."""
        every = chunk * computed + chunk * (chunk + 1) // 2
        if not self.tokens or computed + chunk <= self.tokens:
            return every + self.expanding * computed
        # Those before the window is full see all there is, the others the window.
        growing = max(0, min(chunk, self.tokens - computed))
        seen = growing * computed + growing * (growing + 1) // 2
        seen += (chunk - growing) * self.tokens
        return every - self.share * (every - seen) + self.expanding * computed


NO_WINDOW = AttentionWindow()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """What a model makes a GPU do: bytes read in any step, FLOPs per token and per token pair.

    Of experts a step reads those that its tokens choose: `expert_share` is what one token does.
    """

    name: str
    hub_id: str | None
    hidden: Positive
    layers: Positive
    active_parameters: Positive
    kv_bytes_per_token: Positive  # read on one GPU
    pair_flops: Count  # attention, per (token, context token)
    read_bytes: Positive  # in a step whose tokens choose all experts
    head_parameters: Count  # of the active ones: only for the last token of a request's step
    expert_layers: Count = 0
    expert_bytes: Count = 0  # of those that are read
    expert_share: float = 0.0
    expert_parameters: Count = 0  # of the active ones
    untuned_experts: bool = False
    eight_bit_parameters: Count = 0  # of the active ones that no expert has: 8-bit products
    eight_bit_experts: bool = False
    latent_layers: Count = 0
    state_bytes: Count = 0  # that a request's step reads and writes
    kv_slowness: float = 1.0  # how many times as long its KV cache takes as the bytes say
    pair_slowness: float = 1.0  # the same of attention's FLOPs when prompts are read
    window: AttentionWindow = NO_WINDOW

    @property
    def always_read_bytes(self) -> int:
        """Whatever experts are chosen."""
        return self.read_bytes - self.expert_bytes

    @property
    def kernels_s(self) -> float:
        """What the kernels of all layers take on the GPU, to start one after the other."""
        more = self.expert_layers * EXPERT_LAYER_S + self.latent_layers * LATENT_LAYER_S
        return self.layers * LAYER_S + more

    @property
    def host(self) -> Host:
        """What is assumed of the engine's Python: a large step is launched layer by layer."""
        dense = LAUNCH_S * max(1.0, self.layers / LAUNCH_LAYERS)
        if self.expert_layers:
            dense *= (self.layers - self.expert_layers) / self.layers
        more = self.expert_layers * EXPERT_LAUNCH_S + self.latent_layers * LATENT_LAUNCH_S
        return replace(ASSUMED_HOST, ungraphed_s=dense + more)


def model_work(shape: ModelShape, tp: int = 1, kv_element_bytes: int = BYTES) -> ModelWork:
    a, e, p, q = shape.attention, shape.experts, shape.parameters, shape.quantization
    fast = set(q.kinds) if q and q.eight_bit_products else set()
    dense = {"attention": p.attention, "mlp": p.mlp}
    return ModelWork(
        name=shape.name,
        hub_id=shape.hub_id,
        hidden=shape.hidden,
        layers=shape.layers,
        active_parameters=shape.active_parameters,
        kv_bytes_per_token=_with_borrowers(shape, shape.kv_bytes_per_token(tp, kv_element_bytes)),
        pair_flops=_pair_flops(shape),
        # All but the look-up in the embedding.
        read_bytes=shape.weight_bytes - BYTES * (p.by_layer + (0 if shape.tied else p.embedding)),
        head_parameters=p.head or p.embedding,
        expert_layers=e.layers if e else 0,
        expert_bytes=shape.bytes_of("experts") if e else 0,
        expert_share=e.active / e.count if e else 0.0,
        expert_parameters=p.experts * e.active // e.count if e else 0,
        untuned_experts=e is not None and e.intermediate // tp not in TUNED.get(e.count, ()),
        eight_bit_parameters=sum(count for kind, count in dense.items() if kind in fast),
        eight_bit_experts="experts" in fast,
        latent_layers=shape.kv_layers if a.latent else 0,
        state_bytes=a.state.layers * a.state.bytes(tp) if a.state else 0,
        pair_slowness=WITH_FEW_HEADS if a.heads < FEW_HEADS else 1.0,
        kv_slowness=LATENT_SLOWNESS if a.latent else WIDE_HEADS if a.head_dim > USUAL_HEAD else 1.0,
        window=_window(shape),
    )


def _window(shape: ModelShape) -> AttentionWindow:
    a = shape.attention
    expanding = 0.0
    if a.latent:
        expand = 2 * a.latent.kv_rank * (a.latent.nope_dim + a.latent.v_dim)
        expanding = expand / _head_pair_flops(a)
    share = a.sliding_layers / max(1, shape.kv_layers) if a.sliding_window else 0.0
    return AttentionWindow(tokens=a.sliding_window or 0, share=min(1.0, share), expanding=expanding)


def _pair_flops(shape: ModelShape) -> int:
    """Attention's work per (token, context token)."""
    a = shape.attention
    full = (shape.kv_layers - a.sliding_layers) * _head_pair_flops(a)
    windows = a.sliding_layers * _head_pair_flops(a, sliding=True)
    return _with_borrowers(shape, a.heads * (full + windows))


def _with_borrowers(shape: ModelShape, amount: int) -> int:
    """Of all layers that attend, by that of those with a KV cache: the others are built as they."""
    return amount * shape.attending_layers // max(1, shape.kv_layers)


def _head_pair_flops(a: Attention, *, sliding: bool = False) -> int:
    """Keys and values of a latent differ in width."""
    if a.latent:
        return 2 * (a.latent.nope_dim + a.latent.rope_dim + a.latent.v_dim)
    return 4 * (a.head_dim if sliding else a.full_head_dim or a.head_dim)


def chosen(share: float, tokens: float) -> float:
    """Of all experts, those that so many tokens choose, if each chooses evenly."""
    others: float = (1.0 - share) ** tokens
    return 1.0 - others


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
    host: Host = NO_HOST
    graphed_tokens: int = GRAPHED_TOKENS
    experts_s: float = 0.0  # to read all of them
    expert_share: float = 0.0  # that one token chooses
    window: AttentionWindow = NO_WINDOW
    mixed: float = 1.0  # context of decoding requests takes so many times as long beside prompts

    def sharing(self, share: float) -> "StepModel":
        """Where neighbours in the batch have this share of their context in common."""
        taken = 1 - share * (1 - READ_AGAIN)
        return replace(self, per_decode_context_s=self.per_decode_context_s * taken)

    def gpu_s(self, tokens: int, pairs: float, decode_context: float, requests: int) -> float:
        paid = tokens - self.free_tokens
        context = decode_context * self.mixed if pairs else decode_context
        return (
            self.fixed_s
            + (self.experts_s * chosen(self.expert_share, tokens) if self.experts_s else 0.0)
            + (paid * self.per_token_s if paid > 0 else 0.0)
            + pairs * self.per_prefill_pair_s
            + context * self.per_decode_context_s
            + requests * self.per_request_s
        )

    def host_parts(self, tokens: int, requests: int, prompts: int) -> tuple[float, float, float]:
        """To prepare a step, to launch it, and to hand out its tokens."""
        host = self.host
        every = host.fixed_s + requests * host.per_request_s
        prepare = (1 - HAND_OUT_SHARE) * every + prompts * host.per_prompt_s
        launch = 0.0 if tokens <= self.graphed_tokens else host.ungraphed_s
        return prepare, launch, HAND_OUT_SHARE * every


def step_model(
    shape: ModelShape, gpu: Gpu, parallel: Parallel = ALONE, kv_element_bytes: int = BYTES
) -> StepModel | None:
    """A roofline; None where the GPU's speed is not known."""
    return roofline(model_work(shape, parallel.tensor, kv_element_bytes), gpu, parallel)


def roofline(work: ModelWork, gpu: Gpu, parallel: Parallel = ALONE) -> StepModel | None:
    """From the GPU's peak figures and the efficiencies above; None where those are not known."""
    if gpu.speed is None:
        return None
    bytes_per_s, flops_per_s, tp = gpu.speed[0] * 1e9, gpu.speed[1] * 1e12, parallel.tensor
    per_flop = 1 / (flops_per_s * tp)
    others = work.expert_parameters + work.eight_bit_parameters + work.head_parameters
    experts = UNTUNED_EFFICIENCY if work.untuned_experts else EXPERTS_EFFICIENCY
    experts = EIGHT_BIT_EXPERTS_EFFICIENCY if work.eight_bit_experts else experts
    flops_per_byte = flops_per_s / bytes_per_s
    step = StepModel(
        fixed_s=work.always_read_bytes / tp / (bytes_per_s * WEIGHTS_EFFICIENCY) + work.kernels_s,
        per_token_s=2
        * per_flop
        * (
            (work.active_parameters - others) / MATMUL_EFFICIENCY
            + work.eight_bit_parameters / EIGHT_BIT_EFFICIENCY
            + work.expert_parameters / experts
        ),
        per_prefill_pair_s=work.pair_flops * per_flop / ATTENTION_EFFICIENCY * work.pair_slowness,
        per_decode_context_s=work.kv_bytes_per_token
        / (bytes_per_s * KV_EFFICIENCY)
        * work.kv_slowness,
        mixed=MIXED,
        per_request_s=2 * work.state_bytes / (bytes_per_s * WEIGHTS_EFFICIENCY)
        + 2 * work.head_parameters * per_flop / MATMUL_EFFICIENCY
        + work.latent_layers * LATENT_REQUEST_S,
        free_tokens=round(FREE_TOKENS * flops_per_byte / FITTED_FLOP_PER_BYTE),
        experts_s=work.expert_bytes / tp / (bytes_per_s * EXPERTS_READ_EFFICIENCY),
        expert_share=work.expert_share,
        window=work.window,
        host=work.host,
        origin=f"a roofline fitted on {FITTED_ON}, scaled to this model and GPU; the host is "
        "assumed to be like that one",
    )
    return with_exchange(step, work, gpu, parallel)


def with_exchange(step: StepModel, work: ModelWork, gpu: Gpu, parallel: Parallel) -> StepModel:
    """What more than one GPU changes; each reads experts for the tokens of all replicas."""
    if parallel.gpus == 1:
        return step
    every_s, per_token_s = exchange_s(work, gpu, parallel)
    return replace(
        step,
        fixed_s=step.fixed_s + every_s,
        per_token_s=step.per_token_s + per_token_s,
        experts_s=step.experts_s / parallel.data,
        expert_share=chosen(step.expert_share, parallel.data),
        origin=f"{step.origin}; several GPUs were never measured: communication is assumed",
    )


def exchange_s(work: ModelWork, gpu: Gpu, parallel: Parallel) -> tuple[float, float]:
    """Seconds of communication in a step, and for each of its tokens: assumed.

    After attention and after the MLP of each layer the GPUs of a replica add up their parts; the
    replicas of a model with experts gather all tokens before those, and scatter them after.
    """
    bytes_per_s, each_s = NVLINK if gpu.nvlink else PCIE
    hidden = BYTES * work.hidden
    sums = 2 * work.layers if parallel.tensor > 1 else 0
    sent = sums * 2 * hidden * (parallel.tensor - 1) / parallel.tensor
    if parallel.data > 1 and work.expert_layers:
        turns = 2 * work.expert_layers
        sums += turns
        sent += turns * hidden * (parallel.data - 1)
    return sums * each_s, sent / bytes_per_s
