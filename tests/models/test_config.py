"""config.json -> layers, attention, experts, states, limits, and computed weights."""

import pytest

from chunkscope.errors import InputError
from chunkscope.models import MODELS, find_model, shape_from_config
from tests.hardware.kv_models import CONFIGS

LLAMA = dict(MODELS["llama-3.1-8b"].config)


def shape(config=LLAMA, **changed):
    return shape_from_config({**config, **changed}, name="test", source="test")


def codes(model):
    return {note.code for note in model.notes}


# -- layers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "sliding"),
    [
        pytest.param(
            {"model_type": "mistral", "sliding_window": 4096}, 32, id="in all layers"
        ),
        pytest.param(
            {"model_type": "qwen2", "sliding_window": 4096},
            0,
            id="off where its class has it off",
        ),
        pytest.param(
            {
                "model_type": "mistral",
                "sliding_window": 4096,
                "use_sliding_window": False,
            },
            0,
            id="turned off",
        ),
        pytest.param(
            {
                "model_type": "qwen2",
                "sliding_window": 4096,
                "use_sliding_window": True,
                "max_window_layers": 28,
            },
            4,
            id="in the last layers",
        ),
        pytest.param(
            {"model_type": "mistral", "sliding_window": 262_144},
            0,
            id="longer than any request",
        ),
        pytest.param(
            {
                "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention"] * 16,
            },
            16,
            id="in every second layer",
        ),
        pytest.param(
            {"attention_chunk_size": 8_192, "model_type": "llama4_text"},
            24,
            id="chunks of Llama 4",
        ),
        pytest.param(
            {"sliding_window": 128, "model_type": "not known"},
            0,
            id="not said in which layers",
        ),
    ],
)
def test_a_sliding_window_counts_only_where_it_is_used(config, sliding):
    assert shape(**config).attention.sliding_layers == sliding


BAMBA = {"model_type": "bamba", "attn_layer_indices": [9, 18]}
LFM_2 = {"model_type": "lfm2", "full_attn_idxs": [9, 18]}


@pytest.mark.parametrize(
    ("layers", "stateful"),
    [
        pytest.param({}, 0, id="none"),
        pytest.param(
            {"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8},
            24,
            id="a word for each layer",
        ),
        pytest.param(
            {"layers_block_type": ["mamba"] * 30 + ["attention"] * 2},
            30,
            id="under another name",
        ),
        pytest.param(
            {"hybrid_override_pattern": "M-" * 14 + "M*M*"}, 30, id="a letter for each"
        ),
        pytest.param({"full_attention_interval": 4}, 24, id="all but every fourth"),
        pytest.param(BAMBA, 30, id="Bamba's own way"),
        pytest.param(LFM_2, 30, id="LFM2's own way"),
    ],
)
def test_layers_with_a_state_hold_no_kv_cache(layers, stateful):
    model = shape(**layers)
    assert model.attention.stateful_layers == stateful
    assert model.hybrid == (stateful > 0)
    assert model.kv_bytes_per_token() == (32 - stateful) * 4096


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param({"hybrid_override_pattern": "M*" * 15}, id="letters"),
        pytest.param({"layer_types": ["full_attention"] * 30}, id="words"),
    ],
)
def test_each_layers_kind_must_be_said(layers):
    with pytest.raises(InputError, match="the kind of 30 of its 32 layers"):
        shape(**layers)


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        pytest.param(
            {"layers_block_type": ["mlp", "what"] * 16},
            "not known.*: what",
            id="a word",
        ),
        pytest.param(
            {"compress_ratios": [0, 0, 4, 128] * 8, "sliding_window": 128},
            "the KV cache of test",
            id="DeepSeek-V4",
        ),
        pytest.param(
            {"layer_types": ["sliding_attention", "compressed_sparse_attention"] * 16},
            "not known.*: compressed_sparse_attention",
            id="compressed in some layers",
        ),
        pytest.param({"model_type": "jamba"}, "the KV cache of test", id="Jamba"),
        pytest.param({"num_hidden_layers": 10**15}, "of 10+ layers", id="too many"),
    ],
)
def test_a_kv_cache_that_is_not_known_is_refused(layers, reason):
    with pytest.raises(InputError, match=reason):
        shape(**layers)


