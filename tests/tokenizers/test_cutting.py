"""Cutting texts and sharing beginnings never changes a count."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE, Unigram
from tokenizers.normalizers import NFC, BertNormalizer, Prepend, Replace
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Sequence, Split

from chunkscope.tokenizers import cutting, shared_prefixes
from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.counting import Counting
from chunkscope.tokenizers.cutting import cuts_agree, last_cut, may_cut_json
from chunkscope.tokenizers.engines import CountingEngine
from chunkscope.tokenizers.references import reference
from chunkscope.tokenizers.shared_prefixes import SharedPrefixes
from tests.tokenizers.helpers import BYTES, WORDS, bpe, document, length, splitting

REAL = ["gpt2", "llama3.1", "qwen3", "default", "bert-minilm"]
quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# Words and what may stand around them; white space and marks next to cuts are the hard cases.
PIECES = [
    *("the", "a", "Answer", "don't", "x1", "naïve", "Straße", "東京", "e\u0301", "İ", "ﬁ", "🙂"),
    *(" ", "  ", "\n", "\n\n", " \n", "\t", "\r\n", "\u00a0", "\u2028", "\u0301", "\u200b"),
    *(".", ",", "'s", "123456", "--", "$", "<|endoftext|>", "<s>", "[SEP]"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def places(text: str) -> list[int]:
    return [match.start() for match in cutting._CUT.finditer(text)]


@pytest.mark.parametrize("name", REAL)
@quick
@given(text=texts, data=st.data())
def test_a_text_may_be_cut_at_any_allowed_place(
    compiled: Callable[[str], Compiled], name: str, text: str, data: st.DataObject
) -> None:
    assert compiled(name).may_cut
    if not (allowed := places(text)):
        return
    place = data.draw(st.sampled_from(allowed))
    whole, left, right = reference(compiled(name)).count([text, text[:place], text[place:]])
    assert left + right == whole


@pytest.mark.parametrize(
    ("text", "low", "high", "cut"),
    [
        pytest.param("one two three", 1, 8, 7, id="the last one"),
        pytest.param("one two three", 1, 6, 3, id="within the limit"),
        pytest.param("one two", 4, 6, -1, id="none after the lower limit"),
        pytest.param("one\ntwo", 1, 6, 3, id="before a newline"),
        pytest.param("one\t2 3 !", 1, 10, -1, id="not after a digit, not before a tab"),
        pytest.param("naï été é x", 1, 9, -1, id="not after a letter beyond ASCII"),
        pytest.param("one ", 1, 99, 3, id="before the last character"),
        pytest.param(" one", 0, 3, -1, id="not at the very beginning"),
        pytest.param("", 0, 0, -1, id="not in nothing"),
    ],
)
def test_the_last_allowed_cut_is_found(text: str, low: int, high: int, cut: int) -> None:
    assert last_cut(text, low, high) == cut


# --- which tokenizers may be cut ------------------------------------------------------------


def with_token(token: AddedToken) -> Tokenizer:
    tokenizer = splitting(WORDS)
    tokenizer.add_tokens([token])
    return tokenizer


def prefix_space() -> Tokenizer:
    tokenizer = bpe("Ġ b")
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True)
    return tokenizer


def sentencepiece_bpe(*, prepend: bool) -> Tokenizer:
    """As Llama 2 (prepended) and Gemma (not) were exported."""
    vocabulary = {piece: i for i, piece in enumerate(["a", "b", "▁", "a▁", "a▁b", "▁b"])}
    merges = [("▁", "b")] if prepend else [("a", "▁"), ("a▁", "b")]
    tokenizer = Tokenizer(BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True))
    steps = [Prepend("▁")] if prepend else []
    tokenizer.normalizer = Normalizers([*steps, Replace(" ", "▁")])
    return tokenizer


def metaspace_bpe() -> Tokenizer:
    tokenizer = Tokenizer(BPE({"a": 0, "b": 1, "▁": 2, "a▁": 3}, [("a", "▁")]))
    tokenizer.pre_tokenizer = Metaspace(prepend_scheme="never", split=False)
    return tokenizer


def unigram() -> Tokenizer:
    pieces = [("<unk>", 0.0), ("a", -5.0), ("b", -5.0), ("▁", -5.0), ("a▁b", -1.0)]
    tokenizer = Tokenizer(Unigram(pieces, 0))
    tokenizer.pre_tokenizer = Metaspace(prepend_scheme="never", split=False)
    return tokenizer


BREAKING: list[Any] = [
    pytest.param(splitting(r"\p{L}+(?: \p{L}+)*|\s+", "a Ġ", "aĠ b"), id="SuperBPE"),
    pytest.param(splitting("a b|" + WORDS, "a Ġ", "aĠ b"), id="one pair of words is a piece"),
    pytest.param(splitting(r"\p{L}+(?= )|\p{L}|\s", "a Ġ", "x a"), id="looks ahead"),
    pytest.param(splitting(r"xa$|\p{L}|\s", "x a"), id="asks for the end"),
    pytest.param(splitting(" ", "a Ġ", behavior="merged_with_previous"), id="merged with previous"),
    pytest.param(splitting(r"\p{N}", "a Ġ"), id="nothing parts the words"),
    pytest.param(bpe("a Ġ"), id="no pattern at all"),
    pytest.param(prefix_space(), id="a space is put in front"),
    pytest.param(metaspace_bpe(), id="Metaspace"),
    pytest.param(sentencepiece_bpe(prepend=True), id="SentencePiece BPE with a prefix (Llama 2)"),
    pytest.param(sentencepiece_bpe(prepend=False), id="SentencePiece BPE (Gemma)"),
    pytest.param(unigram(), id="Unigram"),
    pytest.param(with_token(AddedToken("a b")), id="an added token of two words"),
    pytest.param(with_token(AddedToken("a", rstrip=True)), id="a token takes the space after it"),
]


@pytest.mark.parametrize("tokenizer", BREAKING)
def test_tokenizers_that_cuts_would_break_are_refused(tokenizer: Tokenizer) -> None:
    broken = [
        text
        for text in ("a b", "xa b", "xa bb ab", "a  b", "a\nb")
        for place in places(text)
        if length(tokenizer, text)
        != length(tokenizer, text[:place]) + length(tokenizer, text[place:])
    ]
    assert broken, "the example shows nothing"
    assert not may_cut_json(document(tokenizer))


def nested() -> Tokenizer:
    """As DeepSeek splits: numbers first, which leaves words alone, then all the rest."""
    tokenizer = bpe("a Ġ")
    split = [Split(Regex(pattern), "isolated") for pattern in (r"\p{N}{1,3}", WORDS)]
    tokenizer.pre_tokenizer = Sequence([*split, BYTES])
    return tokenizer


def normalizing(normalizer: Any) -> Tokenizer:
    tokenizer = splitting(WORDS, "Ġ b")
    tokenizer.normalizer = normalizer
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [
        pytest.param(nested(), id="splits in steps"),
        pytest.param(splitting(r"\s+", "Ġ b", behavior="removed"), id="white space removed"),
        pytest.param(normalizing(NFC()), id="NFC"),
        pytest.param(normalizing(BertNormalizer()), id="BERT's normalizer"),
        pytest.param(with_token(AddedToken("<mask>", lstrip=True)), id="takes the space before"),
        pytest.param(with_token(AddedToken("</s>", rstrip=True)), id="takes space after a bracket"),
        pytest.param(with_token(AddedToken("  ")), id="a token of spaces"),
    ],
)
@quick
@given(text=st.lists(st.sampled_from([*PIECES, "<mask>", "</s>"]), max_size=12).map("".join))
def test_what_may_be_cut_can_be(tokenizer: Tokenizer, text: str) -> None:
    assert may_cut_json(document(tokenizer))
    for place in places(text):
        both = length(tokenizer, text[:place]) + length(tokenizer, text[place:])
        assert both == length(tokenizer, text)


def test_a_token_that_the_normalizer_makes_span_words_is_refused() -> None:
    tokenizer = normalizing(BertNormalizer())
    tokenizer.add_tokens([AddedToken("a\x00 b", normalized=True)])
    assert length(tokenizer, "a b") == 1 < length(tokenizer, "a") + length(tokenizer, " b")
    assert not may_cut_json(document(tokenizer))


def test_the_trial_sees_what_the_structure_would_not_tell(
    compiled: Callable[[str], Compiled],
) -> None:
    engine = reference(compiled("gpt2"))
    assert cuts_agree(engine, ["one two three", "four five"])
    lying = CountingEngine(engine.name, lambda texts: [len(t) // 4 for t in texts], engine.ids)
    assert not cuts_agree(lying, ["one two three", "four five"])


# --- shared beginnings ----------------------------------------------------------------------


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few words already make a shared beginning, and a sentence is a long row."""
    monkeypatch.setattr(shared_prefixes, "_KEY", 8)
    monkeypatch.setattr(shared_prefixes, "_LONGEST_PREFIX", 60)
    monkeypatch.setattr(shared_prefixes, "_PIECE", 40)
    monkeypatch.setattr(shared_prefixes, "_MAX_CANDIDATES", 4)
    monkeypatch.setattr(shared_prefixes, "_TRIAL_ROWS", 12)


