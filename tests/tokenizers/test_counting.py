"""A fast engine counts large inputs, after it was shown to be right, and is checked
each time."""

import json
from array import array
from collections.abc import Callable
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

import pytest
from tokenizers import normalizers

from chunkscope import AnalyzeOptions
from chunkscope.artefacts.note import Note
from chunkscope.console import Progress
from chunkscope.lengths.analyze import analyze
from chunkscope.tokenizers import check, fast
from chunkscope.tokenizers import tokenizer as ours
from chunkscope.tokenizers.fast import FastEngine, GetReference, load_engine
from chunkscope.tokenizers.prepare import TokenizerFacts
from chunkscope.tokenizers.strings import sentences, suite
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.commands.helpers import write_jsonl
from tests.tokenizers.helpers import WORDS, save, splitting

FEW = ["", "one two", "naïve 東京", "x = 1\n"]
OTHERS = ["deepseek-v3", "gpt2", "gpt-neox", "mistral-nemo"]  # some seconds each


class Fake(FastEngine):
    """The reference, but with a token too many for texts that it gets wrong."""

    def __init__(
        self, reference: GetReference, gets_wrong: Callable[[str], bool]
    ) -> None:
        super().__init__(self._flat, reference)
        self.gets_wrong = gets_wrong
        self.texts: list[str] = []  # that it was given

    def _flat(self, texts: list[str]) -> tuple[bytes, bytes]:
        self.texts += texts
        rows = []
        for text, ids in zip(texts, self._reference().id_bytes(texts), strict=True):
            rows.append(ids + b"0000" if self.gets_wrong(text) else ids)
        edges = accumulate((len(row) // 4 for row in rows), initial=0)
        return b"".join(rows), array("Q", edges).tobytes()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of any size are large."""
    monkeypatch.setattr(fast, "PAYS_FROM", 0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small tokenizer in a cache of its own; inputs of any size are large."""
    monkeypatch.setattr(fast, "PAYS_FROM", 0)
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(check, "suite", lambda _: FEW)
    tokenizer = splitting(WORDS, "o n", "z e")
    return save(tokenizer, tmp_path / "t", tokenizer_class="GPT2Tokenizer")


Install = Callable[[Callable[[str], bool]], list[Fake]]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a fake in the engine's place; the list has each that was loaded."""

    def replace(gets_wrong: Callable[[str], bool]) -> list[Fake]:
        loaded: list[Fake] = []

        def load(_: TokenizerFacts, reference: GetReference) -> Fake:
            loaded.append(Fake(reference, gets_wrong))
            return loaded[-1]

        monkeypatch.setattr(fast, "load_engine", load)
        return loaded

    return replace


def engines(place: Path, texts: list[str] | None = None) -> set[str]:
    counter = Tokenizer(str(place))
    counter.count(texts or ["some text"])
    return {name.split()[0] for name in counter.engines}


def test_other_test_strings_are_another_suite() -> None:
    """What the engine was proved with is known by a number: raise `SUITE` with the
    strings."""
    words = {f"w{n}Ġ": n for n in range(7_000)}
    model = {
        "model": {"vocab": words},
        "added_tokens": [{"content": f"<{n}>"} for n in range(200)],
        "normalizer": {"type": "NFC"},
    }
    texts = [*suite(model), *suite({}), *sentences()]
    digest = sha256("\0".join(texts).encode()).hexdigest()
    assert (check.SUITE, len(texts), digest[:8]) == ("13", 10_002, "db2078f3")


# -- which engine counts


@pytest.mark.parametrize(
    ("size", "engine"),
    [
        pytest.param(10, "tokenizers", id="little"),
        pytest.param(1_000, "splintr-rs", id="much"),
    ],
)
def test_the_engine_is_chosen_by_the_size_of_the_input(
    place, monkeypatch, size, engine
) -> None:
    monkeypatch.setattr(fast, "PAYS_FROM", 1_000)
    counter = Tokenizer(str(place), expected_bytes=size)
    counter.count(["a"])
    assert [name.split()[0] for name in counter.engines] == [engine]


def test_an_input_that_turns_out_to_be_large_is_counted_by_the_engine_from_there_on(
    place, monkeypatch
) -> None:
    """A pipe, or a compressed file."""
    monkeypatch.setattr(fast, "PAYS_FROM", 1_000)
    grows = Tokenizer(str(place))
    for _ in range(3):
        grows.count(["some text " * 40])
    assert {name.split()[0] for name in grows.engines} == {"tokenizers", "splintr-rs"}


def test_where_the_engine_is_not_installed_the_reference_counts(
    place, monkeypatch
) -> None:
    """There is a wheel of it for the usual machines, not for all."""
    monkeypatch.setattr(fast, "engine_name", lambda _: "")
    assert engines(place) == {"tokenizers"}


@pytest.mark.usefixtures("large")
def test_a_kind_that_the_engine_does_not_know_is_counted_by_the_reference(
    shared,
) -> None:
    assert engines(shared / "tokenizers" / "bert-minilm") == {"tokenizers"}


# -- it is right


@pytest.mark.parametrize(
    "name",
    [
        None,
        "llama3.1",
        "qwen3",
        *(pytest.param(name, marks=pytest.mark.real) for name in OTHERS),
    ],
)
def test_the_engine_gives_the_ids_of_the_reference_on_every_test_string(
    shared, name
) -> None:
    tokenizer = Tokenizer(str(shared / "tokenizers" / name) if name else None)
    facts, reference = tokenizer.facts, tokenizer.reference
    texts = suite(json.loads(facts.json_file.read_bytes()) if facts.json_file else {})
    engine = load_engine(facts, tokenizer.load_reference)
    assert engine.id_bytes(texts) == reference.id_bytes(texts)


@pytest.mark.usefixtures("large")
def test_text_that_nfc_would_change_is_normalized_by_the_reference(tmp_path) -> None:
    """The engine has younger tables of Unicode: there a mark of 2018 changes its
    place."""
    backend = splitting(WORDS, "o n", "z e")
    backend.normalizer = normalizers.NFC()
    backend.save(str(tmp_path / "t.json"))
    tokenizer = Tokenizer(str(tmp_path / "t.json"))
    texts = ["caf\u00e9", "cafe\u0301", "a\u0301\u07fd", "one"]
    texts += ["a\u0301\u07fd\u0316 \u1100\u1161"]
    assert tokenizer.id_bytes(texts) == tokenizer.reference.id_bytes(texts)
    assert [name.split()[0] for name in tokenizer.engines] == ["splintr-rs"]


# -- what becomes of one that is wrong


def panic(text: str) -> bool:
    class Panic(BaseException):
        """What a Rust library throws."""

    raise Panic(text)


@pytest.mark.parametrize(
    "gets_wrong",
    [
        pytest.param(lambda text: text == "one two", id="it miscounts a string"),
        pytest.param(panic, id="it panics"),
    ],
)
def test_an_engine_that_fails_the_test_is_not_used_nor_loaded_again(
    place: Path, install: Install, gets_wrong: Callable[[str], bool]
) -> None:
    loaded = install(gets_wrong)
    assert engines(place) == engines(place) == {"tokenizers"}
    assert len(loaded) == 1


def test_a_verdict_is_kept_for_the_next_run(place, install) -> None:
    loaded = install(lambda _: False)
    assert engines(place) == engines(place) == {"splintr-rs"}
    assert [set(FEW) <= set(fake.texts) for fake in loaded] == [True, False]


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"agrees": fal'])
def test_a_damaged_verdict_is_found_anew(place, install, damage) -> None:
    install(lambda _: False)
    engines(place)
    (verdict,) = (place.parent / "cache" / "verdicts").glob("*/*")
    verdict.write_bytes(damage)
    assert engines(place) == {"splintr-rs"}
    assert check.known_verdict(Tokenizer(str(place)).facts)


def test_an_engine_that_is_wrong_on_the_users_rows_is_caught_and_counted_again(
    place, install
):
    texts = [f"Question {i}: how many stripes has a zebra?" for i in range(300)]
    rows = write_jsonl(place / "rows.jsonl", [{"prompt": text} for text in texts])
    options = AnalyzeOptions(tokenizer=str(place))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "pays_off", lambda *_: False)
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


def test_the_sample_comes_from_all_over_the_run(place, install) -> None:
    install(lambda text: "zebra" in text)
    late = Tokenizer(str(place))
    for batch in range(100):
        late.count([f"row {batch}" if batch < 90 else "a zebra"] * 40)
    assert not late.sample_agrees()
