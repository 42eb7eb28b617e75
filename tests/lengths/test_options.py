"""How analyze was asked: said once, and known to the command line, the cache and the profile."""

import datetime
import inspect
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from chunkscope import AnalyzeOptions, Profile
from chunkscope.commands import analyze as command
from chunkscope.lengths import options as module
from chunkscope.lengths.profile import TokenizerInfo
from chunkscope.sources.base import ReadOptions
from tests.commands.helpers import analyze as run

REPORTS = Path(__file__).parents[2] / "reports"

# Every option, said differently from its default on the command line.
SAID: dict[str, list[str]] = {
    "tokenizer": ["--tokenizer", "gpt2"],
    "fields": ["--field", "question"],
    "each": ["--each", "instructions"],
    "template": ["--template", "Q: {question}"],
    "choices": ["--choices", "options"],
    "prefix_files": ["--prefix-file", "prefix.txt"],
    "output_field": ["--output-field", "answer"],
    "chat": ["--no-chat-template"],
    "vllm_version": ["--vllm-version", "0.24"],
    "apply_chat_template": ["--apply-chat-template"],
    "chat_template": ["--chat-template", "chat.jinja"],
    "chat_date": ["--chat-date", "2026-01-31"],
    "special_tokens": ["--no-special-tokens"],
    "sample": ["--sample", "5"],
    "seed": ["--sample", "5", "--seed", "1"],
    "include": ["--include", "*.jsonl"],
    "exclude": ["--exclude", "*.txt"],
    "input_format": ["--input-format", "csv"],
    "encoding": ["--encoding", "latin-1"],
    "per_line": ["--per-line"],
    "delimiter": ["--delimiter", ";"],
    "header": ["--no-header"],
    "trust_remote_code": ["--trust-remote-code"],
    "names": ["--name", "mine"],
    "keep_longest": ["--show-longest", "15"],
    "prefixes": ["--no-prefixes"],
    "order": ["--order", "sorted.jsonl"],
    "exact_check": ["--exact-check"],
    "use_cache": ["--no-cache"],
    "shots": ["--shots", "5"],
    "include_path": ["--include-path", "tasks"],
    "fewshot_as_multiturn": ["--no-fewshot-as-multiturn"],
    "limit": ["--limit", "10"],
    "timeout": ["--timeout", "60"],
    "piece_bytes": ["--piece-mib", "64"],
}
NOTHING = Profile(
    tokenizer=TokenizerInfo(
        name="none", digest="", kind="none", engine="", reference="", special_tokens_added=0
    ),
    datasets=(),
)
# What is said in Python only: on the command line a prefix comes out of a file.
ONLY_IN_PYTHON = {"prefix"}
# What the command line has besides: how the result is shown and kept, and a tokenizer by its model.
SHOWN = {"paths", "model", "skip_bad_rows", "as_json", "quiet", "output_format", "output"}
SHOWN |= {"export_trace", "trace_block", "shard", "ray", "_shared_cache"}


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> AnalyzeOptions:
    """The options that a command line is turned into."""
    (tmp_path / "prefix.txt").write_text("Answer this.")
    (tmp_path / "chat.jinja").write_text("{{ messages }}")
    seen: list[AnalyzeOptions] = []

    def note(_: Any, *, options: AnalyzeOptions, **__: Any) -> Profile:
        seen.append(options)
        return NOTHING

    monkeypatch.setattr("chunkscope.lengths.analyze.analyze", note)
    assert run(tmp_path, "a.jsonl", *words).code == 0
    return seen[0]


def test_the_table_of_this_test_names_every_option() -> None:
    """Add a new option there; the tests below then ask what becomes of it."""
    assert set(SAID) | ONLY_IN_PYTHON == set(AnalyzeOptions().flat())
    parameters = set(inspect.signature(command.analyze).parameters) - SHOWN
    assert len(parameters) == len(SAID)


@pytest.mark.parametrize("name", SAID)
def test_every_option_comes_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    default = asked(tmp_path, monkeypatch).flat()
    given = asked(tmp_path, monkeypatch, *SAID[name]).flat()
    assert given[name] != default[name]
    others = {other for other in given if given[other] != default[other]} - {name}
    assert others <= {"sample", "seed"}


@pytest.mark.parametrize("name", SAID)
def test_every_option_is_in_the_key_and_in_the_record_or_it_is_said_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    default, given = asked(tmp_path, monkeypatch), asked(tmp_path, monkeypatch, *SAID[name])
    assert (given.cache_key() == default.cache_key()) is (name in module.NOT_IN_THE_KEY)
    assert (given.recorded() == default.recorded()) is (name in module.NOT_RECORDED)
    if name not in {"prefix_files", *module.NOT_RECORDED}:
        again = AnalyzeOptions.from_record(json.loads(json.dumps(given.recorded())))
        assert again.flat()[name] == given.flat()[name]


def test_no_reason_is_given_for_what_is_no_option() -> None:
    assert {*module.NOT_IN_THE_KEY, *module.NOT_RECORDED} <= set(AnalyzeOptions().flat())


def test_no_two_parts_have_an_option_of_the_same_name() -> None:
    parts = [AnalyzeOptions, *module._PARTS.values()]
    names = [option.name for part in parts for option in fields(part)]
    assert len(names) == len(set(names))


def test_a_command_without_new_options_records_what_it_always_did() -> None:
    assert list(AnalyzeOptions().recorded()) == [
        *("tokenizer", "fields", "template", "prefix_sha256", "output_field", "chat"),
        *("apply_chat_template", "chat_date", "special_tokens", "sample", "seed"),
        *("include", "exclude"),
    ]


@pytest.mark.parametrize(
    "path", sorted(REPORTS.glob("*/**/profile.json")), ids=lambda path: path.parent.name
)
def test_committed_profiles_say_how_they_were_asked(path: Path) -> None:
    recorded = Profile.load(path).options
    again = AnalyzeOptions.from_record(recorded).recorded()
    assert again == {name: recorded[name] for name in again}


def test_a_tab_and_a_day_come_back_as_they_were() -> None:
    read = ReadOptions(delimiter="\t", header=False)
    options = AnalyzeOptions(read=read, chat_date=datetime.date(2026, 1, 31), sample=3, seed=7)
    assert AnalyzeOptions.from_record(options.recorded()) == options


def test_names_that_are_no_text_can_be_recorded() -> None:
    odd = "a\udcff"
    options = AnalyzeOptions(tokenizer=odd, include=(odd,), names=(odd,))
    json.dumps(replace(options, read=ReadOptions(delimiter="\udcff")).recorded()).encode()
    assert options.recorded()["include"] == ["a?"]
