"""Inspect's logs, `.eval` (a zip) and `.json`: read as the requests that were sent, in that order.

A `.eval` has a member per sample, or (in chunks) several; a run that died has no `header.json`,
but `_journal/start.json` says the same. Nothing in a log is executed.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.prompts.chat import conversation
from chunkscope.prompts.harness.inspect_sample import LoggedSample
from chunkscope.prompts.harness.log import AS_SENT, HarnessLog, SentRequest
from chunkscope.prompts.paths import UnusableError, escape, json_type
from chunkscope.sources.archives import Zip
from chunkscope.sources.base import CHUNK_BYTES, Chunk, printable
from chunkscope.sources.json_rows import document_rows, parse_value
from chunkscope.sources.reader import RecordReader, in_chunks

if TYPE_CHECKING:
    from zipfile import ZipInfo

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


@dataclass(slots=True)
class InspectState:
    """What the reader of a log keeps for who wants to know about the whole."""

    samples: int = 0
    lost_tries: int = 0


def inspect_rows(reader: RecordReader, _: Sequence[str] | None) -> Iterator[Chunk]:
    """A log, `.eval` or `.json`; a record is one request, a position the number of its sample."""
    is_zip = reader.source.format == FORMAT
    reader.unit, reader.format, reader.state = "sample", FORMAT, InspectState()
    return in_chunks(_requests(reader, _zip_samples(reader) if is_zip else _json_samples(reader)))


def _requests(
    reader: RecordReader, samples: Iterator[ReadSample]
) -> Iterator[tuple[int, Any, int]]:
    """Position, row and size of each request, in the order of sending."""
    waiting: list[tuple[float, int, Any, int]] = []
    size, error = 0, None
    try:
        for sample in samples:
            reader.state.samples += 1
            waiting += _calls(reader, sample)
            size += sample.size
            if size >= _SORTED_BYTES:
                yield from _in_order(waiting)
                waiting, size = [], 0
    except InputError as cut:
        error = cut  # what came before it still counts
    yield from _in_order(waiting)
    if error is not None:
        raise error
    if not reader.state.samples and not reader.problems.count:
        raise InputError(
            f"{reader.source.path} is an Inspect log without samples",
            hint="was it run with --no-log-samples?",
        )


def _calls(reader: RecordReader, sample: ReadSample) -> list[tuple[float, int, Any, int]]:
    if not isinstance(sample.content, dict):
        reader.problems.bad(sample.number, f"a sample is {json_type(sample.content)}")
        return []
    logged = LoggedSample(sample.content)
    reader.state.lost_tries += logged.lost_tries
    if not logged.model_events:
        reader.problems.bad(sample.number, f"{logged.name} has no model events")
    calls: list[tuple[float, int, Any, int]] = []
    sent_at = float("-inf")
    each = sample.size // (len(logged.model_events) or 1)
    for call in logged.calls():
        if isinstance(call, UnusableError):
            reader.problems.bad(sample.number, str(call))
            continue
        sent_at = sent_at if call.sent_at is None else call.sent_at
        calls.append((sent_at, sample.number, call.row, each))
    return calls


def _take_header(reader: RecordReader, header: Any) -> None:
    reader.metadata = header if isinstance(header, dict) else {}
    version = reader.metadata.get("version")
    if isinstance(version, int) and version > _NEWEST_VERSION:
        raise InputError(
            f"{reader.source.path} is an Inspect log of form {version}: only forms up to "
            f"{_NEWEST_VERSION} are known",
            hint="is there a newer chunkscope?",
        )


def _in_order(calls: list[tuple[float, int, Any, int]]) -> Iterator[tuple[int, Any, int]]:
    for _, number, row, size in sorted(calls, key=lambda call: call[0]):
        yield number, row, size


def _json_samples(reader: RecordReader) -> Iterator[ReadSample]:
    """The one-object form."""
    for chunk in document_rows(reader, under="samples"):
        if not reader.state.samples:
            _take_header(reader, reader.metadata)
        for number, content in zip(chunk.positions, chunk.records, strict=True):
            yield ReadSample(number, content, CHUNK_BYTES // len(chunk.records))


# --- .eval -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _SampleEntries:
    """The members of one sample: one, or one for itself and some for each of its sequences."""

    name: str
    shell: "ZipInfo | None" = None
    sequences: "dict[str, list[tuple[int, ZipInfo]]]" = field(default_factory=dict)


def _zip_samples(reader: RecordReader) -> Iterator[ReadSample]:
    """The zip form, deflate or zstd."""
    archive = Zip(reader.file, reader.source.path)
    infos = sorted(archive.infos, key=lambda info: info.header_offset)
    by_name = {printable(info.filename): info for info in infos}  # the last of each name
    unpack = partial(_json, reader, archive)
    for name in _HEADERS:
        with suppress(InputError, UnusableError, KeyError):  # damaged: the other one says the same
            header, _ = unpack(by_name[name])
            break
    else:
        header = {}
    _take_header(reader, header)
    for number, sample in enumerate(_by_sample(by_name), start=1):
        try:
            content, size = _sample(sample, unpack)
        except (InputError, UnusableError) as error:
            reason = error.message if isinstance(error, InputError) else str(error)
            reader.problems.bad(number, reason)
            continue
        yield ReadSample(number, content, size)


def _sample(
    sample: _SampleEntries, unpack: "Callable[[ZipInfo], tuple[Any, int]]"
) -> tuple[Any, int]:
    content, size = unpack(sample.shell) if sample.shell else ({"id": sample.name}, 0)
    if not sample.sequences or not isinstance(content, dict):
        return content, size
    joined: dict[str, list[Any]] = {}
    for sequence, parts in sample.sequences.items():
        joined[sequence] = []
        for start, info in sorted(parts, key=lambda part: part[0]):
            name = printable(info.filename)
            if start != len(joined[sequence]):
                raise UnusableError(f"{name} does not go on where the one before ends")
            items, more = unpack(info)
            if not isinstance(items, list):
                raise UnusableError(f"{name} is {json_type(items)}, not a list")
            joined[sequence] += items
            size += more
    pool = {"messages": joined.get("messages", [])}
    attachments, events = joined.get("attachments", []), joined.get("events", [])
    whole = {"events_data": pool, "attachments": attachments, "events": events}
    return content | whole, size


def _json(reader: RecordReader, archive: Zip, info: "ZipInfo") -> tuple[Any, int]:
    name = printable(info.filename)
    reader.bytes_taken = max(reader.bytes_taken, info.header_offset + info.compress_size)
    data = archive.read(info, f"{reader.source.path}/{name}")
    try:
        return parse_value(data), len(data)
    except ValueError as error:
        raise UnusableError(f"{name} is {error}") from None


def _by_sample(infos: "dict[str, ZipInfo]") -> Iterable[_SampleEntries]:
    """The samples in the order in which they lie there. An id may have a `/` in it."""
    samples: dict[str, _SampleEntries] = {}
    whole: set[str] = set()
    for name, info in infos.items():
        chunked = _IN_CHUNKS.fullmatch(name)
        match = chunked or _WHOLE.fullmatch(name)
        if match is None or match["sample"] in whole:
            continue
        sample = samples.setdefault(match["sample"], _SampleEntries(match["sample"]))
        if chunked and chunked["sequence"]:
            part = int(chunked["start"]), info
            sample.sequences.setdefault(chunked["sequence"], []).append(part)
        else:
            sample.shell = info
        if not chunked:
            sample.sequences.clear()
            whole.add(match["sample"])
    return samples.values()


# --- what was sent ---------------------------------------------------------------------------


class InspectLog(HarnessLog):
    """The requests of an Inspect log, which its reader made already."""

    harness = "Inspect"
    order = AS_SENT

    def __init__(self, reader: RecordReader) -> None:
        super().__init__()
        self._reader = reader
        run = reader.metadata.get("eval")
        run = run if isinstance(run, dict) else {}
        packages = run.get("packages")
        version = packages.get("inspect_ai") if isinstance(packages, dict) else None
        self.version = version if isinstance(version, str) else None
        self.task = run["task"] if isinstance(run.get("task"), str) else None
        self._models: Counter[str] = Counter()
        self._counted_by_mock = False

    @property
    def documents(self) -> int:
        return int(self._reader.state.samples)

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:  # noqa: ARG003
        return cls(reader) if reader.format == FORMAT else None

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
        if lost := self._reader.state.lost_tries:
            yield note("lost_tries", count=lost)
        if self._counted_by_mock:
            yield note("counted_by_mock")
