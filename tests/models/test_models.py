import json
import sys

import pytest

from chunkscope.errors import InputError
from chunkscope.models import MODELS, find_model, shape_from_config
from tests.hardware.kv_models import CONFIGS

LLAMA = dict(MODELS["llama-3.1-8b"].config)
YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}


def shape(config=LLAMA, **changed):
    return shape_from_config({**config, **changed}, name="test", source="test")


def codes(model):
    return {note.code for note in model.notes}


def compressed(weights):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"weights": weights}},
    }


@pytest.mark.parametrize("name", MODELS)
def test_the_counted_parameters_are_the_published_ones(name):
    """Exact for text models; a vision tower is counted roughly, so 0.5 % is allowed there."""
    model, published = find_model(name), MODELS[name].published
    if model.parameters.vision:
        assert model.parameters.total == pytest.approx(published, rel=0.005)
    else:
        assert model.parameters.total == published


@pytest.mark.parametrize(
    ("config", "sliding"),
    [
        ({"sliding_window": 4096}, 32),
        ({"sliding_window": 4096, "use_sliding_window": False}, 0),
        ({"sliding_window": 4096, "max_window_layers": 28}, 4),
        ({"sliding_window": 262_144}, 0),
        (
            {
                "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention"] * 16,
            },
            16,
        ),
        ({"attention_chunk_size": 64, "layer_types": ["chunked_attention"] * 24}, 24),
        ({"attention_chunk_size": 8_192, "model_type": "llama4_text"}, 24),
        (
            {"sliding_window": 128, "hybrid_layer_pattern": [0, *[1] * 4, 0, 1, 1] * 4},
            24,
        ),
        (
            {
                "sliding_window": 128,
                "model_type": "not known, nor which layers have it",
            },
            0,
        ),
    ],
)
def test_a_sliding_window_counts_only_where_it_is_used(config, sliding):
    assert shape(**config).attention.sliding_layers == sliding


@pytest.mark.parametrize(
    ("stated", "bytes_per_weight"),
    [
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 128**2),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 20 / 128 / 8),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0),
        (
            {"quant_method": "auto-round", "bits": 2, "group_size": 64},
            2 / 8 + 18 / 64 / 8,
        ),
        ({"quant_method": "gptq", "bits": -8, "group_size": 32}, 0.5 + 20 / 32 / 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64),
        (
            {"quant_method": "bitsandbytes", "bnb_4bit_use_double_quant": True},
            0.5 + 1 / 64,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5 + 1 / 16),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}},
            },
            1.0,
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": "Int8DynamicActivationInt4Weight",
            },
            4.25 / 8,
        ),
        (compressed({"num_bits": 4, "group_size": 128}), 0.5 + 16 / 128 / 8),
        (
            compressed({"num_bits": 4, "group_size": 32, "symmetric": False}),
            0.5 + 20 / 32 / 8,
        ),
        (compressed({"num_bits": 8, "type": "float"}), 1.0),
    ],
)
def test_quantized_weights_take_what_their_config_says(stated, bytes_per_weight):
    model = shape(quantization_config=stated)
    p = model.parameters
    plain = 2 * (p.embedding + p.head + p.other)
    assert model.weight_bytes == pytest.approx(
        plain + (p.attention + p.mlp) * bytes_per_weight
    )


EACH = [
    f"model.layers.{layer}.self_attn.{x}_proj" for layer in range(32) for x in "qkvo"
]
KIMI = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"]  # of K2 Thinking
KIMI += [r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]


@pytest.mark.parametrize(
    ("names", "quantized"),
    [
        *(
            (names, "mlp experts")
            for names in (["re:.*self_attn"], EACH, ["*layers.*.self_attn*"])
        ),
        (["re:^language_model.model.layers.*self_attn.*", "re:("], "mlp experts"),
        (KIMI, "experts"),
        (["mlp.shared_expert", "mlp.gate"], "attention experts"),
        *(
            (names, "attention mlp experts")
            for names in (EACH[:8], ["model.layers.0.mlp"], None)
        ),
        (
            ["gate", "re:.*mlp.gate$", "re:.*self_attn.kv_a_proj"],
            "attention mlp experts",
        ),
    ],
)
def test_what_a_quantization_leaves_out_of_most_layers_has_16_bits(names, quantized):
    """As a list of layers, wildcards or expressions."""
    stated = {"quant_method": "awq", "ignore": names}
    assert shape(quantization_config=stated).quantization.kinds == tuple(
        quantized.split()
    )


def test_mxfp4_packs_the_experts_only():
    model = find_model("gpt-oss-20b")
    p = model.parameters
    packed = (
        p.experts * 3_072 / 2_880 * 4.25 / 8
    )  # padded: 14.58 GB were measured on an H200
    assert model.weight_bytes == round(2 * (p.total - p.experts) + packed)
    assert model.weight_bytes == pytest.approx(14.58e9, rel=0.015)


