"""How analyze was asked: one value is the command line and the profile's record."""

import datetime
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from chunkscope import AnalyzeOptions, Profile, analyze
from chunkscope.sources.base import ReadOptions
from tests.commands.helpers import write_jsonl

# Another value than the default of every option.
OTHER: dict[str, Any] = {
    **dict.fromkeys(("fields", "each", "choices", "exclude"), ("x",)),
    **dict.fromkeys(("tokenizer", "template", "output_field", "include_path"), "x"),
    "encoding": "latin-1",
    "delimiter": ";",
    "input_format": "csv",
    **dict.fromkeys(("shots", "sample", "seed", "keep_longest"), 3),
    "limit": 2.0,
    "timeout": 9.0,
    "chat_template": Path("x"),
    "header": False,
    "chat_date": datetime.date(2026, 1, 31),
    "fewshot_as_multiturn": True,
}
NOT_RECORDED = {"chat_template", "trust_remote_code", "timeout"}


def changed(options: Any, name: str, value: Any) -> Any:
    """The options with one of them changed, wherever it is."""
    if name in {field.name for field in fields(options)}:
        return replace(options, **{name: value})
    parts = {f.name: getattr(options, f.name) for f in fields(options)}
    nested = {part: one for part, one in parts.items() if is_dataclass(one)}
    (part,) = [
        part for part, one in nested.items() if name in {f.name for f in fields(one)}
    ]
    return replace(options, **{part: changed(nested[part], name, value)})


def names(options: Any = AnalyzeOptions()) -> list[str]:  # noqa: B008
    parts = [(f.name, getattr(options, f.name)) for f in fields(options)]
    return [
        n for name, one in parts for n in (names(one) if is_dataclass(one) else [name])
    ]


@pytest.mark.parametrize("name", sorted(set(names()) - {"prefix_file", "datasets"}))
def test_every_option_is_in_the_record_or_it_is_listed(name: str) -> None:
    default = AnalyzeOptions(sample=7) if name == "seed" else AnalyzeOptions()
    flags = {field: not getattr(default, field, False) for field in names()}
    given = changed(default, name, OTHER.get(name, flags[name]))
    assert given != default
    assert (given.recorded() != default.recorded()) is (name not in NOT_RECORDED)


def test_no_two_parts_have_an_option_of_the_same_name() -> None:
    assert len(names()) == len(set(names()))


def test_what_a_profile_records_is_enough_to_ask_again(tmp_path: Path) -> None:
    data = write_jsonl(
        tmp_path / "a.jsonl", [{"question": "What is it?", "n": n} for n in range(9)]
    )
    prefix = tmp_path / "prefix.txt"
    prefix.write_text("Answer this.")
    asked = AnalyzeOptions(
        read=ReadOptions(delimiter="\t", header=False),
        chat_date=datetime.date(2026, 1, 31),
        sample=3,
        seed=7,
        prefix_file=str(prefix),  # type: ignore[arg-type]
    )
    analyze(data, options=asked).save(tmp_path / "profile.json")
    loaded = Profile.load(tmp_path / "profile.json")
    file = loaded.options.prefix_file
    assert file is not None
    assert (file.text, file.content) == (None, "Answer this.")
    assert replace(loaded.options, prefix_file=None) == replace(asked, prefix_file=None)
    assert analyze(data, options=loaded.options).digest() == loaded.digest()


def test_a_tokenizer_may_be_a_path() -> None:
    assert AnalyzeOptions(tokenizer=Path("a")) == AnalyzeOptions(tokenizer="a")  # type: ignore[arg-type]
