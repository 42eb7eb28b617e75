"""Tokenizers made ready: AutoTokenizer's view, saved once, with nothing capped."""

import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split
from tokenizers.processors import BertProcessing, TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import chunkscope
from chunkscope import AnalyzeOptions
from chunkscope.artefacts.codec import read_checked, write_checked
from chunkscope.errors import InputError
from chunkscope.tokenizers import auto, references
from chunkscope.tokenizers.compiled import (
    INDEX_FILE,
    JSON_FILE,
    RANKS_FILE,
    SKELETON_FILE,
    Compiled,
)
from chunkscope.tokenizers.references import reference
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.tokenizers.helpers import BYTES, WORDS, bpe, save, splitting

TEXTS = ["", "the answer is 12345", "naïve  東京\n\n", "the" * 40, "<s> a </s>"]
SPECIALS = [
    "<|endoftext|>",
    "before<|endoftext|>after <|im_start|>user\n<|im_end|>",
    "<s>[INST] hi [/INST]</s>",
    "<|begin_of_text|><|eot_id|> <|begin_of_text|",
    "<|endoftext|><|endoftext|>",
]


def count(name: Path | str | None, texts: list[str], **how: Any) -> list[int]:
    """As a run counts: with an engine, and the special tokens of a prompt."""
    tokenizer = Tokenizer(str(name) if name else None, **how)
    added = tokenizer.compiled.special_added
    return [n + added for n in tokenizer.counting.count(texts)]


def by_auto(folder: Path, texts: list[str]) -> list[int]:
    return [len(ids) for ids in AutoTokenizer.from_pretrained(str(folder))(texts)["input_ids"]]


def write_rows(path: Path, texts: list[str], field: str = "prompt") -> Path:
    lines = [json.dumps({field: text}, ensure_ascii=False) for text in texts]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


# --- AutoTokenizer's view -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama3.1", "qwen3", "bert-minilm"])
def test_literal_special_tokens_are_counted_as_autotokenizer_counts_them(
    shared: Path, name: str
) -> None:
    folder = shared / "tokenizers" / name
    texts = [*SPECIALS, *TEXTS]
    assert count(folder, texts) == by_auto(folder, texts)


