"""config.json -> ModelShape: with a checkpoint's tensors exact, else by a formula."""

from collections.abc import Sequence
from dataclasses import replace

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.models.checkpoint import Checkpoint, Tensor, sum_up
from chunkscope.models.fields import LARGEST, Config, Fields, text_part
from chunkscope.models.formula import count_parameters
from chunkscope.models.layers import Feed, KvKind, Layer, read_layers
from chunkscope.models.quantization import read_quantization
from chunkscope.models.shape import (
    Attention,
    Experts,
    Latent,
    ModelShape,
    Parameters,
)
from chunkscope.models.states import read_state
from chunkscope.models.transformers_config import class_fields

# The names that files give the longest context.
LIMITS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_seq_length",
)
# Kinds of position scaling whose max_position_embeddings already is the scaled length.
UNSCALED = ("default", "su", "longrope", "llama3", "mrope")
LARGEST_SCALE = 1_000
# How architectures end that embed or judge a text, and generate none.
SILENT = (
    "ForMaskedLM",
    "Classification",
    "ForTextEncoding",
    "EmbeddingModel",
    "RewardModel",
)


def shape_from_config(
    config: Config,
    *,
    name: str,
    source: str,
    hub_id: str | None = None,
    tensors: Sequence[Tensor] | None = None,
) -> ModelShape:
    """The shape that a config.json describes, with what its checkpoint's headers say.

    Without `tensors` its weights are computed, and a note says so. InputError names the
    field that is missing or odd.
    """
    defaults = class_fields(config)
    text = {**defaults, **text_part(config)}
    if defaults:
        text["model_type"] = defaults["model_type"]
    fields = Fields(text, name)
    known = bool(defaults) or fields.is_of("no class in transformers")
    shape, layers = described(fields, known=known, source=source, hub_id=hub_id)
    if tensors is None:
        parameters = count_parameters(layers, shape)
        notes = [note("weights_by_formula"), *_notes(shape)]
    else:
        checkpoint = sum_up(
            tensors,
            layers=shape.layers,
            tied=shape.tied,
            quantization=shape.quantization,
        )
        shape = _with_checkpoint(shape, checkpoint)
        parameters = checkpoint.parameters
        notes = _notes(shape)
    if parameters.total >= LARGEST:
        raise InputError(
            f"the config.json of {name} describes {parameters.total:.0e} parameters"
        )
    if not known:
        notes.insert(0, note("unknown_model_type", name=fields.kind))
    if parameters.vision or config.get("vision_config"):
        notes.append(note("vision_tower", weighed=tensors is not None))
    return replace(shape, parameters=parameters, notes=tuple(notes))


def shape_of_known(
    config: Config,
    parameters: Parameters,
    *,
    name: str,
    hub_id: str,
    quantized: tuple[str, ...] | None,
) -> ModelShape:
    """The shape of a model whose weights were counted before, without transformers.

    `quantized`: the kinds of weights that are, if not all that the method takes.
    """
    fields = Fields(text_part(config), name)
    shape, _ = described(fields, known=True, source="the built-in table", hub_id=hub_id)
    if quantized is not None:
        quantization = replace(shape.quantization, kinds=quantized)
        shape = replace(shape, quantization=quantization)
    notes = _notes(shape)
    if parameters.vision:
        notes.append(note("vision_tower", weighed=True))
    return replace(shape, parameters=parameters, notes=tuple(notes))


def described(
    fields: Fields, *, known: bool, source: str, hub_id: str | None
) -> tuple[ModelShape, list[Layer]]:
    """All of a shape but its weights, and its layers."""
    architecture = _architecture(fields)
    layers = read_layers(fields, windows_known=known)
    limit = _limit(fields)
    shape = ModelShape(
        name=fields.name,
        source=source,
        hub_id=hub_id,
        architecture=architecture,
        layers=len(layers),
        hidden=fields.number("hidden"),
        intermediate=_dense_intermediate(fields, layers),
        vocab=fields.number("vocab"),
        attention=_attention(fields, layers, limit),
        quantization=read_quantization(
            fields.config.get("quantization_config")
            or fields.config.get("compression_config")
        ),
        experts=_experts(fields, layers),
        gated=not fields.is_of("ungated"),
        tied=_is_tied(fields),
        limit=limit,
        original=_unstretched_limit(fields),
    )
    return shape, layers


def _with_checkpoint(shape: ModelShape, checkpoint: Checkpoint) -> ModelShape:
    normed = shape.attention.normed or checkpoint.norms_queries
    quantization = shape.quantization
    if quantization.method:
        quantization = replace(quantization, kinds=checkpoint.quantized_kinds)
    return replace(
        shape,
        attention=replace(shape.attention, normed=normed),
        quantization=quantization,
        file_bytes=checkpoint.weight_bytes,
        file_expert_bytes=checkpoint.expert_bytes if shape.experts else None,
    )


def _architecture(fields: Fields) -> str:
    """InputError for a model that chunkscope does not plan for."""
    architecture = (fields.words("architectures") or [fields.kind])[0]
    title = f"{fields.name} ({architecture})"
    hint = "chunkscope plans for models that generate text with a decoder alone"
    if fields.says("is_encoder_decoder"):
        raise InputError(
            f"{title} has an encoder and a decoder, as models of speech and "
            "translation have",
            hint=f"{hint}: no Whisper, no T5",
        )
    if "bert" in fields.kind or architecture.endswith(SILENT):
        raise InputError(f"{title} generates no text", hint=hint)
    if fields.is_of("memory is not known") or fields.says("compress_ratios"):
        raise InputError(
            f"the KV cache of {title} is laid out in a way that is not known here"
        )
    return architecture