def test_what_is_not_known_is_guessed_and_said_so():
    assert not shape().notes
    assert codes(shape(model_type="brand_new")) == {"unknown_model_type"}
    model = shape(
        quantization_config={"quant_method": "modelopt", "quant_algo": "vodoo"}
    )
    assert model.weight_bytes == shape().weight_bytes, "16 bits"
    assert codes(model) == {"unknown_quantization"}


@pytest.mark.parametrize(
    "stated",
    [
        {"compress_ratios": [0, 0, 4, 128] * 8, "sliding_window": 128},
        {"layer_types": ["sliding_attention", "compressed_sparse_attention"] * 16},
    ],
)
def test_a_compressed_cache_is_refused(stated):
    """DeepSeek-V4: of a window in each layer, 140 million tokens were said to fit on 8 H200."""
    with pytest.raises(
        InputError, match="compresses its KV cache, and its memory is not known"
    ):
        shape(model_type="deepseek_v4", **stated)


def test_a_language_model_without_a_type_is_called_by_that_of_the_whole():
    """As that of DeepSeek-OCR."""
    text = {key: value for key, value in LLAMA.items() if key != "model_type"}
    config = {"model_type": "some_ocr", "language_config": text}
    [note] = shape(config).notes
    assert (note.code, note.values["name"]) == ("unknown_model_type", "some_ocr")


def test_a_multimodal_config_keeps_its_language_model_one_level_down():
    text = {**LLAMA, "model_type": "llama"}
    tower = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
    config = {"model_type": "some_vl", "text_config": text, "vision_config": tower}
    model = shape(config, quantization_config={"quant_method": "fp8"})
    assert model.parameters.total - model.parameters.vision == 8_030_261_248
    assert model.parameters.vision == 24 * (4 * 1024**2 + 2 * 1024 * 4096)
    gated = {
        **config,
        "vision_config": {**tower, "hidden_act": "silu"},
    }  # Qwen2.5-VL, Pixtral
    assert shape(gated).parameters.vision == 24 * (4 * 1024**2 + 3 * 1024 * 4096)
    heard = {
        "embed_dim": 1024,
        "hidden_size": 3584,
        "encoder_layers": 24,
        "encoder_ffn_dim": 4096,
    }
    assert (
        shape(config, audio_config=heard).parameters.vision
        == 2 * model.parameters.vision
    )
    assert model.quantization.method == "fp8"
    assert codes(model) == {"vision_tower"}


def test_what_a_config_leaves_out_is_completed():
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": [10240] * 34,
    }
    text |= {"num_hidden_layers": 34, "sliding_window": 1024}
    model, whole = (
        shape({"model_type": "gemma3", "text_config": text}),
        find_model("gemma-3-4b"),
    )
    assert (model.attention, model.limit) == (whole.attention, 131_072)
    falcon = {
        "model_type": "falcon",
        "n_embed": 8,
        "n_head": 8,
        "n_layer": 8,
        "vocab_size": 8,
    }
    assert shape(falcon).limit == 2_048
    llava = {"text_config": {"model_type": "llama", "vocab_size": 32_064}}
    assert shape(llava).parameters.total == 6_738_939_904
    text = {
        "model_type": "gemma2",
        "vocab_size": 257_216,
    }  # of PaliGemma 2: heads of 256
    assert shape({"text_config": text}).attention == find_model("gemma-2-2b").attention
    mistral = shape({"model_type": "mistral"})  # the first: with a window
    assert (mistral.parameters.total, mistral.attention.sliding_layers) == (
        7_241_732_096,
        32,
    )
    latent = {
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 64,
    }  # of MiniCPM3, with values as wide
    assert shape(**latent).attention.latent.v_dim == 64
    assert codes(whole) == {"sliding_window", "vision_tower"}


