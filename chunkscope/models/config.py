"""Reading a Hugging Face config.json: the shape that it describes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.models.fields import FAMILIES, LIKE_LLAMA, Config, Fields
from chunkscope.models.layers import Feed, KvKind, Layer, read_layers
from chunkscope.models.quantization import Quantization, read_quantization
from chunkscope.models.shape import Attention, Experts, ModelShape
from chunkscope.models.weights import count_parameters, read_latent, read_state

LIMITS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_seq_length",
)
# Kinds of position scaling whose max_position_embeddings already is the scaled length.
UNSCALED = frozenset({"default", "su", "longrope", "llama3", "mrope"})
# Architectures that embed or judge a text, and generate none.
SILENT = (
    "ForMaskedLM",
    "Classification",
    "ForTextEncoding",
    "EmbeddingModel",
    "RewardModel",
)
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


def shape_from_config(
    config: Config,
    *,
    name: str,
    source: str,
    hub_id: str | None = None,
    file_bytes: int | None = None,
) -> ModelShape:
    """The shape a config.json describes; InputError names the field that is missing or odd."""
    text = _text_part(config)
    family = FAMILIES.get(str(text.get("model_type", "")), LIKE_LLAMA)
    fields = Fields({**family.defaults, **text}, name, family)
    architecture = (fields.words("architectures") or [fields.kind])[0]
    if (
        fields.says("is_encoder_decoder")
        or "bert" in fields.kind
        or architecture.endswith(SILENT)
    ):
        hint = "chunkscope plans for models that generate text with a decoder alone"
        raise InputError(
            f"{name} ({architecture}) has an encoder, or generates no text", hint=hint
        )
    layers, limit = read_layers(fields), _limit(fields)
    stretched = "long_factor" in str(
        [text.get("rope_scaling"), text.get("rope_parameters")]
    )
    shape = ModelShape(
        name=name,
        source=source,
        hub_id=hub_id,
        architecture=architecture,
        layers=len(layers),
        hidden=fields.number("hidden"),
        intermediate=_dense_intermediate(fields, layers),
        vocab=fields.number("vocab"),
        attention=_attention(fields, layers, limit),
        quantization=read_quantization(text),
        experts=_experts(fields, layers),
        gated=family.gated,
        # vLLM gives Jamba a head of its own, whatever its file says.
        tied=fields.kind != "jamba"
        and bool(fields.config.get("tie_word_embeddings", family.tied)),
        limit=limit,
        original=fields.maybe("original_max_position_embeddings")
        if stretched
        else None,
        file_bytes=file_bytes,
    )
    parameters = count_parameters(fields, layers, shape, sum(_towers(text)))
    if parameters.total >= 2**53:
        raise InputError(
            f"the config.json of {name} describes {parameters.total:.0e} parameters"
        )
    return replace(
        shape, parameters=parameters, notes=tuple(_notes(text, fields.kind, shape))
    )


def _text_part(config: Config) -> dict[str, Any]:
    """The language model's own settings: multimodal configs keep them one level down, DBRX some."""
    for key in NESTED:
        if isinstance(nested := config.get(key), Mapping) and nested:
            return {**config, **_text_part(nested)}
    parts = (config.get("attn_config"), config.get("ffn_config"), config)
    return {
        k: v for part in parts if isinstance(part, Mapping) for k, v in part.items()
    }


def _limit(fields: Fields) -> int | None:
    """The longest context, as vLLM derives it: model_max_length, else the least that is stated."""
    stated = [value for key in LIMITS if (value := fields.maybe(key))]
    limit = fields.maybe("model_max_length") or min(stated, default=0)
    scaling = fields.config.get("rope_scaling") or fields.config.get("rope_parameters")
    scaling = (
        scaling if isinstance(scaling, Mapping) and "gemma3" not in fields.kind else {}
    )
    rope = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor = scaling.get("factor")
    if (
        rope in UNSCALED
        or not isinstance(factor, int | float)
        or not 1 <= factor < 1000
    ):
        return limit or None
    base = "original_max_position_embeddings" if rope == "yarn" else ""
    return int((Fields(scaling, fields.name).maybe(base) or limit) * factor) or None


