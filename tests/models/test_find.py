"""A model's name -> its shape, or a sentence that says what to pass."""

import json

import pytest

from chunkscope.errors import InputError, MissingError
from chunkscope.models import MODELS, find_model

LLAMA = dict(MODELS["llama-3.1-8b"].config)


def test_a_folder_or_its_config_is_a_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert find_model(tmp_path).layers == 32
    assert find_model(str(tmp_path / "config.json")).hub_id == str(tmp_path)


def test_older_modelopt_says_beside_the_config_how_weights_are_quantized(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    stated = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(stated))
    quantization = find_model(tmp_path).quantization
    assert (quantization.method, quantization.bits) == ("fp8", 8)
    assert quantization.kv_cache == "fp8_e4m3"


@pytest.mark.parametrize("name", ["/no/such/folder", "./nope", "nope.json", ""])
def test_a_path_that_is_not_there_is_an_input_error(name, tmp_path, monkeypatch):
    """The empty name is not the config of this folder."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        find_model(name)


@pytest.mark.parametrize("content", ["{", "[]", '"x"', "[" * 100_000])
def test_a_damaged_config_is_an_input_error(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"config\.json"):
        find_model(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", id="on the hub"),
        pytest.param("unsloth/Qwen3-8B-GGUF:Q4_K_M", id="with a file of it"),
        pytest.param("model.Q4_K_M.gguf", id="a file"),
        pytest.param("", id="a folder of files"),
    ],
)
def test_gguf_is_refused_with_what_to_pass_instead(name, tmp_path):
    (tmp_path / "model.Q4_K_M.gguf").touch()
    asked = name if "/" in name else tmp_path / name
    with pytest.raises(InputError, match="does not read GGUF files") as error:
        find_model(asked)
    assert error.value.hint.startswith("pass the hub id or the config.json of the ori")


def test_a_folder_with_a_config_may_hold_gguf_files_too(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model.gguf").touch()
    assert find_model(tmp_path).layers == 32


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("llama-3.1-8", "did you mean llama-3.1-8b"),
        ("my-qwen3-8b-tuned", "did you mean qwen3-8b"),
        ("zzz", "pass a folder with the model's config.json"),
    ],
)
def test_an_unknown_name_gets_the_nearest(name, near):
    with pytest.raises(MissingError, match=f"unknown model: {name}") as error:
        find_model(name)
    assert error.value.hint.startswith(near)
