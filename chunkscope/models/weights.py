"""How many weights a config describes, by kind; and what layers with a state keep of a request."""

from chunkscope.models.fields import Fields
from chunkscope.models.layers import Feed, KvKind, Layer
from chunkscope.models.shape import (
    BYTES,
    Experts,
    Latent,
    ModelShape,
    Parameters,
    State,
)

# Values of the convolution and of the memory, bytes of one of the latter, weights of a layer.
Sizes = tuple[int, int, int, int] | None


def read_state(fields: Fields, layers: int) -> State | None:
    """What so many layers keep; None for a kind that is not known."""
    readers = (_delta_net, _mamba_2, _mamba_1, _short_convolution, _lightning)
    sizes = (
        next(filter(None, (read(fields) for read in readers)), None) if layers else None
    )
    return State(layers, *sizes) if sizes else None


def _delta_net(fields: Fields) -> Sizes:
    sizes = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    if not (
        stated := fields.all_of(
            *(f"linear_{name}" for name in (*sizes, "conv_kernel_dim"))
        )
    ):
        return None
    key_heads, value_heads, key_dim, value_dim, kernel = stated
    keys, values, hidden = (
        key_heads * key_dim,
        value_heads * value_dim,
        fields.number("hidden"),
    )
    inward = hidden * (2 * keys + 2 * values + 2 * value_heads)
    inside = (2 * keys + values) * kernel + 2 * value_heads + value_dim
    wide = fields.config.get("mamba_ssm_dtype") == "float32"
    convolution, weights = (
        (2 * keys + values) * (kernel - 1),
        inward + inside + values * hidden,
    )
    return convolution, values * key_dim, 4 if wide else BYTES, weights


def _mamba_2(fields: Fields) -> Sizes:
    stated = fields.all_of("state_heads", "state_groups", "state_size", "state_kernel")
    if not stated:
        return None
    (heads, groups, states, kernel), hidden = stated, fields.number("hidden")
    expand = fields.maybe("mamba_expand") or 2
    dim = fields.maybe("state_head_dim") or expand * hidden // heads
    wide, mixed = heads * dim, heads * dim + 2 * groups * states
    inside = mixed * (kernel + 1) + 3 * heads + wide
    in_32 = fields.config.get("mamba_ssm_cache_dtype", "float32") in (None, "float32")
    memory_bytes = 4 if fields.kind == "nemotron_h" and in_32 else BYTES
    weights = hidden * (wide + mixed + heads) + inside + wide * hidden
    return mixed * (kernel - 1), wide * states, memory_bytes, weights


