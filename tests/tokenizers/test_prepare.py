"""Tokenizers made ready: AutoTokenizer's view, saved once, with nothing capped."""

import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tokenizers.processors import BertProcessing, TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import import_utils, logging

from chunkscope.prompts.chat import Conversation
from chunkscope.tokenizers import reference
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.commands.helpers import write_jsonl
from tests.tokenizers.helpers import WORDS, lengths, save, splitting

TEXTS = ["", "the answer is 12345", "naïve  東京\n\n", "the" * 40, "<s> a </s>"]
SPECIALS = [
    "<|endoftext|>",
    "before<|endoftext|>after <|im_start|>user\n<|im_end|>",
    "<s>[INST] hi [/INST]</s>",
    "<|begin_of_text|><|eot_id|> <|begin_of_text|",
]
FAST = "PreTrainedTokenizerFast"


def by_auto(folder: Path, texts: list[str]) -> list[int]:
    return [
        len(ids)
        for ids in AutoTokenizer.from_pretrained(str(folder))(texts)["input_ids"]
    ]


# -- AutoTokenizer's view


@pytest.mark.parametrize("name", ["gpt2", "llama3.1", "bert-minilm"])
def test_literal_special_tokens_are_counted_as_autotokenizer_counts_them(
    shared, name
) -> None:
    folder = shared / "tokenizers" / name
    texts = [*SPECIALS, *TEXTS]
    assert lengths(folder, texts) == by_auto(folder, texts)


@pytest.mark.parametrize("config", [{}, {"add_prefix_space": True}], ids=str)
def test_where_autotokenizer_differs_from_tokenizer_json_it_is_right(
    tmp_path, config
) -> None:
    raw = splitting(r"\p{N}{1,2}|\p{L}+|[^\p{L}\p{N}]", "1 2", "12 3", "t h", "th e")
    folder = save(raw, tmp_path / "model", tokenizer_class="GPT2Tokenizer", **config)
    alone = [len(raw.encode(text)) for text in TEXTS]
    assert lengths(folder, TEXTS) == by_auto(folder, TEXTS) != alone
    raw.save(str(tmp_path / "tokenizer-only.json"))
    assert lengths(tmp_path / "tokenizer-only.json", TEXTS) == alone


def test_a_file_called_tokenizer_json_is_read_with_what_is_around_it(
    tmp_path: Path,
) -> None:
    folder = save(splitting(WORDS, "t h"), tmp_path, tokenizer_class=FAST)
    by_file, by_folder = (
        Tokenizer(str(folder / "tokenizer.json")),
        Tokenizer(str(folder)),
    )
    assert by_file.digest == by_folder.digest
    assert by_file.kind == "hf"


def test_a_tokenizer_that_is_only_python_is_counted_by_transformers(
    tmp_path: Path,
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "ByT5Tokenizer"}'
    )
    assert Tokenizer(str(tmp_path)).facts.package == "transformers"
    texts = ["hello", "naïve"]
    assert (
        lengths(tmp_path, texts) == by_auto(tmp_path, texts) == [6, 7]
    )  # bytes, and one </s>


class Repeating(PreTrainedTokenizerFast):
    """Does in Python what its backend knows nothing of."""

    def __call__(self, text: Any, **how: Any) -> Any:
        return super().__call__([each + each for each in text], **how)


def test_a_tokenizer_whose_python_side_does_more_is_counted_by_transformers(
    tmp_path, monkeypatch
):
    """And trust in its code, given once, is not remembered."""
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    folder = save(splitting(WORDS, "t h"), tmp_path / "t", tokenizer_class=FAST)
    trusted: list[bool] = []

    def load(_: str, *, trust_remote_code: bool, **_known: Any) -> Any:
        trusted.append(trust_remote_code)
        return Repeating(tokenizer_file=str(folder / "tokenizer.json"))

    monkeypatch.setattr(reference, "auto_tokenizer", lambda: Mock(from_pretrained=load))
    assert Tokenizer(str(folder), trust_remote_code=True).facts.runs_code
    assert lengths(folder, ["abc", "the"]) == [6, 4]
    assert trusted == [True, False]


def test_changed_code_or_templates_make_another_tokenizer(tmp_path: Path) -> None:
    folder = save(splitting(WORDS), tmp_path)
    digests = [Tokenizer(str(folder)).digest]
    (folder / "additional_chat_templates").mkdir()
    for name in (
        "tokenization_x.py",
        "x.tiktoken",
        "additional_chat_templates/rag.jinja",
    ):
        (folder / name).write_text("x")
        digests.append(Tokenizer(str(folder)).digest)
    assert len(set(digests)) == 4


# -- special tokens, truncation, templates

IDS = [("<s>", 256), ("</s>", 257)]


