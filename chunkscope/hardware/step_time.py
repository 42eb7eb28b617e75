"""How long one engine step takes: what the GPU needs, or the host, whichever is longer.

With async scheduling the host prepares a step while the GPU computes the one before, so
the longer of the two counts. A model's work is counted in FLOPs and bytes, each divided
by the share of the GPU's peak that such a kernel reaches; a roofline turns it into
seconds. All shares, in constants.csv, were fitted on one H200 and its host, vLLM
0.24.0. Other GPUs are extrapolated.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from chunkscope.hardware.constants import constant, whole
from chunkscope.hardware.gpus import ALONE, Gpu, Parallel
from chunkscope.models.shape import BYTES, Attention, ModelShape

WINDOW_SLOWNESS = constant("window_slowness")
READ_AGAIN = constant("read_again_share")
HIDDEN_SHARE = constant("hidden_share")
SHOWN_DECODES = constant("shown_decodes")
HAND_OUT_SHARE = constant("hand_out_share")
# vLLM captures CUDA graphs up to so many tokens, and 2 x max_num_seqs if that is less.
GRAPHED_TOKENS = whole("graphed_tokens")
GRAPHED_TOKENS_OF_BLACKWELL = whole("graphed_tokens_blackwell")
GRAPHED_TOKENS_BY_ARCHITECTURE = {"GptOssForCausalLM": whole("graphed_tokens_gpt_oss")}


class Runner(StrEnum):
    """Which of vLLM's model runners computes.

    They differ in what a request costs the host, and in what sampling takes.
    """

    V1 = "v1"
    V2 = "v2"


# -- what a step costs -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the engine's own Python takes for a step: it prepares and hands out."""

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
    """How far a token looks back: in `share` of the layers no further than `tokens`."""

    tokens: int = 0
    share: float = 0.0
    # Latent attention makes keys and values of its cache once for each chunk. What that
    # costs for one token behind the chunk, in query-key pairs.
    mla_expand_pairs: float = 0.0
    # A smaller chunk takes as long for each pair as if it had so many tokens, because
    # it has fewer blocks of attention than the GPU has multiprocessors.
    gpu_filling_tokens: float = 0.0

    def context(self, length: int) -> float:
        """What a decoding request with so much behind it reads."""
        if not self.tokens:
            return length
        return self.mixed(length, min(length, self.tokens))

    def mixed(self, every: int, within: int) -> float:
        """The same of all context and what is in the window: that is read slower."""
        return every + self.share * (WINDOW_SLOWNESS * within - every)

    def pairs(self, chunk: int, computed: int) -> float:
        """Query-key pairs of a chunk with so many tokens behind it."""
        pairs = float(_causal_pairs(chunk, computed))
        if self.share:
            # Tokens before the window is full see all there is, the others the window.
            growing = max(0, min(chunk, self.tokens - computed))
            within = _causal_pairs(growing, computed) + (chunk - growing) * self.tokens
            pairs -= self.share * (pairs - within)
        idle_times = max(1.0, self.gpu_filling_tokens / chunk)
        return pairs * idle_times + self.mla_expand_pairs * computed


def _causal_pairs(chunk: int, computed: int) -> int:
    """Each token sees what is behind the chunk, itself and those before."""
    return chunk * computed + chunk * (chunk + 1) // 2


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
    mixed: float = 1.0  # times as long that context takes beside prompts

    def sharing(self, share: float) -> "StepModel":
        """Where neighbours in the batch have this share of their context in common."""
        taken = 1 - share * (1 - READ_AGAIN)
        return replace(self, per_decode_context_s=self.per_decode_context_s * taken)

    def gpu_s(
        self, tokens: int, pairs: float, decode_context: float, requests: int
    ) -> float:
        """What the GPU needs for a step."""
        seconds = self.fixed_s
        if self.experts_s:
            seconds += self.experts_s * chosen(self.expert_share, tokens)
        seconds += paid_tokens(tokens, requests, self.free_tokens) * self.per_token_s
        seconds += requests * self.per_request_s
        seconds += pairs * self.per_prefill_pair_s
        context = decode_context * self.mixed if pairs else decode_context
        return seconds + context * self.per_decode_context_s

    def decode_s(self, requests: int, contexts: np.ndarray) -> np.ndarray:
        """The same for steps that only decode, with these contexts."""
        fixed_s = self.gpu_s(requests, 0.0, 0.0, requests)
        return fixed_s + contexts * self.per_decode_context_s

    def host_parts(
        self, tokens: int, requests: int, prompts: int
    ) -> tuple[float, float, float]:
        """Seconds to prepare a step, to launch it, and to hand out its tokens."""
        host = self.host
        every = host.fixed_s + requests * host.per_request_s
        prepare = (1 - HAND_OUT_SHARE) * every + prompts * host.per_prompt_s
        launch = 0.0
        if tokens > self.graphed_tokens:
            launch = host.ungraphed_s + requests * host.ungraphed_request_s
        elif prompts:
            launch = host.pieces_s
        return prepare, launch, HAND_OUT_SHARE * every


