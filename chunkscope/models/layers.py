"""What each layer of a model keeps of a request, and what it feeds tokens through."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from chunkscope.errors import InputError
from chunkscope.models.fields import FAMILIES, Fields


class KvKind(StrEnum):
    """What a layer keeps of a request."""

    FULL = "all tokens"
    SLIDING = "a window"
    STATE = "a state"


class Feed(StrEnum):
    DENSE = "one MLP for all tokens"
    EXPERTS = "the experts that the router chooses"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Layer:
    keeps: frozenset[KvKind]
    feed: Feed
    borrows: bool = False  # it looks at what an earlier layer keeps

    @property
    def attends(self) -> bool:
        return bool(self.keeps & {KvKind.FULL, KvKind.SLIDING})


_FULL, _SLIDING, _STATE = (frozenset({kind}) for kind in KvKind)
# A layer of Nemotron-H does one thing: a letter of its pattern, or a word of its list, as Zamba's.
_ONE_THING = {
    ("M", "mamba", "linear_attention"): Layer(_STATE, Feed.NONE),
    ("*", "attention", "full_attention"): Layer(_FULL, Feed.NONE),
    ("-", "mlp"): Layer(frozenset(), Feed.DENSE),
    ("E", "moe"): Layer(frozenset(), Feed.EXPERTS),
    ("hybrid",): Layer(_STATE | _FULL, Feed.DENSE),
}
_BY_SIGN = {sign: layer for signs, layer in _ONE_THING.items() for sign in signs}


def read_layers(fields: Fields) -> tuple[Layer, ...]:
    if (signs := _signs(fields)) is not None:
        return tuple(_BY_SIGN[sign] for sign in signs)
    count = fields.layers
    keeps = [_STATE | _FULL] * count if fields.family.state_beside else _kept(fields)
    sparse = _sparse(fields, count) if (fields.maybe("experts") or 0) > 1 else set()
    last = count - (fields.maybe("num_kv_shared_layers") or 0)  # those behind it borrow
    return tuple(
        Layer(kept, Feed.EXPERTS if i in sparse else Feed.DENSE, borrows=i >= last > 0)
        for i, kept in enumerate(keeps)
    )


def _signs(fields: Fields) -> list[str] | None:
    """The layers of a model where each does one thing."""
    stated = fields.config.get("hybrid_override_pattern")
    signs = (
        list(stated) if isinstance(stated, str) else fields.words("layers_block_type")
    )
    if signs is None or not (
        isinstance(stated, str) or {"mlp", "moe", "hybrid"} & set(signs)
    ):
        return None
    if len(signs) != fields.layers or not set(signs) <= set(_BY_SIGN):
        raise InputError(
            f"the config.json of {fields.name} does not name each of its {fields.layers} layers",
            hint="hybrid_override_pattern may have M, *, - and E, one for each layer",
        )
    return signs


def _kept(fields: Fields) -> list[frozenset[KvKind]]:
    count = fields.layers
    words = fields.words("layer_types") or fields.words("layers_block_type")
    if isinstance(
        pattern := fields.config.get("hybrid_layer_pattern"), list
    ):  # MiMo: 1 is near
        words = ["sliding_attention" if sign == 1 else "attention" for sign in pattern]
    if fields.config.get("compress_ratios") or "compressed" in str(words):
        raise InputError(
            f"{fields.name} compresses its KV cache, and its memory is not known"
        )
    if words is not None:
        full = [
            _FULL if "attention" in w and "linear" not in w else _STATE
            for w in words[:count]
        ]
        local = [w.startswith(("sliding", "chunked")) for w in words[:count]]
        kept = [
            _SLIDING if near else far for near, far in zip(local, full, strict=True)
        ]
        return kept + [_FULL] * (count - len(kept))
    states = _states(fields, count)
    every = (
        fields.maybe("sliding_window_pattern") or count + 1
    )  # one of so many is full
    window = (
        fields.maybe("window") if fields.kind in FAMILIES else None
    )  # else not said where
    first = fields.maybe("max_window_layers") or 0  # of Qwen
    return [
        _STATE
        if i in states
        else _SLIDING
        if window and i >= first and (i + 1) % every
        else _FULL
        for i in range(count)
    ]


def _states(fields: Fields, count: int) -> set[int]:
    """Which layers keep a state, in the ways that families say it."""
    every, config = set(range(count)), fields.config
    linear = config.get("linear_attn_config")
    if isinstance(linear, Mapping) and isinstance(linear.get("kda_layers"), list):
        return {i for i in every if i + 1 in linear["kda_layers"]}
    if isinstance(
        kinds := config.get("attn_type_list"), list
    ):  # MiniMax: 1 is attention
        return {i for i in every if 0 in kinds[i : i + 1]}
    attending = config.get("attn_layer_indices", config.get("full_attn_idxs"))
    if isinstance(attending, list):
        return {i for i in every if i not in attending}
    if period := fields.maybe("attn_layer_period") or fields.maybe(
        "full_attention_interval"
    ):
        offset = config.get("attn_layer_offset", period - 1)
        return {i for i in every if i % period != offset}
    return every if fields.kind == "bamba" else set()


def _sparse(fields: Fields, count: int) -> set[int]:
    """Which layers have experts."""
    every, config = set(range(count)), fields.config
    if period := fields.maybe("expert_layer_period"):
        return {
            i for i in every if i % period == (fields.maybe("expert_layer_offset") or 0)
        }
    if isinstance(dense := config.get("mlp_only_layers"), list):
        every = {i for i in every if i not in dense}
    if words := fields.words("mlp_layer_types") or fields.words("moe_layer_freq"):
        every = {i for i, word in enumerate(words[:count]) if word in ("sparse", "1")}
    first, step = fields.maybe("dense_first") or 0, fields.maybe("sparse_every") or 1
    return {i for i in every if i >= first and (i + 1) % step == 0}
