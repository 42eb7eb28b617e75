"""A fast engine counts large inputs, after it was shown to be right, and is checked each time."""

import json
import os
import sys
from array import array
from collections.abc import Callable
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from subprocess import Popen
from time import process_time
from typing import Any

import pytest
from tokenizers import normalizers
from transformers import AutoTokenizer

from chunkscope import AnalyzeOptions
from chunkscope.artefacts.note import Note
from chunkscope.console import Progress
from chunkscope.lengths.analyze import analyze
from chunkscope.tokenizers import check, fast
from chunkscope.tokenizers import tokenizer as ours
from chunkscope.tokenizers.fast import FastEngine, Fastokens, Splintr
from chunkscope.tokenizers.reference import LoadedBeside, Reference, TokenizersReference
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind
from chunkscope.tokenizers.strings import sentences, suite
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.commands.helpers import write_jsonl
from tests.tokenizers.helpers import WORDS, bpe, save, splitting

FEW = ["", "one two", "naïve 東京", "x = 1\n"]
OTHERS = ["deepseek-v3", "gpt2", "gpt-neox", "mistral-nemo"]  # some seconds each


class Fake(FastEngine):
    """An engine that is the reference, but gives a token too many for texts it gets wrong."""

    package = "splintr-rs"
    gets_wrong: Callable[[str], bool]
    loaded: list["Fake"]

    def __init__(self, _: Any, reference: Callable[[], Reference]) -> None:
        self.reference, self.only_nfc = reference, False
        self.texts: list[str] = []  # that it was given
        self.loaded.append(self)

    def encode(self, texts: list[str]) -> tuple[bytes, bytes]:
        self.texts += texts
        pairs = zip(texts, self.reference().id_bytes(texts), strict=True)
        rows = [ids + b"0000" if self.gets_wrong(text) else ids for text, ids in pairs]
        edges = accumulate((len(row) // 4 for row in rows), initial=0)
        return b"".join(rows), array("Q", edges).tobytes()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small tokenizer in a cache of its own, and inputs of any size are large."""
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(Splintr, "pays_from", 0)
    monkeypatch.setattr(check, "suite", lambda _: FEW)
    return save(
        splitting(WORDS, "o n", "z e"), tmp_path / "t", tokenizer_class="GPT2Tokenizer"
    )


@pytest.fixture
def install(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[str], bool]], list[Fake]]:
    """Put a fake in the engines' place; the list has each that was loaded."""

    def replace(gets_wrong: Callable[[str], bool]) -> list[Fake]:
        loaded: list[Fake] = []
        kind = type(
            "Kind", (Fake,), {"gets_wrong": staticmethod(gets_wrong), "loaded": loaded}
        )
        monkeypatch.setattr(ours, "engines_for", lambda _: [kind])
        return loaded

    return replace


def engines(place: Path, texts: list[str] | None = None) -> set[str]:
    counter = Tokenizer(str(place))
    counter.count(texts or ["some text"])
    return {name.split()[0] for name in counter.engines}


def test_other_test_strings_are_another_suite() -> None:
    """What an engine was proved with is known by a number: raise `_SUITE` with the strings."""
    words, added = (
        {f"w{n}Ġ": n for n in range(7_000)},
        [{"content": f"<{n}>"} for n in range(200)],
    )
    model = {
        "model": {"vocab": words},
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
    }
    texts = [*suite(model), *suite({}), *sentences()]
    digest = sha256("\0".join(texts).encode()).hexdigest()
    assert (len(texts), digest[:8]) == (10_354, "80485f7b")


def test_the_engine_is_chosen_by_the_size_of_the_input(place, monkeypatch) -> None:
    monkeypatch.setattr(Splintr, "pays_from", 1_000)
    monkeypatch.setattr(fast, "MUCH", 9_000_000)
    for size, engine in (
        (10, "tokenizers"),
        (1_000, "splintr-rs"),
        (9_000_000, "fastokens"),
    ):
        counter = Tokenizer(str(place), expected_bytes=size)
        counter.count(["a"])
        assert [name.split()[0] for name in counter.engines] == [engine]
    grows = Tokenizer(str(place))  # a pipe, or a compressed file
    for _ in range(3):
        grows.count(["some text " * 40])
    assert {name.split()[0] for name in grows.engines} == {"tokenizers", "splintr-rs"}


@pytest.mark.parametrize(
    ("missing", "left"),
    [(["splintr-rs"], "fastokens"), (["fastokens", "splintr-rs"], "tokenizers")],
)
def test_where_an_engine_is_not_installed_another_counts(
    place, monkeypatch, missing, left
):
    """There is a wheel of each for the usual machines, not for all."""
    monkeypatch.setattr(
        fast, "engine_name", lambda name: "" if name in missing else name
    )
    monkeypatch.setattr(Fastokens, "pays_from", 0)
    assert engines(place) == {left}


@pytest.mark.parametrize(
    "name",
    [
        None,
        "llama3.1",
        "qwen3",
        *(pytest.param(name, marks=pytest.mark.real) for name in OTHERS),
    ],
)
def test_the_fast_engines_give_the_ids_of_the_reference_on_every_test_string(
    shared, name
) -> None:
    tokenizer = Tokenizer(str(shared / "tokenizers" / name) if name else None)
    facts, reference = tokenizer.facts, tokenizer.reference
    texts = suite(json.loads(facts.json_file.read_bytes()) if facts.json_file else {})
    expected = reference.id_bytes(texts)
    for engine in (Splintr, Fastokens):
        assert engine(facts, lambda: reference).id_bytes(texts) == expected


@pytest.mark.parametrize("kind", ["bert-minilm", "sentencepiece"])
def test_a_kind_that_no_engine_knows_is_counted_by_the_reference(
    shared, monkeypatch, kind
) -> None:
    from chunkscope.tokenizers.resolve import embedded_default

    monkeypatch.setattr(Splintr, "pays_from", 0)
    model = next(embedded_default().parent.glob("*.model.v*"))
    found = engines(model if kind == "sentencepiece" else shared / "tokenizers" / kind)
    assert found <= {"tokenizers", "sentencepiece"}


def test_where_ids_do_not_tell_which_merge_comes_first_splintr_does_not_count(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Splintr, "pays_from", 0)
    splitting(WORDS, "t h", "h e", "th e").save(str(file := tmp_path / "t.json"))
    assert engines(file) == {"splintr-rs"}
    document = json.loads(file.read_text())
    ids = document["model"]["vocab"]
    for change in (
        {"th": ids["he"], "he": ids["th"]},
        {"hez": len(ids)},
    ):  # no merge makes hez
        document["model"]["vocab"] = ids | change
        file.write_text(json.dumps(document))
        assert engines(file) == {"tokenizers"}


def panic(text: str) -> bool:
    class Panic(BaseException):
        """What a Rust library throws."""

    raise Panic(text)


@pytest.mark.parametrize("gets_wrong", [lambda text: text == "one two", panic])
def test_an_engine_that_miscounts_a_string_or_panics_is_not_used_nor_loaded_again(
    place: Path, install: Callable[..., list[Fake]], gets_wrong: Callable[[str], bool]
) -> None:
    loaded = install(gets_wrong)
    assert engines(place) == engines(place) == {"tokenizers"}
    assert len(loaded) == 1


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "GPT2Tokenizer"])
def test_for_much_text_another_process_asks_transformers_which_is_right(
    place, monkeypatch, kind
):
    raw = splitting(r"\p{N}{1,2}|\p{L}+|[^\p{L}\p{N}]", "1 2", "12 3")
    folder = save(raw, place.parent / kind, tokenizer_class=kind)
    monkeypatch.setattr(
        ours, "prepare", None
    )  # here an engine is proved with the raw file
    monkeypatch.setenv(
        "CHUNKSCOPE_CACHE_DIR", str(folder / "tokenizer.json")
    )  # none can be there
    (folder / "torch.py").write_text(
        "raise SystemExit"
    )  # which takes seconds to import
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
    tokenizer, texts = Tokenizer(str(folder), expected_bytes=1), ["1234 12", "naïve"]
    right = AutoTokenizer.from_pretrained(str(folder))(texts, add_special_tokens=False)
    assert tokenizer.id_bytes(texts) == [
        array("I", ids).tobytes() for ids in right["input_ids"]
    ]
    assert [name.split()[0] for name in tokenizer.engines] == ["splintr-rs"]
    assert (right["input_ids"] == [raw.encode(text).ids for text in texts]) == (
        kind[:3] == "Pre"
    )
    # In a shell's background Ctrl-C is ignored, and what is started there inherits that.
    code = (
        "import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)"
    )
    monkeypatch.setattr(ours, "beside", lambda *_: Popen([sys.executable, "-c", code]))
    with pytest.raises(KeyboardInterrupt):
        Tokenizer(str(place), expected_bytes=1).count(texts)


