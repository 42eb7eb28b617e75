"""Vocabularies as ranks: only where merging by rank is merging by the listed pairs."""

import json
from pathlib import Path
from typing import Any

import pytest
import splintr
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import NFC, NFKC
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Whitespace

from chunkscope.tokenizers.byte_level import byte_level, ranks, write_ranks
from tests.tokenizers.helpers import WORDS, bpe, document, length, splitting


def found_ranks(tokenizer: Tokenizer, **model: Any) -> dict[bytes, int] | None:
    about = document(tokenizer)
    about["model"].update(model)
    found = ranks(about, tokenizer.model)
    return dict(found) if found is not None else None


def by_ranks(tokenizer: Tokenizer, text: str) -> int:
    found = ranks(document(tokenizer), tokenizer.model)
    assert found is not None
    return len(splintr.Tokenizer.from_bytes(write_ranks(found), WORDS, {}).encode(text))


def test_tokens_are_written_as_the_bytes_they_stand_for() -> None:
    found = found_ranks(splitting(WORDS, "Ġ t", "Ã ©"))
    assert found is not None
    assert {b" t", "é".encode(), b"\x00", b"\xff"} <= found.keys()
    assert len(found) == 258


def test_a_token_that_no_merge_leads_to_is_left_out() -> None:
    about = document(splitting(WORDS, "a b"))
    about["model"]["vocab"]["bc"] = 999
    tokenizer = Tokenizer.from_str(json.dumps(about))
    assert length(tokenizer, "bc") == 2 == by_ranks(tokenizer, "bc")


def test_a_token_whose_own_bytes_merge_otherwise_is_left_out() -> None:
    # "abc" is listed as a + bc, but its bytes become ab + c before that can happen.
    tokenizer = splitting(WORDS, "a b", "b c", "a bc")
    assert length(tokenizer, "abc") == 2 == by_ranks(tokenizer, "abc")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_ranks_merge_as_the_listed_pairs_do(data: st.DataObject) -> None:
    """Over vocabularies of any shape: chains, overlaps, pairs that are never used."""
    known = ["a", "b", "c", "Ġ"]
    merges: list[str] = []
    for _ in range(data.draw(st.integers(1, 9))):
        pair = data.draw(st.tuples(st.sampled_from(known), st.sampled_from(known)))
        if "".join(pair) not in known:
            merges.append(" ".join(pair))
            known.append("".join(pair))
    tokenizer = splitting(WORDS, *merges)
    for text in data.draw(st.lists(st.text("abc ", max_size=14), min_size=4, max_size=4)):
        assert by_ranks(tokenizer, text) == length(tokenizer, text)


@pytest.mark.parametrize(
    ("tokenizer", "model"),
    [
        pytest.param(splitting(WORDS, "a b", "c d"), {"merges": ["c d", "a b"]}, id="other order"),
        pytest.param(
            splitting(WORDS, "a b", "b c", "ab c"),
            {"ignore_merges": True},
            id="pairs not all named",
        ),
    ],
)
def test_vocabularies_that_ranks_would_merge_differently_have_none(
    tokenizer: Tokenizer, model: dict[str, Any]
) -> None:
    assert found_ranks(tokenizer) is not None
    assert found_ranks(tokenizer, **model) is None


def test_a_vocabulary_without_all_bytes_has_none() -> None:
    about = document(splitting(WORDS, "a b"))
    del about["model"]["vocab"]["Ø"]
    assert ranks(about, bpe("a b").model) is None


def with_parts(**parts: Any) -> dict[str, Any]:
    tokenizer = bpe("a b")
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    for name, value in parts.items():
        setattr(tokenizer, name, value)
    return document(tokenizer)


def with_token(content: str, **how: bool) -> dict[str, Any]:
    tokenizer = bpe("a b")
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.add_tokens([AddedToken(content, **{"normalized": False, **how})])
    return document(tokenizer)


def test_the_parts_beside_the_vocabulary_are_found() -> None:
    found = byte_level(with_parts(normalizer=NFC()))
    assert found is not None
    assert found.nfc
    assert found.pattern.startswith("'s|'t")
    assert byte_level(with_token("<|end|>")).added == {"<|end|>": 257}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "about",
    [
        pytest.param(with_parts(normalizer=NFKC()), id="another normalizer"),
        pytest.param(with_parts(pre_tokenizer=Metaspace()), id="Metaspace"),
        pytest.param(with_parts(pre_tokenizer=Whitespace()), id="not byte-level"),
        pytest.param(
            with_parts(pre_tokenizer=ByteLevel(add_prefix_space=True)), id="a space put in front"
        ),
        pytest.param(document(bpe("a b")), id="no pattern"),
        pytest.param(document(bpe("a b", dropout=0.1)), id="dropout"),
        pytest.param(document(bpe("a b", end_of_word_suffix="</w>")), id="a suffix at word ends"),
        pytest.param(with_token("<mask>", lstrip=True), id="a token takes the space before it"),
        pytest.param(with_token("<end>", rstrip=True), id="a token takes the space after it"),
        pytest.param(with_token("<end>", single_word=True), id="a token that must stand alone"),
        pytest.param(with_token("<end>", normalized=True), id="a token of normalized text"),
        pytest.param(with_token("  "), id="a token of spaces"),
        pytest.param(with_token("word"), id="a token that is a word"),
    ],
)
def test_tokenizers_of_another_kind_are_not_written_as_ranks(about: dict[str, Any]) -> None:
    assert byte_level(about) is None


@pytest.mark.parametrize("name", ["qwen3", "mistral-nemo"])
def test_vocabularies_of_real_models_can_be_written_as_ranks(shared: Path, name: str) -> None:
    tokenizer = Tokenizer.from_file(str(shared / "tokenizers" / name / "tokenizer.json"))
    about = document(tokenizer)
    found = ranks(about, tokenizer.model)
    assert found is not None
    added = {token["content"] for token in about["added_tokens"]}
    assert len(found) == len(about["model"]["vocab"].keys() - added)