def _mamba_1(fields: Fields) -> Sizes:
    if not (stated := fields.all_of("mamba_expand", "state_size", "state_kernel")):
        return None
    (expand, states, kernel), hidden = stated, fields.number("hidden")
    wide, rank = expand * hidden, fields.maybe("mamba_dt_rank") or -(-hidden // 16)
    steps = wide * (rank + 2 * states) + rank * wide + rank + 2 * states
    weights = 3 * hidden * wide + steps + wide * (kernel + states + 3)
    return wide * (kernel - 1), wide * states, BYTES, weights


def _short_convolution(fields: Fields) -> Sizes:
    if not (kernel := fields.maybe("conv_L_cache")):
        return None
    hidden = fields.number("hidden")
    return hidden * (kernel - 1), 0, BYTES, hidden * (4 * hidden + kernel)


def _lightning(fields: Fields) -> Sizes:
    if not fields.kind.startswith("minimax"):
        return None
    heads, hidden = fields.number("heads"), fields.number("hidden")
    wide = heads * (dim := fields.maybe("head_dim") or hidden // heads)
    return 0, wide * dim, BYTES, wide * (5 * hidden + 1)


def count_parameters(
    fields: Fields, layers: tuple[Layer, ...], shape: ModelShape, vision: int
) -> Parameters:
    """Of a shape that is known but for them."""
    hidden, experts, state = shape.hidden, shape.experts, shape.attention.state
    family, row = fields.family, fields.maybe("word_embed_proj_dim") or hidden
    # A state that is not known is taken to weigh what attention does.
    unknown = frozenset() if state else frozenset({KvKind.STATE})
    blocks = fields.maybe(
        "num_mem_blocks"
    )  # Zamba has so many, and uses them again and again
    attending = [layer for layer in layers if layer.attends or layer.keeps & unknown][
        :blocks
    ]
    # Gemma's second table: into it, and in each layer a gate and a way back.
    by_layer = len(layers) * (fields.maybe("hidden_size_per_layer_input") or 0)
    routed = shared = router = 0
    if experts:
        routed = experts.layers * _experts(fields, shape, experts)
        shared = experts.layers * _mlp(fields, hidden, experts.shared_intermediate)
        gate = hidden if fields.maybe("shared_expert_intermediate_size") else 0
        biases = family.all_biases + (fields.config.get("topk_method") == "noaux_tc")
        router = experts.layers * (experts.count * (hidden + biases) + gate)
    # With double-wide MLPs, those of layers that borrow are: the others have half.
    halves = fields.says("use_double_wide_mlp")
    dense = [layer for layer in layers if layer.feed is Feed.DENSE][:blocks]
    widths = [
        shape.intermediate // (2 if halves and not x.borrows else 1) for x in dense
    ]
    positions = (shape.limit or 0) * hidden if family.learned_positions else 0
    norms = (
        (shape.layers * family.norms_per_layer + 1) * hidden * (1 + family.norm_bias)
    )
    norms += shape.layers * 2 * shape.attention.head_dim * family.qk_norm
    # In and out: of OPT-350m's rows, Gemma 3n's further states, and what is beside its attention.
    inner = (row if row != hidden else 0) + (fields.maybe("laurel_rank") or 0) * len(
        layers
    )
    inner += hidden * ((fields.maybe("altup_num_inputs") or 1) - 1)
    return Parameters(
        embedding=shape.vocab * row,
        head=0 if shape.tied else shape.vocab * row,
        attention=sum(_attention(fields, shape, layer) for layer in attending)
        + (state.layers * state.weights if state else 0),
        mlp=sum(_mlp(fields, hidden, width) for width in widths) + shared,
        experts=routed,
        other=router + positions + norms + 2 * hidden * inner + 3 * hidden * by_layer,
        vision=vision,
        by_layer=by_layer * (fields.maybe("vocab_size_per_layer_input") or shape.vocab),
    )


def _mlp(fields: Fields, hidden: int, intermediate: int) -> int:
    if not intermediate:
        return 0
    family = fields.family
    biases = family.all_biases or family.mlp_biases or fields.says("mlp_bias")
    inward = 2 * intermediate if family.gated else intermediate
    return hidden * (inward + intermediate) + (inward + hidden if biases else 0)


def _experts(fields: Fields, shape: ModelShape, experts: Experts) -> int:
    """The routed ones of one layer; some work on tokens made smaller."""
    latent = fields.maybe("moe_latent_size") or 0
    each = _mlp(fields, latent or shape.hidden, experts.intermediate)
    return experts.count * each + 2 * shape.hidden * latent


def _attention(fields: Fields, shape: ModelShape, layer: Layer) -> int:
    a, family, hidden = shape.attention, fields.family, shape.hidden
    if latent := read_latent(fields):
        key, rank = a.heads * latent.key_dim, latent.q_rank
        query = hidden * rank + rank + rank * key if rank else hidden * key
        down = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
        up = latent.kv_rank * a.heads * (latent.nope_dim + latent.v_dim)
        finders, size = fields.all_of("index_n_heads", "index_head_dim") or (0, 0)
        index = ((rank or 0) * finders + 2) * size + hidden * (finders + size)
        return query + down + up + a.heads * latent.v_dim * hidden + index
    full = KvKind.FULL in layer.keeps
    head_dim = (a.full_head_dim if full else None) or a.head_dim
    kv_heads = (a.full_kv_heads if full else None) or a.kv_heads
    q, kv = (
        a.heads * head_dim,
        kv_heads * head_dim,
    )  # vLLM makes those of borrowers, too
    weights = 2 * hidden * q + 2 * hidden * kv + hidden * q * family.gated_attention
    every = family.all_biases or fields.says("attention_bias")
    biases = (q + 2 * kv if every or family.qkv_bias else 0) + (hidden if every else 0)
    sinks = a.heads if fields.kind == "gpt_oss" else 0
    return weights + biases + sinks


def read_latent(fields: Fields) -> Latent | None:
    if not (rank := fields.maybe("kv_lora_rank")):
        return None
    index = (
        fields.maybe("index_head_dim") or 0
    )  # 8 bits a value, and a scale for each 128
    nope_dim = fields.maybe("qk_nope_head_dim") or 128
    return Latent(
        kv_rank=rank,
        q_rank=fields.maybe("q_lora_rank"),
        nope_dim=nope_dim,
        rope_dim=fields.maybe("qk_rope_head_dim") or 64,
        v_dim=fields.maybe("v_head_dim") or nope_dim,
        index_bytes=(index + index // 32) // (fields.maybe("index_topk_freq") or 1),
    )
