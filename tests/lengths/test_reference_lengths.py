"""Lengths equal those that the reference libraries gave for real sets."""

import json
from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope import AnalyzeOptions, LengthHistogram
from chunkscope.prompts.options import SelectOptions
from chunkscope.tokenizers import tokenizer as ours
from tests.benchmarks import corpora
from tests.commands.helpers import write_jsonl

SHARED = Path(__file__).parents[3] / "shared"
DATA = SHARED / "data"
FILE = DATA / "reference_lengths.json"
REFERENCE: dict[str, Any] = (
    json.loads(FILE.read_bytes())
    if FILE.is_file()
    else {"text": {}, "chat": {}, "trace": {}}
)
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(
        not FILE.is_file(), reason="no reference data beside the checkout"
    ),
]


LARGE = ("mmlu_5shot", "bbh_cot_3shot", "qmsum_prompts")  # one tokenizer in the core


def cases(section: str) -> list[Any]:
    real = pytest.mark.real
    return [
        pytest.param(
            *(name, tokenizer),
            id=f"{name}-{tokenizer}",
            marks=[real] if name in LARGE and tokenizer != "llama3.1" else [],
        )
        for tokenizer in ("gpt2", "llama3.1", "qwen3")
        for name, entry in REFERENCE[section].items()
        if tokenizer in entry["lengths"]
    ]


def assert_equal(lengths: LengthHistogram, expected: dict[str, int | float]) -> None:
    found = {**lengths.summary(), "sum": lengths.total}
    assert {name: found[name] for name in expected} == expected


def options(tokenizer: str, *fields: str, **others: Any) -> AnalyzeOptions:
    """As the reference was counted: without a prompt's special tokens."""
    return AnalyzeOptions(
        tokenizer=str(SHARED / "tokenizers" / tokenizer),
        select=SelectOptions(fields=fields),
        special_tokens=False,
        prefixes=False,
        **others,
    )


def field_of(entry: dict[str, Any]) -> str:
    """The field of a row; the reference adds remarks to some."""
    if entry["field"].startswith("column 0"):
        return "column0"
    return str(entry["field"]).split(" (")[0].removeprefix("examples[].")


@pytest.mark.parametrize(("name", "tokenizer"), cases("text"))
def test_every_text_set_has_the_reference_lengths(tmp_path, name, tokenizer) -> None:
    entry = REFERENCE["text"][name]
    if "rendered" in entry["field"]:
        prompts = corpora.mmlu(DATA) if name == "mmlu_5shot" else corpora.bbh(DATA)
        path, field = (
            write_jsonl(tmp_path / "x.jsonl", ({"prompt": p} for p in prompts)),
            "prompt",
        )
    else:
        path, field = DATA / entry["path"], field_of(entry)
    profile = chunkscope.analyze(path, options=options(tokenizer, field))
    assert_equal(profile.overall, entry["lengths"][tokenizer])
    assert sum(dataset.chars or 0 for dataset in profile.datasets) == entry["chars"]
    assert profile.skipped == entry["skipped"]


@pytest.mark.parametrize(("name", "tokenizer"), cases("chat"))
def test_every_chat_set_has_the_reference_lengths(name: str, tokenizer: str) -> None:
    entry = REFERENCE["chat"][name]
    if entry["field"] == "user=turns[0]":
        how = options(tokenizer, "turns[0]", apply_chat_template=True)
    else:
        how = options(tokenizer)
    profile = chunkscope.analyze(DATA / entry["path"], options=how)
    assert_equal(profile.overall, entry["lengths"][tokenizer])


@pytest.mark.parametrize("name", REFERENCE["trace"])
def test_every_trace_has_the_reference_lengths_without_a_tokenizer(name: str) -> None:
    entry = REFERENCE["trace"][name]
    (dataset,) = chunkscope.analyze(DATA / entry["path"]).datasets
    assert_equal(dataset.lengths, entry["input"])
    assert dataset.output_lengths is not None
    assert_equal(dataset.output_lengths, entry["output"])
    assert dataset.engine is None


# Sets with a prompt in the same field: one run counts them all.
TOGETHER = (
    "humaneval",
    "mbpp_sanitized",
    "ifeval",
    "arena_hard_v0.1",
    "longchat_topics_5",
)


def count_together(tokenizer: str, **others: Any) -> chunkscope.Profile:
    paths = [str(DATA / REFERENCE["text"][name]["path"]) for name in TOGETHER]
    how = options(tokenizer, "prompt", **others)
    profile = chunkscope.analyze(paths, options=how)
    for name, dataset in zip(TOGETHER, profile.datasets, strict=True):
        assert_equal(dataset.lengths, REFERENCE["text"][name]["lengths"][tokenizer])
    return profile


@pytest.mark.parametrize(
    "tokenizer", ["llama3.1", pytest.param("qwen3", marks=pytest.mark.real)]
)
def test_a_fast_engine_gives_the_reference_lengths(monkeypatch, tokenizer) -> None:
    for name, is_fast in (("tokenizers", False), ("splintr-rs", True)):
        monkeypatch.setattr(ours, "pays_off", lambda *_, pays=is_fast: pays)
        assert count_together(tokenizer).tokenizer.engine.startswith(f"{name} ")
