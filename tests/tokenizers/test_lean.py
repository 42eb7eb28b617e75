"""Merges that never happen are left out of what engines load, and nothing changes."""

import json
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.conformance import texts_for
from chunkscope.tokenizers.lean import lean_json, needed_pairs
from chunkscope.tokenizers.references import by_tokenizers, reference
from tests.tokenizers.helpers import bpe


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_texts_are_merged_as_by_all_pairs(data: st.DataObject) -> None:
    """Over vocabularies in which a token can be made in many ways, in any order."""
    known = ["a", "b", "c"]
    pairs: list[tuple[str, str]] = []
    for _ in range(data.draw(st.integers(1, 14))):
        pair = data.draw(st.tuples(st.sampled_from(known), st.sampled_from(known)))
        if pair not in pairs and len("".join(pair)) < 8:
            pairs.append(pair)
            known += {"".join(pair)} - set(known)
    whole, lean = (bpe(*map(" ".join, some)) for some in (pairs, needed_pairs(pairs)))
    texts = data.draw(st.lists(st.text("abc", max_size=20), min_size=5, max_size=20))
    assert [whole.encode(text).tokens for text in texts] == [
        lean.encode(text).tokens for text in texts
    ]


def test_a_token_that_its_own_characters_do_not_become_keeps_all_its_pairs() -> None:
    # "abc" becomes ab + c, and that is no pair.
    pairs = [("a", "b"), ("b", "c"), ("a", "bc"), ("b", "cd"), ("bc", "d")]
    assert ("a", "bc") in needed_pairs(pairs)


def test_a_published_vocabulary_is_halved_and_counts_the_same(
    compiled: Callable[[str], Compiled],
) -> None:
    llama = compiled("llama3.1")
    lean = lean_json(llama)
    assert len(json.loads(lean)["model"]["merges"]) * 2 < len(llama.document["model"]["merges"])
    texts = texts_for(llama)
    assert by_tokenizers(Tokenizer.from_str(lean)).ids(texts) == reference(llama).ids(texts)


def test_one_without_such_merges_stays_as_it_is(compiled: Callable[[str], Compiled]) -> None:
    gpt2 = compiled("gpt2")
    assert lean_json(gpt2) == gpt2.json_file.read_text(encoding="utf-8")


def test_a_damaged_one_is_made_again(compiled: Callable[[str], Compiled]) -> None:
    gpt2 = compiled("gpt2")
    lean_json(gpt2)
    (gpt2.folder / "lean.json").write_bytes(b"damaged")
    assert lean_json(gpt2) == gpt2.json_file.read_text(encoding="utf-8")