@pytest.mark.usefixtures("fewer_strings")
@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"tokenizer_class": "GPT2Tokenizer"}, id="a class with its own pattern"),
        pytest.param(
            {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, id="a space in front"
        ),
    ],
)
def test_where_autotokenizer_differs_from_tokenizer_json_it_is_right_and_that_is_said(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    raw = splitting(r"\p{N}{1,2}|\p{L}+|[^\p{L}\p{N}]", "1 2", "12 3", "t h", "th e")
    folder = save(raw, tmp_path / "model", **config)
    alone = [len(raw.encode(text)) for text in TEXTS]
    assert count(folder, TEXTS) == by_auto(folder, TEXTS) != alone
    rows = write_rows(tmp_path / "rows.jsonl", TEXTS[1:])
    profile = chunkscope.analyze(rows, str(folder))
    assert profile.tokenizer.notes[0].startswith("tokenizer.json by itself counts ")
    assert "differently from AutoTokenizer" in profile.tokenizer.notes[0]

    only_file = tmp_path / "tokenizer-only.json"
    raw.save(str(only_file))
    assert count(only_file, TEXTS) == alone


@pytest.mark.usefixtures("fewer_strings")
def test_a_file_called_tokenizer_json_is_read_with_what_is_around_it(tmp_path: Path) -> None:
    folder = save(splitting(WORDS, "t h"), tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    by_file, by_folder = Tokenizer(str(folder / "tokenizer.json")), Tokenizer(str(folder))
    assert by_file.digest == by_folder.digest
    assert by_file.kind == "hf"


def test_two_tokenizers_that_agree_are_not_warned_about(
    compiled: Callable[[str], Compiled],
) -> None:
    assert [compiled(name).notes for name in ("gpt2", "llama3.1", "qwen3")] == [()] * 3


def test_a_tokenizer_that_is_only_python_is_counted_by_transformers(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    tokenizer = Tokenizer(str(tmp_path))
    assert tokenizer.compiled.form == "transformers"
    assert not tokenizer.compiled.may_cut
    texts = ["hello", "naïve"]
    assert count(tmp_path, texts) == by_auto(tmp_path, texts) == [6, 7]  # bytes, and one </s>
    profile = chunkscope.analyze(write_rows(tmp_path / "rows.jsonl", texts), str(tmp_path))
    assert profile.tokenizer.engine.startswith("transformers ")
    assert profile.overall.total == 13


class Repeating(PreTrainedTokenizerFast):
    """Does in Python what its backend knows nothing of."""

    def __call__(self, text: Any, **how: Any) -> Any:
        return super().__call__([each + each for each in text], **how)


@pytest.mark.usefixtures("fewer_strings")
def test_a_tokenizer_whose_python_side_does_more_is_counted_by_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(splitting(WORDS, "t h"), tmp_path, tokenizer_class="PreTrainedTokenizerFast")

    def load(_: Path, **__: Any) -> Any:
        return Repeating(tokenizer_file=str(folder / "tokenizer.json"))

    monkeypatch.setattr(auto, "load_auto", load)
    assert Tokenizer(str(folder)).compiled.form == "transformers"
    assert count(folder, ["abc", "the"]) == [6, 4]


REMOTE = """
from transformers import PreTrainedTokenizerFast
class Remote(PreTrainedTokenizerFast):
    pass
"""


@pytest.mark.usefixtures("fewer_strings")
def test_python_in_a_tokenizer_folder_is_not_run_unasked(tmp_path: Path) -> None:
    folder = save(
        splitting(WORDS),
        tmp_path,
        tokenizer_class="Remote",
        auto_map={"AutoTokenizer": [None, "remote.Remote"]},
    )
    (folder / "remote.py").write_text(REMOTE)
    with pytest.raises(InputError, match="is a Python program") as raised:
        count(folder, ["text"])
    assert "--trust-remote-code" in (raised.value.hint or "")


@pytest.mark.usefixtures("fewer_strings")
def test_trust_given_once_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(splitting(WORDS), tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    asked: list[bool] = []

    def load(_: Path, *, trust_remote_code: bool = False) -> Any:
        asked.append(trust_remote_code)
        return Repeating(tokenizer_file=str(folder / "tokenizer.json"))

    monkeypatch.setattr(auto, "load_auto", load)
    assert Tokenizer(str(folder), trust_remote_code=True).compiled.remote_code
    assert not Tokenizer(str(folder)).compiled.remote_code
    assert asked == [True, False]


@pytest.mark.usefixtures("fewer_strings")
def test_changed_code_or_templates_make_another_tokenizer(tmp_path: Path) -> None:
    folder = save(splitting(WORDS), tmp_path)
    digests = [Tokenizer(str(folder)).digest]
    (folder / "additional_chat_templates").mkdir()
    for name in ("tokenization_x.py", "x.tiktoken", "additional_chat_templates/rag.jinja"):
        (folder / name).write_text("x")
        digests.append(Tokenizer(str(folder)).digest)
    assert len(set(digests)) == 4


# --- special tokens, truncation, templates --------------------------------------------------


def with_processor(processor: Any) -> Any:
    tokenizer = splitting(WORDS)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processor
    return tokenizer


IDS = [("<s>", 256), ("</s>", 257)]


@pytest.mark.usefixtures("fewer_strings")
@pytest.mark.parametrize(
    ("processor", "added"),
    [
        pytest.param(None, 0, id="none"),
        pytest.param(TemplateProcessing("<s> $A", special_tokens=IDS), 1, id="a beginning"),
        pytest.param(TemplateProcessing("$A </s>", special_tokens=IDS), 1, id="an end"),
        pytest.param(TemplateProcessing("<s> $A </s>", special_tokens=IDS), 2, id="both"),
        pytest.param(BertProcessing(IDS[1], IDS[0]), 2, id="as BERT does"),
        pytest.param(TemplateProcessing("<s> <s> $A", special_tokens=IDS), 2, id="one twice"),
    ],
)
def test_the_special_tokens_of_a_prompt_are_added(
    tmp_path: Path, processor: Any, added: int
) -> None:
    tokenizer = with_processor(processor)
    path = tmp_path / "export.json"
    tokenizer.save(str(path))
    assert Tokenizer(str(path)).compiled.special_added == added
    assert count(path, TEXTS) == [len(tokenizer.encode(text)) for text in TEXTS]


def test_special_tokens_can_be_left_out(shared: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", ["one two"])
    llama = str(shared / "tokenizers" / "llama3.1")
    with_them = chunkscope.analyze(rows, llama)
    without = chunkscope.analyze(
        rows, options=AnalyzeOptions(tokenizer=llama, special_tokens=False)
    )
    assert (with_them.overall.total, without.overall.total) == (3, 2)
    assert with_them.tokenizer.special_tokens_added == 1
    assert without.tokenizer.special_tokens_added == 0


def test_truncation_and_padding_baked_into_a_tokenizer_json_are_ignored(
    shared: Path, tmp_path: Path
) -> None:
    bert = shared / "tokenizers" / "bert-minilm"
    assert json.loads((bert / "tokenizer.json").read_bytes())["truncation"]["max_length"] == 128
    rows = write_rows(tmp_path / "rows.jsonl", ["word " * 500, "word"])
    profile = chunkscope.analyze(rows, str(bert))
    assert (profile.overall.max, profile.overall.min) == (502, 3)  # with [CLS] and [SEP]

    padded = splitting(WORDS)
    padded.enable_truncation(4)
    padded.enable_padding(length=16)
    padded.save(str(tmp_path / "padded.json"))
    assert count(tmp_path / "padded.json", ["", "abcdefgh"]) == [0, 8]


def test_line_separators_of_unicode_do_not_break_rows(shared: Path, tmp_path: Path) -> None:
    texts = ["one\u2028two", "\u2029", "three\x85four\x0cfive\x1csix", "seven"]
    rows = write_rows(tmp_path / "rows.jsonl", texts)
    gpt2 = shared / "tokenizers" / "gpt2"
    profile = chunkscope.analyze(rows, str(gpt2))
    assert profile.overall.count == 4
    assert profile.overall.total == sum(count(gpt2, texts))


DATED = "{{ strftime_now('%d %B %Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.usefixtures("fewer_strings")
def test_a_chat_templates_length_may_depend_on_the_date(tmp_path: Path) -> None:
    folder = save(splitting(WORDS, "M a", "Ma y"), tmp_path / "model", chat_template=DATED)
    chats = tmp_path / "chats.jsonl"
    chats.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}) + "\n")

    def on(day: datetime.date) -> tuple[int, tuple[str, ...]]:
        how = AnalyzeOptions(tokenizer=str(folder), chat_date=day)
        (dataset,) = chunkscope.analyze(chats, options=how).datasets
        return dataset.lengths.total, dataset.notes

    in_may, notes = on(datetime.date(2026, 5, 1))
    assert in_may == len("01") + len(" ") + 1 + len(" 2026") + len("hi")
    assert on(datetime.date(2026, 9, 1))[0] == in_may + len("September") - 1
    assert on(datetime.date(2026, 5, 2))[0] == in_may
    assert any("prints the date (2026-05-01)" in note for note in notes)


# --- compiled once --------------------------------------------------------------------------

LATER_RUN = """
import sys, chunkscope
profile = chunkscope.analyze(sys.argv[1], sys.argv[2])
print(profile.overall.total, "transformers" in sys.modules, "tokenizers" in sys.modules)
"""


def test_a_later_run_does_not_import_transformers(
    shared: Path, tmp_path: Path, compiled: Callable[[str], Compiled]
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", TEXTS[1:])
    expected = sum(reference(compiled("qwen3")).count(TEXTS[1:]))
    command = [sys.executable, "-c", LATER_RUN, str(rows), str(shared / "tokenizers" / "qwen3")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    total, has_transformers, _ = done.stdout.split()
    assert (int(total), has_transformers) == (expected, "False")


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_a_key(path: Path) -> None:
    about = json.loads(read_checked(path))
    del about["notes"]
    write_checked(path, json.dumps(about).encode())


def change_bytes(path: Path) -> None:
    """The same size, other content."""
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content), len(content) // 5):
        content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.usefixtures("fewer_strings")
@pytest.mark.parametrize("file", ["meta.json", JSON_FILE, RANKS_FILE, INDEX_FILE, SKELETON_FILE])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(Path.unlink, id="gone"),
        pytest.param(cut_in_half, id="cut in half"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(change_bytes, id="changed, of the same size"),
    ],
)
def test_a_damaged_compiled_tokenizer_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, damage: Callable[[Path], None]
) -> None:
    check_rebuilt(tmp_path, monkeypatch, file, damage)


@pytest.mark.usefixtures("fewer_strings")
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(without_a_key, id="a key is missing"),
        pytest.param(lambda path: path.write_text("[1]"), id="a list"),
        pytest.param(lambda path: write_checked(path, b'{"content": {}, "odd": 1}'), id="odd keys"),
        pytest.param(
            lambda path: path.write_bytes(
                path.read_bytes().replace(b'"special_added":0', b'"special_added":5')
            ),
            id="another number of special tokens",
        ),
    ],
)
def test_a_damaged_description_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    check_rebuilt(tmp_path, monkeypatch, "meta.json", damage)