# -- weights and bytes -----------------------------------------------------------------

INDEXED = {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128}
NEW_FALCON = {"new_decoder_architecture": True, "num_kv_heads": 2}
BORROWING = {"num_kv_shared_layers": 6}
SIGNS = {
    "hybrid_override_pattern": "M-M*M-ME",
    "num_hidden_layers": 8,
    "n_routed_experts": 4,
    "moe_intermediate_size": 64,
    "n_shared_experts": 0,
}
# Bytes of a token on each of two GPUs: KV cache, activations, the experts' workspace;
# of a latent with 1,000 tokens behind 100.
KINDS = [
    ("gemma-2", {}, (1_536, 3_072, 0, 0)),
    ("gemma-3", {}, (3_584, 3_200, 0, 0)),
    ("gemma-4", {}, (3_584, 3_200, 0, 0)),
    ("gemma-4", BORROWING, (1_792, 3_200, 0, 0)),
    ("gemma-4, fewer heads", {}, (6_144, 4_096, 0, 0)),
    ("gpt-oss", {}, (1_024, 2_688, 3_072, 0)),
    ("mistral", {}, (1_024, 3_072, 0, 0)),
    ("deepseek-v3", {}, (3_456, 4_608, 2_048, 1_420_800)),
    ("deepseek-v3", INDEXED, (3_852, 4_608, 2_048, 1_420_800)),
    ("qwen3-next", {}, (512, 3_200, 2_048, 0)),
    ("nemotron-h", {}, (512, 2_688, 0, 0)),
    ("nemotron-h", SIGNS, (256, 2_688, 2_048, 0)),
    ("falcon", {}, (1_024, 3_584, 0, 0)),
    ("falcon", NEW_FALCON, (1_024, 3_584, 0, 0)),
    ("granite-4", {}, (512, 2_952, 3_072, 0)),
    ("dbrx", {}, (1_024, 2_688, 3_072, 0)),
]


@pytest.mark.parametrize(("name", "changed", "token_bytes"), KINDS)
def test_bytes_of_a_token_of_each_kind_of_model(name, changed, token_bytes):
    model = shape(CONFIGS[name], **changed)
    assert token_bytes == (
        model.kv_bytes_per_token(2),
        model.activation_bytes_per_token(2),
        model.workspace_bytes_per_token(2),
        model.latent_bytes(100, 1_000, 2),
    )


@pytest.mark.parametrize(
    ("name", "dtype", "state"),
    [
        ("qwen3-next", "float32", 68_608),
        ("qwen3-next", "bfloat16", 35_840),
        ("nemotron-h", None, 134_912),
        ("nemotron-h", "float32", 134_912),
        ("nemotron-h", "bfloat16", 69_376),
        ("lfm-2", None, 512),
        ("granite-4", None, 34_688),
    ],
)
def test_bytes_of_a_state_on_each_of_two_gpus(name, dtype, state):
    model = shape(CONFIGS[name], mamba_ssm_dtype=dtype, mamba_ssm_cache_dtype=dtype)
    assert model.attention.state.bytes(2) == state


def test_a_latents_values_are_as_wide_as_its_keys_where_nothing_else_is_said():
    latent = {"model_type": "new", "kv_lora_rank": 256, "qk_nope_head_dim": 64}
    assert shape(**latent).attention.latent.v_dim == 64


def test_a_quantized_model_takes_the_bits_of_its_method():
    """Embedding, head and norms have 16 bits."""
    model = shape(quantization_config={"quant_method": "fp8"})
    p = model.parameters
    plain = 2 * (p.embedding + p.head + p.other)
    assert model.weight_bytes == plain + p.attention + p.mlp


# -- what a config leaves out ----------------------------------------------------------


def test_a_multimodal_config_keeps_its_language_model_one_level_down():
    tower = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
    config = {"model_type": "some_vl", "text_config": LLAMA, "vision_config": tower}
    model = shape(config, quantization_config={"quant_method": "fp8"})
    assert model.parameters.attention == shape().parameters.attention
    assert model.quantization.method == "fp8"
    assert model.notes[-1].code == "vision_tower"