def test_a_verdict_is_kept_for_the_next_run_unless_it_is_damaged(
    place, install
) -> None:
    loaded = install(lambda _: False)
    assert engines(place) == engines(place) == {"splintr-rs"}
    assert [set(FEW) <= set(fake.texts) for fake in loaded] == [True, False]
    facts = Tokenizer(str(place)).facts
    (verdict,) = (place.parent / "cache" / "verdicts").glob("*/*")
    for damage in (b"", b"[]", b'{"agrees": fal'):
        verdict.write_bytes(damage)
        assert engines(place) == {"splintr-rs"}
        assert check.known_verdict(Splintr, facts)


def test_text_that_nfc_would_change_is_normalized_by_the_reference(
    tmp_path, monkeypatch
) -> None:
    """Engines have younger tables of Unicode: there a mark of 2018 changes its place."""
    monkeypatch.setattr(Splintr, "pays_from", 0)
    backend = splitting(WORDS, "o n", "z e")
    backend.normalizer = normalizers.NFC()
    backend.save(str(tmp_path / "t.json"))
    tokenizer = Tokenizer(str(tmp_path / "t.json"))
    texts = [
        "caf\u00e9",
        "cafe\u0301",
        "a\u0301\u07fd",
        "a\u0301\u07fd\u0316 \u1100\u1161",
        "one",
    ]
    assert tokenizer.id_bytes(texts) == tokenizer.reference.id_bytes(texts)
    assert [name.split()[0] for name in tokenizer.engines] == ["splintr-rs"]


