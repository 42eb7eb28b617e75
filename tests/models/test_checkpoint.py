"""What a checkpoint's headers say: exact weights of each kind."""

import json
from types import SimpleNamespace

import pytest

from chunkscope.models import MODELS, find_model
from chunkscope.models.checkpoint import Tensor, read_folder
from tests.models.headers import write_header, write_index

# As Llama's, but small.
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1_000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
EMBEDDING = {"model.embed_tokens.weight": ("BF16", (1_000, 64))}
HEAD = {"lm_head.weight": ("BF16", (1_000, 64))}
MLP = {"model.layers.0.mlp.up_proj.weight": ("BF16", (128, 64))}
FP8 = {"quantization_config": {"quant_method": "fp8"}}
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}


def checkpoint(tmp_path, tensors, **changed):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changed}))
    write_header(tmp_path / "model.safetensors", tensors)
    return find_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("transformer.wte.weight", "embedding"),
        ("backbone.embeddings.weight", "embedding"),
        ("model.language_model.embed_tokens_per_layer.weight", "by_layer"),
        ("lm_head.weight", "head"),
        ("output.weight", "head"),
        ("model.layers.3.self_attn.q_proj.weight", "attention"),
        ("model.layers.3.linear_attn.in_proj_qkvz.weight", "attention"),
        ("backbone.layers.3.mixer.in_proj.weight", "attention"),
        ("model.layers.3.self_attn.o_proj.bias", "attention"),
        ("model.layers.3.self_attn.q_norm.weight", "other"),
        ("model.layers.3.input_layernorm.weight", "other"),
        ("model.layers.3.mlp.gate.weight", "other"),
        ("model.layers.3.mlp.gate_proj.weight", "mlp"),
        ("h.3.mlp.c_fc.weight", "mlp"),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", "mlp"),
        ("model.layers.3.feed_forward.shared_expert.up_proj.weight", "mlp"),
        ("backbone.layers.3.mixer.down_proj.weight", "mlp"),
        ("model.layers.3.mlp.experts.17.up_proj.weight", "experts"),
        ("model.layers.3.mlp.experts.gate_up_proj_blocks", "experts"),
        ("model.layers.3.block_sparse_moe.experts.1.w1.weight", "experts"),
        ("model.layers.3.block_sparse_moe.input_linear.weight", "experts"),
        ("visual.blocks.3.mlp.up_proj.weight", "vision"),
        ("model.vision_tower.encoder.layers.3.self_attn.q_proj.weight", "vision"),
        ("audio_tower.layers.3.fc1.weight", "vision"),
        ("multi_modal_projector.linear_1.weight", "vision"),
        ("model.embed_vision.embedding_projection.weight", "vision"),
    ],
)
def test_a_tensors_name_says_its_kind(name, kind):
    assert Tensor(name=name, dtype="BF16", shape=(1,), stored_bytes=2).kind == kind


def test_weights_of_all_kinds_add_up_to_the_bytes_that_are_stored(tmp_path):
    experts = {"model.layers.1.mlp.experts.0.up_proj.weight": ("BF16", (32, 64))}
    model = checkpoint(
        tmp_path,
        EMBEDDING | HEAD | MLP | experts,
        num_experts=4,
        moe_intermediate_size=32,
    )
    p = model.parameters
    assert (p.embedding, p.head, p.mlp, p.experts) == (64_000, 64_000, 8_192, 2_048)
    assert model.weight_bytes == 2 * (64_000 + 64_000 + 8_192 + 2_048)
    assert model.bytes_of("experts") == 2 * 2_048
    assert "weights_by_formula" not in {note.code for note in model.notes}


def test_32_bit_weights_are_cast_down(tmp_path):
    model = checkpoint(tmp_path, {"model.embed_tokens.weight": ("F32", (1_000, 64))})
    assert model.weight_bytes == 2 * 64_000


def test_8_bit_weights_keep_the_32_bits_of_their_scales(tmp_path):
    weight = "model.layers.0.mlp.up_proj.weight"
    tensors = {weight: ("F8_E4M3", (128, 64)), f"{weight}_scale_inv": ("F32", (1, 1))}
    model = checkpoint(tmp_path, tensors, **FP8)
    assert (model.parameters.mlp, model.weight_bytes) == (8_192, 8_192 + 4)