BORROWING = {"num_kv_shared_layers": 6, "use_double_wide_mlp": True}
INDEXED = {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128}
NEW_FALCON = {"new_decoder_architecture": True, "num_kv_heads": 2}
SIGNS = {
    "hybrid_override_pattern": "M-M*M-ME",
    "num_hidden_layers": 8,
    "n_routed_experts": 4,
}
SIGNS |= {"moe_intermediate_size": 64}
ZAMBA = {"layers_block_type": ["mamba", "hybrid"] * 2, "num_mem_blocks": 1}
# Weights of attention, MLP, experts, head, others; bytes of a token on each of two GPUs: KV cache,
# activations, the experts' workspace; of a latent with 1,000 tokens behind 100.
KINDS = [
    ("gemma-2", {}, (1_179_648, 2_359_296, 0, 0, 6_400, 1_536, 3_072, 0, 0)),
    ("gemma-3", {}, (2_752_512, 5_505_024, 0, 0, 16_384, 3_584, 3_200, 0, 0)),
    ("gemma-4", {}, (2_752_512, 4_718_592, 0, 0, 308_992, 3_584, 3_200, 0, 0)),
    ("gemma-4, fewer heads", {}, (3_276_800, 4_718_592, 0, 0, 14_080, 6_144, 4_096, 0, 0)),
    ("gpt-oss", {}, (789_520, 0, 6_311_936, 524_288, 6_416, 1_024, 2_688, 3_072, 0)),
    ("mistral", {}, (786_432, 1_572_864, 0, 524_288, 2_304, 1_024, 3_072, 0, 0)),
    ("nearly as many of both", {}, (1381660, 0, 11045888, 524288, 11036, 1792, 2688, 3072, 0)),
    ("deepseek-v2", {}, (2999808, 589824, 786432, 524288, 5888, 3456, 4608, 2048, 1420800)),
    ("deepseek-v3", {}, (2705184, 589824, 786432, 524288, 5904, 3456, 4608, 2048, 1420800)),
    ("deepseek-v3", INDEXED, (5212704, 589824, 786432, 524288, 5904, 3852, 4608, 2048, 1420800)),
    ("qwen3-next", {}, (3_719_648, 393_216, 3_145_728, 524_288, 23_808, 512, 3_200, 2_048, 0)),
    ("nemotron-h", {}, (5_574_432, 1_310_720, 0, 524_288, 3_584, 512, 2_688, 0, 0)),
    ("falcon", {}, (655_360, 2_097_152, 0, 0, 2_560, 1_024, 3_584, 0, 0)),
    ("minicpm-3", {}, (492_160, 1_572_864, 0, 524_288, 2_304, 2_048, 3_072, 0, 0)),
    ("jamba", {}, (3_020_064, 1_572_864, 6_291_456, 524_288, 8_448, 512, 3_072, 3_072, 0)),
    ("falcon-h1", {}, (2_513_504, 1_572_864, 0, 524_288, 2_304, 1_024, 3_072, 0, 0)),
    ("lfm-2", {}, (1_970_688, 3_145_728, 0, 0, 5_376, 512, 3_200, 0, 0)),
    ("granite-4", {}, (2_996_256, 786_432, 12_582_912, 524_288, 12_544, 512, 2_952, 3_072, 0)),
    ("dbrx", {}, (786_432, 0, 6_291_456, 524_288, 6_400, 1_024, 2_688, 3_072, 0)),
    ("opt-350m", {}, (1_052_672, 2_102_272, 0, 0, 2_167_296, 2_048, 3_584, 0, 0)),
    ("gemma-4", BORROWING, (2_752_512, 7_077_888, 0, 0, 308_992, 1_792, 4_608, 0, 0)),
    ("jamba", {"num_experts": 1}, (3_020_064, 3_145_728, 0, 524_288, 4_352, 512, 3_072, 0, 0)),
    ("granite-4", {"num_local_experts": 0}, (2996256, 786432, 0, 524288, 4352, 512, 2688, 0, 0)),
    ("falcon", NEW_FALCON, (786_432, 2_097_152, 0, 0, 2_560, 1_024, 3_584, 0, 0)),
    ("falcon-h1", ZAMBA, (1_923_680, 393_216, 0, 524_288, 2_304, 512, 3_072, 0, 0)),
    ("nemotron-h", SIGNS, (3_650_752, 524_288, 131_072, 524_288, 3_328, 256, 2_688, 2_048, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changed", "figures"), KINDS)
def test_weights_and_bytes_of_each_kind_of_model(name, changed, figures):
    """The weights are near those of vLLM and of transformers, by the real tests."""
    model = shape(CONFIGS[name], **changed)
    p = model.parameters
    weights = (p.attention, p.mlp, p.experts, p.head, p.other)
    of_a_token = (model.kv_bytes_per_token(2), model.activation_bytes_per_token(2))
    beside = (model.workspace_bytes_per_token(2), model.latent_bytes(100, 1_000, 2))
    assert (*weights, *of_a_token, *beside) == figures


@pytest.mark.parametrize(
    ("name", "dtype", "state"),
    [
        *(("qwen3-next", "float32", 68_608), ("qwen3-next", "bfloat16", 35_840)),
        *(("nemotron-h", None, 134_912), ("nemotron-h", "float32", 134_912)),
        *(("nemotron-h", "bfloat16", 69_376), ("jamba", "float32", 9_728)),
        *(
            ("falcon-h1", None, 34_688),
            ("lfm-2", None, 512),
            ("granite-4", None, 34_688),
        ),
    ],
)
def test_bytes_of_a_state_on_each_of_two_gpus(name, dtype, state):
    model = shape(CONFIGS[name], mamba_ssm_dtype=dtype, mamba_ssm_cache_dtype=dtype)
    assert model.attention.state.bytes(2) == state


def test_no_decoder_or_layers_that_are_not_all_described_are_an_input_error():
    silent = {
        "is_encoder_decoder": True,
        "model_type": "bert",
        "architectures": ["XForMaskedLM"],
    }
    signs = {
        "hybrid_override_pattern": "M*" * 15,
        "layers_block_type": ["mlp", "what"] * 16,
    }
    for key, value in (silent | signs).items():
        with pytest.raises(
            InputError, match="generates no text" if key in silent else "32 layers"
        ):
            shape(**{key: value})


@pytest.mark.parametrize(
    ("layers", "stateful"),
    [
        ({"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}, 24),
        ({"layers_block_type": ["mamba"] * 30 + ["attention"] * 2}, 30),
        ({"hybrid_override_pattern": "M-" * 14 + "M*M*"}, 30),
        *(({"full_attention_interval": 4}, 24), ({"attn_layer_indices": [9, 18]}, 30)),
        ({"attn_type_list": [0, 1] * 16, "model_type": "minimax"}, 16),
        *(({"full_attn_idxs": [9, 18]}, 30), ({}, 0)),
    ],
)
def test_layers_with_a_state_hold_no_kv_cache(layers, stateful):
    model = shape(**layers)
    assert model.attention.stateful_layers == stateful
    assert model.hybrid == (stateful > 0)
    assert model.kv_bytes_per_token() == (32 - stateful) * 4096


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({}, 131_072),
        (
            {"max_position_embeddings": 8192, "model_max_length": 32_768},
            32_768,
        ),  # Command R
        (
            {
                "max_position_embeddings": 4096,
                "rope_scaling": {"type": "linear", "factor": 2},
            },
            8192,
        ),
        ({"max_position_embeddings": 163_840, "rope_scaling": YARN}, 163_840),
    ],
)
def test_the_limit_is_derived_as_vllm_does(config, limit):
    assert shape(**config).limit == limit
    assert shape(max_position_embeddings=None).limit is None
    phi = {
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"long_factor": [1.0]},
    }
    assert (shape(**phi).limit, shape(**phi).original, shape().original) == (
        131_072,
        4096,
        None,
    )
    assert (
        find_model("Qwen/Qwen2.5-7B").limit
        == 4 * find_model("Qwen/Qwen2.5-7B-Instruct").limit
    )


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
)
@pytest.mark.parametrize("value", [None, "many", -1, 2.5, True, [1, 2]])
def test_a_field_that_is_missing_or_no_number_is_named(field, value):
    with pytest.raises(InputError, match=field):
        shape(**{field: value})


@pytest.mark.parametrize("name", ["LLAMA-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"])
def test_a_built_in_model_is_found_by_name_or_hub_id(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert find_model(name).parameters.total == 8_030_261_248


def test_a_folder_or_its_config_is_a_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert find_model(tmp_path).layers == 32
    assert find_model(str(tmp_path / "config.json")).hub_id == str(tmp_path)
    stated = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(stated))
    found = find_model(tmp_path).quantization
    assert (found.method, found.bits, found.kv_cache) == ("fp8", 8, "fp8_e4m3")


def test_the_hub_cache_is_used_without_a_network(tmp_path, monkeypatch):
    snapshot = tmp_path / "models--acme--rocket-8b" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "models--acme--rocket-8b" / "refs").mkdir()
    (tmp_path / "models--acme--rocket-8b" / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = find_model("acme/rocket-8b")
    assert (model.layers, model.hub_id) == (32, "acme/rocket-8b")


@pytest.mark.parametrize("name", ["/no/such/folder", "./nope", "nope.json", ""])
def test_a_path_that_is_not_there_or_damaged_is_an_input_error(
    name, tmp_path, monkeypatch
):
    """The empty name is not the config of this folder."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        find_model(name)
    for content in ("{", "[]", '"x"', "[" * 100_000):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(InputError, match=r"config\.json"):
            find_model(tmp_path)


@pytest.mark.parametrize(
    ("changed", "size"),
    [
        ({"layer_types": ["linear_attention"] * 16}, 12_345_678_900),  # not as counted
        ({"torch_dtype": "float32"}, 12_345_678_900 // 2),
        ({"num_nextn_predict_layers": 1}, 2 * 8_030_261_248),  # not all are loaded
    ],
)
def test_the_weights_weigh_what_the_index_of_their_files_says(tmp_path, changed, size):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changed}))
    index = {"metadata": {"total_size": 12_345_678_900}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert find_model(tmp_path).weight_bytes == size
