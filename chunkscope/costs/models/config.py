"""Reading a Hugging Face config.json, and counting what it describes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chunkscope.costs.models.quantization import read_quantization
from chunkscope.costs.models.shape import (
    BYTES,
    Attention,
    Experts,
    Latent,
    ModelShape,
    Parameters,
    State,
)
from chunkscope.errors import InputError

Config = Mapping[str, Any]

# The same field under the names that model families give it.
NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "intermediate": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    "active": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts"),
}
LIMITS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length")
# Kinds of position scaling whose max_position_embeddings already is the scaled length.
UNSCALED = frozenset({"default", "su", "longrope", "llama3", "mrope"})
# What a state is made of: heads of keys and values, their sizes, the convolution's length...
DELTA_NET = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
# ... or heads, their size, groups, the state's size and the convolution's length.
MAMBA_2 = (
    ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"),
    ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"),
)
MOST_LAYERS = 10_000  # they are looked at one by one
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What config.json leaves out because the model's code knows it."""

    tied: bool = False
    gated: bool = True
    norms_per_layer: int = 2
    norm_bias: bool = False
    qkv_bias: bool = False
    all_biases: bool = False
    qk_norm: bool = False
    learned_positions: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


_CLASSIC = Family(gated=False, norm_bias=True, all_biases=True)
_TIED_CLASSIC = replace(_CLASSIC, tied=True)
_GEMMA_3 = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}
_BY_FAMILY = (
    (Family(qkv_bias=True), ("qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text")),
    (Family(qk_norm=True), ("qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_next", "olmoe")),
    (Family(tied=True), ("gemma",)),
    (Family(tied=True, norms_per_layer=4), ("gemma2",)),
    (Family(tied=True, norms_per_layer=4, qk_norm=True, defaults=_GEMMA_3), ("gemma3_text",)),
    (Family(tied=True, norms_per_layer=1), ("cohere", "cohere2")),
    (Family(all_biases=True), ("gpt_oss",)),
    (Family(gated=False, norms_per_layer=1), ("nemotron_h",)),
    (_CLASSIC, ("gpt_neox", "phi")),
    (_TIED_CLASSIC, ("starcoder2",)),
    (replace(_TIED_CLASSIC, learned_positions=True), ("gpt2", "opt")),
)
FAMILIES = {model_type: family for family, types in _BY_FAMILY for model_type in types}


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
    family = FAMILIES.get(str(text.get("model_type", "")), Family())
    reader = Reader({**family.defaults, **text}, family, name)
    experts = reader.experts()
    attention = reader.attention()
    parameters = reader.parameters(attention, experts, _vision(config))
    quantization, notes = read_quantization(text)
    return ModelShape(
        name=name,
        source=source,
        hub_id=hub_id,
        architecture=reader.architecture(),
        layers=reader.layers,
        hidden=reader.number("hidden"),
        intermediate=reader.dense_intermediate(experts),
        vocab=reader.number("vocab"),
        attention=attention,
        parameters=parameters,
        quantization=quantization,
        experts=experts,
        gated=family.gated,
        tied=reader.tied(),
        limit=reader.limit(),
        file_bytes=file_bytes,
        notes=(*notes, *_notes(config, attention, file_bytes)),
    )


def _text_part(config: Config) -> dict[str, Any]:
    """The language model's own settings: multimodal configs keep them one level down."""
    for key in NESTED:
        nested = config.get(key)
        if isinstance(nested, Mapping):
            outer = {k: v for k, v in config.items() if k not in NESTED and k != "model_type"}
            return {**outer, **_text_part(nested)} if nested else dict(config)
    return dict(config)