def chosen(share: float, tokens: float) -> float:
    """The share of all experts that so many tokens choose, if each chooses evenly."""
    return 1.0 - float((1.0 - share) ** tokens)


def paid_tokens(tokens: float, requests: float, free: float) -> float:
    """Those that do not hide behind reading the weights, as up to `free` do."""
    hidden_share = HIDDEN_SHARE
    if free < HIDDEN_SHARE * tokens:
        hidden_share = free / tokens
    return tokens - hidden_share * (tokens - SHOWN_DECODES * requests)


# -- the roofline ----------------------------------------------------------------------


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
    bandwidth_gb_s, tflops = gpu.speed
    byte_s, flop_s = 1e-9 / bandwidth_gb_s, 1e-12 / tflops
    shape = gpu.computed(shape)
    tp = parallel.tensor
    experts_s = _expert_weight_bytes(shape) / tp * byte_s
    expert_share = 0.0
    if shape.experts:
        expert_share = shape.experts.active / shape.experts.count
    weights_s = _weight_bytes(shape) / tp * byte_s
    token_s = (_token_flops(shape) * flop_s + _token_bytes(shape) * byte_s) / tp
    reading_s = weights_s + expert_share * experts_s
    exchange = _exchange(shape, gpu, parallel)
    window = _window(shape, gpu, parallel)
    context_bytes = _context_bytes(shape, tp, kv_element_bytes)
    return StepModel(
        fixed_s=weights_s + _gpu_layers_s(shape) + exchange.step_s,
        per_token_s=token_s + exchange.token_s,
        per_prefill_pair_s=_pair_flops(shape) / tp * flop_s,
        per_decode_context_s=context_bytes / constant("kv_cache_share") * byte_s,
        # Windows are read slower anyway: beside prompts they take as long as all else.
        mixed=constant("mixed_step_slowness") / window.context(1),
        per_request_s=_request_s(shape, tp, byte_s, flop_s),
        free_tokens=round(constant("reading_hides_share") * reading_s / token_s),
        # Each replica reads some of the experts for the tokens of all.
        experts_s=experts_s / parallel.data,
        expert_share=chosen(expert_share, parallel.data),
        graphed_tokens=GRAPHED_TOKENS_BY_ARCHITECTURE.get(
            shape.architecture, GRAPHED_TOKENS
        ),
        window=window,
        host=assumed_host(shape, runner),
    )


def _weight_bytes(shape: ModelShape) -> float:
    """What each step reads of all weights but the experts, as if at full bandwidth.

    Of tables in which a token looks up a row, next to nothing is read.
    """
    looked_up = shape.parameters.by_layer
    if not shape.tied:
        looked_up += shape.parameters.embedding
    experts = shape.bytes_of("experts") if shape.experts else 0
    read = shape.weight_bytes - experts - BYTES * looked_up
    return read / constant("weights_share")


def _expert_weight_bytes(shape: ModelShape) -> float:
    """What a step reads that chooses all experts, as if at full bandwidth."""
    if shape.experts is None:
        return 0.0
    share = constant("expert_weights_share")
    if shape.quantization.bits <= 4:
        share = constant("four_bit_expert_weights_share")
    return shape.bytes_of("experts") / share


