"""A scan of several datasets: how far it is, and what went wrong in one of them."""

import datetime
import time
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock
from zipfile import ZipFile

import pytest

import chunkscope
from chunkscope.console import Progress
from chunkscope.lengths import scan
from chunkscope.lengths.analyze import analyze as run
from chunkscope.lengths.pools import bounded_map, threads
from tests.commands.helpers import prompts, write_jsonl


def test_progress_ends_at_what_was_counted_and_never_goes_back(tmp_path) -> None:
    for name, rows in (("a", 300), ("b", 20), ("c", 1)):
        write_jsonl(tmp_path / f"{name}.jsonl", prompts(rows))
    progress = Mock(Progress)
    profile = run(tmp_path, listener=progress)
    told = [call.kwargs for call in progress.at.call_args_list]
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    total = {"rows": 321, "tokens": profile.overall.total, "bytes_read": size}
    assert total in told
    for name, most in total.items():
        assert max(now[name] for now in told) == most


def test_what_was_met_while_counting_is_noted(tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{{ strftime_now('%Y') }} {{ messages[0].content }}")
    image = [
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": "look"},
    ]
    chats = [
        {"messages": [{"role": "user", "content": content}]}
        for content in ("hi", image)
    ]
    tools = [{**chats[0], "tools": [{"function": {"name": "f"}}]}] * 3
    data = write_jsonl(tmp_path / "a.jsonl", [*chats, *tools])
    day = datetime.date(2024, 5, 1)
    options = chunkscope.AnalyzeOptions(chat_template=template, chat_date=day)
    (dataset,) = chunkscope.analyze(data, options=options).datasets
    notes = {note.code: note.values for note in dataset.notes}
    counts = {"tools_ignored": {"count": 3}, "media_rows": {"count": 1}}
    assert notes == {"date_in_template": {"day": "2024-05-01"}, **counts}
    empty = write_jsonl(
        tmp_path / "c.jsonl", [{"prompt": "a b"}, {"prompt": ""}, {"prompt": ""}]
    )
    (dataset,) = chunkscope.analyze(empty, special_tokens=False).datasets
    assert [str(note.values["count"]) + note.code for note in dataset.notes] == [
        "2empty_prompts"
    ]
    texts = write_jsonl(tmp_path / "b.jsonl", prompts(2))
    as_chat = chunkscope.AnalyzeOptions(
        chat_template=template, apply_chat_template=True
    )
    assert [d.field for d in chunkscope.analyze(texts, options=as_chat).datasets] == [
        "prompt (as chat)"
    ]


def test_an_archive_is_digested_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in "abc":
            archive.writestr(f"{name}.jsonl", '{"prompt": "hi"}')
    monkeypatch.setattr(scan, "file_digest", digest := Mock(wraps=scan.file_digest))
    assert len(run(tmp_path / "a.zip").datasets) == 3
    digest.assert_called_once()


def test_a_file_that_is_deleted_while_it_is_read_is_a_failed_dataset(
    tmp_path: Path,
) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts(3))
    gone = write_jsonl(tmp_path / "b.jsonl", [{"prompt": "a b"}] * 9)
    progress = Mock(Progress)
    progress.begin.side_effect = lambda _: gone.unlink()
    profile = run(tmp_path, listener=progress)
    first, second = profile.datasets
    assert first.failure is None
    assert second.failure is not None
    assert second.failure.code == "cannot_read"


def test_batches_come_back_in_order_however_long_they_take() -> None:
    with threads(4, "test") as pool:
        batches = [Sleep(size) for size in (3, 1, 2, 0, 1)]
        assert list(bounded_map(pool, Sleep.done, batches, 4)) == [3, 1, 2, 0, 1]


def test_no_more_batches_are_under_way_than_were_asked_for() -> None:
    taken: list[int] = []

    def batches():
        for size in range(1, 6):
            taken.append(size)
            yield Sleep(size)

    with threads(1, "test") as pool:
        first = next(bounded_map(pool, Sleep.done, batches(), 1))
    assert (first, taken) == (1, [1, 2])


@dataclass
class Sleep:
    """A batch that takes as many milliseconds as it has bytes."""

    size: int

    def done(self) -> int:
        time.sleep(self.size / 50)
        return self.size


def test_many_small_files_are_counted_as_one_by_one(tmp_path: Path) -> None:
    for number in range(40):
        write_jsonl(tmp_path / f"{number:02}.jsonl", prompts(number + 1))
    profile = run(tmp_path)
    assert [dataset.rows for dataset in profile.datasets] == list(range(1, 41))
    (last,) = run(tmp_path / "39.jsonl").datasets
    assert profile.datasets[-1].lengths == last.lengths
