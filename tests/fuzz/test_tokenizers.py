"""Tokenizer files from strangers: they count, or are refused in a sentence."""

import base64
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece

from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.fuzz.helpers import Explore, changed, damaged, fine
from tests.tokenizers.helpers import WORDS, document, save, splitting

SMALL = document(splitting(WORDS, "t h", "th e"))
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_max_length": 1000,
    "bos_token": "<s>",
    "chat_template": "{{ messages[0].content }}",
}
TEKKEN = {
    "config": {
        "pattern": WORDS,
        "num_vocab_tokens": 300,
        "default_vocab_size": 266,
        "default_num_special_tokens": 10,
        "version": "v3",
    },
    "vocab": [
        {"rank": n, "token_bytes": base64.b64encode(bytes([n])).decode(), "token_str": None}
        for n in range(256)
    ],
}


@cache
def pieces() -> bytes:
    """A model of sentencepiece, small and whole."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the one and the other", "an other one"] * 9),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def counts(place: Path) -> None:
    with fine():
        ids = Tokenizer(str(place)).encode(["the one é \0", ""], special_tokens=True)
        assert len(ids) == 2


def test_what_is_damaged_is_good_to_begin_with(tmp_path: Path) -> None:
    folder = save(splitting(WORDS), tmp_path / "folder", **CONFIG)
    (tmp_path / "tekken.json").write_text(json.dumps(TEKKEN))
    (tmp_path / "tokenizer.model").write_bytes(pieces())
    files = [tmp_path / "tekken.json", tmp_path / "tokenizer.model"]
    for place in [folder, folder / "tokenizer.json", *files]:
        assert Tokenizer(str(place)).encode(["a b"], special_tokens=False)


def odd(**changes: Any) -> Any:
    return {**SMALL, "model": {**SMALL["model"], **changes}}


def test_a_tokenizer_json(explore: Explore, tmp_path: Path) -> None:
    def check(content: Any) -> None:
        file = tmp_path / "tokenizer.json"
        file.write_bytes(json.dumps(content).encode())
        counts(file)

    past = [
        (odd(merges=[["x", "qq"]]),),  # a merge outside the vocabulary
        (odd(vocab=[["a", 1]]),),
        (odd(vocab={}),),
        (odd(vocab={**SMALL["model"]["vocab"], "a": 10**9}),),  # a list of so many is written
        ({**SMALL, "added_tokens": [5]},),
        (5,),
    ]
    explore(check, changed(SMALL), examples=60, past=past)


def test_a_tokenizer_config(explore: Explore, tmp_path: Path) -> None:
    save(splitting(WORDS), tmp_path)

    def check(config: Any) -> None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        counts(tmp_path)

    past = [
        ({**CONFIG, "model_max_length": "x"},),
        ({**CONFIG, "chat_template": "\ud800"},),
        ({**CONFIG, "bos_token": 5},),
    ]
    explore(check, changed(CONFIG), examples=40, past=past)


def test_a_tekken_file(explore: Explore, tmp_path: Path) -> None:
    def check(content: Any) -> None:
        file = tmp_path / "tekken.json"
        file.write_text(json.dumps(content))
        counts(file)

    explore(check, changed(TEKKEN), examples=40)


def test_a_sentencepiece_model(explore: Explore, tmp_path: Path) -> None:
    def check(data: bytes) -> None:
        file = tmp_path / "tokenizer.model"
        file.write_bytes(data)
        counts(file)

    explore(check, damaged(pieces()), examples=60, past=[(b"",), (pieces()[:99],)])
