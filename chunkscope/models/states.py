"""Layers that keep a state instead of a KV cache: how vLLM shapes it, and what they weigh."""

from collections.abc import Mapping
from dataclasses import dataclass

from chunkscope.models.fields import Fields
from chunkscope.models.shape import BYTES

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