@dataclass(frozen=True, slots=True)
class Reader:
    """One config with its family's defaults; every method answers one question about it."""

    config: Config
    family: Family
    name: str

    def number(self, what: str) -> int:
        found = self.maybe(what)
        if found is None:
            raise InputError(
                f"the config.json of {self.name} has no {NAMES[what][0]}",
                hint="it must be the config.json of a language model, as on the Hugging Face hub",
            )
        return found

    @property
    def layers(self) -> int:
        found = self.number("layers")
        if not 1 <= found <= MOST_LAYERS:
            raise InputError(f"the config.json of {self.name} describes a model of {found} layers")
        return found

    def maybe(self, what: str) -> int | None:
        return self._first(NAMES.get(what, (what,)))

    def _first(self, names: tuple[str, ...]) -> int | None:
        for key in names:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(
                    f"the config.json of {self.name} has {key} = {value!r}, not a whole number"
                )
            return value
        return None

    def architecture(self) -> str:
        named = self.config.get("architectures")
        first = named[0] if isinstance(named, list) and named else ""
        return str(first or self.config.get("model_type", ""))

    def tied(self) -> bool:
        return bool(self.config.get("tie_word_embeddings", self.family.tied))

    def limit(self) -> int | None:
        """The longest context, as vLLM derives it."""
        stated = [value for key in LIMITS if (value := self._first((key,))) is not None]
        if not stated:
            return None
        scaling = self.config.get("rope_scaling") or self.config.get("rope_parameters")
        kind = str(self.config.get("model_type", ""))
        if not isinstance(scaling, Mapping) or "gemma3" in kind:
            return min(stated)
        rope = str(scaling.get("rope_type") or scaling.get("type") or "default")
        factor = scaling.get("factor")
        if rope in UNSCALED or not isinstance(factor, int | float) or not 1 <= factor < 1e6:
            return min(stated)
        base = scaling.get("original_max_position_embeddings") if rope == "yarn" else None
        return int((base if isinstance(base, int) else min(stated)) * factor)

    def attention(self) -> Attention:
        heads, layers = self.number("heads"), self.layers
        if heads < 1:
            raise InputError(
                f"the config.json of {self.name} describes a model without attention heads"
            )
        sliding, window = self._sliding(layers)
        return Attention(
            heads=heads,
            kv_heads=self._kv_heads(heads),
            head_dim=self.maybe("head_dim") or self.number("hidden") // heads,
            latent=self._latent(),
            sliding_window=window,
            sliding_layers=sliding,
            stateful_layers=self._stateful(layers),
            state=self._state(layers),
            normed=self.family.qk_norm,
        )

    def _kv_heads(self, heads: int) -> int:
        found = self.maybe("kv_heads")
        if found:
            return found
        return 1 if self.config.get("multi_query") else heads

    def _latent(self) -> Latent | None:
        rank = self.maybe("kv_lora_rank")
        if not rank:
            return None
        return Latent(
            kv_rank=rank,
            q_rank=self.maybe("q_lora_rank"),
            nope_dim=self.maybe("qk_nope_head_dim") or 128,
            rope_dim=self.maybe("qk_rope_head_dim") or 64,
            v_dim=self.maybe("v_head_dim") or 128,
        )

    def _sliding(self, layers: int) -> tuple[int, int | None]:
        """(how many layers look back only a window, the window)."""
        window = self.maybe("sliding_window")
        limit = self.limit()
        off = self.config.get("use_sliding_window") is False
        if not window or off or (limit and window >= limit):
            return 0, None
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list):
            count = sum(kind == "sliding_attention" for kind in kinds)
            return count, window if count else None
        kind = str(self.config.get("model_type", ""))
        pattern = self.maybe("sliding_window_pattern") or {"gemma2": 2, "gpt_oss": 2}.get(kind, 0)
        pattern = pattern or (6 if kind.startswith("gemma3") else 0)
        return layers - layers // pattern if pattern else layers, window

    def _stateful(self, layers: int) -> int:
        """How many layers keep a state instead of a KV cache (mamba, linear attention)."""
        kinds = self.config.get("layer_types") or self.config.get("layers_block_type")
        if isinstance(kinds, list):
            return sum("attention" not in str(k) or "linear" in str(k) for k in kinds)
        pattern = self.config.get("hybrid_override_pattern")
        if isinstance(pattern, str):
            return layers - pattern.count("*")
        indices = self.config.get("attn_layer_indices")
        if isinstance(indices, list):
            return layers - len(indices)
        every = self.maybe("full_attention_interval")
        return layers - layers // every if every else 0

    def _state(self, layers: int) -> State | None:
        """The state of mamba 2 or of a gated delta net, as vLLM shapes it; None for others."""
        pattern = self.config.get("hybrid_override_pattern")
        stateful = pattern.count("M") if isinstance(pattern, str) else self._stateful(layers)
        delta = self._all(*DELTA_NET)
        if stateful and delta:
            key_heads, value_heads, key_dim, value_dim, kernel = delta
            wide = 2 * key_heads * key_dim + value_heads * value_dim
            memory = value_heads * value_dim * key_dim
            size = self._state_bytes("mamba_ssm_dtype", BYTES)
            return State(layers=stateful, convolution=wide * (kernel - 1), memory=memory,
                         memory_bytes=size)  # fmt: skip
        mamba = next(filter(None, (self._all(*names) for names in MAMBA_2)), None)
        if stateful and mamba:
            heads, dim, groups, states, kernel = mamba
            wide = heads * dim + 2 * groups * states
            nemotron = str(self.config.get("model_type")) == "nemotron_h"
            size = self._state_bytes("mamba_ssm_cache_dtype", 4) if nemotron else BYTES
            return State(layers=stateful, convolution=wide * (kernel - 1),
                         memory=heads * dim * states, memory_bytes=size)  # fmt: skip
        return None

    def _all(self, *names: str) -> tuple[int, ...] | None:
        found = tuple(value for name in names if (value := self.maybe(name)))
        return found if len(found) == len(names) else None

    def _state_bytes(self, name: str, default: int) -> int:
        stated = self.config.get(name)
        return 4 if stated == "float32" else default if stated is None else BYTES

    def experts(self) -> Experts | None:
        count = self.maybe("experts")
        if not count or count < 2:
            return None
        intermediate = self.maybe("moe_intermediate_size") or self.number("intermediate")
        shared = self.maybe("shared_expert_intermediate_size") or 0
        shared += (self.maybe("n_shared_experts") or 0) * intermediate
        if str(self.config.get("model_type")) == "llama4_text":
            shared = intermediate
        layers = sum(self._is_sparse(i) for i in range(self.layers))
        return Experts(
            count=count,
            active=self.maybe("active") or 2,
            intermediate=intermediate,
            layers=layers,
            shared_intermediate=shared,
        )

    def _is_sparse(self, layer: int) -> bool:
        if layer < (self.maybe("first_k_dense_replace") or 0):
            return False
        dense = self.config.get("mlp_only_layers")
        if isinstance(dense, list) and layer in dense:
            return False
        step = self.maybe("decoder_sparse_step") or self.maybe("interleave_moe_layer_step") or 1
        return (layer + 1) % step == 0

    def dense_intermediate(self, experts: Experts | None) -> int:
        """The width of the MLP every token passes; 0 when all layers are expert layers."""
        if experts and experts.layers == self.layers:
            return 0
        plain = self.maybe("intermediate_size_mlp") or self.maybe("intermediate")
        if plain:
            return plain
        if not self.family.gated:
            return 4 * self.number("hidden")
        return self.number("intermediate")

    def parameters(self, attention: Attention, experts: Experts | None, vision: int) -> Parameters:
        layers, hidden, vocab = self.layers, self.number("hidden"), self.number("vocab")
        pattern = self.config.get("hybrid_override_pattern")
        with_mlp = pattern.count("-") if isinstance(pattern, str) else layers
        dense_layers = max(0, with_mlp - (experts.layers if experts else 0))
        stateful = attention.state.layers if attention.state else 0
        attending = layers - attention.stateful_layers if attention.state else layers
        mlp = dense_layers * self._mlp(self.dense_intermediate(experts)) if dense_layers else 0
        routed = shared = router = 0
        if experts:
            routed = experts.layers * experts.count * self._mlp(experts.intermediate)
            shared = experts.layers * self._mlp(experts.shared_intermediate)
            router = experts.layers * self._router(experts)
        positions = (self.limit() or 0) * hidden if self.family.learned_positions else 0
        return Parameters(
            embedding=vocab * hidden,
            head=0 if self.tied() else vocab * hidden,
            attention=attending * self._attention_weights(attention)
            + (stateful * self._state_weights() if stateful else 0),
            mlp=mlp + shared,
            experts=routed,
            other=router + positions + self._norms(attention),
            vision=vision,
        )

    def _mlp(self, intermediate: int) -> int:
        if not intermediate:
            return 0
        hidden = self.number("hidden")
        biases = self.family.all_biases or bool(self.config.get("mlp_bias"))
        if self.family.gated:
            return 3 * hidden * intermediate + (2 * intermediate + hidden if biases else 0)
        return 2 * hidden * intermediate + (intermediate + hidden if biases else 0)

    def _router(self, experts: Experts) -> int:
        hidden = self.number("hidden")
        gate = hidden if self.maybe("shared_expert_intermediate_size") else 0
        bias = experts.count if self.family.all_biases else 0
        corrected = self.config.get("topk_method") == "noaux_tc"
        return hidden * experts.count + gate + bias + (experts.count if corrected else 0)

    def _attention_weights(self, a: Attention) -> int:
        hidden = self.number("hidden")
        if a.latent:
            return _latent_weights(a, a.latent, hidden)
        q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
        gate = hidden * q if str(self.config.get("model_type")) == "qwen3_next" else 0
        weights = 2 * hidden * q + 2 * hidden * kv + gate
        every = self.family.all_biases or bool(self.config.get("attention_bias"))
        biases = (q + 2 * kv if every or self.family.qkv_bias else 0) + (hidden if every else 0)
        sinks = a.heads if str(self.config.get("model_type")) == "gpt_oss" else 0
        return weights + biases + sinks

    def _state_weights(self) -> int:
        """A layer of a gated delta net, or of mamba 2."""
        hidden = self.number("hidden")
        if delta := self._all(*DELTA_NET):
            key_heads, value_heads, key_dim, value_dim, kernel = delta
            keys, values = key_heads * key_dim, value_heads * value_dim
            inward = hidden * (2 * keys + 2 * values + 2 * value_heads)
            inside = (2 * keys + values) * kernel + 2 * value_heads + value_dim
            return inward + inside + values * hidden
        heads, dim, groups, states, kernel = next(
            filter(None, (self._all(*names) for names in MAMBA_2))
        )
        wide, mixed = heads * dim, heads * dim + 2 * groups * states
        inward = hidden * (wide + mixed + heads)
        inside = mixed * (kernel + 1) + 3 * heads + wide
        return inward + inside + wide * hidden

    def _norms(self, a: Attention) -> int:
        layers, hidden = self.layers, self.number("hidden")
        each = hidden * (2 if self.family.norm_bias else 1)
        inside = layers * 2 * a.head_dim if self.family.qk_norm else 0
        return (layers * self.family.norms_per_layer + 1) * each + inside


