"""What a model costs: parameters, KV bytes and activation bytes per token."""

from dataclasses import astuple, dataclass, field

from chunkscope.artefacts.note import Note
from chunkscope.models.quantization import LINEAR, Quantization

BYTES = 2  # vLLM runs in bf16 or fp16; a float32 checkpoint is cast down
BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek): one compressed vector per token, for all heads."""

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
    """What mamba or linear attention keeps of a request, however long it is, in each layer."""

    layers: int
    convolution: int  # values in the model's own precision
    memory: int  # values of `memory_bytes` each
    memory_bytes: int
    weights: int  # of one such layer

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
    stateful_layers: int = (
        0  # without a KV cache: linear attention, mamba, or an MLP alone
    )
    state: State | None = None  # None where there is none, or its size is not known
    normed: bool = False  # queries and keys are normed before they meet
    # Of layers that look back on everything, where they are built otherwise (Gemma 4).
    full_kv_heads: int | None = None
    full_head_dim: int | None = None
    borrowing_layers: int = 0  # that look at the keys and values of an earlier layer

    def splits_over(self, gpus: int) -> bool:
        """As vLLM splits: heads evenly; those of keys and values, too, or each copied as often."""
        few, many = sorted((self.kv_heads, gpus))
        return self.heads % gpus == 0 and (self.latent is not None or many % few == 0)


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
    by_layer: int = (
        0  # a second table of which a token looks up a row, with a part for each layer
    )

    @property
    def total(self) -> int:
        return sum(astuple(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model as far as memory and speed need it. `limit` is the longest context it takes."""

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
    file_bytes: int | None = None
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

    @property
    def weight_bytes(self) -> int:
        """All weights, on all GPUs together."""
        if self.file_bytes is not None:
            return self.file_bytes
        p = self.parameters
        plain = p.embedding + p.head + p.other + p.vision + p.by_layer
        return plain * BYTES + sum(map(self.bytes_of, LINEAR))

    def bytes_of(self, kind: str) -> int:
        """The weights of one kind, quantized if they are; mxfp4 is padded to 256 rows."""
        q = self.quantization
        count: int = getattr(self.parameters, kind)
        if kind not in q.kinds:
            return count * BYTES
        padded = (
            -(-self.hidden // 256) * 256 / self.hidden if q.method == "mxfp4" else 1.0
        )
        return round(count * padded * ((q.bits + q.extra_bits) / 8))

    @property
    def kv_layers(self) -> int:
        """Those with a KV cache of their own."""
        return (
            self.layers
            - self.attention.stateful_layers
            - self.attention.borrowing_layers
        )

    def kv_bytes_per_layer(
        self, tp: int = 1, element_bytes: int = BYTES, *, sliding: bool = False
    ) -> int:
        """KV cache of one token on one GPU; a latent cache is not split but copied."""
        a = self.attention
        if a.latent:
            return (
                a.latent.kv_rank + a.latent.rope_dim
            ) * element_bytes + a.latent.index_bytes
        heads = a.kv_heads if sliding else a.full_kv_heads or a.kv_heads
        head_dim = a.head_dim if sliding else a.full_head_dim or a.head_dim
        return 2 * max(1, heads // tp) * head_dim * element_bytes

    def kv_bytes_per_token(self, tp: int = 1, element_bytes: int = BYTES) -> int:
        sliding = self.attention.sliding_layers
        full = self.kv_bytes_per_layer(tp, element_bytes) * (self.kv_layers - sliding)
        return full + self.kv_bytes_per_layer(tp, element_bytes, sliding=True) * sliding

    def activation_bytes_per_token(self, tp: int = 1) -> int:
        """Peak of one step's activations. For a gated MLP 2 bytes x (3 x intermediate / tp +
        3 x hidden): gate, up and product, and three hidden-sized tensors. That 3 was fitted to
        Llama-3.1-8B on an H200 (108 KiB per token), and held for four other dense models there
        (tests/hardware/test_measured.py); tp > 1 was never measured.
        """
        e, q, inside = self.experts, self.quantization, self.intermediate // tp
        bytes_ = BYTES * (3 if self.gated else 2) * inside
        if q.eight_bit_products:
            # The product is written in 8 bits, and a scale for every 128 values of either.
            bytes_ -= inside - 4 * (inside + self.hidden) // 128
        if e and q.bits <= 4:
            # Without a workspace: what each token's experts compute, inside and at their end.
            bytes_ = max(
                bytes_, BYTES * e.active * (e.intermediate // tp + self.hidden)
            )
            bytes_ += BYTES * 2 * self.hidden
        if e and e.shared_intermediate:  # beside the experts' input and output
            shared = 3 * e.shared_intermediate // tp + 2 * self.hidden + e.count
            bytes_ = max(bytes_, BYTES * shared)
        return max(bytes_, BYTES * self._attention_width(tp)) + BYTES * 3 * self.hidden

    def attending_bytes_per_token(self, tp: int = 1) -> int:
        """While attention runs: queries, keys, values, the first two rotated, output, residual."""
        a = self.attention
        q, k = a.heads * a.head_dim // tp, max(1, a.kv_heads // tp) * a.head_dim
        return BYTES * (3 * q + 3 * k + self.hidden)

    def workspace_bytes_per_token(self, tp: int = 1) -> int:
        """What the experts' kernel keeps from step to step (`fused_moe/experts/triton_moe.py`): two
        copies of each token for each of its experts, as wide as the product before and after the
        activation, or as the model."""
        if self.experts is None:
            return 0
        inside = self.experts.intermediate // tp
        wide = max(inside, self.hidden) + max(2 * inside, self.hidden)
        return BYTES * self.experts.active * wide

    def latent_bytes(
        self, tokens: int, context: int, tp: int = 1, *, copied: bool = False
    ) -> int:
        """Of latent attention while `context` becomes keys and values, and for the step's `tokens`:
        queries, two outputs and latents. `copied`: with copies of keys and values as wide as keys,
        which vLLM's profile lacks (`mla_attention.py`)."""
        a, latent = self.attention, self.attention.latent
        if latent is None:
            return 0
        expanded = latent.nope_dim + latent.v_dim + 2 * latent.key_dim * copied
        own = (
            3 * a.heads * latent.key_dim // tp
            + latent.kv_rank
            + latent.rope_dim
            + self.hidden
        )
        return context * (BYTES * a.heads * expanded // tp) + tokens * BYTES * own

    def _attention_width(self, tp: int) -> int:
        a = self.attention
        if a.latent:
            return (
                a.heads
                * (2 * a.latent.key_dim + a.latent.nope_dim + 2 * a.latent.v_dim)
                // tp
            )
        q, k = a.heads * a.head_dim // tp, max(1, a.kv_heads // tp) * a.head_dim
        return 3 * q + (7 if a.normed else 3) * k
