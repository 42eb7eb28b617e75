"""A streamed answer: server-sent events -> when how many tokens came.

Several tokens may come in one event, several events in one read, and an event may hold no token.
What the server counts (`usage`) wins over what can be seen of it.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import ceil
from typing import Any

import orjson

from chunkscope.prompts.harness.log import as_dict
from chunkscope.verification.endpoint.server import RequestFailed
from chunkscope.verification.latencies import Answer

DATA, DONE = b"data:", b"[DONE]"


@dataclass(slots=True)
class Received:
    """One answer while it comes in."""

    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None
    ended: bool = False
    _has_choice: bool = False
    _counts_along: bool | None = (
        None  # vLLM can say at every event how many it is by now
    )

    async def follow(
        self, parts: AsyncIterator[bytes], clock: Callable[[], float]
    ) -> None:
        """All events of a stream, each at the time it is read; an event is a line."""
        rest = b""
        async for part in parts:
            now = clock()
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                self.take(line, now)
        self.take(rest, clock())  # some servers save the last newline

    def take(self, line: bytes, now: float) -> None:
        """One line, at this many seconds."""
        if not line.startswith(DATA):
            return
        event = line.removeprefix(DATA).strip()
        if event == DONE:
            self.ended = True
            return
        before = self.output_tokens or 0
        choices = self._read(event)
        if not choices:  # usage by itself, or the settings that some servers begin with
            self.ended = self.ended or self.output_tokens is not None
            return
        if self._counts_along is None:
            self._counts_along = self.output_tokens is not None
        if self._counts_along:
            self._add(now, (self.output_tokens or 0) - before)
        elif any(choice.get("text") for choice in choices):
            self._add(now, 1)
        self.ended = self.ended or any(
            choice.get("finish_reason") for choice in choices
        )

    def take_whole(self, body: bytes, now: float) -> None:
        """An answer that was not streamed."""
        if not self._read(body):
            raise RequestFailed("sent an answer without choices")
        self._add(now, self.output_tokens if self.output_tokens is not None else 1)
        self.ended = True

    def _read(self, event: bytes) -> list[dict[str, Any]]:
        """Note what the server counts; the choices."""
        try:
            content = orjson.loads(event)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise RequestFailed("sent an event that is not a JSON object")
        if error := content.get("error"):
            details = error if isinstance(error, dict) else {"message": error}
            code = details.get("code")
            raise RequestFailed(
                f"sent an error in its stream: {details.get('message')}",
                code if isinstance(code, int) else None,
            )
        usage = as_dict(content.get("usage"))
        cached = as_dict(usage.get("prompt_tokens_details")).get("cached_tokens")
        self.prompt_tokens = _tokens(usage.get("prompt_tokens"), self.prompt_tokens)
        self.output_tokens = _tokens(usage.get("completion_tokens"), self.output_tokens)
        self.cached = _tokens(cached, self.cached)
        choices = content.get("choices") or []
        if not isinstance(choices, list) or not all(
            isinstance(one, dict) for one in choices
        ):
            raise RequestFailed("sent choices that are not a list of objects")
        self._has_choice = self._has_choice or bool(choices)
        return choices

    def _add(self, now: float, tokens: int) -> None:
        if tokens <= 0:
            return
        if self.times and self.times[-1] == now:
            self.counts[-1] += tokens  # they came together
        else:
            self.times.append(now)
            self.counts.append(tokens)

    def answer(self, sent: float, now: float) -> Answer:
        """As many tokens as the server says, at the times they were seen at."""
        if not self._has_choice:
            raise RequestFailed("streamed no answer")
        if not self.ended:
            raise RequestFailed("ended its answer in the middle")
        times, counts = self.times or [now], self.counts or [0]
        total = sum(counts) if self.output_tokens is None else self.output_tokens
        pairs = list(zip(times, spread(counts, total), strict=True))
        # The end is the end, even if nothing came with it.
        pairs = [pair for pair in pairs[:-1] if pair[1]] + pairs[-1:]
        return Answer(
            sent=sent,
            times=tuple(time for time, _ in pairs),
            counts=tuple(count for _, count in pairs),
            cached=self.cached,
            prompt_tokens=self.prompt_tokens,
            is_counted=self.output_tokens is not None,
        )


def spread(counts: list[int], total: int) -> list[int]:
    """The same shares, but of `total`. What comes first stays at least one.

    >>> spread([1, 1, 1], 7), spread([1, 1, 1, 1], 2)
    ([3, 2, 2], [1, 0, 1, 0])
    """
    if sum(counts) == total:
        return counts
    weights = counts if any(counts) else [1] * len(counts)
    ends = [ceil(total * end / sum(weights)) for end in accumulate(weights)]
    return [end - begin for begin, end in pairwise([0, *ends])]


def _tokens(value: Any, before: int | None) -> int | None:
    """A count of the server's; what it does not tell stays as it was."""
    return value if type(value) is int and 0 <= value < 1 << 31 else before