def _is_tied(fields: Fields) -> bool:
    """Does the head use the embedding's weights?"""
    stated = fields.config.get("tie_word_embeddings")
    return fields.is_of("tied") if stated is None else bool(stated)


def _limit(fields: Fields) -> int | None:
    """The longest context, as vLLM derives it: as stated, times what positions are
    scaled by."""
    limit = fields.maybe("model_max_length") or _least_stated_limit(fields)
    scaling = Fields(_rope_scaling(fields), fields.name)
    kind = scaling.config.get("rope_type") or scaling.config.get("type") or "default"
    factor = scaling.config.get("factor")
    if kind in UNSCALED or not isinstance(factor, int | float):
        return limit
    if not 1 <= factor < LARGEST_SCALE:
        return limit
    if kind == "yarn":
        limit = scaling.maybe("original_max_position_embeddings") or limit
    return int(limit * factor) if limit else None


def _least_stated_limit(fields: Fields) -> int | None:
    limits = [fields.maybe(key) for key in LIMITS]
    return min((limit for limit in limits if limit), default=None)


def _rope_scaling(fields: Fields) -> Config:
    """How positions are scaled beyond what the model was trained on first."""
    if fields.kind.startswith("gemma3"):  # it states the scaled length, as vLLM knows
        return {}
    return fields.part("rope_scaling") or fields.part("rope_parameters")


def _unstretched_limit(fields: Fields) -> int | None:
    """The context before longrope stretches it: vLLM goes no further by itself."""
    if "long_factor" not in _rope_scaling(fields):
        return None
    return fields.maybe("original_max_position_embeddings")


def _attention(fields: Fields, layers: Sequence[Layer], limit: int | None) -> Attention:
    window = _window(fields, limit)
    sliding_layers = 0
    if window:
        sliding_layers = sum(layer.has_own_window for layer in layers)
    states = sum(KvKind.STATE in layer.keeps for layer in layers)
    full = _full_attention(fields)
    return Attention(
        heads=fields.number("heads"),
        kv_heads=_kv_heads(fields),
        head_dim=_head_dim(fields),
        latent=_latent(fields),
        sliding_window=window if sliding_layers else None,
        sliding_layers=sliding_layers,
        stateful_layers=sum(not layer.attends for layer in layers),
        state=read_state(fields, states),
        normed=fields.is_of("norms of queries and keys"),
        full_kv_heads=full.maybe("kv_heads"),
        full_head_dim=full.maybe("head_dim"),
        borrowing_layers=sum(layer.borrows for layer in layers),
    )


def _latent(fields: Fields) -> Latent | None:
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


def _kv_heads(fields: Fields) -> int:
    if fields.says("multi_query") and not fields.says("new_decoder_architecture"):
        return 1  # Falcon states as many as heads
    return fields.maybe("kv_heads") or fields.number("heads")


def _head_dim(fields: Fields) -> int:
    return fields.maybe("head_dim") or fields.number("hidden") // fields.number("heads")


def _window(fields: Fields, limit: int | None) -> int | None:
    """How far layers with a window look back; None where no request is longer."""
    window = fields.maybe("window")
    if fields.config.get("use_sliding_window") is False:
        return None
    return None if limit and window and window >= limit else window


def _full_attention(fields: Fields) -> Fields:
    """KV heads and head size of full attention, where a window has others (Gemma 4)."""
    stated = {"head_dim": fields.config.get("global_head_dim")}
    if fields.says("attention_k_eq_v"):  # values are keys
        heads = fields.config.get("num_global_key_value_heads")
        stated["num_key_value_heads"] = heads
    return Fields(stated, fields.name)


def _experts(fields: Fields, layers: Sequence[Layer]) -> Experts | None:
    count = fields.maybe("experts")
    sparse_layers = sum(layer.feed is Feed.EXPERTS for layer in layers)
    if not count or not sparse_layers:
        return None
    return Experts(
        count=count,
        active=min(fields.maybe("active") or 2, count),
        intermediate=fields.maybe("expert") or fields.number("intermediate"),
        layers=sparse_layers,
        shared_intermediate=_shared_intermediate(fields),
    )


def _shared_intermediate(fields: Fields) -> int:
    """The width of what all tokens pass beside their experts."""
    if fields.kind == "llama4_text" or fields.says("enable_moe_block"):
        return fields.number("intermediate")  # an MLP as wide as without experts
    for key in ("shared_expert_intermediate_size", "shared_intermediate_size"):
        width = fields.maybe(key)
        if width:
            return width
    each = fields.maybe("moe_shared_expert_intermediate_size")
    each = each or fields.maybe("expert") or fields.number("intermediate")
    return (fields.maybe("shared_experts") or 0) * each


def _dense_intermediate(fields: Fields, layers: Sequence[Layer]) -> int:
    """The width of the MLP that every token passes; 0 where no layer has one."""
    if not any(layer.feed is Feed.DENSE for layer in layers):
        return 0
    width = fields.maybe("dense") or fields.maybe("intermediate")
    if width is None and fields.is_of("ungated"):
        width = 4 * fields.number("hidden")
    if not width:
        return fields.number("intermediate")
    return width


def _notes(shape: ModelShape) -> list[Note]:
    """What is worth saying of a shape, whatever its weights are."""
    attention = shape.attention
    notes = []
    if not shape.quantization.known:
        notes.append(note("unknown_quantization", method=shape.quantization.method))
    if attention.sliding_layers:
        window = note(
            "sliding_window",
            layers=attention.sliding_layers,
            tokens=attention.sliding_window,
        )
        notes.append(window)
    if attention.stateful_layers:
        states = note(
            "stateful_layers",
            layers=attention.stateful_layers,
            known=attention.state is not None,
        )
        notes.append(states)
    return notes
