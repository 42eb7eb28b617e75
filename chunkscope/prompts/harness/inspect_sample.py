"""One sample of an Inspect log -> the requests that were sent for it.

Every model event was a request: each turn of an agent, each call of a grader, also in a try that
failed and was repeated. Only what Inspect had in its own cache was never sent. Long texts are kept
apart (`attachment://...`), and so are messages that several requests share (`input_refs`).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from chunkscope.prompts.paths import UnusableError, escape, json_type

_ATTACHMENT = "attachment://"
_REASONING = "reasoning"


class LoggedCall(NamedTuple):
    """A request as a row of a chat dataset, and when it was sent (seconds, None if not logged)."""

    sent_at: float | None
    row: dict[str, Any]


class LoggedSample:
    """A sample: its model events, with what they refer to put in."""

    def __init__(self, sample: Mapping[str, Any]) -> None:
        self.name = f"sample {escape(str(sample.get('id'))[:80])} epoch {sample.get('epoch')}"
        self._ids = {key: sample.get(key) for key in ("id", "epoch")}
        self._attachments = sample.get("attachments")
        pool = _object(sample.get("events_data")).get("messages")
        self._pool: Sequence[Any] = pool if isinstance(pool, list) else ()
        self._resolved: dict[int, dict[str, Any]] = {}
        tries = [_object(retry).get("events") for retry in _list(sample.get("error_retries"))]
        self.lost_tries = sum(not events for events in tries)  # not logged before 0.3.210
        self.model_events = [
            event for events in (*tries, sample.get("events")) for event in _model_events(events)
        ]

    def calls(self) -> Iterator[LoggedCall | UnusableError]:
        """What was sent, or why that cannot be told."""
        for event in self.model_events:
            if event.get("cache") == "read":
                continue
            try:
                yield LoggedCall(_seconds(event.get("timestamp")), self._row(event))
            except UnusableError as error:
                yield UnusableError(f"{self.name}: {error}")
            except RecursionError:
                yield UnusableError(f"{self.name}: a request in it is nested too deeply")

    def _row(self, event: Mapping[str, Any]) -> dict[str, Any]:
        output = _object(event.get("output"))
        usage = _object(output.get("usage"))
        return self._ids | {
            "model": event.get("model"),
            "messages": self._messages(event),
            "tools": [self._tool(tool) for tool in _list(event.get("tools"))] or None,
            "max_tokens": _count(_object(event.get("config")).get("max_tokens")),
            "input_tokens": _input_tokens(output, usage),
            "output_tokens": _count(usage.get("output_tokens")),
            "completion": self._completion(output),
        }

    # --- messages ----------------------------------------------------------------------------

    def _messages(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        refs = event.get("input_refs")
        if refs is not None:
            return [self._pooled(index) for index in _indices(refs, len(self._pool))]
        messages = event.get("input")
        if not isinstance(messages, list):
            raise UnusableError("a model event has neither input nor input_refs")
        return [self._message(message) for message in messages]

    def _pooled(self, index: int) -> dict[str, Any]:
        """A message that many requests hold is made once."""
        if index not in self._resolved:
            self._resolved[index] = self._message(self._pool[index])
        return self._resolved[index]

    def _message(self, message: Any) -> dict[str, Any]:
        """A message as Inspect sends it to an OpenAI-compatible server."""
        if not isinstance(message, dict):
            raise UnusableError(f"a message is {json_type(message)}, not an object")
        role, content = message.get("role"), message.get("content")
        sent: dict[str, Any] = {"role": role}
        if isinstance(content, list):
            thoughts = [part for part in content if _object(part).get("type") == _REASONING]
            sent["content"] = [self._part(part) for part in content if part not in thoughts]
            if thoughts:
                said = [self._text(part.get(_REASONING)) for part in thoughts]
                sent["reasoning_content"] = "\n".join(map(str, said))
        else:
            sent["content"] = self._text(content)
        if role == "assistant" and (calls := _list(message.get("tool_calls"))):
            sent["tool_calls"] = [self._tool_call(call) for call in calls]
        if role == "tool":
            sent["tool_call_id"] = message.get("tool_call_id")
            if failed := _object(message.get("error")):
                sent["content"] = f"Error: {self._text(failed.get('message'))}"
        return sent

    def _part(self, part: Any) -> Any:
        """Text is put in; of images and the like only the kind is of interest."""
        kind = _object(part).get("type")
        return {**part, "text": self._text(part.get("text"))} if kind == "text" else part

    def _tool_call(self, call: Any) -> dict[str, Any]:
        call = _object(call)
        function = {"name": call.get("function"), "arguments": self._resolve(call.get("arguments"))}
        return {"id": call.get("id"), "type": "function", "function": function}

    def _tool(self, tool: Any) -> dict[str, Any]:
        function = {key: self._resolve(held) for key, held in _object(tool).items()}
        named = {key: function.get(key) for key in ("name", "description", "parameters")}
        return {"type": "function", "function": named}

    def _completion(self, output: Mapping[str, Any]) -> str | None:
        """The answer's text, for output lengths; a request without one is still a request."""
        try:
            text = self._text(output.get("completion"))
        except UnusableError:
            return None
        return text if isinstance(text, str) else None

    # --- attachments -------------------------------------------------------------------------

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._resolve(held) for key, held in value.items()}
        if isinstance(value, list):
            return [self._resolve(held) for held in value]
        return self._text(value)

    def _text(self, value: Any) -> Any:
        if not isinstance(value, str) or not value.startswith(_ATTACHMENT):
            return value
        name = value.removeprefix(_ATTACHMENT)
        try:
            if isinstance(self._attachments, list):  # a sample in chunks has them by number
                return self._attachments[_index(name)]
            return self._attachments[name]  # type: ignore[index]  # not a dict: see below
        except (KeyError, IndexError, TypeError, ValueError):
            raise UnusableError(f"{escape(value[:80])} points nowhere") from None


def _model_events(events: Any) -> Iterator[dict[str, Any]]:
    """The calls among a transcript's events; older versions put those of a tool inside it."""
    for event in _list(events):
        if not isinstance(event, dict):
            continue
        if event.get("event") == "model":
            yield event
        else:
            yield from _model_events(event.get("events"))


def _indices(refs: Any, size: int) -> Iterator[int]:
    """`[[0, 2], [5, 6]]` -> 0, 1, 5."""
    for ref in _list(refs):
        numbers = [_count(number) for number in _list(ref)]
        if len(numbers) != 2 or None in numbers:
            raise UnusableError(f"input_refs hold {json_type(ref)}, not a start and an end")
        start, end = numbers[0] or 0, numbers[1] or 0
        if not start <= end <= size:
            raise UnusableError(
                f"input_refs [{start}, {end}] point beyond the {size} messages of events_data"
            )
        yield from range(start, end)


def _input_tokens(output: Mapping[str, Any], usage: Mapping[str, Any]) -> int | None:
    """What the server counted, with the tokens that it had in its cache."""
    context, total = _count(output.get("input_context_tokens")), _count(usage.get("total_tokens"))
    if context is not None:
        return context
    counted, answer = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    cached = [_count(usage.get(f"input_tokens_cache_{way}")) or 0 for way in ("read", "write")]
    if counted is None or not any(cached):
        return counted
    # Whether `input_tokens` holds the cached ones differs between versions; the total does not.
    if total is not None and answer is not None and total >= answer:
        return total - answer
    return counted + sum(cached)


def _seconds(timestamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _index(name: str) -> int:
    if not (name.isascii() and name.isdigit()):
        raise ValueError(name)
    return int(name)


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
