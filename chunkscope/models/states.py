"""What a layer with mamba, linear attention or a convolution keeps of each request.

Sizes are those of vLLM's `mamba_utils.py`; tests/hardware/test_kv_groups.py compares
them with the caches that vLLM makes.
"""

from chunkscope.models.fields import Fields
from chunkscope.models.shape import BYTES, State


def read_state(fields: Fields, layers: int) -> State | None:
    """What so many layers keep; None where there is none, or its kind is not known."""
    if not layers:
        return None
    for read in (_delta_net, _mamba_2, _short_convolution):
        state = read(fields, layers)
        if state is not None:
            return state
    return None


def _delta_net(fields: Fields, layers: int) -> State | None:
    """The gated delta net of Qwen3-Next and Qwen3.5."""
    stated = fields.all_of(
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    if stated is None:
        return None
    key_heads, value_heads, key_dim, value_dim, kernel = stated
    values = value_heads * value_dim
    mixed = 2 * key_heads * key_dim + values  # queries, keys and values
    in_32_bits = fields.config.get("mamba_ssm_dtype") == "float32"
    return State(
        layers=layers,
        convolution=mixed * (kernel - 1),
        memory=values * key_dim,
        memory_bytes=4 if in_32_bits else BYTES,
    )


def _mamba_2(fields: Fields, layers: int) -> State | None:
    stated = fields.all_of("state_heads", "state_groups", "state_size", "state_kernel")
    if stated is None:
        return None
    heads, groups, states, kernel = stated
    expand = fields.maybe("mamba_expand") or 2
    head_dim = fields.maybe("state_head_dim")
    inner = heads * head_dim if head_dim else expand * fields.number("hidden")
    stated_type = fields.config.get("mamba_ssm_cache_dtype") or "float32"
    # vLLM heeds the type for Nemotron-H alone (`models/config.py`).
    in_32_bits = fields.kind == "nemotron_h" and stated_type == "float32"
    return State(
        layers=layers,
        convolution=(inner + 2 * groups * states) * (kernel - 1),
        memory=inner * states,
        memory_bytes=4 if in_32_bits else BYTES,
    )


def _short_convolution(fields: Fields, layers: int) -> State | None:
    """LFM2's."""
    kernel = fields.maybe("conv_L_cache")
    if not kernel:
        return None
    convolution = fields.number("hidden") * (kernel - 1)
    return State(layers=layers, convolution=convolution, memory=0, memory_bytes=BYTES)