def _attention(
    fields: Fields, layers: tuple[Layer, ...], limit: int | None
) -> Attention:
    heads, latent, window = (
        fields.number("heads"),
        read_latent(fields),
        fields.maybe("window"),
    )
    if fields.config.get("use_sliding_window") is False or (
        limit and (window or 0) >= limit
    ):
        window = None  # no request is longer than the window, or it is off
    expanded = latent if latent and not fields.family.latent_cache else None
    keeping = [layer.keeps for layer in layers if not layer.borrows]
    sliding = sum(KvKind.SLIDING in kept for kept in keeping) if window else 0
    head_dim = fields.maybe("head_dim") or fields.number("hidden") // heads
    full_kv_heads, full_head_dim = _of_full_layers(fields)
    # Falcon states as many KV heads as heads, and means one.
    one = fields.says("multi_query") and not fields.says("new_decoder_architecture")
    return Attention(
        heads=heads,
        kv_heads=heads if expanded else 1 if one else fields.maybe("kv_heads") or heads,
        head_dim=expanded.nope_dim + expanded.rope_dim if expanded else head_dim,
        latent=None if expanded else latent,
        sliding_window=window if sliding else None,
        sliding_layers=sliding,
        stateful_layers=sum(not layer.attends for layer in layers),
        state=read_state(fields, sum(KvKind.STATE in layer.keeps for layer in layers)),
        normed=fields.family.qk_norm,
        full_kv_heads=full_kv_heads,
        full_head_dim=full_head_dim,
        borrowing_layers=sum(layer.borrows for layer in layers),
    )


def _of_full_layers(fields: Fields) -> tuple[int | None, int | None]:
    """(KV heads, head size) of full-attention layers if they differ. Newer files list such layers;
    in older ones the heads count only if values are keys (`attention_k_eq_v`)."""
    listed = fields.config.get("per_layer_config")
    if isinstance(listed, Mapping):
        stated = next((one for one in listed.values() if isinstance(one, Mapping)), {})
        each = Fields(stated, fields.name)
        return each.maybe("num_key_value_heads"), each.maybe("head_dim")
    heads = fields.maybe("num_global_key_value_heads")
    return heads if fields.says("attention_k_eq_v") else None, fields.maybe(
        "global_head_dim"
    )


def _experts(fields: Fields, layers: tuple[Layer, ...]) -> Experts | None:
    count = fields.maybe("experts")
    sparse = sum(layer.feed is Feed.EXPERTS for layer in layers)
    if not count or not sparse:
        return None
    routed = fields.maybe("expert") or fields.number("intermediate")
    # The width of what all tokens pass beside their experts.
    if fields.kind == "llama4_text" or fields.says("enable_moe_block"):
        shared = fields.number("intermediate")  # an MLP as wide as without experts
    else:
        each = fields.maybe("moe_shared_expert_intermediate_size") or routed
        shared = (fields.maybe("shared_experts") or 0) * each
        beside = ("shared_expert_intermediate_size", "shared_intermediate_size")
        shared += sum(fields.maybe(name) or 0 for name in beside)
    return Experts(
        count=count,
        active=min(fields.maybe("active") or 2, count),
        intermediate=routed,
        layers=sparse,
        shared_intermediate=shared,
    )


def _dense_intermediate(fields: Fields, layers: tuple[Layer, ...]) -> int:
    """The width of the MLP every token passes; 0 where no layer has one."""
    if not any(layer.feed is Feed.DENSE for layer in layers):
        return 0
    if fields.kind == "granitemoehybrid" and (
        shared := fields.maybe("shared_intermediate_size")
    ):
        return shared
    stated = fields.maybe("dense") or fields.maybe("intermediate")
    if not stated:
        return (
            fields.number("intermediate")
            if fields.family.gated
            else 4 * fields.number("hidden")
        )
    if fields.says("use_double_wide_mlp"):  # in layers that borrow
        return 2 * stated
    if fields.kind.startswith("lfm2") and fields.says("block_auto_adjust_ff_dim"):
        multiple = fields.maybe("block_multiple_of") or 1
        return -(-(2 * stated // 3) // multiple) * multiple
    return stated


def _towers(config: Config) -> Iterator[int]:
    """Of what sees or hears, roughly: four square matrices and an MLP per layer, or a gated one."""
    for stated in (config.get("vision_config"), config.get("audio_config")):
        if isinstance(stated, Mapping):
            tower = Fields(stated, "the tower")
            layers, hidden = tower.maybe("layers") or 0, tower.maybe("tower") or 0
            inside = tower.maybe("intermediate") or 4 * hidden
            matrices = 3 if stated.get("hidden_act") == "silu" else 2
            yield layers * hidden * (4 * hidden + matrices * inside)


def _notes(config: Config, kind: str, shape: ModelShape) -> Iterator[Note]:
    a, q, weighed = shape.attention, shape.quantization, bool(shape.file_bytes)
    if q.method and q.bits == Quantization().bits:
        yield note("unknown_quantization", method=q.method)
    if kind not in FAMILIES:
        yield note("unknown_model_type", name=kind, weighed=weighed)
    if list(_towers(config)):
        yield note("vision_tower")
    if a.sliding_layers:
        yield note("sliding_window", layers=a.sliding_layers, tokens=a.sliding_window)
    if a.stateful_layers:
        has_size, n = a.state is not None, a.stateful_layers
        yield note(
            "stateful_layers", layers=n, known=has_size, weighed=weighed or has_size
        )
