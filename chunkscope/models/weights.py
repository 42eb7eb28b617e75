"""How many weights a config describes, by kind; and what layers with a state keep of a request."""

from collections.abc import Mapping
from dataclasses import dataclass

from chunkscope.models.fields import Family, Fields
from chunkscope.models.layers import Feed, KvKind, Layer
from chunkscope.models.shape import BYTES, Attention, Experts, Latent, Parameters

# Heads of keys and values, their sizes, the convolution's length.
DELTA_NET = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
# Heads, groups, the state's size and the convolution's length; then the size of a head, which
# follows from the others where it is not stated.
MAMBA_2 = (
    (("mamba_num_heads", "n_groups", "ssm_state_size", "conv_kernel"), "mamba_head_dim"),
    (("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"), "mamba_d_head"),
)
MAMBA_1 = ("mamba_expand", "mamba_d_state", "mamba_d_conv")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulLayer:
    """One of them: values of the convolution and of the memory, and its weights."""

    convolution: int
    memory: int
    weights: int
    memory_bytes: int = BYTES


def read_stateful_layer(fields: Fields) -> StatefulLayer | None:
    """None for a kind that is not known."""
    for read in (_delta_net, _kimi_delta, _mamba_2, _mamba_1, _short_convolution):
        if found := read(fields):
            return found
    return None


def _delta_net(fields: Fields) -> StatefulLayer | None:
    if not (stated := fields.all_of(*DELTA_NET)):
        return None
    key_heads, value_heads, key_dim, value_dim, kernel = stated
    keys, values, hidden = key_heads * key_dim, value_heads * value_dim, fields.number("hidden")
    inward = hidden * (2 * keys + 2 * values + 2 * value_heads)
    inside = (2 * keys + values) * kernel + 2 * value_heads + value_dim
    return StatefulLayer(
        convolution=(2 * keys + values) * (kernel - 1),
        memory=values * key_dim,
        memory_bytes=_memory_bytes(fields, "mamba_ssm_dtype", BYTES),
        weights=inward + inside + values * hidden,
    )


