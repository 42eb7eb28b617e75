"""Inspect's logs, `.eval` (a zip) and `.json`: read as the requests that were sent, in that order.

A `.eval` has a member per sample, or (in chunks) several; a run that died has no `header.json`,
but `_journal/start.json` says the same. Nothing in a log is executed.
"""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, Self

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.prompts.chat import conversation
from chunkscope.prompts.harness.inspect_sample import LoggedSample
from chunkscope.prompts.harness.log import AS_SENT, HarnessLog, SentRequest
from chunkscope.prompts.paths import UnusableError, escape, json_type
from chunkscope.sources.base import Chunk, Problems, Source
from chunkscope.sources.byte_stream import ByteStream, FileStream
from chunkscope.sources.documents import DocumentReader
from chunkscope.sources.lines import parse_line
from chunkscope.sources.reader import RecordReader, StreamReader, in_chunks
from chunkscope.sources.zip_entries import ZipEntry, entries, unpacked

FORMAT = "inspect"
_MOCK = "mockllm/"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[+-]\d\d-\d\d_(?P<task>.+)_[0-9A-Za-z]{16,}")
_NEWEST_VERSION = 2  # of the log's form; that of Inspect is among its packages
_HEADERS = ("header.json", "_journal/start.json")
_WHOLE = re.compile(r"samples/(?P<sample>.+_epoch_\d+)\.json")
_IN_CHUNKS = re.compile(
    r"samples/(?P<sample>.+_epoch_\d+)/"
    r"(?:sample|(?P<sequence>messages|events|attachments)/(?P<start>\d+))\.json"
)
_STARTS_LIKE_JSON = re.compile(
    rb'\s*\{\s*"version":\s*\d+,\s*"status":\s*"[a-z]+",\s*(?:"[^"{]*":[^{]*)?"eval":\s*\{'
)
# Requests wait to be put in the order of sending: of at most so much log at a time.
_SORTED_BYTES = 64 << 20


def is_inspect_zip(names: Iterable[str]) -> bool:
    """Whether the members of an archive are those of a log."""
    names = set(names)
    return _HEADERS[1] in names or any(map(_WHOLE.fullmatch, names))


def is_inspect_json(start: bytes) -> bool:
    return _STARTS_LIKE_JSON.match(start) is not None


def task_in(name: str) -> str | None:
    """`"2026-11-15T12-57-21-00-00_gsm8k-agent_CFnjzaf7nWSxvEo8jGzffo"` -> `"gsm8k-agent"`."""
    found = _NAME.fullmatch(name)
    return found["task"] if found else None


class ReadSample(NamedTuple):
    number: int
    content: Any
    size: int


class InspectReader(StreamReader):
    """Reads a log; a record is one request, a position the number of its sample in the log."""

    unit = "sample"

    def __init__(self, source: Source, problems: Problems, stream: ByteStream) -> None:
        super().__init__(source, problems, stream)
        self.format = FORMAT
        self.samples = 0
        self.lost_tries = 0

    @abstractmethod
    def _samples(self) -> Iterator[ReadSample]:
        """All samples as they are logged. Those that cannot be read are problems."""

    def _read(self) -> Iterator[Chunk]:
        return in_chunks(self._requests())

    def _requests(self) -> Iterator[tuple[int, Any, int]]:
        """Position, row and size of each request, in the order of sending."""
        waiting: list[tuple[float, int, Any, int]] = []
        size, error = 0, None
        try:
            for sample in self._samples():
                self.samples += 1
                waiting += self._calls(sample)
                size += sample.size
                if size >= _SORTED_BYTES:
                    yield from _in_order(waiting)
                    waiting, size = [], 0
        except InputError as cut:
            error = cut  # what came before it still counts
        yield from _in_order(waiting)
        if error is not None:
            raise error
        if not self.samples and not self.problems.count:
            raise InputError(
                f"{self.source.path} is an Inspect log without samples",
                hint="was it run with --no-log-samples?",
            )

    def _calls(self, sample: ReadSample) -> list[tuple[float, int, Any, int]]:
        if not isinstance(sample.content, dict):
            self.problems.bad(sample.number, f"a sample is {json_type(sample.content)}")
            return []
        logged = LoggedSample(sample.content)
        self.lost_tries += logged.lost_tries
        if not logged.model_events:
            self.problems.bad(sample.number, f"{logged.name} has no model events")
        calls: list[tuple[float, int, Any, int]] = []
        sent_at = float("-inf")
        each = sample.size // (len(logged.model_events) or 1)
        for call in logged.calls():
            if isinstance(call, UnusableError):
                self.problems.bad(sample.number, str(call))
                continue
            sent_at = sent_at if call.sent_at is None else call.sent_at
            calls.append((sent_at, sample.number, call.row, each))
        return calls

    def _take_header(self, header: Any) -> None:
        self.beside = header if isinstance(header, dict) else {}
        version = self.beside.get("version")
        if isinstance(version, int) and version > _NEWEST_VERSION:
            raise InputError(
                f"{self.source.path} is an Inspect log of form {version}: only forms up to "
                f"{_NEWEST_VERSION} are known",
                hint="is there a newer chunkscope?",
            )


def _in_order(calls: list[tuple[float, int, Any, int]]) -> Iterator[tuple[int, Any, int]]:
    for _, number, row, size in sorted(calls, key=lambda call: call[0]):
        yield number, row, size