HEADS = [
    "Answer the following questions.\n\nQ: one two\nA: three\n\n",
    "Answer the following questions.\n\nQ: one two",
    "Answer the following",
    "Answer the follow",
    "aaaa bbbb cccc dddd",
    "aaaa bbbb cccc ddddé",
    "日本語の文章 and some words of English after it\n",
]
rows = st.lists(
    st.tuples(st.sampled_from(HEADS), texts).map("".join) | st.sampled_from(HEADS) | texts,
    max_size=24,
)


@pytest.mark.usefixtures("small_steps")
@quick
@given(rows=rows, size=st.integers(1, 9), from_behind=st.booleans())
def test_rows_with_shared_beginnings_keep_their_lengths_and_their_order(
    compiled: Callable[[str], Compiled], rows: list[str], size: int, from_behind: bool
) -> None:
    engine = reference(compiled("gpt2"))
    shared = SharedPrefixes(allowed=True)
    cut = [shared.cut(rows[i : i + size]) for i in range(0, len(rows), size)]
    # Threads finish in any order; only `lengths` has to be asked in the order of the cuts.
    order = reversed(range(len(cut))) if from_behind else range(len(cut))
    counts = {i: engine.count(cut[i]) for i in order}
    lengths = [n for i in range(len(cut)) for n in shared.lengths(counts[i])]
    assert lengths == engine.count(rows)


