"""Which splitting patterns keep a word and the space after it apart, in every text."""

import pytest

from chunkscope.tokenizers.patterns import never_joins_words, parts_words

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|"
    r"\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(GPT2, id="GPT-2"),
        pytest.param(LLAMA3, id="Llama 3"),
        pytest.param(CL100K, id="cl100k, with an end of text after white space"),
        pytest.param(O200K, id="o200k"),
        pytest.param(r"\s+", id="white space alone"),
        pytest.param(r"[^\W\d_]+|\s", id="a class that leaves letters by two negations"),
    ],
)
def test_patterns_of_real_models_part_words(pattern: str) -> None:
    assert never_joins_words(pattern)
    assert parts_words(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"New York|\p{L}+|\s+", id="one name with a space in it"),
        pytest.param(r"\p{L}+(?: \p{L}+)*|\s+", id="several words in a piece, as in SuperBPE"),
        pytest.param(r"\p{L}+\s?|\s", id="a word takes the space after it"),
        pytest.param(r"(?:\p{L}| )+|\n", id="letters and spaces in any order"),
        pytest.param(r"[^\n]+|\n", id="whole lines"),
        pytest.param(r".+", id="anything"),
        pytest.param("(?i:\u017f) |\\p{L}", id="a letter only when case is ignored"),
        pytest.param(r"\p{L}+(?= )|\p{L}|\s", id="looks at the space ahead"),
        pytest.param(r"\p{L}+(?!\s)|\p{L}|\s", id="refuses the space ahead"),
        pytest.param(r"(?<=\p{L}) |\p{L}|\s", id="looks back"),
        pytest.param(r"\p{L}+$|\p{L}|\s", id="a word at the end of the text"),
        pytest.param(r"\b\p{L}+|\s", id="a word boundary"),
        pytest.param(r"^\p{L}+|\s", id="the start of a line"),
        pytest.param(r"(\p{L})\1|\s", id="a reference back"),
        pytest.param(r"[\p{L}&&[^a]]+|\s", id="classes within a class"),
        pytest.param(r"\X", id="a grapheme"),
        pytest.param(r"\h+|\s", id="an escape that engines read differently"),
        pytest.param(r"\p{L}*", id="may take nothing"),
        pytest.param(r"(\p{L}", id="does not end"),
        pytest.param("", id="is empty"),
    ],
)
def test_what_could_join_words_or_is_not_understood_is_refused(pattern: str) -> None:
    assert not never_joins_words(pattern)


@pytest.mark.parametrize("pattern", [r"\p{N}{1,3}", r"[\u4e00-\u9fff]+", r"[a-y]+|\n"])
def test_a_pattern_may_keep_words_together_by_leaving_them_alone(pattern: str) -> None:
    assert not parts_words(pattern)