class InspectJsonReader(InspectReader):
    """The one-object form. What comes before the samples says what was run."""

    def __init__(self, source: Source, problems: Problems, stream: ByteStream) -> None:
        super().__init__(source, problems, stream)
        self._document = DocumentReader(source, problems, stream, rows_under="samples")

    def _samples(self) -> Iterator[ReadSample]:
        before = 0
        for chunk in self._document.chunks():
            if not self.samples:
                self._take_header(self._document.beside)
            size = (self.bytes_read - before) // len(chunk.records)
            before = self.bytes_read
            for number, content in zip(chunk.positions, chunk.records, strict=True):
                yield ReadSample(number, content, size)


# --- .eval -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _SampleEntries:
    """The members of one sample: one, or one for itself and some for each of its sequences."""

    name: str
    shell: ZipEntry | None = None
    sequences: dict[str, list[tuple[int, ZipEntry]]] = field(default_factory=dict)


class InspectZipReader(InspectReader):
    """The zip form, deflate or zstd."""

    def __init__(self, source: Source, problems: Problems, file: IO[bytes]) -> None:
        super().__init__(source, problems, FileStream(file, source.path))
        self._file = file
        self._read_up_to = 0

    @property
    def bytes_read(self) -> int:
        return self._read_up_to

    def _samples(self) -> Iterator[ReadSample]:
        found, cut = entries(self._file, self.source.path)
        self._header({entry.name: entry for entry in found})
        for number, sample in enumerate(_by_sample(found), start=1):
            try:
                content, size = self._sample(sample)
            except (InputError, UnusableError) as error:
                said = error.message if isinstance(error, InputError) else str(error)
                self.problems.bad(number, said)
                continue
            yield ReadSample(number, content, size)
        if cut is not None:
            raise cut

    def _header(self, found: dict[str, ZipEntry]) -> None:
        for name in _HEADERS:
            if name in found:
                try:
                    header, _ = self._json(found[name])
                except (InputError, UnusableError):
                    continue  # damaged: the other one says the same
                self._take_header(header)
                return

    def _sample(self, sample: _SampleEntries) -> tuple[Any, int]:
        content, size = self._json(sample.shell) if sample.shell else ({"id": sample.name}, 0)
        if not sample.sequences or not isinstance(content, dict):
            return content, size
        joined: dict[str, list[Any]] = {}
        for sequence, parts in sample.sequences.items():
            joined[sequence] = []
            for start, entry in sorted(parts, key=lambda part: part[0]):
                if start != len(joined[sequence]):
                    raise UnusableError(f"{entry.name} does not go on where the one before ends")
                items, more = self._json(entry)
                if not isinstance(items, list):
                    raise UnusableError(f"{entry.name} is {json_type(items)}, not a list")
                joined[sequence] += items
                size += more
        pool = {"messages": joined.get("messages", [])}
        attachments, events = joined.get("attachments", []), joined.get("events", [])
        whole = {"events_data": pool, "attachments": attachments, "events": events}
        return content | whole, size

    def _json(self, entry: ZipEntry) -> tuple[Any, int]:
        self._read_up_to = max(self._read_up_to, entry.offset + entry.packed)
        data = unpacked(self._file, entry, f"{self.source.path}/{entry.name}")
        try:
            return parse_line(data), len(data)
        except ValueError as error:
            raise UnusableError(f"{entry.name} is {error}") from None


def _by_sample(found: list[ZipEntry]) -> Iterable[_SampleEntries]:
    """The samples in the order in which they lie there. An id may have a `/` in it."""
    samples: dict[str, _SampleEntries] = {}
    whole: set[str] = set()
    for entry in found:
        chunked = _IN_CHUNKS.fullmatch(entry.name)
        match = chunked or _WHOLE.fullmatch(entry.name)
        if match is None or match["sample"] in whole:
            continue
        sample = samples.setdefault(match["sample"], _SampleEntries(match["sample"]))
        if chunked and chunked["sequence"]:
            part = int(chunked["start"]), entry
            sample.sequences.setdefault(chunked["sequence"], []).append(part)
        else:
            sample.shell = entry
        if not chunked:
            sample.sequences.clear()
            whole.add(match["sample"])
    return samples.values()


# --- what was sent ---------------------------------------------------------------------------


class InspectLog(HarnessLog):
    """The requests of an Inspect log, which its reader made already."""

    harness = "Inspect"
    order = AS_SENT

    def __init__(self, reader: InspectReader) -> None:
        super().__init__()
        self._reader = reader
        run = reader.beside.get("eval")
        run = run if isinstance(run, dict) else {}
        packages = run.get("packages")
        version = packages.get("inspect_ai") if isinstance(packages, dict) else None
        self.version = version if isinstance(version, str) else None
        self.task = run["task"] if isinstance(run.get("task"), str) else None
        self._models: Counter[str] = Counter()
        self._counted_by_mock = False

    @property
    def documents(self) -> int:
        return self._reader.samples

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:  # noqa: ARG003
        return cls(reader) if isinstance(reader, InspectReader) else None

    def requests(self, record: Any) -> Iterable[SentRequest]:
        cap, counted = record["max_tokens"], record["input_tokens"]
        self._models[str(record["model"])] += 1
        rendered = self._reader.source.rendered  # then nobody counted or answered
        if counted is None or rendered:
            prompt = conversation(record["messages"], record)
            answer = None if rendered else record["completion"]
            yield SentRequest(prompt=prompt, output_cap=cap, output=answer)
            return
        self._counted_by_mock |= str(record["model"]).startswith(_MOCK)
        yield SentRequest(prompt=counted, output_cap=cap, output=record["output_tokens"])

    def notes(self) -> Iterable[Note]:
        if len(self._models) > 1:
            counts = [f"{escape(model[:80])} ({n:,})" for model, n in self._models.most_common()]
            yield note("several_models", models=counts)
        if lost := self._reader.lost_tries:
            yield note("lost_tries", count=lost)
        if self._counted_by_mock:
            yield note("counted_by_mock")
