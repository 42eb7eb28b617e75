"""Inspect's logs, `.eval` (a zip) and `.json`: read as the requests that were sent, in that order.

A `.eval` has a member per sample; a run that died has no `header.json`, but `_journal/start.json`
says the same. Every model event was a request: each turn of an agent, each call of a grader, also
in a try that failed and was repeated. Only what Inspect had in its own cache was never sent. Long
texts are kept apart (`attachment://...`), and so are messages that requests share (`input_refs`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.chat import FUNCTION_KEYS, conversation
from chunkscope.prompts.harness.log import (
    AS_SENT,
    HarnessLog,
    SentRequest,
    as_count,
    as_dict,
    as_list,
    as_text,
)
from chunkscope.prompts.paths import wrong_type
from chunkscope.sources.base import CHUNK_BYTES, Chunk, DataError, in_chunks, printable
from chunkscope.sources.json_rows import json_rows, parse_value
from chunkscope.sources.reader import RecordReader
from chunkscope.sources.streams import Archive

FORMAT = "inspect"
_MOCK = "mockllm/"
_ATTACHMENT = "attachment://"
_MEDIA = ("image", "audio", "video", "data", "document")
# `2026-11-15T12-57-21-00-00_gsm8k-agent_CFnjzaf7nWSxvEo8jGzffo`: the task is gsm8k-agent.
NAME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[+-]\d\d-\d\d_(?P<task>.+)_[0-9A-Za-z]{16,}"
)
_HEADERS = ("header.json", "_journal/start.json")
_SAMPLE = re.compile(r"samples/.+_epoch_\d+\.json")
STARTS_LIKE_JSON = re.compile(
    rb'\s*\{\s*"version":\s*\d+,\s*"status":\s*"[a-z]+",\s*(?:"[^"{]*":[^{]*)?"eval":\s*\{'
)
# Requests wait to be put in the order of sending: of at most so much log at a time.
SORTED_BYTES = 64 << 20


def is_inspect_zip(names: Iterable[str]) -> bool:
    """Whether the members of an archive are those of a log."""
    return any(name == _HEADERS[1] or _SAMPLE.fullmatch(name) for name in names)


# --- reading --------------------------------------------------------------------------------------


# When it was sent, the number of its sample in the log, a row of a chat dataset, and its size.
_Call = tuple[float, int, dict[str, Any], int]


def inspect_rows(reader: RecordReader, _: Sequence[str] | None) -> Iterator[Chunk]:
    """A log, `.eval` or `.json`; a record is one request, a position the number of its sample."""
    is_zip = reader.source.format == FORMAT
    reader.unit, reader.format, reader.state = "sample", FORMAT, 0
    samples = _zip_samples(reader) if is_zip else _json_samples(reader)
    return in_chunks(
        call[1:]
        for calls in _sent(reader, samples)
        for call in sorted(calls, key=itemgetter(0))
    )


def _sent(
    reader: RecordReader, samples: Iterator[tuple[int, Any, int]]
) -> Iterator[list[_Call]]:
    """The requests of so many samples as are put in the order of sending together."""
    waiting: list[_Call] = []
    size = 0
    for number, content, sample_size in samples:
        reader.state += 1  # how many there are
        waiting += _calls(reader, number, content, sample_size)
        size += sample_size
        if size >= SORTED_BYTES:
            yield waiting
            waiting, size = [], 0
    yield waiting
    if not reader.state and not reader.problems.count:
        raise DataError("no_samples", path=reader.source.path)


def _calls(
    reader: RecordReader, number: int, content: Any, size: int
) -> Iterator[_Call]:
    if not isinstance(content, dict):
        return reader.problems.bad(number, wrong_type(content, "samples[]", "object"))
    sample = InspectSample(content)
    if not sample.model_events:
        reader.problems.bad(number, DataError("no_model_events"), **sample.shown)
    sent_at = float("-inf")
    for event in sample.model_events:
        if event.get("cache") == "read":
            continue
        with suppress(TypeError, ValueError, OverflowError, OSError):
            sent_at = datetime.fromisoformat(event.get("timestamp") or "").timestamp()
        try:
            yield sent_at, number, sample.row(event), size // len(sample.model_events)
        except (DataError, RecursionError) as error:
            reader.problems.bad(number, error, **sample.shown)


def _json_samples(reader: RecordReader) -> Iterator[tuple[int, Any, int]]:
    for chunk in json_rows(reader, under="samples"):
        for number, content in zip(chunk.positions, chunk.records, strict=True):
            yield number, content, CHUNK_BYTES // len(chunk.records)


def _zip_samples(reader: RecordReader) -> Iterator[tuple[int, Any, int]]:
    archive = Archive(reader.file, reader.source.path)
    by_name = {printable(name): name for name in archive.sizes}

    def unpack(name: str) -> tuple[Any, int]:
        shown = f"{reader.source.path}/{name}"
        data = archive.open(by_name[name], shown).read_whole(shown)
        reader.bytes_taken = max(reader.bytes_taken, reader.file.tell())
        try:
            return parse_value(data), len(data)
        except DataError as error:
            raise DataError("not_a_document", path=name, reason=error.note) from None

    for name in _HEADERS:
        with suppress(DataError, KeyError):  # damaged: the other one says the same
            reader.metadata = reader.metadata or as_dict(unpack(name)[0])
    names = filter(_SAMPLE.fullmatch, by_name)
    for number, name in enumerate(names, start=1):
        try:
            yield number, *unpack(name)
        except DataError as error:
            reader.problems.bad(number, error)


# --- one sample -----------------------------------------------------------------------------------


class InspectSample:
    """A sample: its model events, with what they refer to put in."""

    def __init__(self, sample: Mapping[str, Any]) -> None:
        self._ids = {key: sample.get(key) for key in ("id", "epoch")}
        self.shown = {key: str(value)[:80] for key, value in self._ids.items()}
        self._attachments = as_dict(sample.get("attachments"))
        self._pool = as_list(as_dict(sample.get("events_data")).get("messages"))
        self._messages: dict[int, dict[str, Any]] = {}  # many requests hold the same
        tries = [
            as_dict(retry).get("events")
            for retry in as_list(sample.get("error_retries"))
        ]
        self.model_events = [
            event
            for events in (*tries, sample.get("events"))
            for event in _model_events(events)
        ]

    def row(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """A request, with what the server counted. Raises DataError."""
        output = as_dict(event.get("output"))
        usage = as_dict(output.get("usage"))
        completion = None
        with suppress(DataError):  # a request without an answer is still a request
            completion = as_text(self._resolved(output.get("completion")))
        tools = map(as_dict, as_list(event.get("tools")))
        functions = [{key: tool.get(key) for key in FUNCTION_KEYS} for tool in tools]
        return self._ids | {
            "model": event.get("model"),
            "messages": self._sent_messages(event),
            "functions": self._resolved(functions),
            "max_tokens": as_count(as_dict(event.get("config")).get("max_tokens")),
            "input_tokens": _input_tokens(output, usage),
            "output_tokens": as_count(usage.get("output_tokens")),
            "completion": completion,
        }

    def _sent_messages(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        messages, refs = event.get("input"), event.get("input_refs")
        if refs is None and not isinstance(messages, list):
            raise DataError("no_sample", harness="Inspect", fields=["events[].input"])
        if refs is None:
            return [self._message(message) for message in as_list(messages)]
        sent, size = [], len(self._pool)
        for ref in as_list(refs):  # `[[0, 2], [5, 6]]` are messages 0, 1 and 5
            start, end = ([as_count(number) for number in as_list(ref)] + [None, None])[
                :2
            ]
            if start is None or end is None or not start <= end <= size:
                raise DataError("refs_beyond", refs=str(ref)[:80], size=size)
            for index in range(start, end):
                if index not in self._messages:
                    self._messages[index] = self._message(self._pool[index])
                sent.append(self._messages[index])
        return sent

    def _message(self, message: Any) -> dict[str, Any]:
        """A message as Inspect sends it to an OpenAI-compatible server."""
        if not isinstance(message, dict):
            raise wrong_type(message, "input[]", "object")
        used = ("role", "content", "tool_calls", "tool_call_id", "error")
        sent: dict[str, Any] = self._resolved({key: message.get(key) for key in used})
        if sent["role"] == "tool" and (error := as_dict(sent["error"])):
            sent["content"] = f"Error: {error.get('message')}"
        return sent

    def _resolved(self, value: Any) -> Any:
        """The value with the texts that are kept apart put in, wherever they are. Of images and
        the like only the kind is of interest.
        """
        if isinstance(value, dict):
            if value.get("type") in _MEDIA:
                return value
            return {key: self._resolved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolved(inner) for inner in value]
        if not isinstance(value, str) or not value.startswith(_ATTACHMENT):
            return value
        name = value.removeprefix(_ATTACHMENT)
        if name not in self._attachments:
            raise DataError("points_nowhere", name=value[:80])
        return self._attachments[name]


def _model_events(events: Any) -> Iterator[dict[str, Any]]:
    """The calls among a transcript's events; older versions put those of a tool inside it."""
    for event in map(as_dict, as_list(events)):
        if event.get("event") == "model":
            yield event
        else:
            yield from _model_events(event.get("events"))


