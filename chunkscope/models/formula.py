"""How many weights a config.json describes: an estimate without a checkpoint.

Counted are the matrices of attention, MLPs and experts, plain or latent, and a norm
before each. What few families have beside them is left out: a layer with a state counts
as attention, and what sees or hears as nothing.
"""

from chunkscope.models.layers import Feed, KvKind, Layer
from chunkscope.models.shape import Latent, ModelShape, Parameters


def count_parameters(layers: list[Layer], shape: ModelShape) -> Parameters:
    """The weights of a shape that is known but for them."""
    embedding = shape.vocab * shape.hidden
    attention = 0
    mlp = 0
    for layer in layers:
        if layer.keeps:
            attention += _attention(shape, layer)
        if layer.feed is Feed.DENSE:
            mlp += _mlp(shape, shape.intermediate)
    experts = 0
    router = 0
    if shape.experts is not None:
        routed = shape.experts.layers * shape.experts.count
        experts = routed * _mlp(shape, shape.experts.intermediate)
        router = routed * shape.hidden
        shared = _mlp(shape, shape.experts.shared_intermediate)
        mlp += shape.experts.layers * shared
    return Parameters(
        embedding=embedding,
        head=0 if shape.tied else embedding,
        attention=attention,
        mlp=mlp,
        experts=experts,
        other=(2 * len(layers) + 1) * shape.hidden + router,
    )


def _attention(shape: ModelShape, layer: Layer) -> int:
    attention = shape.attention
    if attention.latent is not None:
        return _latent_attention(shape, attention.latent)
    head_dim = attention.head_dim
    kv_heads = attention.kv_heads
    if KvKind.FULL in layer.keeps:
        head_dim = attention.full_head_dim or head_dim
        kv_heads = attention.full_kv_heads or kv_heads
    # Into queries, keys and values, and the output's way back.
    return shape.hidden * (2 * attention.heads + 2 * kv_heads) * head_dim


def _latent_attention(shape: ModelShape, latent: Latent) -> int:
    heads = shape.attention.heads
    hidden = shape.hidden
    queries = heads * latent.key_dim
    if latent.q_rank:
        weights = latent.q_rank * (hidden + queries)
    else:
        weights = hidden * queries
    weights += hidden * (latent.kv_rank + latent.rope_dim)
    weights += latent.kv_rank * heads * (latent.nope_dim + latent.v_dim)
    return weights + heads * latent.v_dim * hidden


def _mlp(shape: ModelShape, intermediate: int) -> int:
    matrices = 3 if shape.gated else 2
    return matrices * shape.hidden * intermediate
