"""Tokenizer files that are not what they should be: a sentence and exit 3, never a traceback."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.helpers import Run, analyze, write_jsonl
from tests.tokenizers.helpers import WORDS, document, save, splitting

CATASTROPHIC = r"(a+)+$|(x+x+)+y|[^a]+"
CHAT = [{"messages": [{"role": "user", "content": "hi"}]}]


def refused(run: Run) -> str:
    assert run.code == 3, (run.out, run.err)
    assert "Traceback" not in run.err
    assert "error: " in run.err
    return run.err


def with_tokenizer(place: Path, tokenizer: Path, text: str = "the one") -> Run:
    write_jsonl(place / "a.jsonl", [{"prompt": text}])
    return analyze(place, "a.jsonl", "--tokenizer", tokenizer)


def no_such_special(tokenizer: dict[str, Any]) -> None:
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda d: d["model"]["merges"].append(["x", "qq"]), id="an odd merge"),
        pytest.param(lambda d: d["model"].update(vocab=[["a", 1]]), id="a vocabulary of pairs"),
        pytest.param(lambda d: d.update(added_tokens=[5]), id="a number as added token"),
        pytest.param(no_such_special, id="a panic in the library"),
    ],
)
def test_a_tokenizer_folder_that_cannot_be_used(
    tmp_path: Path, damage: Callable[[dict[str, Any]], None]
) -> None:
    folder = save(splitting(WORDS), tmp_path / "t", tokenizer_class="PreTrainedTokenizerFast")
    content = document(splitting(WORDS))
    damage(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    refused(with_tokenizer(tmp_path, folder))


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"model_max_length": "x"}, id="a wrong type"),
        pytest.param({"chat_template": "\ud800{{ messages }}"}, id="a lone surrogate"),
        pytest.param({"bos_token": 5}, id="a number as token"),
    ],
)
def test_a_tokenizer_config_that_cannot_be_used(tmp_path: Path, config: dict[str, Any]) -> None:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    refused(with_tokenizer(tmp_path, save(splitting(WORDS), tmp_path / "t", **config)))


@pytest.mark.parametrize(
    ("vocabulary", "pattern"),
    [
        pytest.param(256, "((", id="no pattern"),
        pytest.param(10, ".", id="not all bytes"),
        pytest.param(0, ".", id="no vocabulary"),
        pytest.param(256, None, id="null as pattern"),
    ],
)
def test_a_tekken_file_that_cannot_be_used(
    tmp_path: Path, vocabulary: int, pattern: str | None
) -> None:
    config = {"pattern": pattern, "default_vocab_size": 300, "default_num_special_tokens": 10}
    entries = [
        {"rank": n, "token_bytes": base64.b64encode(bytes([n])).decode()} for n in range(vocabulary)
    ]
    file = tmp_path / "tekken.json"
    file.write_text(json.dumps({"config": config, "vocab": entries}))
    refused(with_tokenizer(tmp_path, file))


def test_a_pattern_that_never_ends_is_a_sentence(tmp_path: Path) -> None:
    """The library panics, which is no Exception: Python would end with the gate's 1."""
    file = tmp_path / "t.json"
    splitting(CATASTROPHIC).save(str(file))
    said = refused(with_tokenizer(tmp_path, file, "x" * 60 + "!" + "a" * 60 + "b"))
    assert "cannot be used: " in said


def test_a_template_that_writes_a_lone_surrogate_refuses_the_row(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(r'{{ "\ud800" }}{{ messages[0].content }}')
    write_jsonl(tmp_path / "a.jsonl", CHAT)
    said = refused(analyze(tmp_path, "a.jsonl", "--chat-template", "t.jinja"))
    assert "the chat template refused it" in said