def _latent_weights(a: Attention, latent: Latent, hidden: int) -> int:
    key = a.heads * (latent.nope_dim + latent.rope_dim)
    query = hidden * key
    if latent.q_rank:
        query = hidden * latent.q_rank + latent.q_rank + latent.q_rank * key
    down = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
    up = latent.kv_rank * a.heads * (latent.nope_dim + latent.v_dim)
    return query + down + up + a.heads * latent.v_dim * hidden


def _vision(config: Config) -> int:
    """The vision tower, roughly: four square matrices and an MLP per layer."""
    tower = config.get("vision_config")
    if not isinstance(tower, Mapping):
        return 0
    sizes = [
        next((tower[key] for key in keys if isinstance(tower.get(key), int)), 0)
        for keys in (
            ("num_hidden_layers", "depth", "layers"),
            ("hidden_size", "embed_dim", "width"),
            ("intermediate_size", "mlp_dim"),
        )
    ]
    layers, hidden, wide = sizes
    return int(layers * (4 * hidden * hidden + 2 * hidden * (wide or 4 * hidden)))


def _notes(config: Config, attention: Attention, file_bytes: int | None) -> tuple[str, ...]:
    notes = []
    if isinstance(config.get("vision_config"), Mapping):
        notes.append("the vision tower is counted roughly, its activations are not")
    if attention.sliding_layers:
        notes.append(
            f"{attention.sliding_layers} layers look back {attention.sliding_window:,} tokens: "
            "a long request holds less KV cache than its tokens say"
        )
    if attention.stateful_layers:
        notes.append(
            f"{attention.stateful_layers} layers hold no KV cache"
            + ("" if attention.state else ", and the size of their state is not known")
            + ("" if file_bytes or attention.state else ", their weights are roughly counted")
        )
    if config.get("is_encoder_decoder"):
        notes.append("an encoder-decoder model: vLLM switches chunked prefill off by itself")
    return tuple(notes)
