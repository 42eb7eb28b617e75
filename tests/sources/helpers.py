"""What the tests of sources share: a file read to its end, records turned into prompts."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chunkscope.errors import ChunkscopeError
from chunkscope.prompts.harness.log import HarnessLog, RequestSelection, SentRequest
from chunkscope.prompts.select import select, selected
from chunkscope.prompts.selection import Prompts, Selection, SelectOptions
from chunkscope.sources.base import Chunk, Problems, ReadOptions, Source
from chunkscope.sources.discovery import discover
from chunkscope.sources.readers import open_reader

SHARED = Path(__file__).parents[3] / "shared" / "data"


def shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no reference data at {path}")
    return path


@dataclass
class Read:
    """A source, read: its records and where they were, bad rows, and the error it ended in."""

    records: list[Any] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    head: list[Any] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    error: ChunkscopeError | None = None
    format: str = ""
    unit: str = ""
    rows_at: str | None = None


def read(place: Path | str | Source, columns: list[str] | None = None, **options: Any) -> Read:
    """Everything in one source; a ChunkscopeError on the way is kept, any other is a bug."""
    result, problems, chosen = Read(), Problems(), ReadOptions(**options)
    source = place if isinstance(place, Source) else discover([str(place)], options=chosen)[0][0]
    try:
        with open_reader(source, chosen, problems) as reader:
            result.head = reader.head()
            for positions, records in reader.chunks(columns):
                assert len(positions) == len(records)
                result.positions += positions
                result.records += records
            result.format, result.unit = reader.format, reader.unit
            result.rows_at = reader.rows_at
    except ChunkscopeError as error:
        result.error = error
    assert result.error is None or result.error.hint, "every error says what to do"
    result.bad = [(row.position, row.reason) for row in problems.rows]
    return result


CHAT = [{"role": "user", "content": "hi"}]


def choose(*head: Any, rows_at: str | None = None, **options: Any) -> Selection:
    return select(list(head), SelectOptions(**options), rows_at=rows_at)


def extract(selection: Selection, *records: Any) -> tuple[Prompts, list[str]]:
    problems = Problems()
    prompts = selection.extract(Chunk(range(1, len(records) + 1), list(records)), problems)
    assert problems.count == len(problems.rows) == len(records) - len(prompts.items)
    return prompts, [f"{row.position}: {row.reason}" for row in problems.rows]


def items(selection: Selection, *records: Any) -> list[Any]:
    prompts, problems = extract(selection, *records)
    assert not problems
    return prompts.items


@dataclass
class ReadLog:
    """A harness's log, read to its end."""

    log: HarnessLog
    requests: list[SentRequest] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)


def read_log(path: Path) -> ReadLog:
    problems = Problems()
    (source,), _ = discover([str(path)], options=ReadOptions())
    with open_reader(source, ReadOptions(), problems) as reader:
        selection = selected(reader, reader.head(), SelectOptions())
        assert isinstance(selection, RequestSelection), selection.label
        found = ReadLog(selection.log)
        columns = None if selection.columns is None else sorted(selection.columns)
        for chunk in reader.chunks(columns):
            prompts = selection.extract(chunk, problems)
            found.requests += prompts.items
            found.positions += prompts.positions
    found.bad = [(row.position, row.reason) for row in problems.rows]
    return found