def check_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, damage: Callable[[Path], None]
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "export.json"
    splitting(WORDS, "t h", "th e").save(str(path))
    before = Tokenizer(str(path)).compiled
    content = (before.folder / file).read_bytes()
    damage(before.folder / file)
    after = Tokenizer(str(path)).compiled
    assert after == before
    assert (before.folder / file).read_bytes() == content


@pytest.mark.usefixtures("fewer_strings")
def test_an_exact_check_reads_the_tokenizers_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the same damage would be in what counts and in what it is compared with."""
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    tokenizer = splitting(WORDS, "t h", "th e")
    tokenizer.save(str(tmp_path / "export.json"))
    folder = save(tokenizer, tmp_path / "folder", tokenizer_class="PreTrainedTokenizerFast")
    for source in (tmp_path / "export.json", folder):
        exact = Tokenizer(str(source), exact_check=True)
        assert Tokenizer(str(source)).counting.count(["the the"]) == [3]
        place = exact.compiled.folder  # checked already: the damage comes after
        bpe("t h").save(str(place / JSON_FILE))
        (place / RANKS_FILE).write_bytes(
            (place / RANKS_FILE).read_bytes().replace(b"dGhl ", b"dGh4 ")
        )
        references._loaded.clear()
        assert exact.counting.count(["the the"]) == [3]
        assert exact.counting.corrected == 1


@pytest.mark.usefixtures("fewer_strings")
@pytest.mark.parametrize(
    "verdict",
    [
        {"agrees": False, "strings": 1, "different": 1},
        {"agrees": True, "strings": 1, "different": 0, "except_characters": "z-a"},
        {"agrees": True, "strings": 1, "different": 0, "except_characters": 5},
    ],
)
def test_a_changed_verdict_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: dict[str, Any]
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "export.json"
    splitting(WORDS, "t h", "th e").save(str(path))
    assert count(path, ["the"]) == [1]
    verdicts = list((tmp_path / "cache").rglob("*-against-*.json"))
    content = [place.read_bytes() for place in verdicts]
    assert verdicts
    for place in verdicts:
        place.write_text(json.dumps(verdict))
    assert count(path, ["the ë"]) == [4]
    assert [place.read_bytes() for place in verdicts] == content


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "export.json"
    bpe("t h").save(str(path))
    expected = count(path, ["the x"])
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert count(path, ["the x"]) == expected


@pytest.mark.usefixtures("fewer_strings")
def test_what_nobody_used_for_months_goes_when_another_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    for number, name in enumerate(("unused", "used", "another")):
        bpe(*["t h", "h e", "e r"][: number + 1]).save(str(tmp_path / f"{name}.json"))
    unused, used = (Tokenizer(str(tmp_path / f"{n}.json")).compiled for n in ("unused", "used"))
    months_ago = time.time() - 100 * 24 * 3600
    for place in (unused.folder, used.folder, used.folder.parent / ".pruned"):
        os.utime(place, (months_ago, months_ago))
    assert Tokenizer(str(tmp_path / "used.json")).compiled == used
    another = Tokenizer(str(tmp_path / "another.json")).compiled
    assert not unused.folder.exists()
    assert (used.folder / JSON_FILE).is_file()
    assert (another.folder / JSON_FILE).is_file()


@pytest.mark.usefixtures("fewer_strings")
def test_cuts_are_allowed_only_where_nothing_speaks_against_them(tmp_path: Path) -> None:
    joined = bpe("a Ġ", "aĠ b")
    joined.pre_tokenizer = Sequence([Split(Regex("a b|" + WORDS), "isolated"), BYTES])
    for name, tokenizer in (("plain", splitting(WORDS)), ("joined", joined)):
        tokenizer.save(str(tmp_path / f"{name}.json"))
    assert Tokenizer(str(tmp_path / "plain.json")).compiled.may_cut
    assert not Tokenizer(str(tmp_path / "joined.json")).compiled.may_cut