def _input_tokens(output: Mapping[str, Any], usage: Mapping[str, Any]) -> int | None:
    """What the server counted, with the tokens that it had in its cache."""
    context = as_count(output.get("input_context_tokens"))
    if context is not None:
        return context
    names = ("input_tokens", "output_tokens", "total_tokens")
    counted, answer, total = (as_count(usage.get(name)) for name in names)
    cached = sum(
        as_count(usage.get(f"input_tokens_cache_{way}")) or 0
        for way in ("read", "write")
    )
    if counted is None or not cached:
        return counted
    # Whether `input_tokens` holds the cached ones differs between versions; the total does not.
    if total is not None and answer is not None and total >= answer:
        return total - answer
    return counted + cached


# --- the log --------------------------------------------------------------------------------------


class InspectLog(HarnessLog):
    """The requests of an Inspect log, which `inspect_rows` made already."""

    harness = "Inspect"
    order = AS_SENT

    def __init__(self, head: Sequence[Any], reader: RecordReader) -> None:
        super().__init__(head, reader)
        self._reader = reader
        run = as_dict(reader.metadata.get("eval"))
        self.version = as_text(as_dict(run.get("packages")).get("inspect_ai"))
        self.task = as_text(run.get("task"))
        plan = as_dict(reader.metadata.get("plan"))
        for config in (run.get("model_generate_config"), plan.get("config")):
            self.concurrency = self.concurrency or as_count(
                as_dict(config).get("max_connections")
            )
        self._models: Counter[str] = Counter()
        self._counted_by_mock = self._counted_by_server = False
        self._renders_agents = False

    @property
    def documents(self) -> int:
        return int(self._reader.state)

    def requests(self, row: Any) -> Iterable[SentRequest]:
        cap, counted = row["max_tokens"], row["input_tokens"]
        self._models[str(row["model"])] += 1
        rendered = self._reader.source.rendered  # then nobody counted or answered
        self._renders_agents |= rendered and bool(row["functions"])
        by_mock = str(row["model"]).startswith(_MOCK)
        if counted is None or rendered or self.counts_texts:
            answer = row["output_tokens"]
            if rendered:
                answer = None
            elif answer is None or by_mock:
                answer = row["completion"]
            prompt = conversation(row["messages"], row)
            yield SentRequest(prompt=prompt, output_cap=cap, output=answer)
            return
        self._counted_by_mock |= by_mock
        self._counted_by_server = True
        yield SentRequest(prompt=counted, output_cap=cap, output=row["output_tokens"])

    def notes(self) -> Iterable[Note]:
        if len(self._models) > 1:
            counts = [
                f"{printable(model[:80])} ({n:,})"
                for model, n in self._models.most_common()
            ]
            yield note("several_models", models=counts)
        if self._counted_by_mock:
            yield note("counted_by_mock")
        elif self._counted_by_server:
            yield note("sharing_not_counted")
        if self._renders_agents:
            yield note("first_requests_only")
