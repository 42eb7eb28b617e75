"""A sample of an Inspect log: its calls of models, with what they refer to put in.

Every model event was a request: each turn of an agent, each call of a grader, also in a
try that failed and was repeated. Only what Inspect had in its own cache was never sent.
Long texts are kept apart (`attachment://...`), and so are messages that requests share
(`input_refs`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chunkscope.prompts.chat.openai import function_call
from chunkscope.prompts.chat.request import FUNCTION_KEYS
from chunkscope.prompts.harness.log import (
    as_count,
    as_dict,
    as_list,
    as_seconds,
    as_time,
)
from chunkscope.prompts.paths import wrong_type
from chunkscope.sources.base import DataError

ATTACHMENT = "attachment://"
MEDIA = ("image", "audio", "video", "data", "document")
MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "error")


@dataclass(frozen=True, slots=True)
class ModelEvent:
    """A call of a model, in which try of the sample it was made, and when.

    The working clock of a sample stands still while it waits for others: for a
    connection, or for a server that refused it.
    """

    content: Mapping[str, Any]
    attempt: int

    @property
    def is_from_cache(self) -> bool:
        return self.content.get("cache") == "read"

    @property
    def started(self) -> float | None:
        return as_time(self.content.get("timestamp"))

    def times(self) -> dict[str, float | None]:
        working_start = as_seconds(self.content.get("working_start"))
        working_time = as_seconds(self.content.get("working_time"))
        working_end = None
        if working_start is not None and working_time is not None:
            working_end = working_start + working_time
        return {
            "started": self.started,
            "completed": as_time(self.content.get("completed")),
            "working_start": working_start,
            "working_end": working_end,
        }


def model_events(events: Any, attempt: int) -> Iterator[ModelEvent]:
    """The calls among a transcript's events; older versions put those of a tool inside
    it.
    """
    for event in map(as_dict, as_list(events)):
        if event.get("event") == "model":
            yield ModelEvent(event, attempt)
        else:
            yield from model_events(event.get("events"), attempt)


class InspectSample:
    def __init__(self, sample: Mapping[str, Any]) -> None:
        self.ids = {"id": sample.get("id"), "epoch": sample.get("epoch")}
        self.shown = {key: str(value)[:80] for key, value in self.ids.items()}
        self.attachments = as_dict(sample.get("attachments"))
        self.pool = as_list(as_dict(sample.get("events_data")).get("messages"))
        self.pooled: dict[int, dict[str, Any]] = {}  # many requests hold the same
        retries = as_list(sample.get("error_retries"))
        tries = [as_dict(retry).get("events") for retry in retries]
        tries.append(sample.get("events"))
        self.model_events: list[ModelEvent] = []
        for attempt, events in enumerate(tries, start=1):
            self.model_events += model_events(events, attempt)

    def row(self, event: ModelEvent) -> dict[str, Any]:
        """A request as a row of chat data, with what the server counted. Raises
        DataError.
        """
        content = event.content
        output = as_dict(content.get("output"))
        usage = as_dict(output.get("usage"))
        functions = []
        for tool in map(as_dict, as_list(content.get("tools"))):
            functions.append({key: tool.get(key) for key in FUNCTION_KEYS})
        return {
            **self.ids,
            "session": self.session(event),
            "model": str(content.get("model")),
            "messages": self.sent_messages(content),
            "functions": self.resolved(functions),
            "max_tokens": as_count(as_dict(content.get("config")).get("max_tokens")),
            "input_tokens": input_tokens(output, usage),
            "output_tokens": as_count(usage.get("output_tokens")),
            "answer": self.answer(output),
            **event.times(),
        }

    def session(self, event: ModelEvent) -> str:
        """Each try of a sample starts anew."""
        name = f"{self.shown['id']} epoch {self.shown['epoch']}"
        return name if event.attempt == 1 else f"{name} try {event.attempt}"

    def answer(self, output: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer as a message; None for a request without one."""
        for choice in as_list(output.get("choices"))[:1]:
            try:
                return self.message(as_dict(choice).get("message"))
            except DataError:  # a request without an answer is still a request
                return None
        return None

    def sent_messages(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        messages, refs = event.get("input"), event.get("input_refs")
        if refs is not None:
            return [self.pooled_message(index) for index in self.referred(refs)]
        if not isinstance(messages, list):
            raise DataError("no_sample", harness="Inspect", fields=["events[].input"])
        return [self.message(message) for message in messages]

    def referred(self, refs: Any) -> Iterator[int]:
        """`[[0, 2], [5, 6]]` are messages 0, 1 and 5 of the pool."""
        for ref in as_list(refs):
            numbers = [as_count(number) for number in as_list(ref)[:2]]
            if len(numbers) < 2 or None in numbers:
                raise self._beyond(ref)
            start, end = numbers
            if start is None or end is None or not start <= end <= len(self.pool):
                raise self._beyond(ref)
            yield from range(start, end)

    def _beyond(self, ref: Any) -> DataError:
        return DataError("refs_beyond", refs=str(ref)[:80], size=len(self.pool))

    def pooled_message(self, index: int) -> dict[str, Any]:
        if index not in self.pooled:
            self.pooled[index] = self.message(self.pool[index])
        return self.pooled[index]

    def message(self, message: Any) -> dict[str, Any]:
        """A message as Inspect sends it to an OpenAI-compatible server."""
        if not isinstance(message, dict):
            raise wrong_type(message, "input[]", "object")
        sent = self.resolved({key: message.get(key) for key in MESSAGE_KEYS})
        error = as_dict(sent.pop("error"))
        if sent["role"] == "tool" and error:
            sent["content"] = f"Error: {error.get('message')}"
        if sent["tool_calls"]:
            sent["tool_calls"] = [openai_call(call) for call in sent["tool_calls"]]
        if isinstance(sent["content"], list):
            sent |= without_reasoning(sent["content"])
        return dict(sent)

    def resolved(self, value: Any) -> Any:
        """The value with the texts that are kept apart put in, wherever they are.

        Of images and the like only the kind is of interest.
        """
        if isinstance(value, dict):
            if value.get("type") in MEDIA:
                return value
            return {key: self.resolved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.resolved(inner) for inner in value]
        if not isinstance(value, str) or not value.startswith(ATTACHMENT):
            return value
        name = value.removeprefix(ATTACHMENT)
        if name not in self.attachments:
            raise DataError("points_nowhere", name=value[:80])
        return self.attachments[name]


def openai_call(call: Any) -> Any:
    """{"id": "1", "function": "calc", "arguments": {}} in OpenAI's form."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), str):
        return call
    return function_call(call.get("id"), call["function"], call.get("arguments"))


def without_reasoning(parts: list[Any]) -> dict[str, Any]:
    """Content and reasoning, which OpenAI's messages have side by side."""
    content = []
    reasoning = ""
    for part in parts:
        if as_dict(part).get("type") == "reasoning":
            reasoning += str(part.get("reasoning", ""))
        else:
            content.append(part)
    return {"content": content, "reasoning": reasoning}


def input_tokens(output: Mapping[str, Any], usage: Mapping[str, Any]) -> int | None:
    """What the server counted, with the tokens that it had in its cache."""
    context = as_count(output.get("input_context_tokens"))
    if context is not None:
        return context
    counted = as_count(usage.get("input_tokens"))
    cached = as_count(usage.get("input_tokens_cache_read")) or 0
    cached += as_count(usage.get("input_tokens_cache_write")) or 0
    if counted is None or not cached:
        return counted
    # Whether `input_tokens` holds the cached ones differs between versions; the total
    # does not.
    answer = as_count(usage.get("output_tokens"))
    total = as_count(usage.get("total_tokens"))
    if total is not None and answer is not None and total >= answer:
        return total - answer
    return counted + cached
