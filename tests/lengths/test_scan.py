"""A scan of several datasets: how far it is, and what went wrong in one of them."""

from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.lengths.scan import Listener
from tests.commands.helpers import prompts, write_jsonl


class Noted(Progress):
    def __init__(self) -> None:
        self.told: list[dict[str, int]] = []

    def at(self, **now: int) -> None:
        self.told.append(now)


def analyze(data: Path, progress: Noted) -> chunkscope.Profile:
    return chunkscope.analyze(data, listener=Listener(progress=progress))


@pytest.mark.parametrize("seen_before", [False, True], ids=["counted", "from the cache"])
def test_progress_ends_at_what_was_counted_and_never_goes_back(
    tmp_path: Path, seen_before: bool
) -> None:
    for name, rows in (("a", 300), ("b", 20), ("c", 1)):
        write_jsonl(tmp_path / f"{name}.jsonl", prompts(rows, field=f"q{seen_before}"))
    if seen_before:
        analyze(tmp_path, Noted())
    progress = Noted()
    profile = analyze(tmp_path, progress)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    total = {"rows": 321, "tokens": profile.overall.total, "bytes_read": size}
    assert total in progress.told
    for name, most in total.items():
        assert max(now[name] for now in progress.told) == most


def test_the_error_of_the_only_dataset_is_raised_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_text("no gzip")
    with pytest.raises(InputError, match="is not gzip data") as raised:
        chunkscope.analyze(tmp_path / "a.jsonl.gz")
    assert "hint:" not in raised.value.message


def test_beside_others_it_is_a_sentence_of_the_profile(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(3))
    write_jsonl(tmp_path / "b.jsonl", [{"messages": [{"role": "user", "content": "hi"}]}])
    template = tmp_path / "chat.jinja"
    template.write_text("{% endfor %}")
    options: Any = chunkscope.AnalyzeOptions(chat_template=template)
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    (failed,) = chunkscope.analyze(files, options=options).failures
    assert "not valid Jinja" in (failed.failure or "")
    assert "\n\nhint: give another one" in (failed.failure or "")
