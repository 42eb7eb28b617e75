"""A streamed answer: server-sent events -> when how many tokens came.

Several tokens may come in one event, several events in one read, and an event may hold no token.
What the server counts (`usage`) wins over what can be seen of it.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Any

import orjson

from chunkscope.verification.endpoint.server import RequestFailed
from chunkscope.verification.latencies import Answer

DONE = b"[DONE]"
_MOST_TOKENS = 1 << 31  # of one prompt or answer; no model reads a thousandth of it


class ServerError(RequestFailed):
    """An error inside the stream, which began with 200 OK; the message is the server's own."""


class Events:
    """Bytes in as they come, the data of complete events out."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, some: bytes) -> list[bytes]:
        """The events that are complete now.

        >>> Events().feed(b": a comment\\ndata: 1\\n\\ndata:2\\r\\n\\r\\ndata: 3")
        [b'1', b'2']
        """
        *lines, self._rest = (self._rest + some).split(b"\n")
        return [event for line in lines if (event := self._line(line.rstrip(b"\r"))) is not None]

    def end(self) -> list[bytes]:
        """What is left when the connection closes: some servers save the last blank line."""
        return [event for event in self.feed(b"\n\n") if event]

    def _line(self, line: bytes) -> bytes | None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            event, self._data = b"\n".join(self._data), []
            return event
        return None


@dataclass(slots=True)
class Received:
    """One answer while it comes in."""

    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None
    whole: bytes = b""  # an answer in one piece, if it is to be kept
    ended: bool = False
    _seen: bool = False  # a choice of any kind
    _blank: list[float] = field(default_factory=list)  # events without anything to see in them
    _counts_along: bool | None = None  # vLLM can say at every event how many it is by now

    @property
    def is_counted(self) -> bool:
        return self.output_tokens is not None

    def take(self, event: bytes, now: float) -> None:
        """One event, at this many seconds."""
        if event.strip() == DONE:
            self.ended = True
            return
        content = _content(event)
        choices = _choices(content)
        self._seen = self._seen or bool(choices)
        before = self.output_tokens or 0
        self._use(content.get("usage"))
        if not choices:  # usage by itself, or the settings that some servers begin with
            self.ended = self.ended or self.is_counted
            return
        if self._counts_along is None:
            self._counts_along = self.is_counted
        if self._counts_along:
            self._add(now, (self.output_tokens or 0) - before)
        elif any(map(_piece, choices)):
            self._add(now, 1)
        elif not any(_delta(choice).get("role") for choice in choices):
            self._blank.append(now)
        self.ended = self.ended or any(choice.get("finish_reason") for choice in choices)

    def take_whole(self, body: bytes, now: float) -> None:
        """An answer that was not streamed."""
        content = _content(body)
        if not _choices(content):
            raise RequestFailed("sent an answer without choices")
        self._seen = True
        self._use(content.get("usage"))
        self._add(now, self.output_tokens if self.output_tokens is not None else 1)
        self.ended = True

    def _add(self, now: float, tokens: int) -> None:
        if tokens <= 0:
            return
        if self.times and self.times[-1] == now:
            self.counts[-1] += tokens  # they came together
        else:
            self.times.append(now)
            self.counts.append(tokens)

    def _use(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        self.prompt_tokens = _tokens(usage.get("prompt_tokens"), self.prompt_tokens, "a prompt")
        self.output_tokens = _tokens(
            usage.get("completion_tokens"), self.output_tokens, "an answer"
        )
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            self.cached = _tokens(details.get("cached_tokens"), self.cached, "a cached prompt")
        if self.cached and self.prompt_tokens is not None and self.cached > self.prompt_tokens:
            raise RequestFailed(
                f"says that {self.cached:,} of {self.prompt_tokens:,} prompt tokens were cached"
            )

    def answer(self, sent: float, now: float) -> Answer:
        """Settled: as many tokens as the server says, at the times they were seen at."""
        if not self.ended:
            raise RequestFailed("ended its answer in the middle")
        if not self._seen:
            raise RequestFailed("ended its answer without having begun it")
        times, counts = self.times, self.counts
        if not times:
            times = self._blank or [now]
            counts = [0] * len(times)
        total = sum(counts) if self.output_tokens is None else self.output_tokens
        pairs = list(zip(times, spread(counts, total), strict=True))
        # The end is the end, even if nothing came with it.
        kept = [pair for pair in pairs[:-1] if pair[1]] + pairs[-1:]
        return Answer(
            sent=sent,
            times=tuple(time for time, _ in kept),
            counts=tuple(count for _, count in kept),
            cached=self.cached,
            prompt_tokens=self.prompt_tokens,
            whole=self.whole,
            is_counted=self.is_counted,
        )


def spread(counts: list[int], total: int) -> list[int]:
    """The same shares, but of `total`. What comes first stays at least one.

    >>> spread([1, 1, 1], 7), spread([1, 1, 1, 1], 2)
    ([3, 2, 2], [1, 0, 1, 0])
    """
    if sum(counts) == total:
        return counts
    weights = counts if any(counts) else [1] * len(counts)
    whole, made, seen, given = sum(weights), [], 0, 0
    for weight in weights:
        seen += weight
        upto = ceil(total * seen / whole)
        made.append(upto - given)
        given = upto
    return made


def _content(event: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(event)
    except ValueError:
        raise RequestFailed("sent an event that is not JSON") from None
    if not isinstance(content, dict):
        raise RequestFailed("sent an event that is not a JSON object")
    if error := content.get("error"):
        said = error if isinstance(error, dict) else {}
        raise ServerError(str(said.get("message") or error), _count(said.get("code"), None))
    return content


def _choices(content: dict[str, Any]) -> list[dict[str, Any]]:
    choices = content.get("choices") or []
    if not isinstance(choices, list):
        raise RequestFailed("sent choices that are no list")
    return [choice for choice in choices if isinstance(choice, dict)]


def _delta(choice: dict[str, Any]) -> dict[str, Any]:
    delta = choice.get("delta") or {}
    if not isinstance(delta, dict):
        raise RequestFailed("sent a delta that is no object")
    return delta


def _piece(choice: dict[str, Any]) -> bool:
    """Whether a choice of an event holds some of the answer: text, thoughts or a call."""
    if not (delta := _delta(choice)):
        return bool(choice.get("text"))
    names = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls")
    return any(delta.get(name) for name in names)


def _tokens(value: Any, known: int | None, of: str) -> int | None:
    count = _count(value, known)
    if count is not None and not 0 <= count <= _MOST_TOKENS:
        raise RequestFailed(f"says that {of} has {count:,} tokens, which cannot be")
    return count


def _count(value: Any, known: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else known
