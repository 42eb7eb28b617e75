"""How many weights a config describes, by kind; and what layers with a state keep of a request."""

from collections.abc import Mapping

from chunkscope.models.fields import Fields
from chunkscope.models.layers import Feed, KvKind, Layer
from chunkscope.models.shape import BYTES, Attention, Experts, Latent, ModelShape, Parameters, State

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


def read_state(fields: Fields, layers: int) -> State | None:
    """What so many layers keep; None for a kind that is not known."""
    kinds = (_delta_net, _kimi_delta, _mamba_2, _mamba_1, _short_convolution)
    states = (state for read in kinds if (state := read(fields, layers)))
    return next(states, None) if layers else None


def _delta_net(fields: Fields, layers: int) -> State | None:
    if not (stated := fields.all_of(*DELTA_NET)):
        return None
    key_heads, value_heads, key_dim, value_dim, kernel = stated
    keys, values, hidden = key_heads * key_dim, value_heads * value_dim, fields.number("hidden")
    inward = hidden * (2 * keys + 2 * values + 2 * value_heads)
    inside = (2 * keys + values) * kernel + 2 * value_heads + value_dim
    return State(
        layers=layers,
        convolution=(2 * keys + values) * (kernel - 1),
        memory=values * key_dim,
        memory_bytes=_memory_bytes(fields, "mamba_ssm_dtype", BYTES),
        weights=inward + inside + values * hidden,
    )


def _kimi_delta(fields: Fields, layers: int) -> State | None:
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
    return State(
        layers=layers,
        convolution=3 * wide * (kernel - 1),
        memory=wide * dim,
        memory_bytes=4,
        weights=4 * hidden * wide + gates + 3 * wide * kernel + wide + heads + dim,
    )


def _mamba_2(fields: Fields, layers: int) -> State | None:
    for names, head_dim in MAMBA_2:
        if not (stated := fields.all_of(*names)):
            continue
        (heads, groups, states, kernel), hidden = stated, fields.number("hidden")
        dim = fields.maybe(head_dim) or (fields.maybe("mamba_expand") or 2) * hidden // heads
        wide, mixed = heads * dim, heads * dim + 2 * groups * states
        inside = mixed * (kernel + 1) + 3 * heads + wide
        nemotron = fields.kind == "nemotron_h"
        return State(
            layers=layers,
            convolution=mixed * (kernel - 1),
            memory=wide * states,
            memory_bytes=_memory_bytes(fields, "mamba_ssm_cache_dtype", 4) if nemotron else BYTES,
            weights=hidden * (wide + mixed + heads) + inside + wide * hidden,
        )
    return None


