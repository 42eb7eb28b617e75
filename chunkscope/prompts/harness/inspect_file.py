"""Inspect's logs as files: `.eval`, a zip with a member per sample, and `.json`.

A run that died has no `header.json`, but `_journal/start.json` says the same. A record
is one request; its position is the number of its sample.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chunkscope.prompts.harness.inspect_sample import InspectSample
from chunkscope.prompts.harness.log import as_dict
from chunkscope.prompts.paths import wrong_type
from chunkscope.sources.base import (
    CHUNK_BYTES,
    Chunk,
    DataError,
    Problems,
    in_chunks,
    printable,
)
from chunkscope.sources.json_rows import json_rows, parse_value
from chunkscope.sources.reader import RecordReader
from chunkscope.sources.streams import Archive

FORMAT = "inspect"
# `2026-11-15T12-57-21-00-00_gsm8k-agent_CFnjzaf7nWSxvEo8jGzffo`: the task is
# gsm8k-agent.
NAME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[+-]\d\d-\d\d_(?P<task>.+)_[0-9A-Za-z]{16,}"
)
JOURNAL = "_journal/start.json"
HEADERS = ("header.json", JOURNAL)
SAMPLE_MEMBER = re.compile(r"samples/.+_epoch_\d+\.json")
# {"version": 2, "status": "success", "eval": {
STARTS_LIKE_JSON = re.compile(
    rb'\s*\{\s*"version":\s*\d+,\s*"status":\s*"[a-z]+",'
    rb'\s*(?:"[^"{]*":[^{]*)?"eval":\s*\{'
)
# Requests wait to be put in the order of sending: of at most so much log at a time.
SORTED_BYTES = 64 << 20


def is_inspect_zip(names: Iterable[str]) -> bool:
    """Whether the members of an archive are those of a log."""
    return any(name == JOURNAL or SAMPLE_MEMBER.fullmatch(name) for name in names)


@dataclass(frozen=True, slots=True)
class SampleInFile:
    number: int
    content: Any
    bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    sent_at: float
    sample: int
    row: dict[str, Any]
    bytes: int


def inspect_rows(reader: RecordReader, _: Sequence[str] | None) -> Iterator[Chunk]:
    """The requests in a log, in the order in which they were sent."""
    is_zip = reader.source.format == FORMAT
    reader.unit, reader.format = "sample", FORMAT
    samples = zip_samples(reader) if is_zip else json_samples(reader)
    calls = calls_in_order(samples, reader.problems, reader.source.path)
    return in_chunks((call.sample, call.row, call.bytes) for call in calls)


def calls_in_order(
    samples: Iterator[SampleInFile], problems: Problems, path: str
) -> Iterator[Call]:
    is_empty = True
    waiting: list[Call] = []
    waiting_bytes = 0
    for sample in samples:
        is_empty = False
        waiting += calls_of(sample, problems)
        waiting_bytes += sample.bytes
        if waiting_bytes >= SORTED_BYTES:
            yield from sorted(waiting, key=lambda call: call.sent_at)
            waiting, waiting_bytes = [], 0
    yield from sorted(waiting, key=lambda call: call.sent_at)
    if is_empty and not problems.count:
        raise DataError("no_samples", path=path)


def calls_of(sample: SampleInFile, problems: Problems) -> Iterator[Call]:
    """The requests of a sample; what is wrong with one is a problem of the sample."""
    if not isinstance(sample.content, dict):
        problems.bad(sample.number, wrong_type(sample.content, "samples[]", "object"))
        return
    content = InspectSample(sample.content)
    events = content.model_events
    if not events:
        problems.bad(sample.number, DataError("no_model_events"), **content.shown)
    sent_at = float("-inf")  # one without a time is sent with the one before
    for event in events:
        if event.is_from_cache:
            continue
        if event.started is not None:
            sent_at = event.started
        try:
            row = {"sample": sample.number, **content.row(event)}
        except (DataError, RecursionError) as error:
            problems.bad(sample.number, error, **content.shown)
            continue
        yield Call(sent_at, sample.number, row, sample.bytes // len(events))


def json_samples(reader: RecordReader) -> Iterator[SampleInFile]:
    for chunk in json_rows(reader, under="samples"):
        sample_bytes = CHUNK_BYTES // len(chunk.records)
        for number, content in zip(chunk.positions, chunk.records, strict=True):
            yield SampleInFile(number, content, sample_bytes)


def zip_samples(reader: RecordReader) -> Iterator[SampleInFile]:
    archive = Archive(reader.file, reader.source.path)
    members = {printable(name): name for name in archive.sizes}
    for name in HEADERS:
        if name in members and not reader.metadata:
            with suppress(DataError):  # damaged: the other one says the same
                reader.metadata = as_dict(parse_value(unpack(reader, archive, name)))
    names = [name for name in members if SAMPLE_MEMBER.fullmatch(name)]
    for number, name in enumerate(names, start=1):
        try:
            data = unpack(reader, archive, members[name])
            yield SampleInFile(number, parsed(name, data), len(data))
        except DataError as error:
            reader.problems.bad(number, error)


def unpack(reader: RecordReader, archive: Archive, name: str) -> bytes:
    shown = f"{reader.source.path}/{printable(name)}"
    data = archive.open(name, shown).read_whole(shown)
    reader.bytes_taken = max(reader.bytes_taken, reader.file.tell())
    return data


def parsed(name: str, data: bytes) -> Any:
    try:
        return parse_value(data)
    except DataError as error:
        raise DataError("not_a_document", path=name, reason=error.note) from None
