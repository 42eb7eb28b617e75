"""Model and data belong together: lengths of another tokenizer than the model's are said to be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope import recommend
from chunkscope.commands.verify import _other_tokenizer
from chunkscope.lengths.profile import Profile, TokenizerInfo
from chunkscope.models import find_model
from chunkscope.planning.predict import SimulateOptions, predict
from chunkscope.planning.tokenizer_match import tokenizer_doubt
from chunkscope.vllm.check import config_of
from tests.commands.helpers import analyze, prompts, write_jsonl

TEKKEN = "Mistral tekken (tekken_240911.json)"


def info(name: str, *, kind: str = "hf", digest: str = "") -> TokenizerInfo:
    kind = "tekken" if name == TEKKEN else kind
    return TokenizerInfo(
        name=name, digest=digest, kind=kind, engine="", reference="", special_tokens_added=0
    )


@pytest.mark.parametrize(
    ("counted", "model"),
    [
        (TEKKEN, "llama-3.1-8b"),
        (TEKKEN, "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Llama-2-7b-hf", "llama-3.1-8b"),
        ("cl100k_base", "gpt-oss-20b"),
    ],
)
def test_another_tokenizer_is_said_with_both_names(counted: str, model: str) -> None:
    shape = find_model(model)
    said = tokenizer_doubt(info(counted), shape)
    assert said
    assert counted in said
    assert f"not with that of {shape.load_name}" in said
    assert f"--model {model}" in said


@pytest.mark.parametrize(
    ("counted", "model"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("qwen/qwen3-8b@main", "Qwen/Qwen3-8B"),
        pytest.param("Qwen/Qwen3-4B", "qwen3-8b", id="sizes of a family share one"),
        pytest.param("Qwen/Qwen3-30B-A3B", "qwen3-8b", id="experts too"),
        pytest.param("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B", id="base and instruct"),
        pytest.param("meta-llama/Meta-Llama-3-8B", "llama-3.2-1b", id="Llama 3 to 3.3"),
        pytest.param(TEKKEN, "mistral-nemo-12b", id="the embedded one is Mistral's"),
        pytest.param("tiktoken:o200k_harmony", "gpt-oss-120b", id="an encoding of tiktoken"),
        pytest.param("o200k_base", "gpt-oss-120b", id="which differs in special tokens"),
        pytest.param("gpt2", "openai-community/gpt2", id="two names on the hub"),
    ],
)
def test_models_that_share_a_tokenizer_raise_no_alarm(counted: str, model: str) -> None:
    assert tokenizer_doubt(info(counted), find_model(model)) is None


def test_lengths_that_came_with_the_data_have_no_tokenizer_to_doubt() -> None:
    none = info("none (the lengths came with the data)", kind="none")
    assert tokenizer_doubt(none, find_model("llama-3.1-8b")) is None


def test_what_cannot_be_told_is_said_as_such() -> None:
    said = tokenizer_doubt(info("somebody/unknown"), find_model("llama-3.1-8b"))
    assert said
    assert "not known here" in said
    assert "somebody/unknown" in said


def folder_with(place: Path, *, tokens: int, model: str | None = None) -> Path:
    place.mkdir()
    vocabulary = {f"t{n}": n for n in range(tokens)}
    tokenizer = {"model": {"vocab": vocabulary}, "added_tokens": []}
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    (place / "config.json").write_text(json.dumps(config_of(model)) if model else "{}")
    return place


def test_a_folder_is_known_by_its_files(tmp_path: Path) -> None:
    from chunkscope.tokenizers.tokenizer import Tokenizer

    here = folder_with(tmp_path / "here", tokens=50_257, model="gpt2")
    model = find_model(str(here))
    copied = Tokenizer(str(here)).digest
    assert tokenizer_doubt(info("/where/it/was", digest=copied), model) is None
    alike = folder_with(tmp_path / "alike", tokens=50_257)
    assert tokenizer_doubt(info(str(alike)), model) is None  # only config.json differs
    other = folder_with(tmp_path / "other", tokens=32_000)
    assert "not with that of" in str(tokenizer_doubt(info(str(other)), model))
    (alike / "tokenizer.json").write_text((alike / "tokenizer.json").read_text() + " ")
    assert "not known here" in str(tokenizer_doubt(info(str(alike)), model))


def test_a_folder_without_a_tokenizer_is_known_by_how_many_tokens_the_model_has(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama-3.1-8b")))
    said = tokenizer_doubt(info(TEKKEN), find_model(str(tmp_path)))
    assert said
    assert f"not with that of {tmp_path}" in said


def test_recommend_says_that_the_default_tokenizer_is_not_llamas(tmp_path: Path) -> None:
    """Counted with Mistral's, recommended for Llama: without a word before."""
    write_jsonl(tmp_path / "a.jsonl", prompts())
    run = analyze(tmp_path, "a.jsonl")
    assert run.code == 0, run.err
    profile = Profile.load(tmp_path / "reports" / "profile.json")
    plan = recommend(profile, model="llama-3.1-8b", gpu="h100")
    (said,) = (line for line in plan.warnings if "tokenizer" in line)
    assert TEKKEN in said
    assert "meta-llama/Llama-3.1-8B" in said
    own = replace(profile, tokenizer=info("meta-llama/Llama-3.1-8B-Instruct"))
    plan = recommend(own, model="llama-3.1-8b", gpu="h100")
    assert not [line for line in plan.warnings if "tokenizer" in line]


def test_analyze_takes_the_tokenizer_of_a_model(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    run = analyze(tmp_path, "a.jsonl", "--model", "qwen3-8b")
    assert run.code == 4
    assert "the tokenizer of Qwen/Qwen3-8B is not in the local cache" in run.err
    both = analyze(tmp_path, "a.jsonl", "--model", "qwen3-8b", "--tokenizer", "gpt2")
    assert both.code == 2
    assert "both name a tokenizer" in both.err


def test_a_models_folder_has_its_tokenizer(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", prompts())
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (shared / "tokenizers" / "llama3.1").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.json").write_text(json.dumps(config_of("llama-3.1-8b")))
    for name in ("model", "model/config.json"):
        run = analyze(tmp_path, "a.jsonl", "--model", name)
        assert run.code == 0, run.err
        assert run.profile["tokenizer"]["name"] == "model"
    profile = Profile.load(tmp_path / "reports" / "profile.json")
    for model in (str(folder), "llama-3.1-8b"):
        assert tokenizer_doubt(profile.tokenizer, find_model(model)) is None


def test_simulate_says_it_of_a_profile_that_is_not_the_plans(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    analyze(tmp_path, "a.jsonl")
    counted = Profile.load(tmp_path / "reports" / "profile.json")
    own = replace(counted, tokenizer=info("meta-llama/Llama-3.1-8B"))
    plan = recommend(own, model="llama-3.1-8b", gpu="h100")
    assert not [line for line in predict(plan, own, SimulateOptions()).warnings if TEKKEN in line]
    said = predict(plan, counted, SimulateOptions()).warnings
    assert [line for line in said if TEKKEN in line and "not with that of" in line]


def test_verify_says_it_of_a_model_that_is_not_the_plans(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    analyze(tmp_path, "a.jsonl")
    profile = Profile.load(tmp_path / "reports" / "profile.json")
    plan = recommend(profile, model="mistral-nemo-12b", gpu="h100")
    for model in (None, "mistral-nemo-12b", "whatever a server calls it"):
        assert not [*_other_tokenizer(plan, profile, model)]
    (said,) = _other_tokenizer(plan, profile, "Qwen/Qwen3-8B")
    assert "not with that of Qwen/Qwen3-8B" in said