def _token_flops(shape: ModelShape) -> float:
    """FLOPs of one token in all layers without the head, as if at the GPU's peak."""
    parameters, quantization = shape.parameters, shape.quantization
    linear_share = constant("matmul_share")
    if quantization.eight_bit_products:
        linear_share = constant("eight_bit_share")
    linear = parameters.attention + parameters.mlp
    flops = linear / linear_share + parameters.other / constant("matmul_share")
    experts = shape.experts
    if experts is not None:
        share = constant("experts_share")
        if quantization.bits <= 4:  # as dense weights
            share = constant("matmul_share")
        if quantization.eight_bit_products:
            share *= constant("eight_bit_share") / constant("matmul_share")
        flops += parameters.experts * experts.active / experts.count / share
    return 2 * flops


def _token_bytes(shape: ModelShape) -> float:
    """Bytes of one token's rows that products read and write, where that shows."""
    experts, latent = shape.experts, shape.attention.latent
    moved = 0
    if experts is not None:
        # Rows are gathered, multiplied, activated, multiplied and added up.
        width = 3 * shape.hidden + 6 * experts.intermediate
        moved += BYTES * experts.layers * experts.active * width
    if latent is not None:
        # Keys and values are expanded and copied, as queries and the output are.
        width = latent.nope_dim + latent.v_dim + 4 * latent.key_dim
        moved += 2 * BYTES * shape.kv_layers * shape.attention.heads * width
    if shape.quantization.eight_bit_products:
        # What goes into a product is read in 16 bits and written in 8.
        moved += 3 * shape.layers * (3 * shape.hidden + shape.intermediate)
    return moved / constant("moved_rows_share")


def _pair_flops(shape: ModelShape) -> float:
    """FLOPs of attention for one query-key pair, as if at the GPU's peak.

    Values of a latent are as wide as its keys.
    """
    attention = shape.attention
    full_width = attention.full_head_dim or attention.head_dim
    if attention.latent:
        full_width = attention.latent.key_dim
    width = (shape.kv_layers - attention.sliding_layers) * full_width
    width += attention.sliding_layers * attention.head_dim
    products = _with_borrowers(shape, 4 * attention.heads * width)
    flops = products / constant("attention_share")
    slowness = _narrow_heads_slowness(attention)
    if attention.heads < whole("few_heads"):
        slowness *= constant("few_heads_slowness")
    return flops * slowness


def _context_bytes(shape: ModelShape, tp: int, kv_element_bytes: int) -> float:
    """KV cache read for one token of context, as if at the share of plain heads."""
    attention = shape.attention
    size = _with_borrowers(shape, shape.kv_bytes_per_token(tp, kv_element_bytes))
    if attention.latent:
        return size * constant("latent_slowness")
    if attention.head_dim > whole("usual_head_dim"):
        return size * constant("wide_heads_slowness")
    return size * _narrow_heads_slowness(attention)


def _narrow_heads_slowness(attention: Attention) -> float:
    """Narrow heads are slower, unless many of them share keys and values."""
    if attention.latent is not None or attention.head_dim >= whole("usual_head_dim"):
        return 1.0
    if attention.heads >= whole("narrow_heads_shared_by") * attention.kv_heads:
        return 1.0
    return constant("narrow_heads_slowness")


def _with_borrowers(shape: ModelShape, amount: int) -> int:
    """The cost of all layers that attend, by that of those with a KV cache."""
    attending = shape.kv_layers + shape.attention.borrowing_layers
    return amount * attending // max(1, shape.kv_layers)


def _request_s(shape: ModelShape, tp: int, byte_s: float, flop_s: float) -> float:
    """One more request: its logits, its states, and its part of latent attention."""
    attention = shape.attention
    head = shape.parameters.head or shape.parameters.embedding
    seconds = 2 * head / tp / constant("matmul_share") * flop_s
    if attention.state:
        state_bytes = attention.state.layers * attention.state.bytes(tp)
        # A state is read and written.
        seconds += 2 * state_bytes / constant("weights_share") * byte_s
    if attention.latent:
        seconds += shape.kv_layers * constant("latent_request_s")
    return seconds