@pytest.mark.parametrize(
    ("processor", "added"),
    [
        pytest.param(None, 0, id="none"),
        pytest.param(
            TemplateProcessing("<s> $A", special_tokens=IDS), 1, id="a beginning"
        ),
        pytest.param(TemplateProcessing("$A </s>", special_tokens=IDS), 1, id="an end"),
        pytest.param(BertProcessing(IDS[1], IDS[0]), 2, id="as BERT does"),
        pytest.param(
            TemplateProcessing("<s> <s> $A", special_tokens=IDS), 2, id="one twice"
        ),
    ],
)
def test_the_special_tokens_of_a_prompt_are_added(tmp_path, processor, added) -> None:
    tokenizer = splitting(WORDS)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processor
    path = tmp_path / "export.json"
    tokenizer.save(str(path))
    assert Tokenizer(str(path)).facts.special_added == added
    assert lengths(path, TEXTS) == [len(tokenizer.encode(text)) for text in TEXTS]
    ids = Tokenizer(str(path)).encode(TEXTS, special_tokens=True)
    assert ids == [tokenizer.encode(text).ids for text in TEXTS]


@pytest.mark.parametrize(
    ("template", "after"),
    [
        pytest.param("<s> $A", 0, id="before"),
        pytest.param("$A </s>", 1, id="after"),
        pytest.param("<s> $A </s> </s>", 2, id="on both sides"),
    ],
)
def test_special_tokens_after_a_prompt_are_told_from_those_before_it(
    tmp_path, template, after
) -> None:
    tokenizer = splitting(WORDS)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = TemplateProcessing(template, special_tokens=IDS)
    tokenizer.save(str(tmp_path / "export.json"))
    assert Tokenizer(str(tmp_path / "export.json")).facts.special_after == after


def test_transformers_is_left_as_it_was(tmp_path) -> None:
    """Its user may have set how much it says, and what it does on import."""
    folder = save(splitting(WORDS, "t h"), tmp_path / "t", tokenizer_class=FAST)
    before = dict(os.environ)
    logging.set_verbosity_info()
    scan = import_utils.create_import_structure_from_path
    try:
        Tokenizer(str(folder)).count(["the"])
        assert logging.get_verbosity() == logging.INFO
    finally:
        logging.set_verbosity_warning()
    assert import_utils.create_import_structure_from_path is scan
    assert dict(os.environ) == before


def test_truncation_and_padding_baked_into_a_tokenizer_json_are_ignored(
    tmp_path: Path,
) -> None:
    padded = splitting(WORDS)
    padded.enable_truncation(4)
    padded.enable_padding(length=16)
    padded.save(str(tmp_path / "padded.json"))
    folder = save(padded, tmp_path / "folder", tokenizer_class=FAST)
    for place in (tmp_path / "padded.json", folder):
        for _ in ("the first run", "a later one"):
            assert lengths(place, ["", "abcdefgh"]) == [0, 8]


def test_a_template_with_a_date_is_rendered_for_the_day_that_is_asked_for(
    tmp_path: Path,
) -> None:
    folder = save(splitting(WORDS), tmp_path, chat_template="{{ strftime_now('%B') }}")
    days = [datetime.date(2026, month, 1) for month in (5, 9)]
    may, september = (Tokenizer(str(folder), chat_date=day) for day in days)
    chat = Conversation([{"role": "user", "content": "hi"}])
    assert [may.chat_text(chat), september.chat_text(chat)] == ["May", "September"]


def test_a_processors_template_goes_first_where_there_are_no_tools(
    tmp_path: Path,
) -> None:
    folder = save(splitting(WORDS), tmp_path, chat_template="the tokenizer's")
    (folder / "chat_template.json").write_text('{"chat_template": "the processor\'s"}')
    message, tool = (
        {"role": "user", "content": "hi"},
        {"type": "function", "function": {}},
    )
    chats = [Conversation([message], tools=tools) for tools in (None, [tool])]
    texts = list(map(Tokenizer(str(folder)).chat_text, chats))
    assert texts == ["the processor's", "the tokenizer's"]


LATER_RUN = """
import sys, chunkscope
profile = chunkscope.analyze(sys.argv[1], tokenizer=sys.argv[2])
print(profile.overall.total, "transformers" in sys.modules)
"""


def test_a_later_run_does_not_import_transformers(tmp_path: Path) -> None:
    folder = save(splitting(WORDS, "t h"), tmp_path / "model", tokenizer_class=FAST)
    rows = write_jsonl(
        tmp_path / "rows.jsonl", [{"prompt": text} for text in TEXTS[1:]]
    )
    expected = sum(lengths(folder, TEXTS[1:]))
    command = [sys.executable, "-c", LATER_RUN, str(rows), str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split() == [str(expected), "False"]


@pytest.mark.parametrize("pattern", ["??/*", "*.json"], ids=["facts", "tokenizer.json"])
@pytest.mark.parametrize(
    "damage", [lambda _: None, lambda _: b"", lambda b: b.replace(b'"', b"'")]
)
def test_a_damaged_tokenizer_in_the_cache_is_prepared_again(
    tmp_path, monkeypatch, pattern, damage
):
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "export.json"
    splitting(WORDS, "t h", "th e").save(str(path))
    before = Tokenizer(str(path)).facts
    (file,) = (tmp_path / "cache" / "tokenizers").glob(pattern)
    content = file.read_bytes()
    file.unlink()
    if (damaged := damage(content)) is not None:
        file.write_bytes(damaged)
    assert Tokenizer(str(path)).facts == before
    assert file.read_bytes() == content