def _kimi_delta(fields: Fields) -> StatefulLayer | None:
    """Kimi's delta attention: gates of low rank, a state in 32 bits."""
    stated = fields.config.get("linear_attn_config")
    if isinstance(stated, Mapping):
        inner = Fields(stated, fields.name)
        found = inner.all_of("num_heads", "head_dim", "short_conv_kernel_size")
    else:
        found = fields.all_of("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    if not found:
        return None
    (heads, dim, kernel), hidden = found, fields.number("hidden")
    wide = heads * dim
    gates = 2 * (hidden * dim + dim * wide) + hidden * heads
    return StatefulLayer(
        convolution=3 * wide * (kernel - 1),
        memory=wide * dim,
        memory_bytes=4,
        weights=4 * hidden * wide + gates + 3 * wide * kernel + wide + heads + dim,
    )


def _mamba_2(fields: Fields) -> StatefulLayer | None:
    for names, head_dim in MAMBA_2:
        if not (stated := fields.all_of(*names)):
            continue
        (heads, groups, states, kernel), hidden = stated, fields.number("hidden")
        dim = fields.maybe(head_dim) or (fields.maybe("mamba_expand") or 2) * hidden // heads
        wide, mixed = heads * dim, heads * dim + 2 * groups * states
        inside = mixed * (kernel + 1) + 3 * heads + wide
        nemotron = fields.kind == "nemotron_h"
        return StatefulLayer(
            convolution=mixed * (kernel - 1),
            memory=wide * states,
            memory_bytes=_memory_bytes(fields, "mamba_ssm_cache_dtype", 4) if nemotron else BYTES,
            weights=hidden * (wide + mixed + heads) + inside + wide * hidden,
        )
    return None


def _mamba_1(fields: Fields) -> StatefulLayer | None:
    if not (stated := fields.all_of(*MAMBA_1)):
        return None
    (expand, states, kernel), hidden = stated, fields.number("hidden")
    wide, rank = expand * hidden, fields.maybe("mamba_dt_rank") or -(-hidden // 16)
    steps = wide * (rank + 2 * states) + rank * wide + rank + 2 * states
    return StatefulLayer(
        convolution=wide * (kernel - 1),
        memory=wide * states,
        weights=3 * hidden * wide + steps + wide * (kernel + states + 3),
    )


def _short_convolution(fields: Fields) -> StatefulLayer | None:
    if not (kernel := fields.maybe("conv_L_cache")):
        return None
    hidden = fields.number("hidden")
    return StatefulLayer(
        convolution=hidden * (kernel - 1), memory=0, weights=hidden * (4 * hidden + kernel)
    )


def _memory_bytes(fields: Fields, name: str, default: int) -> int:
    stated = fields.config.get(name)
    return 4 if stated == "float32" else default if stated is None else BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Of a model that has been read: `count` adds them up."""

    fields: Fields
    family: Family
    layers: tuple[Layer, ...]
    attention: Attention
    latent: Latent | None
    stateful: StatefulLayer | None
    experts: Experts | None
    dense: int  # the width of the MLP that every token passes
    tied: bool
    limit: int | None

    def count(self, vision: int) -> Parameters:
        hidden, vocab = self.fields.number("hidden"), self.fields.number("vocab")
        # A state that is not known is taken to weigh what attention does.
        attending = [layer for layer in self.layers if layer.attends or not self.stateful]
        states = self.attention.state.layers if self.attention.state else 0
        # Gemma's second table: into it, and in each layer a gate and a way back.
        by_layer = len(self.layers) * (self.fields.maybe("hidden_size_per_layer_input") or 0)
        routed = shared = router = 0
        if self.experts:
            routed = self.experts.layers * self._experts(self.experts)
            shared = self.experts.layers * self._mlp(self.experts.shared_intermediate)
            router = self.experts.layers * self._router(self.experts)
        positions = (self.limit or 0) * hidden if self.family.learned_positions else 0
        return Parameters(
            embedding=vocab * hidden,
            head=0 if self.tied else vocab * hidden,
            attention=sum(map(self._attention, attending))
            + (states * self.stateful.weights if self.stateful else 0),
            mlp=sum(map(self._dense, self.layers)) + shared,
            experts=routed,
            other=router + positions + self._norms() + 3 * hidden * by_layer,
            vision=vision,
            by_layer=by_layer * (self.fields.maybe("vocab_size_per_layer_input") or vocab),
        )

    def _dense(self, layer: Layer) -> int:
        if layer.feed is not Feed.DENSE:
            return 0
        narrow = self.fields.says("use_double_wide_mlp") and not layer.borrows
        return self._mlp(self.dense // 2 if narrow else self.dense)

    def _mlp(self, intermediate: int) -> int:
        if not intermediate:
            return 0
        hidden, family = self.fields.number("hidden"), self.family
        biases = family.all_biases or family.mlp_biases or self.fields.says("mlp_bias")
        if family.gated:
            return 3 * hidden * intermediate + (2 * intermediate + hidden if biases else 0)
        return 2 * hidden * intermediate + (intermediate + hidden if biases else 0)

    def _experts(self, experts: Experts) -> int:
        """The routed ones of one layer; some work on tokens made smaller."""
        if latent := self.fields.maybe("moe_latent_size"):
            matrices, hidden = 3 if self.family.gated else 2, self.fields.number("hidden")
            return experts.count * matrices * latent * experts.intermediate + 2 * hidden * latent
        return experts.count * self._mlp(experts.intermediate)

    def _router(self, experts: Experts) -> int:
        hidden = self.fields.number("hidden")
        gate = hidden if self.fields.maybe("shared_expert_intermediate_size") else 0
        bias = experts.count if self.family.all_biases else 0
        corrected = self.fields.config.get("topk_method") == "noaux_tc"
        return hidden * experts.count + gate + bias + (experts.count if corrected else 0)

    def _attention(self, layer: Layer) -> int:
        a, fields, hidden = self.attention, self.fields, self.fields.number("hidden")
        if self.latent:
            return _latent_weights(a, self.latent, hidden)
        full = KvKind.FULL in layer.keeps
        head_dim = (a.full_head_dim if full else None) or a.head_dim
        kv_heads = (a.full_kv_heads if full else None) or a.kv_heads
        q, kv = a.heads * head_dim, 0 if layer.borrows else kv_heads * head_dim
        weights = 2 * hidden * q + 2 * hidden * kv + hidden * q * self.family.gated_attention
        every = self.family.all_biases or fields.says("attention_bias")
        biases = (q + 2 * kv if every or self.family.qkv_bias else 0) + (hidden if every else 0)
        sinks = a.heads if fields.kind == "gpt_oss" else 0
        return weights + biases + sinks

    def _norms(self) -> int:
        hidden, layers = self.fields.number("hidden"), len(self.layers)
        each = hidden * (2 if self.family.norm_bias else 1)
        inside = 2 * self.attention.head_dim if self.family.qk_norm else 0
        return (layers * self.family.norms_per_layer + 1) * each + layers * inside


def _latent_weights(a: Attention, latent: Latent, hidden: int) -> int:
    key = a.heads * (latent.nope_dim + latent.rope_dim)
    query = hidden * key
    if latent.q_rank:
        query = hidden * latent.q_rank + latent.q_rank + latent.q_rank * key
    down = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
    up = latent.kv_rank * a.heads * (latent.nope_dim + latent.v_dim)
    return query + down + up + a.heads * latent.v_dim * hidden
