"""An answer of a server: events -> when its tokens came.

A piece of text is taken for one token, unless the server counts the tokens (`usage`):
then there are as many as it says.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec

from chunkscope.verification.endpoint.server import RequestFailed
from chunkscope.verification.inside.chunkscope_sessions import Answer, Question

DATA = b"data:"
DONE = b"[DONE]"

# No prompt and no answer has more tokens: a server that counts more is wrong.
Tokens = Annotated[int, msgspec.Meta(ge=0, le=1 << 24)]


class PromptDetails(msgspec.Struct):
    cached_tokens: Tokens | None = None


class Usage(msgspec.Struct):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    prompt_tokens_details: PromptDetails | None = None


class Choice(msgspec.Struct):
    text: str | None = None
    token_ids: list[int] | None = None  # if they are asked for
    finish_reason: str | None = None


class ServerError(msgspec.Struct):
    message: str | None = None
    code: int | str | None = None


class Event(msgspec.Struct):
    """What is read of an event, and of an answer that comes in one piece."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: ServerError | str | None = None


def read_event(data: bytes) -> Event:
    """
    >>> read_event(b'{"choices": [{"index": 0, "text": "Hi"}]}').choices[0].text
    'Hi'
    """
    try:
        event = msgspec.json.decode(data, type=Event)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RequestFailed(f"sent an event that cannot be read: {error}") from None
    if isinstance(event.error, str):
        raise RequestFailed(f"sent an error in its stream: {event.error}")
    if event.error is not None:
        code = event.error.code if isinstance(event.error.code, int) else None
        raise RequestFailed(f"sent an error in its stream: {event.error.message}", code)
    return event


class Received:
    """One answer while it comes in."""

    def __init__(self) -> None:
        self.times: list[float] = []  # of each token
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached: int | None = None
        self.ids: list[int] = []
        self.ended = False
        self.has_choice = False

    async def follow(
        self, parts: AsyncIterator[bytes], clock: Callable[[], float]
    ) -> None:
        """All events of a stream, each at the time it is read; an event is a line."""
        rest = b""
        async for part in parts:
            now = clock()
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                self.take_line(line, now)
        self.take_line(rest, clock())  # some servers save the last newline

    def take_line(self, line: bytes, now: float) -> None:
        """One line of a stream, at this many seconds."""
        if not line.startswith(DATA):
            return
        data = line.removeprefix(DATA).strip()
        if data == DONE:
            self.ended = True
        else:
            self._take(read_event(data), now)

    def take_whole(self, body: bytes, now: float) -> None:
        """An answer that was not streamed."""
        self._take(read_event(body), now)
        self.ended = True

    def _take(self, event: Event, now: float) -> None:
        choices = event.choices or []
        for choice in choices:
            self.has_choice = True
            self.ended = self.ended or bool(choice.finish_reason)
            self.ids += choice.token_ids or []
        if event.usage is not None:
            self._take_usage(event.usage)
        if event.usage is not None and event.usage.completion_tokens is not None:
            # The last event of a stream often has the count alone: nothing came with
            # it.
            came_s = now if choices or not self.times else self.times[-1]
            self._count(event.usage.completion_tokens, came_s)
        elif any(choice.text for choice in choices):
            self.times.append(now)

    def _take_usage(self, usage: Usage) -> None:
        """Note what the server counted; what it does not tell stays as it was."""
        if usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
        if usage.completion_tokens is not None:
            self.output_tokens = usage.completion_tokens
        if usage.prompt_tokens_details is not None:
            self.cached = usage.prompt_tokens_details.cached_tokens

    def _count(self, tokens: int, now: float) -> None:
        """So many tokens came by now, says the server."""
        missing = tokens - len(self.times)
        if missing >= 0:
            self.times += [now] * missing
            return
        # There were more pieces than tokens. The end of the answer stays where it was.
        end = self.times[-1]
        self.times = self.times[:tokens]
        if self.times:
            self.times[-1] = end

    def answer(self, question: Question, sent: float, now: float) -> Answer:
        """The answer, now that nothing more comes."""
        if not self.has_choice:
            raise RequestFailed("sent no answer")
        if not self.ended:
            raise RequestFailed("ended its answer in the middle")
        counts = Counter(self.times)  # tokens that were read together came together
        if not counts:
            counts[now] = 0
        return Answer(
            session=question.session,
            turn=question.turn,
            prompt_tokens=self.prompt_tokens or question.about.prompt_tokens,
            sent=sent,
            times=list(counts),
            counts=list(counts.values()),
            cached=self.cached,
            ids=self.ids,
            is_counted=self.output_tokens is not None,
        )