PROMPT = "Solve the problem step by step. " * 20 + "The first question is about trains"


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([PROMPT] * 5, id="equal rows"),
        pytest.param([PROMPT, PROMPT[:400], PROMPT[:300], PROMPT], id="one begins another"),
        pytest.param([PROMPT + " and", PROMPT + "s and", PROMPT + " or"], id="right after the cut"),
        pytest.param([PROMPT + "é x", PROMPT + "\u0301 x", PROMPT + " x"], id="marks at the cut"),
        pytest.param([PROMPT + "\n\n", PROMPT + "\n", PROMPT + " \n"], id="white space at the cut"),
        pytest.param(["x" * 300 + " y", "x" * 300 + " z", "x" * 299], id="nowhere to cut"),
    ],
)
@pytest.mark.parametrize("name", REAL)
def test_rows_that_nearly_share_a_beginning(
    compiled: Callable[[str], Compiled], name: str, rows: list[str]
) -> None:
    engine = reference(compiled(name))
    shared = SharedPrefixes(allowed=True)
    cut = [shared.cut([row]) for row in rows * 2]
    assert [shared.lengths(engine.count(c))[0] for c in cut] == engine.count(rows * 2)


def test_a_beginning_is_counted_once(compiled: Callable[[str], Compiled]) -> None:
    rows = [f"{PROMPT} number {i}" for i in range(100)]
    shared = SharedPrefixes(allowed=True)
    cut = shared.cut(rows)
    assert sum(map(len, cut)) < sum(map(len, rows)) / 20
    engine = reference(compiled("gpt2"))
    assert shared.lengths(engine.count(cut)) == engine.count(rows)


def test_datasets_that_share_nothing_are_left_alone() -> None:
    shared = SharedPrefixes(allowed=True)
    for start in range(0, 4000, 1000):
        rows = [f"{i} row " + "word " * 80 for i in range(start, start + 1000)]
        cut = shared.cut(rows)
    assert cut == rows
    assert not shared._sharing


def test_rows_of_many_megabytes_are_counted_in_pieces(
    compiled: Callable[[str], Compiled],
) -> None:
    words = json.dumps({"text": "The quick brown fox, naïve as ever, 東京 123.\n"}) + " next line"
    long = words * (5_000_000 // len(words))
    rows = ["short", long, "also short", long + "!"]
    counting = Counting(compiled("llama3.1"))
    shared = SharedPrefixes(allowed=True)
    cut = shared.cut(rows)
    assert max(map(len, cut)) <= 2 * shared_prefixes._PIECE
    assert shared.lengths(counting.count(cut)) == counting.count(rows)


def test_a_row_without_a_place_to_cut_is_counted_whole() -> None:
    row = "0" * (3 * shared_prefixes._PIECE)
    assert SharedPrefixes(allowed=True).cut([row]) == [row]


def test_without_permission_rows_stay_as_they_are() -> None:
    rows = [PROMPT] * 3
    assert SharedPrefixes(allowed=False).cut(rows) == rows
