"""How many weights a config.json describes: for a model without a checkpoint.

Matrices are counted and a norm before attention and MLP; biases, other norms and what
few families have are left out. For the families of tests/models/test_families.py that
is within one per cent of what transformers builds. What sees or hears is counted
roughly.
"""

from collections.abc import Iterator, Mapping

from chunkscope.models.fields import Config, Fields
from chunkscope.models.layers import Feed, KvKind, Layer
from chunkscope.models.shape import Experts, Latent, ModelShape, Parameters


def count_parameters(
    fields: Fields, layers: list[Layer], shape: ModelShape
) -> Parameters:
    """The weights of a shape that is known but for them."""
    embedding = shape.vocab * shape.hidden
    by_layer = fields.maybe("hidden_size_per_layer_input") or 0  # Gemma 3n and 4
    by_layer_vocab = fields.maybe("vocab_size_per_layer_input") or shape.vocab
    # Into the second table's rows, and in each layer a gate and a way back.
    beside = 3 * shape.hidden * len(layers) * by_layer
    norms = (2 * len(layers) + 1) * shape.hidden
    positions = 0
    if fields.is_of("learned positions"):
        positions = (shape.limit or 0) * shape.hidden
    return Parameters(
        embedding=embedding,
        head=0 if shape.tied else embedding,
        attention=_attention(fields, layers, shape),
        mlp=_mlps(fields, layers, shape),
        experts=_routed_experts(fields, shape),
        other=norms + positions + beside + _router(shape),
        vision=sum(_towers(fields.config)),
        by_layer=len(layers) * by_layer * by_layer_vocab,
    )


def _attention(fields: Fields, layers: list[Layer], shape: ModelShape) -> int:
    """Of all layers that attend or keep a state.

    One whose kind is not known is taken to weigh what attention does.
    """
    state = shape.attention.state
    weights = state.layers * state.weights if state else 0
    latent = read_latent(fields)
    for layer in layers:
        if not layer.attends and (state is not None or not layer.keeps):
            continue
        if latent is not None:
            weights += _latent_attention(fields, shape, latent)
        else:
            weights += _plain_attention(fields, shape, layer)
    return weights


def _plain_attention(fields: Fields, shape: ModelShape, layer: Layer) -> int:
    attention = shape.attention
    head_dim = attention.head_dim
    kv_heads = attention.kv_heads
    if KvKind.FULL in layer.keeps:
        head_dim = attention.full_head_dim or head_dim
        kv_heads = attention.full_kv_heads or kv_heads
    queries = attention.heads * head_dim
    into_queries = 2 if is_gated_attention(fields) else 1
    # vLLM makes keys and values of layers that borrow, too.
    return shape.hidden * ((into_queries + 1) * queries + 2 * kv_heads * head_dim)


def _latent_attention(fields: Fields, shape: ModelShape, latent: Latent) -> int:
    heads = shape.attention.heads
    hidden = shape.hidden
    queries = heads * latent.key_dim
    if latent.q_rank:
        weights = latent.q_rank * (hidden + queries)
    else:
        weights = hidden * queries
    weights += hidden * (latent.kv_rank + latent.rope_dim)
    weights += latent.kv_rank * heads * (latent.nope_dim + latent.v_dim)
    weights += heads * latent.v_dim * hidden
    indexer = fields.all_of("index_n_heads", "index_head_dim")  # DeepSeek-V3.2
    if indexer:
        index_heads, index_dim = indexer
        weights += (latent.q_rank or 0) * index_heads * index_dim
        weights += hidden * (index_heads + index_dim)
    return weights


def _mlps(fields: Fields, layers: list[Layer], shape: ModelShape) -> int:
    """Of all layers, and what all tokens pass beside experts."""
    weights = 0
    if shape.experts:
        shared = _mlp(shape, shape.hidden, shape.experts.shared_intermediate)
        # Nemotron-3's experts work on tokens that are made smaller.
        reduced = fields.maybe("moe_latent_size") or 0
        weights += shape.experts.layers * (shared + 2 * shape.hidden * reduced)
    wide_if_borrowing = fields.says("use_double_wide_mlp")  # Gemma 4
    for layer in layers:
        if layer.feed is not Feed.DENSE:
            continue
        width = shape.intermediate
        if wide_if_borrowing and not layer.borrows:
            width //= 2
        weights += _mlp(shape, shape.hidden, width)
    return weights


def _routed_experts(fields: Fields, shape: ModelShape) -> int:
    experts = shape.experts
    if experts is None:
        return 0
    width = fields.maybe("moe_latent_size") or shape.hidden
    return experts.layers * experts.count * _mlp(shape, width, experts.intermediate)


def _router(shape: ModelShape) -> int:
    experts: Experts | None = shape.experts
    return experts.layers * experts.count * shape.hidden if experts else 0


def _mlp(shape: ModelShape, hidden: int, intermediate: int) -> int:
    matrices = 3 if shape.gated else 2
    return matrices * hidden * intermediate


def _towers(config: Config) -> Iterator[int]:
    """Each layer has four square matrices and an MLP."""
    for key in ("vision_config", "audio_config"):
        stated = config.get(key)
        if not isinstance(stated, Mapping):
            continue
        tower = Fields(stated, "the tower")
        layers = tower.maybe("layers") or 0
        hidden = tower.maybe("tower") or 0
        intermediate = tower.maybe("intermediate") or 4 * hidden
        matrices = 3 if stated.get("hidden_act") == "silu" else 2
        yield layers * hidden * (4 * hidden + matrices * intermediate)


def has_towers(config: Config) -> bool:
    """Does the model see or hear?"""
    return any(_towers(config))


def is_gated_attention(fields: Fields) -> bool:
    """Is the output of attention multiplied by a gate as wide as the queries?"""
    return fields.says("attn_output_gate") or fields.is_of("gated attention")


def read_latent(fields: Fields) -> Latent | None:
    """Multi-head latent attention, where the config states one."""
    rank = fields.maybe("kv_lora_rank")
    if not rank:
        return None
    nope_dim = fields.maybe("qk_nope_head_dim") or 128
    # The index has 8 bits a value, and a 32-bit scale for each 128 of them.
    index = fields.maybe("index_head_dim") or 0
    sharing_layers = fields.maybe("index_topk_freq") or 1
    return Latent(
        kv_rank=rank,
        q_rank=fields.maybe("q_lora_rank"),
        nope_dim=nope_dim,
        rope_dim=fields.maybe("qk_rope_head_dim") or 64,
        v_dim=fields.maybe("v_head_dim") or nope_dim,
        index_bytes=(index + index // 32) // sharing_layers,
    )
