"""A vocabulary reduced to what some texts can reach counts them as the whole one does."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunkscope.tokenizers import relevant
from chunkscope.tokenizers.compiled import INDEX_FILE, SKELETON_FILE, Compiled
from chunkscope.tokenizers.conformance import texts_for
from chunkscope.tokenizers.references import reference

REAL = ["llama3.1", "qwen3", "gpt2", "default"]


def assert_same(compiled: Compiled, texts: list[str]) -> int:
    """How many of the texts could be counted; those have the right count."""
    found = relevant.count(compiled, texts)
    assert found is not None
    right = reference(compiled).count(texts)
    assert [ours or 0 for ours in found] == [
        theirs if ours is not None else 0 for ours, theirs in zip(found, right, strict=True)
    ]
    return sum(ours is not None for ours in found)


@pytest.mark.parametrize("name", REAL)
def test_real_rows(compiled: Callable[[str], Compiled], shared: Path, name: str) -> None:
    rows = [
        json.loads(line)["prompt"]
        for file in ("ifeval/input_data.jsonl", "arena_hard/arena-hard-v0.1_question.jsonl")
        for line in (shared / "data" / file).read_bytes().splitlines()[::12]
    ]
    assert assert_same(compiled(name), [row[:2000] for row in rows]) > 0.9 * len(rows)


@pytest.mark.parametrize("name", REAL)
def test_the_strings_that_engines_get_wrong(compiled: Callable[[str], Compiled], name: str) -> None:
    assert_same(compiled(name), [text[:400] for text in texts_for(compiled(name))[::23]])


@pytest.mark.parametrize("name", REAL)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts=st.lists(st.text(max_size=40), max_size=5))
def test_any_text(compiled: Callable[[str], Compiled], name: str, texts: list[str]) -> None:
    assert_same(compiled(name), ["a word", *texts])


def test_special_tokens_in_a_text_are_counted_as_the_tokenizer_does(
    compiled: Callable[[str], Compiled],
) -> None:
    texts = ["a<|im_start|>b", "<|endoftext|>", "<|im_end|> \n<|im_start|>user"]
    assert assert_same(compiled("qwen3"), texts) == 3


def test_a_text_with_a_very_long_piece_is_left_to_others(
    compiled: Callable[[str], Compiled],
) -> None:
    assert relevant.count(compiled("gpt2"), ["x" * 1000, "short"]) == [None, 1]


@pytest.mark.parametrize("damage", [b"", b"not a database", None])
def test_a_damaged_index_is_no_answer_and_no_crash(
    compiled: Callable[[str], Compiled], tmp_path: Path, damage: bytes | None
) -> None:
    broken = replace(compiled("gpt2"), folder=tmp_path / "odd #1?")
    broken.folder.mkdir()
    skeleton = compiled("gpt2").folder / SKELETON_FILE
    (broken.folder / SKELETON_FILE).write_bytes(skeleton.read_bytes())
    index = broken.folder / INDEX_FILE
    if damage is not None:
        index.write_bytes(damage)
    assert relevant.count(broken, ["some text"]) is None
    index.write_bytes((compiled("gpt2").folder / INDEX_FILE).read_bytes())
    assert relevant.count(broken, ["some text"]) == [2]
    with sqlite3.connect(index) as database:
        database.execute("DROP TABLE vocabulary")
    assert relevant.count(broken, ["some text"]) is None
