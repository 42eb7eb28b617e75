"""A fast engine counts only after it was shown to be right, and is watched while it does."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import pytest

import chunkscope
from chunkscope import AnalyzeOptions
from chunkscope.artefacts.codec import read_checked
from chunkscope.lengths.scan import Listener
from chunkscope.tokenizers import conformance, counting, engines
from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.counting import Counting
from chunkscope.tokenizers.engines import (
    QUICK_TO_COUNT,
    QUICK_TO_LOAD,
    CountingEngine,
    Ids,
    Loader,
)
from chunkscope.tokenizers.references import reference
from tests.tokenizers.helpers import bpe, save

FEW = ["", "one two", "naïve 東京", "👍🏽 e\u0301 thumbs", "\U00016d63\U00016d67", "x = 1\n"]


@dataclass
class Fake:
    """An engine that is the reference, but gives a token too many for texts it gets wrong."""

    gets_wrong: Callable[[str], bool]
    name: str = "fake"
    loads: int = 0
    asked: list[list[str]] = field(default_factory=list)

    def load(self, compiled: Compiled) -> CountingEngine:
        self.loads += 1
        right = reference(compiled)

        def ids(texts: list[str]) -> Ids:
            self.asked.append(texts)
            pairs = zip(texts, right.ids(texts), strict=True)
            return [[*found, 0] if self.gets_wrong(text) else found for text, found in pairs]

        return CountingEngine(f"{self.name} 1", lambda texts: list(map(len, ids(texts))), ids)

    @property
    def loader(self) -> Loader:
        return Loader(self.name, "fake-engine", self.load)


@pytest.fixture
def gpt2(compiled: Callable[[str], Compiled]) -> Compiled:
    return compiled("gpt2")


@pytest.fixture
def few_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "texts_for", lambda _: FEW)


@dataclass
class Installer:
    """Makes a fake engine the only one there is, under a name of its own."""

    monkeypatch: pytest.MonkeyPatch
    name: str

    def __call__(self, gets_wrong: Callable[[str], bool]) -> Fake:
        fake = Fake(gets_wrong, name=self.name)
        self.release(fake, "1.0")
        return fake

    def release(self, fake: Fake, number: str) -> None:
        known = {"fake-engine": number}
        self.monkeypatch.setattr(engines, "version", lambda name: known.get(name) or version(name))
        self.monkeypatch.setattr(counting, "QUICK_TO_LOAD", (fake.loader,))
        self.monkeypatch.setattr(counting, "QUICK_TO_COUNT", Loader("no", "pytest", lambda _: None))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Installer:
    return Installer(monkeypatch, f"fake of {request.node.name}")


def engine_of(compiled: Compiled) -> str:
    counter = Counting(compiled)
    counter.count(["some text"])
    (name,) = counter.used
    return name


@pytest.mark.usefixtures("few_strings")
def test_an_engine_without_a_difference_is_used(gpt2: Compiled, install: Installer) -> None:
    fake = install(lambda _: False)
    assert engine_of(gpt2) == f"{fake.name} 1"


def test_an_engine_that_miscounts_one_string_is_refused(gpt2: Compiled, install: Installer) -> None:
    one = conformance.texts_for(gpt2)[1234]
    install(lambda text: text == one)
    assert engine_of(gpt2).startswith("tokenizers ")


@pytest.mark.usefixtures("few_strings")
def test_an_engine_that_raises_is_refused(gpt2: Compiled, install: Installer) -> None:
    def stumble(text: str) -> bool:
        raise RuntimeError(text)

    install(stumble)
    assert engine_of(gpt2).startswith("tokenizers ")


@pytest.mark.usefixtures("few_strings")
def test_a_verdict_is_kept_for_the_next_run(
    gpt2: Compiled, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = install(lambda _: False)
    Counting(gpt2)
    monkeypatch.setattr(conformance, "judge", pytest.fail)
    assert engine_of(gpt2) == f"{fake.name} 1"
    assert fake.loads == 2


@pytest.mark.usefixtures("few_strings")
def test_an_engine_that_was_refused_is_not_even_loaded_again(
    gpt2: Compiled, install: Installer
) -> None:
    fake = install(lambda text: text == "one two")
    assert [engine_of(gpt2), engine_of(gpt2)] == [reference(gpt2).name] * 2
    assert fake.loads == 1


@pytest.mark.usefixtures("few_strings")
def test_another_version_of_an_engine_is_judged_anew(gpt2: Compiled, install: Installer) -> None:
    fake = install(lambda _: False)
    assert engine_of(gpt2) == f"{fake.name} 1"
    fake.gets_wrong = lambda text: text == "one two"
    install.release(fake, "1.1")
    assert engine_of(gpt2).startswith("tokenizers ")


@pytest.mark.usefixtures("few_strings")
def test_a_damaged_verdict_is_made_again(gpt2: Compiled, install: Installer) -> None:
    fake = install(lambda _: False)
    place = conformance._place(gpt2, fake.loader.name, reference(gpt2).name)
    for damage in (b"", b"[]", b'{"agrees": true}', b'{"agrees": true, "odd": 1}'):
        place.write_bytes(damage)
        assert engine_of(gpt2) == f"{fake.name} 1"
        assert json.loads(read_checked(place))["strings"] == len(FEW)


# --- characters that are too young for an engine --------------------------------------------


@pytest.mark.usefixtures("few_strings")
def test_rows_with_a_script_the_engine_does_not_know_go_to_the_reference(
    gpt2: Compiled, install: Installer
) -> None:
    fake = install(lambda text: "\U00016d63" in text)
    counter = Counting(gpt2)
    fake.asked.clear()
    texts = ["plain", "naïve", "\U00016d63 x", "é", "y \U00016d6a"]
    assert counter.count(texts) == reference(gpt2).count(texts)
    assert fake.asked == [["plain", "naïve", "é"]]  # the whole block is left to the reference


@pytest.mark.usefixtures("few_strings")
def test_rows_with_a_mark_the_engine_does_not_know_go_to_the_reference(
    gpt2: Compiled, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "texts_for", lambda _: [*FEW, "a\u0898b"])
    fake = install(lambda text: "\u0898" in text)
    counter = Counting(gpt2)
    fake.asked.clear()
    texts = ["plain", "e\u0301", "x\u0898"]
    assert counter.count(texts) == reference(gpt2).count(texts)
    assert fake.asked == [["plain", "e\u0301"]]


@pytest.mark.usefixtures("few_strings")
@pytest.mark.parametrize(
    "letter",
    [
        pytest.param("ï", id="a letter everybody knows"),
        pytest.param("東", id="an ideograph"),
        pytest.param("thumbs", id="a word beside an emoji"),
    ],
)
def test_an_old_character_is_no_excuse(gpt2: Compiled, install: Installer, letter: str) -> None:
    install(lambda text: letter in text)
    assert engine_of(gpt2).startswith("tokenizers ")


KIRAT_RAI = ["\U00016d60", "a \U00016d67\U00016d67 b", "\U00016d63\U00016d67" * 9, "plain"]
YOUNG_MARKS = ["a\u0345\u0898\u0316", "x\u08ca\u0316y", "\u0d4d\u0d3b\u0301", "e\u1ac1\u0323"]


@pytest.mark.parametrize("loader", [*QUICK_TO_LOAD, QUICK_TO_COUNT], ids=lambda x: x.label)
def test_young_scripts_and_marks_are_counted_right_by_every_engine(
    compiled: Callable[[str], Compiled], loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Normalization changed with Unicode: qwen3 asks for it, and each engine has its own year."""
    monkeypatch.setattr(counting, "QUICK_TO_LOAD", (loader,))
    qwen3 = compiled("qwen3")
    counter = Counting(qwen3)
    texts = [*KIRAT_RAI, *YOUNG_MARKS]
    assert counter.count(texts) == reference(qwen3).count(texts)
    assert not counter.used & {reference(qwen3).name}


