"""Inspect's logs as files: `.eval`, a zip with a member per sample, and `.json`.

A run that died has no `header.json`, but `_journal/start.json` says the same. A record
is one request; its position is the number of its sample.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chunkscope.prompts.harness.inspect_sample import InspectSample
from chunkscope.prompts.harness.log import as_dict
from chunkscope.prompts.paths import wrong_type
from chunkscope.sources.archive import Archive
from chunkscope.sources.base import (
    CHUNK_BYTES,
    Chunk,
    DataError,
    Problems,
    Row,
    in_chunks,
    printable,
)
from chunkscope.sources.input import Input
from chunkscope.sources.json_document import JsonDocument
from chunkscope.sources.jsonl import parse_value
from chunkscope.sources.open import read_whole

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


class InspectRows:
    """The requests in a log, in the order in which they were sent."""

    format = FORMAT
    unit = "sample"

    def __init__(self, source: Input) -> None:
        self._input = source
        self._samples: ZipSamples | JsonSamples
        if source.source.format == FORMAT:
            self._samples = ZipSamples(source)
        else:
            self._samples = JsonSamples(source)
        self.metadata = self._samples.metadata

    def chunks(self, _: Sequence[str] | None = None) -> Iterator[Chunk]:
        problems = self._input.problems
        samples = self._samples.read()
        calls = calls_in_order(samples, problems, self._input.source.path)
        return in_chunks(Row(call.sample, call.row, call.bytes) for call in calls)


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


class JsonSamples:
    """The samples of a log that is one JSON document."""

    def __init__(self, source: Input) -> None:
        self._document = JsonDocument(source, under="samples")
        self.metadata = self._document.metadata

    def read(self) -> Iterator[SampleInFile]:
        for chunk in self._document.chunks():
            sample_bytes = CHUNK_BYTES // len(chunk.records)
            for number, content in zip(chunk.positions, chunk.records, strict=True):
                yield SampleInFile(number, content, sample_bytes)


class ZipSamples:
    """The samples of a log that is a zip; a bad one is reported."""

    def __init__(self, source: Input) -> None:
        self._problems = source.problems
        self._path = source.source.path
        self._archive = Archive(source.file, self._path)
        self._members = {printable(name): name for name in self._archive.sizes}
        self.metadata = self._header()

    def _header(self) -> Mapping[str, Any]:
        for name in HEADERS:
            if name in self._members:
                with suppress(DataError):  # damaged: the other one says the same
                    header = as_dict(parse_value(self._unpacked(name)))
                    if header:
                        return header
        return {}

    def read(self) -> Iterator[SampleInFile]:
        names = [name for name in self._members if SAMPLE_MEMBER.fullmatch(name)]
        for number, name in enumerate(names, start=1):
            try:
                data = self._unpacked(name)
                yield SampleInFile(number, parsed(name, data), len(data))
            except DataError as error:
                self._problems.bad(number, error)

    def _unpacked(self, name: str) -> bytes:
        shown = f"{self._path}/{name}"
        with self._archive.open(self._members[name], shown) as stream:
            return read_whole(stream, shown)


def parsed(name: str, data: bytes) -> Any:
    try:
        return parse_value(data)
    except DataError as error:
        raise DataError("not_a_document", path=name, reason=error.note) from None
