"""Sessions on their way to whatever answers them: each turn follows an answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass
class SentTurn:
    """One request. Its prompt begins with what it keeps of all that was said before."""

    prompt_tokens: int
    output_tokens: int
    kept_tokens: int = 0
    think_s: float = 0.0  # from the answer before until it is sent
    is_scored: bool = False  # asks for the likelihood of its prompt

    @property
    def tokens(self) -> int:
        """The room that it takes: its prompt and its answer."""
        return self.prompt_tokens + self.output_tokens


@dataclass
class SentSession:
    """Turns that follow each other; an ordinary prompt is a session of one turn.

    `place` is its place in the workload. Without one its prompts share nothing.
    """

    turns: "list[SentTurn]"
    arrival_s: float = 0.0
    place: "int | None" = None


@dataclass
class Question:
    """A turn that is due, with the token ids of its prompt."""

    round: str
    session: int  # its place in the round
    turn: int
    about: SentTurn
    ids: "list[int]"

    @property
    def name(self) -> str:
        return f"{self.round}.{self.session}.{self.turn}"


@dataclass
class Answer:
    """When a request was sent, and how many tokens came at which times."""

    session: int
    turn: int
    prompt_tokens: int
    sent: float
    times: "list[float]"
    counts: "list[int]"
    cached: "int | None" = None  # prompt tokens that came from the prefix cache
    ids: "list[int]" = field(default_factory=list)  # of the answer
    is_counted: bool = True  # or each piece of a stream was taken for a token

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    @property
    def ttft_s(self) -> float:
        return self.times[0] - self.sent

    @property
    def e2e_s(self) -> float:
        return self.times[-1] - self.sent

    @property
    def gaps_s(self) -> "list[float]":
        """One per token after the first: tokens that came together share the wait."""
        gaps = []
        for number in range(1, len(self.times)):
            count = self.counts[number]
            gap = (self.times[number] - self.times[number - 1]) / count
            gaps += [gap] * count
        return gaps

    def since(self, began: float) -> "Answer":
        """The same in seconds since then."""
        times = [time - began for time in self.times]
        return replace(self, sent=max(0.0, self.sent - began), times=times)

    def told(self) -> "dict[str, Any]":
        """As JSON has it: without the answer itself."""
        values = dict(vars(self))
        del values["ids"]
        return values


Ask = Callable[[Question], Awaitable[Answer]]


def nobody_is_told() -> None:
    """What to call with every answer, where there is nothing to do."""


@dataclass
class Client:
    """How a client sends: what it keeps under way at a time (None: all of them).

    It begins the next session when one of them ends, and a session's next request
    waits until fewer are under way. After `limit_s` seconds it gives up what has not
    ended. `tell` is called with every answer.
    """

    samples_at_once: "int | None" = None  # sessions
    concurrency: "int | None" = None  # requests
    limit_s: "float | None" = None
    tell: "Callable[[], None]" = nobody_is_told

    @property
    def sends_all(self) -> bool:
        return self.samples_at_once is None and self.concurrency is None


class Round:
    """Sends all sessions once; `answers` are those that ended.

    `texts` are the token ids that each turn of each session adds.
    """

    def __init__(
        self,
        name: str,
        sessions: "list[SentSession]",
        texts: "list[list[list[int]]]",
        ask: Ask,
        client: Client,
    ) -> None:
        self._name = name
        self._sessions = sessions
        self._texts = texts
        self._ask = ask
        self._client = client
        self._samples = asyncio.Semaphore(client.samples_at_once or len(sessions))
        self._requests = asyncio.Semaphore(client.concurrency or len(sessions))
        self._tasks: list[asyncio.Task[None]] = []
        self.answers: list[Answer] = []
        self.began = time.perf_counter()

    def clock(self) -> float:
        """Seconds since the round began."""
        return time.perf_counter() - self.began

    def begin(self) -> "list[asyncio.Task[None]]":
        self.began = time.perf_counter()
        for number in range(len(self._sessions)):
            task = asyncio.create_task(self._converse(number))
            self._tasks.append(task)
        return self._tasks

    async def finish(self) -> "list[Answer]":
        """Wait for the end; the answers by session and turn, in seconds of the round.

        The first failure ends it.
        """
        limit_s = self._client.limit_s
        if limit_s is not None:
            limit_s = max(0.0, limit_s - self.clock())
        try:
            ended, _ = await asyncio.wait(
                self._tasks, timeout=limit_s, return_when=asyncio.FIRST_EXCEPTION
            )
        finally:
            for task in self._tasks:
                task.cancel()  # those that have ended stay as they are
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in ended:
            task.result()
        answers = sorted(self.answers, key=lambda a: (a.session, a.turn))
        return [answer.since(self.began) for answer in answers]

    async def _converse(self, number: int) -> None:
        """One session from its first turn to its last."""
        session = self._sessions[number]
        await asyncio.sleep(max(0.0, session.arrival_s - self.clock()))
        async with self._samples:
            said: list[int] = []  # the latest prompt and its answer
            for turn, about in enumerate(session.turns):
                await asyncio.sleep(about.think_s)
                ids = said[: about.kept_tokens] + self._texts[number][turn]
                question = Question(self._name, number, turn, about, ids)
                async with self._requests:
                    answer = await self._ask(question)
                self.answers.append(answer)
                self._client.tell()
                said = ids + answer.ids