@pytest.mark.parametrize("engine", [Splintr, Fastokens])
def test_no_row_takes_much_longer_than_by_the_reference(
    tmp_path, monkeypatch, engine
) -> None:
    """Gemma's tokenizer never splits a text: a row is one word to an engine."""
    monkeypatch.setattr(ours, "engines_for", lambda _: [engine])
    halves = ["Ġ", "ĠĠ", "ĠĠĠĠ", "ĠĠĠĠĠĠĠĠ"]
    unsplit = bpe(
        *(f"{half} {half}" for half in halves), "w o", "r d", "wo rd", "Ġ word"
    )
    unsplit.save(str(tmp_path / "t.json"))
    tokenizer, row = (
        Tokenizer(str(tmp_path / "t.json")),
        " " * 90_000 + "word " * 90_000,
    )
    tokenizer.count(["word"])
    begin = process_time()
    found = tokenizer.id_bytes([row])
    middle = process_time()
    assert found == tokenizer.reference.id_bytes([row])
    assert middle - begin < 2 * (process_time() - middle)


def test_an_engine_that_is_wrong_on_the_users_rows_is_caught_and_counted_again(
    place, install
):
    texts = [f"Question {i}: how many stripes has a zebra?" for i in range(300)]
    rows = write_jsonl(place / "rows.jsonl", [{"prompt": text} for text in texts])
    options = AnalyzeOptions(tokenizer=str(place), use_cache=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "engines_for", lambda _: [])
        right = analyze(rows, options=options).overall
    loaded = install(lambda text: "zebra" in text)
    recounted: list[Note] = []
    listener = Progress()
    listener.tell = recounted.append
    for _ in ("this run", "the next one"):
        profile = analyze(rows, options=options, listener=listener)
        assert profile.overall == right
        assert profile.tokenizer.engine.startswith("tokenizers ")
    (again,) = (one for one in recounted if one.code == "counting_again")
    assert again.values["engine"].startswith("splintr-rs")
    assert len(loaded) == 1


def test_what_a_barred_engine_counted_before_is_counted_again(place, install) -> None:
    install(lambda text: "Question 7:" in text)
    tokenizer = Tokenizer(str(place))
    before = tokenizer.count(["Question 7:"]), tokenizer.counting_key
    check.record_verdict(Splintr, tokenizer.facts, is_equal=False)
    after = Tokenizer(str(place)).count(["Question 7:"]), tokenizer.counting_key
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_the_sample_comes_from_all_over_the_run_and_from_all_over_a_row(
    place, install
) -> None:
    install(lambda text: "zebra" in text)
    late = Tokenizer(str(place))
    for batch in range(100):
        late.count([f"row {batch}" if batch < 90 else "a zebra"] * 40)
    assert not late.sample_agrees()
    check.record_verdict(Splintr, Tokenizer(str(place)).facts, is_equal=True)
    long = Tokenizer(str(place))
    long.count(["word " * 1000 + "zebra " * 2000] * 64)
    assert not long.sample_agrees()


def test_a_reference_beside_runs_nothing_that_lies_where_the_data_is(
    place, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("orjson.py").write_text("open('ran', 'w')")
    reference = TokenizersReference.of_file(place / "tokenizer.json")
    files = [
        TokenizerFiles("", TokenizerKind.RAW, (f,))
        for f in (place / "tokenizer.json", place)
    ]
    beside = LoadedBeside("tokenizers", files[0], Reference)
    for texts in (
        ["one two"],
        ["line\nend", ""],
    ):  # it is asked as often as there is something
        assert beside.ids(texts) == reference.ids(texts)
    assert not Path("ran").exists()
    assert LoadedBeside("", files[1], lambda: reference).ids(["z"]) == reference.ids(
        ["z"]
    )
    counted = Tokenizer(str(place)).count(["one two"])  # prepares it
    many = Tokenizer(str(place), expected_bytes=1_000_000)
    monkeypatch.setattr(ours, "engines_for", lambda _: [])
    monkeypatch.setattr(
        TokenizersReference, "of_file", None
    )  # it is not loaded in this process
    assert many.count(["one two"]) == counted