def test_packed_weights_are_counted_by_their_bits(tmp_path):
    layer = "model.layers.0.mlp.up_proj"
    tensors = {
        f"{layer}.qweight": ("I32", (64, 128 // 8)),
        f"{layer}.qzeros": ("I32", (2, 128 // 8)),
        f"{layer}.scales": ("BF16", (2, 128)),
    }
    model = checkpoint(tmp_path, tensors, **AWQ)
    assert model.parameters.mlp == 64 * 128
    assert model.weight_bytes == 64 * 128 // 2 + 2 * 128 // 2 + 2 * 128 * 2


@pytest.mark.parametrize(
    ("attention", "kinds"),
    [
        pytest.param("BF16", ("mlp",), id="attention is left out"),
        pytest.param("F8_E4M3", ("attention", "mlp"), id="both"),
    ],
)
def test_quantized_is_what_is_stored_so(tmp_path, attention, kinds):
    """Whatever names, wildcards or expressions the config leaves out."""
    tensors = {
        "model.layers.0.mlp.up_proj.weight": ("F8_E4M3", (128, 64)),
        "model.layers.0.self_attn.q_proj.weight": (attention, (64, 64)),
    }
    assert checkpoint(tmp_path, tensors, **FP8).quantization.kinds == kinds


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("model.layers.2.mlp.up_proj.weight", id="a layer after the last"),
        pytest.param("mtp.layers.0.mlp.up_proj.weight", id="named so"),
        pytest.param("model.mtp_layers.0.mlp.up_proj.weight", id="MiMo"),
        pytest.param("talker.model.embed_tokens.weight", id="a voice"),
    ],
)
def test_what_vllm_does_not_load_does_not_count(tmp_path, name):
    model = checkpoint(tmp_path, EMBEDDING | {name: ("BF16", (128, 64))})
    assert model.weight_bytes == 2 * 64_000


def test_a_head_that_is_the_embedding_counts_once(tmp_path):
    model = checkpoint(tmp_path, EMBEDDING | HEAD, tie_word_embeddings=True)
    assert (model.weight_bytes, model.parameters.head) == (2 * 64_000, 0)


def test_a_tower_may_have_more_layers_than_the_language_model(tmp_path):
    tower = {"vision_tower.layers.26.mlp.fc1.weight": ("BF16", (128, 64))}
    assert checkpoint(tmp_path, EMBEDDING | tower).parameters.vision == 128 * 64


def test_norms_of_queries_are_seen_in_the_checkpoint(tmp_path):
    norm = {"model.layers.0.self_attn.q_norm.weight": ("BF16", (16,))}
    assert checkpoint(tmp_path, EMBEDDING | norm).attention.normed
    assert not checkpoint(tmp_path, EMBEDDING).attention.normed


def test_the_index_says_which_files_count(tmp_path):
    """Mistral's repositories have the same weights once more, in another layout."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    files = {"model-1.safetensors": EMBEDDING, "model-2.safetensors": HEAD}
    write_index(tmp_path, files)
    write_header(tmp_path / "consolidated.safetensors", EMBEDDING | HEAD)
    assert find_model(tmp_path).weight_bytes == 2 * 2 * 64_000


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff" * 8, id="a length that cannot be"),
        pytest.param(b"\x05" + b"\0" * 7 + b"{", id="torn"),
        pytest.param(b"\x02" + b"\0" * 7 + b"[]", id="no object"),
        pytest.param(b"\x0c" + b"\0" * 7 + b'{"a": {}}   ', id="no tensor"),
    ],
)
def test_without_a_whole_header_weights_are_computed_and_a_note_says_so(
    tmp_path, content
):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(content)
    model = find_model(tmp_path)
    assert read_folder(tmp_path) is None
    assert model.file_bytes is None
    assert "weights_by_formula" in {note.code for note in model.notes}


def test_a_shard_that_is_missing_leaves_the_formula(tmp_path):
    write_index(tmp_path, {"a.safetensors": EMBEDDING, "b.safetensors": HEAD})
    (tmp_path / "b.safetensors").unlink()
    assert read_folder(tmp_path) is None


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub's cache that has the config.json of acme/rocket-8b alone."""
    repository = tmp_path / "models--acme--rocket-8b"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    config = MODELS["llama-3.1-8b"].config
    (snapshot / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return snapshot


@pytest.mark.usefixtures("hub")
def test_the_hub_is_asked_for_headers_alone(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    tensor = SimpleNamespace(dtype="BF16", shape=[9, 4], data_offsets=(100, 172))
    file = SimpleNamespace(tensors={"lm_head.weight": tensor})
    metadata = SimpleNamespace(files_metadata={"model.safetensors": file})
    asked = {"acme/rocket-8b": metadata}
    monkeypatch.setattr("huggingface_hub.get_safetensors_metadata", asked.__getitem__)
    model = find_model("acme/rocket-8b")
    assert (model.parameters.total, model.weight_bytes) == (36, 72)


def test_weights_in_the_hubs_cache_are_read_there(hub):
    write_header(hub / "model.safetensors", EMBEDDING)
    assert find_model("acme/rocket-8b").weight_bytes == 2 * 64_000


@pytest.mark.usefixtures("hub")
def test_without_a_network_the_hubs_config_gets_the_formula(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    model = find_model("acme/rocket-8b")
    assert (model.layers, model.hub_id, model.file_bytes) == (
        32,
        "acme/rocket-8b",
        None,
    )
    assert model.parameters.total == pytest.approx(8_030_261_248, rel=1e-3)


def test_4_bit_experts_are_padded_when_they_are_loaded(tmp_path):
    """gpt-oss: 2,880 wide, 3,072 in memory."""
    blocks = {"model.layers.0.mlp.experts.gate_up_proj_blocks": ("U8", (2_880, 1_440))}
    model = checkpoint(
        tmp_path,
        blocks,
        model_type="gpt_oss",
        hidden_size=2_880,
        num_local_experts=4,
        quantization_config={"quant_method": "mxfp4"},
    )
    stored = 2_880 * 1_440
    assert model.parameters.experts == 2 * stored
    assert model.weight_bytes == round(stored * 3_072 / 2_880)
