"""Model and data belong together: lengths of another tokenizer than the model's are
said to be."""

import json
from dataclasses import replace

import pytest

from chunkscope import Profile
from chunkscope.models import MODELS, find_model
from chunkscope.planning.predict import SimulateOptions, predict
from chunkscope.planning.recommend import recommend, tokenizer_note
from chunkscope.report.notes import sentence
from chunkscope.tokenizers.resolve import TokenizerInfo
from tests.build import SHORT, profile

COMMAND = ("chunkscope", "analyze", "x y", "-t", "a b", "--model=c", "-q")
TEKKEN = "Mistral tekken (tekken_240911.json)"


def counted_with(name: str, *, kind: str = "hf", digest: str = "") -> Profile:
    kind = "tekken" if name == TEKKEN else kind
    tokenizer = TokenizerInfo(
        name=name,
        digest=digest,
        kind=kind,
        engine="",
        reference="",
        special_tokens_added=0,
    )
    return replace(profile(data=SHORT), tokenizer=tokenizer, command=COMMAND)


@pytest.mark.parametrize(
    ("counted", "model"),
    [
        (TEKKEN, "llama-3.1-8b"),
        ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B"),
        ("cl100k_base", "gpt-oss-20b"),
    ],
)
def test_another_tokenizer_is_said_with_both_names(counted: str, model: str) -> None:
    shape = find_model(model)
    note = tokenizer_note(counted_with(counted), shape)
    assert note.code == "other_tokenizer"
    again = f"chunkscope analyze 'x y' -q --model {model}"  # can be pasted
    exact = f"For exact lengths: {again}"
    assert sentence(note) == f"Counted with {counted}. {exact}"


@pytest.mark.parametrize(
    ("counted", "model"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("qwen/qwen3-8b@main", "Qwen/Qwen3-8B"),
        pytest.param("Qwen/Qwen3-4B", "qwen3-8b", id="sizes of a family share one"),
        pytest.param(
            "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B", id="base and instruct"
        ),
        pytest.param("meta-llama/Meta-Llama-3-8B", "llama-3.2-1b", id="Llama 3 to 3.3"),
        pytest.param(TEKKEN, "mistral-nemo-12b", id="the embedded one is Mistral's"),
        pytest.param(
            "tiktoken:o200k_harmony", "gpt-oss-120b", id="an encoding of tiktoken"
        ),
        pytest.param(
            "o200k_base", "gpt-oss-120b", id="which differs in special tokens"
        ),
    ],
)
def test_models_that_share_a_tokenizer_raise_no_alarm(counted: str, model: str) -> None:
    assert tokenizer_note(counted_with(counted), find_model(model)) is None
    assert (
        tokenizer_note(counted_with("no tokenizer", kind="none"), find_model(model))
        is None
    )


def test_a_folder_is_known_by_its_files_and_what_cannot_be_told_is_said_as_such(
    tmp_path,
) -> None:
    from chunkscope.tokenizers.tokenizer import Tokenizer

    unknown = counted_with("somebody/unknown")
    assert tokenizer_note(unknown, find_model("llama-3.1-8b")) is not None
    (tmp_path / "config.json").write_text(json.dumps(MODELS["gpt2"].config))
    model = find_model(str(tmp_path))
    assert tokenizer_note(unknown, model) is not None
    tokenizer = {
        "model": {"vocab": {f"t{n}": n for n in range(99)}},
        "added_tokens": [],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    digest = Tokenizer(str(tmp_path)).digest
    assert tokenizer_note(counted_with("/where/it/was", digest=digest), model) is None
    assert (
        tokenizer_note(counted_with("/where/it/was", digest="other"), model) is not None
    )


def test_recommend_and_simulate_say_it_of_a_profile_that_is_not_the_models() -> None:
    counted, matching = map(counted_with, (TEKKEN, "meta-llama/Llama-3.1-8B"))
    how = {"model": "llama-3.1-8b", "gpu": "h100", "max_output": 8}
    assert "other_tokenizer" in {note.code for note in recommend(counted, **how).notes}
    plan = recommend(matching, **how)
    assert "other_tokenizer" not in {note.code for note in plan.notes}
    codes = {note.code for note in predict(plan, counted, SimulateOptions()).notes}
    assert {"other_profile", "other_tokenizer"} <= codes