BERTS = [
    "An unaffable WordPiece, na\u00efve caf\u00e9 [MASK] [SEP].",
    "\u6771\u4eac \ud55c\uad6d\uc5b4 \u0e2a\u0e31 a\u0301\u0327 \x0b\x0c\x1c\x85 \ufffd\u200b",
    *("x%sy %s%s7 %s" % ((chr(young),) * 4) for young in (0x61D, 0x8E2, 0x166D, 0x2E52, 0x1E2C0)),
    "",
]


def test_word_pieces_are_counted_by_a_fast_engine_but_for_the_signs_of_later_years(
    compiled: Callable[[str], Compiled],
) -> None:
    bert = compiled("bert-minilm")
    counter = Counting(bert)
    assert counter.count(BERTS) == reference(bert).count(BERTS)
    assert counter.id_bytes(BERTS) == reference(bert).id_bytes(BERTS)
    assert {name.split()[0] for name in counter.used} == {"splintr"}


@pytest.mark.usefixtures("few_strings")
def test_on_few_cores_the_quicker_engine_is_waited_for(
    gpt2: Compiled, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = install(lambda _: False)
    better = Fake(lambda _: False, name=f"better than {fake.name}")
    monkeypatch.setattr(counting, "_LARGE_CHARS", 1)
    monkeypatch.setattr(counting, "_CORES", 2)
    may_load = threading.Event()

    def load(compiled: Compiled) -> CountingEngine:
        assert may_load.wait(60)
        return better.load(compiled)

    loader = Loader(better.name, "fake-engine", load)
    monkeypatch.setattr(counting, "QUICK_TO_COUNT", loader)
    may_load.set()
    Counting(gpt2)._choose((loader,))  # an earlier run that judged it
    may_load.clear()
    counter = Counting(gpt2)
    counter.expect(10_000_000, 10_000_000)
    fake.asked.clear()
    better.asked.clear()
    texts = ["one two", "three", "", "four five six"]
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(counter.count, texts)
        may_load.set()
        assert counted.result(60) == reference(gpt2).count(texts)
    assert (fake.asked, better.asked) == ([], [texts])


# --- a sample of the run's own rows ---------------------------------------------------------


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    texts = [f"Question {i}: how many stripes has a zebra?" for i in range(300)]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return path


@pytest.mark.usefixtures("few_strings")
def test_an_engine_that_is_wrong_on_the_users_rows_is_caught_and_they_are_counted_again(
    gpt2: Compiled, install: Installer, rows: Path
) -> None:
    right = chunkscope.analyze(rows, options=options(gpt2, exact_check=True))
    fake = install(lambda text: "zebra" in text)
    told: list[str] = []
    profile = chunkscope.analyze(
        rows, options=options(gpt2), listener=Listener(recounting=told.append)
    )
    assert profile.overall == right.overall
    assert told == [f"{fake.name} 1"]
    assert profile.tokenizer.engine == reference(gpt2).name
    assert not any("no difference" in note for note in profile.tokenizer.notes)

    again = chunkscope.analyze(
        rows, options=options(gpt2), listener=Listener(recounting=pytest.fail)
    )
    assert again.overall == right.overall
    assert fake.loads == 1


@pytest.mark.usefixtures("few_strings")
def test_what_the_reference_recounted_is_not_taken_for_another_tokenizers(
    gpt2: Compiled, install: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a recount no engine is settled; what is kept must still say who counted it."""
    fake = install(lambda text: "zebra" in text)
    unknown = Loader("unknown", "pytest", pytest.fail)
    monkeypatch.setattr(counting, "QUICK_TO_LOAD", (fake.loader, unknown))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "one zebra, two zebras"}\n' * 50)
    recounted = chunkscope.analyze(rows, options=options(gpt2, use_cache=True))
    assert recounted.tokenizer.engine == reference(gpt2).name
    monkeypatch.undo()
    other = save(bpe("o n", "z e"), tmp_path / "other", tokenizer_class="PreTrainedTokenizerFast")
    profile = chunkscope.analyze(rows, str(other))
    assert set(profile.overall.counts) == {len("one zebra, two zebras") - 3}


@pytest.mark.usefixtures("few_strings")
def test_the_profile_says_that_a_sample_was_compared(
    gpt2: Compiled, install: Installer, rows: Path
) -> None:
    install(lambda _: False)
    profile = chunkscope.analyze(rows, options=options(gpt2))
    (note,) = profile.tokenizer.notes
    assert "recounted with tokenizers" in note
    assert note.endswith("no difference")


def options(compiled: Compiled, **others: bool) -> AnalyzeOptions:
    folder = str(compiled.source.files[0].parent)
    return AnalyzeOptions(tokenizer=folder, **{"use_cache": False, **others})


@pytest.mark.usefixtures("few_strings")
def test_the_exact_check_corrects_a_wrong_engine_and_says_how_often(
    gpt2: Compiled, install: Installer, rows: Path
) -> None:
    install(lambda text: "Question 7:" in text)
    profile = chunkscope.analyze(rows, options=options(gpt2, exact_check=True))
    assert profile.overall.total == sum(reference(gpt2).count(prompts(rows)))
    (note,) = profile.tokenizer.notes
    assert note.endswith(", 1 differed")


def prompts(rows: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in rows.read_bytes().splitlines()]


@pytest.mark.usefixtures("few_strings")
def test_the_sample_comes_from_all_over_the_run(gpt2: Compiled, install: Installer) -> None:
    install(lambda text: "zebra" in text)
    counter = Counting(gpt2)
    for batch in range(100):
        counter.sample([f"row {batch}" if batch < 90 else "a zebra"] * 40)
    assert not counter.sample_agrees()


@pytest.mark.usefixtures("few_strings")
def test_the_end_of_a_long_row_can_be_in_the_sample(gpt2: Compiled, install: Installer) -> None:
    install(lambda text: "zebra" in text)
    counter = Counting(gpt2)
    counter.sample(["word " * 1000 + "zebra " * 2000] * 64)
    assert not counter.sample_agrees()


@pytest.mark.usefixtures("few_strings")
def test_every_engine_of_a_run_is_compared_also_one_that_was_replaced(
    gpt2: Compiled, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(lambda text: "zebra" in text)
    better = Fake(lambda _: False, name="better")
    counter = Counting(gpt2)
    counter.count(["a zebra"])
    monkeypatch.setattr(counting, "QUICK_TO_COUNT", better.loader)
    monkeypatch.setattr(counting, "_LARGE_CHARS", 1)
    counter.expect(10_000_000, 10_000_000)
    for thread in threading.enumerate():
        if thread.name.startswith("Thread-"):
            thread.join()
    counter.count(["a zebra"])
    assert "better 1" in counter.used
    counter.sample(["a zebra"])
    assert not counter.sample_agrees()


@pytest.mark.usefixtures("few_strings")
def test_an_engine_that_arrives_after_the_verdict_is_not_taken(
    gpt2: Compiled, install: Installer
) -> None:
    fake = install(lambda _: False)
    counter = Counting(gpt2)
    counter.use_reference()
    counter._choose((fake.loader,))  # what the loading thread does last
    counter.count(["text"])
    assert counter.used == {reference(gpt2).name}
