"""How long one engine step takes: what the GPU needs, or the host, whichever is longer.

With async scheduling the host prepares a step while the GPU computes the one before, so the longer
of the two counts. A model's work is counted in FLOPs and bytes, each divided by the share of the
GPU's peak that such a kernel reaches; a roofline turns it into seconds. All shares were fitted on
one H200 and its host, vLLM 0.24.0: dense models on the long and short workloads of reports/h200,
others on the rows of reports/h200/kinds/fit.jsonl. Other GPUs are extrapolated.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from chunkscope.hardware.gpus import ALONE, Gpu, Parallel
from chunkscope.models.quantization import Compute
from chunkscope.models.shape import BYTES, Attention, ModelShape

# -- the share of the GPU's 16-bit peak that products reach --
# 22 us per token of 14.0 GFLOP (0.64, Llama-3.1-8B), 4.0 of 2.6 (0.67, Qwen2.5-1.5B), 25.5 of 16.6
# (0.66, Gemma-2-9B), all without the head.
MATMUL = 0.64
ATTENTION = 0.60  # 0.81 to 0.88 ns per pair of 524,288 FLOP, 1.28 of 786,432 (0.62)
FEW_HEADS, WITH_FEW_HEADS = (
    16,
    1.08,
)  # fewer take longer: 0.308 ns of 172,032 with 12 (0.565)
# GPUs without products of 8-bit floats: vLLM makes 16 bits of them first.
NO_FP8 = ("a100", "a40", "a30", "a10", "rtx-a6000", "rtx-3090", "t4", "v100")
EIGHT_BIT = (
    1.11  # Qwen3-8B in fp8 blocks: 13.1 us per token, 0.7 of it to quantise activations
)
# Qwen3-30B-A3B: 8.5 us per token of 3.6 GFLOP, 2.2 to move rows. 4 bits: as dense (gpt-oss-20b).
EXPERTS = 0.58
# -- the share of the bandwidth that reads reach --
WEIGHTS = 0.90  # 5.1 ms for 15.0 GB and 2.0 ms for 3.1 GB, launch included
WEIGHTS_OF_EXPERTS = 0.82  # 14.7 ms for the 58 GB of Qwen3-30B-A3B, once all are chosen
WEIGHTS_OF_FOUR_BIT_EXPERTS = (
    0.53  # gpt-oss-20b: 4 ms for 10.2 GB, as they are unpacked on the way
)
KV_CACHE = 0.84  # 37 ns per token of 128 KiB (0.74), 7.2 of 28 (0.83), 35 of 144 (0.88)
MOVED = 0.80  # rows from one product to the next
# Heads of 256 read longer: 93 ns of 336 KiB (Gemma-2-9B). Heads of 64 compute and read longer
# (Llama-3.2-1B), unless 8 of them share keys and values (gpt-oss-20b).
USUAL_HEAD, WIDE_HEADS, NARROW_HEADS, SHARED_BY = 128, 1.10, 1.22, 8
LATENT_SLOWNESS = 1.27  # 10.3 ns per token of 30 KiB (DeepSeek-V2-Lite)
WINDOW_SLOWNESS = (
    1.22  # a layer with a window reads it so many times slower (Gemma-2-9B)
)
# Of that time for blocks that the request before it in the batch has just read, from the L2 cache:
# 0.54 to 0.67 with Qwen3-8B (reports/h200/shared-decode.jsonl); after others 0.94 to 0.96.
READ_AGAIN = 0.6
# Where a step reads prompts, too, attention takes longer for each token of a decoding request's
# context: 1.54 (Llama-3.1-8B), 1.59 (Gemma-2-9B) and 1.55 times (Qwen3-30B-A3B) as long as alone.
MIXED = 1.6
# -- kernels: seconds for the GPU to start them, and for the host to launch them without graphs --
# 50, 45 and 49 us with the rest of a layer (Llama-3.1-8B, Qwen2.5-1.5B, Gemma-2-9B). 18.5 ms are
# launched with 28 to 36 of them (and Qwen3-8B), 12 with 16 (Llama-3.2-1B).
LAYER_S, LAUNCH_S, LAUNCH_LAYERS = 45e-6, 18.5e-3, (28, 36)
# Smaller steps that read prompts run as a CUDA graph for each layer, with attention launched
# between: at least 3.6 ms with 28 layers (Llama-3.2-3B) on one machine, 5.2 to 5.8 on another.
PIECE_S = 0.15e-3
# Routing and sorting: 61 us (Qwen3-30B-A3B). Launched in 72 to 98 ms with 48 layers, in 25 to 38
# with 16 (OLMoE), in 51 with 32 (Granite-3.1-3B-A800M): hosts differ, and are not steady.
EXPERTS_S, EXPERTS_LAUNCH_S = 19e-6, 1.69e-3
SHARED_LAUNCH_S = 0.17e-3  # an MLP of its own beside the experts: Qwen1.5-MoE-A2.7B
FOUR_BIT_S, FOUR_BIT_LAUNCH_S = (
    25e-6,
    0.60e-3,
)  # gpt-oss-20b: 2.95 ms for one token; 56 ms launched
# DeepSeek-V2-Lite: 3.4 ms for one token, 79 ms launched with 27 layers; 11 us for one more request.
LATENT_S, LATENT_LAUNCH_S, LATENT_REQUEST_S = 22e-6, 1.0e-3, 0.25e-6
QUANTISE_S = 28e-6  # Qwen3-8B in fp8: 4.45 ms for one token instead of 3.4
# Of a step's tokens this share hides behind reading the weights, of those that decode so much less,
# until so much of the reading hides some (reports/h200/small-steps.jsonl: models of 3B to 15B).
HIDDEN, SHOWN, READING_HIDES = 0.7, 0.43, 0.9
# A block of attention has so many rows, tokens times heads. A chunk with fewer blocks than the GPU
# has SMs leaves some idle: for each pair 256 tokens of Mistral-Nemo-12B (32 heads) took 1.9 times
# as long as large chunks, of Qwen2.5-7B (28) 2.2 times, 512 of Llama-3.2-3B (24) 1.5 times.
BLOCK_ROWS = 128
HAND_OUT_SHARE = 0.3  # of the engine's Python: 1.5 of 5 s (Qwen2.5-1.5B, 200 requests)
# GPUs that talk over NVLink (or AMD's Infinity Fabric), or over PCIe: bytes a second that one of
# them sends, and what an exchange takes however little is sent. Assumed, as nobody measured it.
NVLINK, PCIE = (300e9, 10e-6), (20e9, 25e-6)
# vLLM captures CUDA graphs up to so many tokens, and 2 x max_num_seqs if that is less.
GRAPHED_TOKENS = 512
GRAPHED_BY_ARCHITECTURE = {"GptOssForCausalLM": 1_024}  # vLLM 0.24, `models/config.py`


class Runner(StrEnum):
    """Which of vLLM's model runners computes. They differ in what a request costs the host,
    and in what sampling and logprobs cost."""

    V1 = "v1"
    V2 = "v2"


# What the engine's Python takes for a step and for each request in it. V1 (Qwen2.5-1.5B)
# was fitted on reports/h200; V2 (Llama-3.2-1B, whose GPU is faster than the host from 128
# requests on) on reports/h200/many-at-once/fit.jsonl: 3.0 ms a step with 128 requests, 15 with
# 1,024, 20 with 1,319.
# A step that is launched kernel by kernel pays more for each request: 43 ms with 1,024
# requests of Llama-3.1-8B, 38 to 48 with 1,319 of either, in reports/h200/many-at-once/fit.jsonl.
STEP_S = {Runner.V1: 0.5e-3, Runner.V2: 1.2e-3}
REQUEST_S = {Runner.V1: 27e-6, Runner.V2: 13.5e-6}
LAUNCHED_REQUEST_S = {Runner.V1: 0.0, Runner.V2: 11e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the engine's own Python takes for a step: it schedules, prepares and hands out."""

    fixed_s: float = 0.0
    per_request_s: float = 0.0
    per_prompt_s: float = 0.0  # one more that is read in this step
    ungraphed_s: float = (
        0.0  # to launch, kernel by kernel, what is over the graphs' size
    )
    ungraphed_request_s: float = 0.0  # the same for each request of such a step
    pieces_s: float = 0.0  # to launch the graphs of a smaller step that reads prompts

    def times(self, factor: float) -> "Host":
        """One that takes so many times as long for everything."""
        return Host(
            fixed_s=factor * self.fixed_s,
            per_request_s=factor * self.per_request_s,
            per_prompt_s=factor * self.per_prompt_s,
            ungraphed_s=factor * self.ungraphed_s,
            ungraphed_request_s=factor * self.ungraphed_request_s,
            pieces_s=factor * self.pieces_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWindow:
    """How far a token's attention looks back: in `share` of the layers no further than `tokens`.
    `expanding`: pairs that a chunk pays for each token of its context, to make keys of a latent.
    A chunk of fewer than `filling` tokens takes as long as one of so many."""

    tokens: int = 0
    share: float = 0.0
    expanding: float = 0.0
    filling: float = 0.0

    def context(self, length: int) -> float:
        """What a decoding request with so much behind it reads."""
        return self.mixed(length, min(length, self.tokens)) if self.tokens else length

    def mixed(self, every: int, within: int) -> float:
        """Of all context, and of what is within the window: read more slowly."""
        return every + self.share * (WINDOW_SLOWNESS * within - every)

    def pairs(self, chunk: int, computed: int) -> float:
        """Of a chunk with so much behind it."""
        every: float = chunk * computed + chunk * (chunk + 1) // 2
        if self.share:
            # Those before the window is full see all there is, the others the window.
            growing = max(0, min(chunk, self.tokens - computed))
            within = growing * computed + growing * (growing + 1) // 2
            every -= self.share * (every - within - (chunk - growing) * self.tokens)
        return every * max(1.0, self.filling / chunk) + self.expanding * computed


def assumed_host(shape: ModelShape, runner: Runner) -> Host:
    """Like the one of the H200; it launches a large step layer by layer."""
    # All launches were fitted together with a step of V1's length, whatever the runner.
    included_s = STEP_S[runner] - STEP_S[Runner.V1]
    return Host(
        fixed_s=STEP_S[runner],
        per_request_s=REQUEST_S[runner],
        per_prompt_s=0.08e-3,
        ungraphed_s=_layers_s(shape)[1] - included_s,
        ungraphed_request_s=LAUNCHED_REQUEST_S[runner],
        pieces_s=max(0.0, PIECE_S * shape.layers - included_s),
    )


def _layers_s(shape: ModelShape) -> tuple[float, float]:
    """Of all layers' kernels: to start one by one on the GPU, to be launched by the host."""
    e, q, layers = shape.experts, shape.quantization, shape.layers
    gpu_s = layers * (LAYER_S + QUANTISE_S * q.eight_bit_products)
    fewest, most = LAUNCH_LAYERS
    host_s = LAUNCH_S * layers / min(max(layers, fewest), most)
    if e is not None:
        four_bit, shared = q.bits <= 4, e.shared_intermediate > 0
        gpu_s += e.layers * (EXPERTS_S + FOUR_BIT_S * four_bit)
        host_s *= (layers - e.layers) / layers
        host_s += e.layers * (EXPERTS_LAUNCH_S + FOUR_BIT_LAUNCH_S * four_bit)
        host_s += e.layers * SHARED_LAUNCH_S * shared
    if shape.attention.latent:
        gpu_s += shape.kv_layers * LATENT_S
        host_s += shape.kv_layers * LATENT_LAUNCH_S
    return gpu_s, host_s


def _token_flops(shape: ModelShape) -> float:
    """Of one token in all layers, without the head: as if they ran at the peak."""
    p, e, eight_bit = (
        shape.parameters,
        shape.experts,
        shape.quantization.eight_bit_products,
    )
    flops = (p.attention + p.mlp) / (
        EIGHT_BIT if eight_bit else MATMUL
    ) + p.other / MATMUL
    if e is not None:
        share = MATMUL if shape.quantization.bits <= 4 else EXPERTS
        share *= EIGHT_BIT / MATMUL if eight_bit else 1.0
        flops += p.experts * e.active / e.count / share
    return 2 * flops


def _token_bytes(shape: ModelShape) -> float:
    """What products of one token's rows read and write besides weights, where that shows."""
    a, e, q, moved = shape.attention, shape.experts, shape.quantization, 0
    if e is not None:  # gathered, multiplied, activated, multiplied and added up
        moved += BYTES * e.layers * e.active * (3 * shape.hidden + 6 * e.intermediate)
    if (
        a.latent
    ):  # keys and values are expanded and copied, as queries and the output are
        width = a.latent.nope_dim + a.latent.v_dim + 4 * a.latent.key_dim
        moved += 2 * BYTES * shape.kv_layers * a.heads * width
    if (
        q.eight_bit_products
    ):  # what goes into a product is read in 16 bits and written in 8
        moved += 3 * shape.layers * (3 * shape.hidden + shape.intermediate)
    return moved / MOVED


def _window(shape: ModelShape) -> AttentionWindow:
    a, expanding = shape.attention, 0.0
    if a.latent:
        expanding = (
            a.latent.kv_rank
            * (a.latent.nope_dim + a.latent.v_dim)
            / 2
            / a.latent.key_dim
        )
    share = a.sliding_layers / max(1, shape.kv_layers)
    return AttentionWindow(
        tokens=a.sliding_window or 0, share=share, expanding=expanding
    )


def _pair_flops(shape: ModelShape) -> float:
    """Attention's work per (token, context token). Values of a latent are as wide as its keys."""
    a = shape.attention
    wide = a.latent.key_dim if a.latent else a.full_head_dim or a.head_dim
    widths = (shape.kv_layers - a.sliding_layers) * wide + a.sliding_layers * a.head_dim
    flops = _with_borrowers(shape, 4 * a.heads * widths)
    return flops * _narrow(a) * (WITH_FEW_HEADS if a.heads < FEW_HEADS else 1.0)


def _narrow(a: Attention) -> float:
    few = (
        a.latent is None
        and a.head_dim < USUAL_HEAD
        and a.heads < SHARED_BY * a.kv_heads
    )
    return NARROW_HEADS if few else 1.0


def _with_borrowers(shape: ModelShape, amount: int) -> int:
    """Of all layers that attend, by that of those with a KV cache: the others are built as they."""
    return (
        amount
        * (shape.kv_layers + shape.attention.borrowing_layers)
        // max(1, shape.kv_layers)
    )


def chosen(share: float, tokens: float) -> float:
    """Of all experts, those that so many tokens choose, if each chooses evenly."""
    return 1.0 - float((1.0 - share) ** tokens)


def paid_tokens(tokens: float, requests: float, free: float) -> float:
    """Those that do not hide behind reading the weights, which takes as long as `free` of them."""
    hidden = free / tokens if free < HIDDEN * tokens else HIDDEN
    return tokens - hidden * (tokens - SHOWN * requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """Seconds of one step. Up to `free_tokens` hide behind reading the weights."""

    fixed_s: float = 0.0
    per_token_s: float = 0.0
    per_prefill_pair_s: float = 0.0
    per_decode_context_s: float = 0.0
    per_request_s: float = 0.0
    free_tokens: int = 0
    host: Host = Host()
    graphed_tokens: int = GRAPHED_TOKENS
    experts_s: float = 0.0  # to read all of them
    expert_share: float = 0.0  # that one token chooses
    window: AttentionWindow = AttentionWindow()
    mixed: float = (
        1.0  # context of decoding requests takes so many times as long beside prompts
    )

    def sharing(self, share: float) -> "StepModel":
        """Where neighbours in the batch have this share of their context in common."""
        taken = 1 - share * (1 - READ_AGAIN)
        return replace(self, per_decode_context_s=self.per_decode_context_s * taken)

    def gpu_s(
        self, tokens: int, pairs: float, decode_context: float, requests: int
    ) -> float:
        context = decode_context * self.mixed if pairs else decode_context
        return (
            self.fixed_s
            + (
                self.experts_s * chosen(self.expert_share, tokens)
                if self.experts_s
                else 0.0
            )
            + paid_tokens(tokens, requests, self.free_tokens) * self.per_token_s
            + requests * self.per_request_s
            + pairs * self.per_prefill_pair_s
            + context * self.per_decode_context_s
        )

    def host_parts(
        self, tokens: int, requests: int, prompts: int
    ) -> tuple[float, float, float]:
        """To prepare a step, to launch it, and to hand out its tokens."""
        host = self.host
        every = host.fixed_s + requests * host.per_request_s
        prepare = (1 - HAND_OUT_SHARE) * every + prompts * host.per_prompt_s
        launch = host.pieces_s if prompts else 0.0
        if tokens > self.graphed_tokens:
            launch = host.ungraphed_s + requests * host.ungraphed_request_s
        return prepare, launch, HAND_OUT_SHARE * every


def step_model(
    shape: ModelShape,
    gpu: Gpu,
    parallel: Parallel = ALONE,
    kv_element_bytes: int = BYTES,
    runner: Runner = Runner.V1,
) -> StepModel | None:
    """A roofline from the GPU's peak figures; None where those are not known."""
    if gpu.speed is None:
        return None
    if gpu.name.startswith(NO_FP8) and shape.quantization.compute is Compute.FP8:
        sixteen_bit = replace(shape.quantization, compute=None)
        shape = replace(shape, quantization=sixteen_bit)
    byte_s, flop_s, tp = 1e-9 / gpu.speed[0], 1e-12 / gpu.speed[1], parallel.tensor
    a, e, p, q = shape.attention, shape.experts, shape.parameters, shape.quantization
    expert_bytes = shape.bytes_of("experts") if e else 0
    looked_up = BYTES * (p.by_layer + (0 if shape.tied else p.embedding))
    of_experts = WEIGHTS_OF_FOUR_BIT_EXPERTS if q.bits <= 4 else WEIGHTS_OF_EXPERTS
    kv_bytes: float = _with_borrowers(
        shape, shape.kv_bytes_per_token(tp, kv_element_bytes)
    )
    wide = WIDE_HEADS if a.head_dim > USUAL_HEAD else _narrow(a)
    kv_bytes *= LATENT_SLOWNESS if a.latent else wide
    state_bytes = a.state.layers * a.state.bytes(tp) if a.state else 0
    exchange_s, exchange_token_s = exchange(shape, gpu, parallel)
    window = replace(_window(shape), filling=gpu.sms * BLOCK_ROWS * tp / a.heads)
    reading_s = (shape.weight_bytes - expert_bytes - looked_up) / tp / WEIGHTS * byte_s
    experts_s = expert_bytes / tp / of_experts * byte_s
    share = e.active / e.count if e else 0.0
    token_s = (_token_flops(shape) * flop_s + _token_bytes(shape) * byte_s) / tp
    return StepModel(
        fixed_s=reading_s + _layers_s(shape)[0] + exchange_s,
        per_token_s=token_s + exchange_token_s,
        per_prefill_pair_s=_pair_flops(shape) / tp / ATTENTION * flop_s,
        per_decode_context_s=kv_bytes / KV_CACHE * byte_s,
        mixed=MIXED / window.context(1),  # of windows as of all else
        per_request_s=2 * (p.head or p.embedding) / tp / MATMUL * flop_s
        + 2 * state_bytes / WEIGHTS * byte_s
        + (shape.kv_layers * LATENT_REQUEST_S if a.latent else 0.0),
        free_tokens=round(READING_HIDES * (reading_s + share * experts_s) / token_s),
        experts_s=experts_s
        / parallel.data,  # each replica reads some for the tokens of all
        expert_share=chosen(share, parallel.data),
        graphed_tokens=GRAPHED_BY_ARCHITECTURE.get(shape.architecture, GRAPHED_TOKENS),
        window=window,
        host=assumed_host(shape, runner),
    )


def exchange(shape: ModelShape, gpu: Gpu, parallel: Parallel) -> tuple[float, float]:
    """Seconds of communication in a step, and for each token: assumed. The GPUs of a replica
    add up attention and MLP of each layer; replicas gather and scatter all tokens for experts."""
    bytes_per_s, each_s = NVLINK if gpu.nvlink else PCIE
    hidden = BYTES * shape.hidden
    sums = 2 * shape.layers if parallel.tensor > 1 else 0
    sent = sums * 2 * hidden * (parallel.tensor - 1) / parallel.tensor
    turns = 2 * shape.experts.layers if parallel.data > 1 and shape.experts else 0
    sent += turns * hidden * (parallel.data - 1)
    return (sums + turns) * each_s, sent / bytes_per_s