def _window(shape: ModelShape, gpu: Gpu, parallel: Parallel) -> AttentionWindow:
    attention, latent = shape.attention, shape.attention.latent
    mla_expand_pairs = 0.0
    if latent is not None:
        # kv_rank x (nope + v) multiply-adds for each token and head; a query-key pair
        # has 2 x key_dim of them.
        multiply_adds = latent.kv_rank * (latent.nope_dim + latent.v_dim)
        mla_expand_pairs = multiply_adds / (2 * latent.key_dim)
    heads_per_gpu = attention.heads / parallel.tensor
    return AttentionWindow(
        tokens=attention.sliding_window or 0,
        share=attention.sliding_layers / max(1, shape.kv_layers),
        mla_expand_pairs=mla_expand_pairs,
        gpu_filling_tokens=gpu.sms * whole("attention_block_rows") / heads_per_gpu,
    )


def _gpu_layers_s(shape: ModelShape) -> float:
    """The GPU starts the kernels of all layers one by one."""
    seconds = shape.layers * constant("layer_s")
    if shape.quantization.eight_bit_products:
        seconds += shape.layers * constant("quantise_layer_s")
    if shape.experts is not None:
        seconds += shape.experts.layers * constant("experts_layer_s")
        if shape.quantization.bits <= 4:
            seconds += shape.experts.layers * constant("four_bit_layer_s")
    if shape.attention.latent:
        seconds += shape.kv_layers * constant("latent_layer_s")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """Seconds of communication between GPUs: in each step, and for each token."""

    step_s: float
    token_s: float


def _exchange(shape: ModelShape, gpu: Gpu, parallel: Parallel) -> _Exchange:
    """The GPUs of a replica add up attention and MLP of each layer; replicas gather and
    scatter all tokens for experts. Assumed, as nobody measured it."""
    bytes_per_s = constant("pcie_bytes_per_s")
    exchange_s = constant("pcie_exchange_s")
    if gpu.nvlink:
        bytes_per_s = constant("nvlink_bytes_per_s")
        exchange_s = constant("nvlink_exchange_s")
    token_bytes = BYTES * shape.hidden
    exchanges, sent = 0, 0.0
    if parallel.tensor > 1:
        sums = 2 * shape.layers
        exchanges += sums
        sent += sums * 2 * token_bytes * (parallel.tensor - 1) / parallel.tensor
    if parallel.data > 1 and shape.experts:
        gathers = 2 * shape.experts.layers
        exchanges += gathers
        sent += gathers * token_bytes * (parallel.data - 1)
    return _Exchange(step_s=exchanges * exchange_s, token_s=sent / bytes_per_s)


# -- the host --------------------------------------------------------------------------


def assumed_host(shape: ModelShape, runner: Runner) -> Host:
    """Like the one of the H200; it launches a large step layer by layer."""
    step_s, request_s = constant("host_fixed_v1_s"), constant("host_request_v1_s")
    launched_request_s = 0.0
    if runner is Runner.V2:
        step_s, request_s = constant("host_fixed_v2_s"), constant("host_request_v2_s")
        launched_request_s = constant("launched_request_v2_s")
    # All launches were fitted together with a step of V1's length, whatever the runner.
    included_s = step_s - constant("host_fixed_v1_s")
    return Host(
        fixed_s=step_s,
        per_request_s=request_s,
        per_prompt_s=constant("host_prompt_s"),
        ungraphed_s=_launch_s(shape) - included_s,
        ungraphed_request_s=launched_request_s,
        pieces_s=max(0.0, constant("piece_s") * shape.layers - included_s),
    )


def _launch_s(shape: ModelShape) -> float:
    """The host launches the kernels of all layers one by one."""
    layers, experts = shape.layers, shape.experts
    measured_layers = max(layers, whole("launch_fewest_layers"))
    measured_layers = min(measured_layers, whole("launch_most_layers"))
    seconds = constant("launch_s") * layers / measured_layers
    if experts is not None:
        seconds *= (layers - experts.layers) / layers
        seconds += experts.layers * constant("experts_launch_s")
        if shape.quantization.bits <= 4:
            seconds += experts.layers * constant("four_bit_launch_s")
        if experts.shared_intermediate:
            seconds += experts.layers * constant("shared_experts_launch_s")
    if shape.attention.latent:
        seconds += shape.kv_layers * constant("latent_launch_s")
    return seconds
