"""What a model costs: parameters, KV bytes and activation bytes per token."""

from dataclasses import astuple, dataclass, field

from chunkscope.artefacts.note import Note
from chunkscope.models.quantization import LINEAR, Quantization

BYTES = 2  # vLLM runs in bf16 or fp16; a float32 checkpoint is cast down
BLOCK_TOKENS = 16
MXFP4_ROWS = 256  # vLLM pads the rows of mxfp4 experts to a multiple of this


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: one short vector per token for all heads."""

    kv_rank: int
    q_rank: int | None
    nope_dim: int
    rope_dim: int
    v_dim: int
    index_bytes: int = 0  # of a token, by which DeepSeek-V3.2 finds those that matter

    @property
    def key_dim(self) -> int:
        return self.nope_dim + self.rope_dim


@dataclass(frozen=True, slots=True)
class State:
    """What each layer of mamba or linear attention keeps of a request of any length."""

    layers: int
    convolution: int  # values in the model's own precision
    memory: int  # values of `memory_bytes` each
    memory_bytes: int

    def bytes(self, tp: int = 1) -> int:
        return (self.convolution * BYTES + self.memory * self.memory_bytes) // tp


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    heads: int
    kv_heads: int
    head_dim: int
    latent: Latent | None = None
    sliding_window: int | None = None
    sliding_layers: int = 0
    # Without a KV cache: linear attention, mamba, or an MLP alone.
    stateful_layers: int = 0
    state: State | None = None  # None where there is none, or its size is not known
    normed: bool = False  # queries and keys are normed before they meet
    # Of layers that look back on everything, where they are built otherwise (Gemma 4).
    full_kv_heads: int | None = None
    full_head_dim: int | None = None
    borrowing_layers: int = 0  # that look at the keys and values of an earlier layer

    def splits_over(self, gpus: int) -> bool:
        """Can vLLM split it? Heads evenly; KV heads evenly or copied as often."""
        if self.heads % gpus != 0:
            return False
        fewer, more = sorted((self.kv_heads, gpus))
        return self.latent is not None or more % fewer == 0

    def query_width(self, tp: int) -> int:
        """Values of a token's queries on each GPU."""
        return self.heads * self.head_dim // tp

    def key_width(self, tp: int) -> int:
        """Values of a token's keys on each GPU, and of its values."""
        return max(1, self.kv_heads // tp) * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The routed experts of one layer, and what every token passes beside them."""

    count: int
    active: int
    intermediate: int
    layers: int
    shared_intermediate: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How many weights of which kind: quantization treats them differently."""

    embedding: int = 0
    head: int = 0
    attention: int = 0
    mlp: int = 0
    experts: int = 0
    other: int = 0
    vision: int = 0
    # A second table of which a token looks up a row, with a part for each layer: Gemma.
    by_layer: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))

    @property
    def never_quantized(self) -> int:
        parts = (self.embedding, self.head, self.other, self.vision, self.by_layer)
        return sum(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model as far as memory and speed need it; `limit` is its longest context."""

    name: str
    source: str
    architecture: str
    layers: int
    hidden: int
    intermediate: int
    vocab: int
    attention: Attention
    parameters: Parameters = Parameters()
    quantization: Quantization = field(default_factory=Quantization)
    experts: Experts | None = None
    gated: bool = True
    tied: bool = False
    limit: int | None = None
    original: int | None = None  # of longrope: vLLM goes no further by itself
    hub_id: str | None = None
    # What the checkpoint's files say that vLLM loads: in all, and of experts alone.
    file_bytes: int | None = None
    file_expert_bytes: int | None = None
    notes: tuple[Note, ...] = ()

    @property
    def load_name(self) -> str:
        """What to load it by: the hub id or folder, or the name that was asked for."""
        return self.hub_id or self.name

    @property
    def dense(self) -> bool:
        return self.experts is None and not self.hybrid

    @property
    def hybrid(self) -> bool:
        return self.attention.stateful_layers > 0 or self.attention.state is not None

    # -- weights ---------------------------------------------------------------------

    @property
    def weight_bytes(self) -> int:
        """All weights, on all GPUs together."""
        if self.file_bytes is None:
            quantized = sum(self.bytes_of(kind) for kind in LINEAR)
            return self.parameters.never_quantized * BYTES + quantized
        expert_bytes = self.file_expert_bytes or 0
        return self.file_bytes - expert_bytes + self._padded(expert_bytes)

    def bytes_of(self, kind: str) -> int:
        """The weights of one kind (of LINEAR), quantized if they are."""
        if kind == "experts" and self.file_expert_bytes is not None:
            return self._padded(self.file_expert_bytes)
        count: int = getattr(self.parameters, kind)
        if kind not in self.quantization.kinds:
            return count * BYTES
        bits = self.quantization.bits + self.quantization.extra_bits
        return self._padded(count * bits / 8)

    def _padded(self, size: float) -> int:
        """mxfp4 is padded: 14.58 GB of gpt-oss-20b were measured on an H200."""
        if self.quantization.method != "mxfp4":
            return round(size)
        rows = -(-self.hidden // MXFP4_ROWS) * MXFP4_ROWS
        return round(size * rows / self.hidden)

    # -- the KV cache ----------------------------------------------------------------

    @property
    def kv_layers(self) -> int:
        """Those with a KV cache of their own."""
        without = self.attention.stateful_layers + self.attention.borrowing_layers
        return self.layers - without

    def kv_bytes_per_layer(
        self, tp: int = 1, element_bytes: int = BYTES, *, sliding: bool = False
    ) -> int:
        """KV cache of one token on one GPU; a latent cache is not split but copied."""
        attention = self.attention
        if attention.latent:
            latent = attention.latent
            values = latent.kv_rank + latent.rope_dim
            return values * element_bytes + latent.index_bytes
        heads = attention.kv_heads
        head_dim = attention.head_dim
        if not sliding:
            heads = attention.full_kv_heads or heads
            head_dim = attention.full_head_dim or head_dim
        return 2 * max(1, heads // tp) * head_dim * element_bytes

    def kv_bytes_per_token(self, tp: int = 1, element_bytes: int = BYTES) -> int:
        sliding_layers = self.attention.sliding_layers
        full = self.kv_bytes_per_layer(tp, element_bytes)
        sliding = self.kv_bytes_per_layer(tp, element_bytes, sliding=True)
        return full * (self.kv_layers - sliding_layers) + sliding * sliding_layers

    # -- activations -----------------------------------------------------------------

    def activation_bytes_per_token(self, tp: int = 1) -> int:
        """Peak of one step's activations, on each GPU.

        For a gated MLP 2 bytes x (3 x intermediate / tp + 3 x hidden): gate, up and
        product, and three hidden-sized tensors. That 3 was fitted to Llama-3.1-8B on an
        H200 (108 KiB per token), and held for four other dense models there
        (tests/hardware/test_measured.py); tp > 1 was never measured.
        """
        parts = [
            self._mlp_bytes(tp),
            self._experts_bytes(tp),
            self._shared_expert_bytes(tp),
            BYTES * self._attention_width(tp),
        ]
        return max(parts) + BYTES * 3 * self.hidden

    def _mlp_bytes(self, tp: int) -> int:
        inside = self.intermediate // tp
        size = BYTES * (3 if self.gated else 2) * inside
        if self.quantization.eight_bit_products:
            # The product is written in 8 bits, with a scale for each 128 values.
            size -= inside - 4 * (inside + self.hidden) // 128
        if self._four_bit_experts:
            size += BYTES * 2 * self.hidden
        return size

    def _experts_bytes(self, tp: int) -> int:
        """4-bit experts have no workspace: what they compute, inside and at the end."""
        if self.experts is None or not self._four_bit_experts:
            return 0
        each = self.experts.intermediate // tp + self.hidden
        return BYTES * (self.experts.active * each + 2 * self.hidden)

    def _shared_expert_bytes(self, tp: int) -> int:
        """Beside the routed experts' input and output."""
        if self.experts is None or not self.experts.shared_intermediate:
            return 0
        inside = 3 * self.experts.shared_intermediate // tp
        return BYTES * (inside + 2 * self.hidden + self.experts.count)

    @property
    def _four_bit_experts(self) -> bool:
        return self.experts is not None and self.quantization.bits <= 4

    def _attention_width(self, tp: int) -> int:
        attention = self.attention
        if attention.latent:
            latent = attention.latent
            each = 2 * latent.key_dim + latent.nope_dim + 2 * latent.v_dim
            return attention.heads * each // tp
        copies_of_keys = 7 if attention.normed else 3
        queries = attention.query_width(tp)
        return 3 * queries + copies_of_keys * attention.key_width(tp)

    def workspace_bytes_per_token(self, tp: int = 1) -> int:
        """What the experts' kernel keeps from step to step.

        Two copies of each token for each of its experts, as wide as the product before
        and after the activation, or as the model (`fused_moe/experts/triton_moe.py`).
        """
        if self.experts is None:
            return 0
        inside = self.experts.intermediate // tp
        widths = max(inside, self.hidden) + max(2 * inside, self.hidden)
        return BYTES * self.experts.active * widths

    def latent_bytes(self, tokens: int, context: int, tp: int = 1) -> int:
        """Of latent attention while `context` becomes keys and values.

        For the step's `tokens`: queries, two outputs and latents (`mla_attention.py`).
        """
        latent = self.attention.latent
        if latent is None:
            return 0
        heads = self.attention.heads
        of_context = BYTES * heads * (latent.nope_dim + latent.v_dim) // tp
        of_token = 3 * heads * latent.key_dim // tp
        of_token += latent.kv_rank + latent.rope_dim + self.hidden
        return context * of_context + tokens * BYTES * of_token