@pytest.mark.parametrize(
    ("text", "like"),
    [
        pytest.param(
            {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
            "gemma-3-4b",
            id="Gemma 3",
        ),
        pytest.param(
            {"model_type": "gemma2", "vocab_size": 257_216},
            "gemma-2-2b",
            id="PaliGemma",
        ),
    ],
)
def test_what_a_config_leaves_out_is_what_its_class_has(text, like):
    model = shape({"text_config": text})
    assert model.attention == find_model(like).attention


def test_a_bare_config_has_computed_weights_and_says_so():
    model = shape()
    assert codes(model) == {"weights_by_formula"}
    assert model.parameters.total == pytest.approx(8_030_261_248, rel=1e-4)


def test_a_model_type_that_nobody_knows_is_named():
    text = {key: value for key, value in LLAMA.items() if key != "model_type"}
    model = shape({"model_type": "some_ocr", "language_config": text})
    assert model.notes[0].code == "unknown_model_type"
    assert model.notes[0].values["name"] == "some_ocr"


def test_a_quantization_that_is_not_known_is_named():
    stated = {"quant_method": "modelopt", "quant_algo": "vodoo"}
    model = shape(quantization_config=stated)
    assert model.weight_bytes == shape().weight_bytes
    assert "unknown_quantization" in codes(model)


def test_transformers_is_not_needed(monkeypatch):
    """A job that only gates is installed without it."""
    monkeypatch.setattr("chunkscope.models.transformers_config._classes", dict)
    model = shape()
    assert model.attention == find_model("llama-3.1-8b").attention
    assert "unknown_model_type" in codes(model)


# -- limits ----------------------------------------------------------------------------

YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
LONGROPE = {
    "original_max_position_embeddings": 4096,
    "rope_scaling": {"rope_type": "longrope", "long_factor": [1.0]},
}


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        pytest.param({}, 131_072, id="as stated"),
        pytest.param(
            {"max_position_embeddings": 8192, "model_max_length": 32_768},
            32_768,
            id="Command R",
        ),
        pytest.param(
            {
                "max_position_embeddings": 4096,
                "rope_scaling": {"type": "linear", "factor": 2},
            },
            8192,
            id="scaled",
        ),
        pytest.param(
            {"max_position_embeddings": 163_840, "rope_scaling": YARN},
            163_840,
            id="scaled from what it was trained on",
        ),
        pytest.param(LONGROPE, 131_072, id="longrope"),
    ],
)
def test_the_limit_is_derived_as_vllm_does(config, limit):
    assert shape(**config).limit == limit


def test_vllm_goes_no_further_than_the_original_context_of_longrope():
    assert (shape(**LONGROPE).original, shape().original) == (4096, None)


# -- refusals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "reason", "hint"),
    [
        pytest.param(
            {"model_type": "whisper", "architectures": ["WhisperForX"]},
            r"test \(WhisperForX\) has an encoder and a decoder",
            "no Whisper, no T5",
            id="Whisper, by its class",
        ),
        pytest.param(
            {**LLAMA, "is_encoder_decoder": True},
            "an encoder and a decoder",
            "Whisper",
            id="said",
        ),
        pytest.param(
            {"model_type": "bert"}, "generates no text", "a decoder alone", id="BERT"
        ),
        pytest.param(
            {**LLAMA, "architectures": ["LlamaForSequenceClassification"]},
            "generates no text",
            "a decoder alone",
            id="a judge",
        ),
    ],
)
def test_a_model_that_is_no_decoder_alone_is_refused(config, reason, hint):
    with pytest.raises(InputError, match=reason) as error:
        shape(config)
    assert hint in error.value.hint


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
)
@pytest.mark.parametrize("value", [None, "many", -1, 2.5, True, [1, 2]])
def test_a_field_that_is_missing_or_no_number_is_named(field, value):
    with pytest.raises(InputError, match=field):
        shape(**{"model_type": "new", field: value})


def test_more_weights_than_a_number_can_say_are_refused():
    with pytest.raises(InputError, match="parameters"):
        shape(model_type="new", hidden_size=2**52)