def _mamba_1(fields: Fields, layers: int) -> State | None:
    if not (stated := fields.all_of(*MAMBA_1)):
        return None
    (expand, states, kernel), hidden = stated, fields.number("hidden")
    wide, rank = expand * hidden, fields.maybe("mamba_dt_rank") or -(-hidden // 16)
    steps = wide * (rank + 2 * states) + rank * wide + rank + 2 * states
    return State(
        layers=layers,
        convolution=wide * (kernel - 1),
        memory=wide * states,
        weights=3 * hidden * wide + steps + wide * (kernel + states + 3),
    )


def _short_convolution(fields: Fields, layers: int) -> State | None:
    if not (kernel := fields.maybe("conv_L_cache")):
        return None
    hidden = fields.number("hidden")
    return State(
        layers=layers,
        convolution=hidden * (kernel - 1),
        memory=0,
        weights=hidden * (4 * hidden + kernel),
    )


def _memory_bytes(fields: Fields, name: str, default: int) -> int:
    stated = fields.config.get(name)
    return 4 if stated == "float32" else default if stated is None else BYTES


def count_parameters(
    fields: Fields, layers: tuple[Layer, ...], shape: ModelShape, vision: int
) -> Parameters:
    """Of a shape that is known but for them."""
    hidden, experts, state = shape.hidden, shape.experts, shape.attention.state
    family = fields.family
    # A state that is not known is taken to weigh what attention does.
    unknown = frozenset() if state else frozenset({KvKind.STATE})
    attending = [layer for layer in layers if layer.attends or layer.keeps & unknown]
    # Gemma's second table: into it, and in each layer a gate and a way back.
    by_layer = len(layers) * (fields.maybe("hidden_size_per_layer_input") or 0)
    routed = shared = router = 0
    if experts:
        routed = experts.layers * _experts(fields, shape, experts)
        shared = experts.layers * _mlp(fields, hidden, experts.shared_intermediate)
        gate = hidden if fields.maybe("shared_expert_intermediate_size") else 0
        biases = family.all_biases + (fields.config.get("topk_method") == "noaux_tc")
        router = experts.layers * (experts.count * (hidden + biases) + gate)
    positions = (shape.limit or 0) * hidden if family.learned_positions else 0
    norms = (shape.layers * family.norms_per_layer + 1) * hidden * (1 + family.norm_bias)
    norms += shape.layers * 2 * shape.attention.head_dim * family.qk_norm
    return Parameters(
        embedding=shape.vocab * hidden,
        head=0 if shape.tied else shape.vocab * hidden,
        attention=sum(_attention(fields, shape, layer) for layer in attending)
        + (state.layers * state.weights if state else 0),
        mlp=sum(_dense(fields, shape, layer) for layer in layers) + shared,
        experts=routed,
        other=router + positions + norms + 3 * hidden * by_layer,
        vision=vision,
        by_layer=by_layer * (fields.maybe("vocab_size_per_layer_input") or shape.vocab),
    )


def _dense(fields: Fields, shape: ModelShape, layer: Layer) -> int:
    if layer.feed is not Feed.DENSE:
        return 0
    narrow = fields.says("use_double_wide_mlp") and not layer.borrows
    return _mlp(fields, shape.hidden, shape.intermediate // 2 if narrow else shape.intermediate)


def _mlp(fields: Fields, hidden: int, intermediate: int) -> int:
    if not intermediate:
        return 0
    family = fields.family
    biases = family.all_biases or family.mlp_biases or fields.says("mlp_bias")
    if family.gated:
        return 3 * hidden * intermediate + (2 * intermediate + hidden if biases else 0)
    return 2 * hidden * intermediate + (intermediate + hidden if biases else 0)


def _experts(fields: Fields, shape: ModelShape, experts: Experts) -> int:
    """The routed ones of one layer; some work on tokens made smaller."""
    if latent := fields.maybe("moe_latent_size"):
        matrices = 3 if shape.gated else 2
        return experts.count * matrices * latent * experts.intermediate + 2 * shape.hidden * latent
    return experts.count * _mlp(fields, shape.hidden, experts.intermediate)


def _attention(fields: Fields, shape: ModelShape, layer: Layer) -> int:
    a, family, hidden = shape.attention, fields.family, shape.hidden
    if latent := read_latent(fields):
        return _latent_weights(a, latent, hidden)
    full = KvKind.FULL in layer.keeps
    head_dim = (a.full_head_dim if full else None) or a.head_dim
    kv_heads = (a.full_kv_heads if full else None) or a.kv_heads
    q, kv = a.heads * head_dim, 0 if layer.borrows else kv_heads * head_dim
    weights = 2 * hidden * q + 2 * hidden * kv + hidden * q * family.gated_attention
    every = family.all_biases or fields.says("attention_bias")
    biases = (q + 2 * kv if every or family.qkv_bias else 0) + (hidden if every else 0)
    sinks = a.heads if fields.kind == "gpt_oss" else 0
    return weights + biases + sinks


def read_latent(fields: Fields) -> Latent | None:
    rank = fields.maybe("kv_lora_rank")
    if not rank:
        return None
    return Latent(
        kv_rank=rank,
        q_rank=fields.maybe("q_lora_rank"),
        nope_dim=fields.maybe("qk_nope_head_dim") or 128,
        rope_dim=fields.maybe("qk_rope_head_dim") or 64,
        v_dim=fields.maybe("v_head_dim") or 128,
    )


def _latent_weights(a: Attention, latent: Latent, hidden: int) -> int:
    key = a.heads * (latent.nope_dim + latent.rope_dim)
    query = hidden * key
    if latent.q_rank:
        query = hidden * latent.q_rank + latent.q_rank + latent.q_rank * key
    down = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
    up = latent.kv_rank * a.heads * (latent.nope_dim + latent.v_dim)
    return query + down + up + a.heads * latent.v_dim * hidden
