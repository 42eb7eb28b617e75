"""Sessions that any harness can write: one on each line of a JSONL.

    {"id": 1, "system_tokens": 2000, "turns": [
        {"new_tokens": 812, "output_tokens": 140, "think_s": 0.8}, ...]}

The first prompt is `system_tokens` and `new_tokens`; a later one is the prompt before
it, its answer, and `new_tokens`. Where a client drops a part of what was said,
`kept_tokens` says with how many of these tokens the prompt still begins. `think_s` is
the time from the answer until the next turn is sent.

    {"id": 1, "tools": [...], "turns": [
        {"messages": [...], "output": "text, or a number of tokens", "think_s": 0.8}]}

The `messages` of a turn are those that are new. An assistant's message among them is an
answer, so that a conversation may be one turn.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from chunkscope.prompts.chat import conversation
from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    SessionTurn,
    as_dict,
    as_seconds,
    most_have,
)
from chunkscope.prompts.paths import shorten, wrong_type
from chunkscope.prompts.traces import trace_length
from chunkscope.sources.base import DataError
from chunkscope.sources.json_document import role_of

Turn = dict[str, Any]  # as it is written

MOST_THINK_S = 10**7  # four months


def recognise(start: LogStart) -> HarnessLog | None:
    """Sessions are rows with a list of turns, which are objects with `new_tokens`."""
    if not most_have(start.records, "turns"):
        return None
    turns: list[Any] = []
    for record in start.records:
        listed = as_dict(record).get("turns")
        if isinstance(listed, list):
            turns += listed
    header = LogHeader(harness="sessions")
    if most_have(turns, "new_tokens"):
        return TokenSessions(header)
    if most_have(turns, "messages"):
        return TextSessions(header)
    return None


class SessionRows(HarnessLog):
    """One session in each row. What the first has, all have to have."""

    def __init__(self, header: LogHeader) -> None:
        super().__init__(header)
        self.has_times: bool | None = None  # None while no turn could have one

    def requests(self, row: Any) -> Iterator[SentRequest]:
        if not isinstance(row, dict):
            raise wrong_type(row, "", "object")
        turns = turns_in(row)
        times = self._times(turns)
        name = str(row.get("id", len(self.documents) + 1))
        if name in self.documents:
            raise DataError("session_twice", id=name[:80])
        requests = self.session(name, row, turns, times)
        self.add_document(name)
        yield from requests

    @abstractmethod
    def session(
        self,
        name: str,
        row: dict[str, Any],
        turns: list[Turn],
        times: list[float | None],
    ) -> list[SentRequest]:
        """The requests of one session; `times` are the seconds after each turn. Raises
        DataError.
        """

    def _times(self, turns: list[Turn]) -> list[float | None]:
        """Raises DataError unless all turns have a time, but for the last, or none."""
        times = []
        has_times = self.has_times
        for number, turn in enumerate(turns):
            field = f"turns[{number}].think_s"
            time = seconds_of(turn.get("think_s"), field)
            times.append(time)
            if number == len(turns) - 1:
                break
            if has_times is None:
                has_times = time is not None
            if has_times != (time is not None):
                raise DataError("only_in_some", field=field)
        self.has_times = has_times
        return times


def turns_in(row: dict[str, Any]) -> list[Turn]:
    turns = row.get("turns")
    if not isinstance(turns, list) or not turns:
        raise wrong_type(turns or None, "turns", "list")
    for number, turn in enumerate(turns):
        if not isinstance(turn, dict):
            raise wrong_type(turn, f"turns[{number}]", "object")
    return turns


def seconds_of(value: Any, name: str) -> float | None:
    if value is None:
        return None
    seconds = as_seconds(value)
    if seconds is None or not 0 <= seconds <= MOST_THINK_S:
        raise DataError("not_seconds", field=name, given=shorten(value))
    return seconds


# --- by numbers of tokens -------------------------------------------------------------


class TokenSessions(SessionRows):
    def session(
        self,
        name: str,
        row: dict[str, Any],
        turns: list[Turn],
        times: list[float | None],
    ) -> list[SentRequest]:
        system_tokens = trace_length(row.get("system_tokens", 0), "system_tokens")
        if self.documents and system_tokens != self.system_tokens:
            raise DataError(
                "unequal_field",
                field="system_tokens",
                given=system_tokens,
                earlier=self.system_tokens,
            )
        requests = []
        before = 0  # tokens of the previous prompt and its answer
        pause_s: float | None = None
        for number, turn in enumerate(turns):
            kept = kept_tokens(turn, f"turns[{number}].kept_tokens", before)
            prompt = kept + tokens_of(turn, "new_tokens", number)
            if number == 0:
                prompt += system_tokens
            output = tokens_of(turn, "output_tokens", number)
            place = SessionTurn(session=name, pause_s=pause_s, kept_tokens=kept)
            request = SentRequest(prompt=prompt, output=output, session=place)
            requests.append(request)
            before = prompt + output
            pause_s = times[number]
        self.system_tokens = system_tokens
        return requests


def tokens_of(turn: Turn, field: str, number: int) -> int:
    return trace_length(turn.get(field), f"turns[{number}].{field}")


def kept_tokens(turn: Turn, field: str, before: int) -> int:
    """All that was said before, unless the turn has another number."""
    kept = turn.get("kept_tokens")
    if kept is None:
        return before
    kept = trace_length(kept, field)
    if kept > before:
        raise DataError("keeps_too_much", field=field, given=kept, most=before)
    return kept


# --- by messages ----------------------------------------------------------------------


@dataclass(slots=True)
class TextSession:
    """How far a conversation was replayed."""

    name: str
    row: dict[str, Any]  # what every request has beside its messages
    messages: list[Any] = field(default_factory=list)  # those of the next prompt
    requests: list[SentRequest] = field(default_factory=list)
    pause_s: float | None = None

    def request(self, *, answer: Sequence[Any] = (), output: int | None = None) -> None:
        """Add what asks for an answer to the messages so far."""
        place = SessionTurn(session=self.name, pause_s=self.pause_s)
        request = SentRequest(
            prompt=conversation(list(self.messages), self.row),
            output=output,
            answer=conversation(list(answer), {}).messages if answer else (),
            session=place,
        )
        self.requests.append(request)
        self.pause_s = None


class TextSessions(SessionRows):
    def session(
        self,
        name: str,
        row: dict[str, Any],
        turns: list[Turn],
        times: list[float | None],
    ) -> list[SentRequest]:
        session = TextSession(name, row)
        lacks_answer = False  # the last one is only known by its length
        for number, turn in enumerate(turns):
            messages = turn.get("messages")
            if not isinstance(messages, list):
                raise wrong_type(messages, f"turns[{number}].messages", "list")
            if lacks_answer:
                if not is_answer(messages[:1]):
                    raise DataError("no_answer_text", turn=number, before=number - 1)
                session.messages.append(messages[0])
                messages = messages[1:]
            for message in messages:
                if is_answer([message]):
                    session.request(answer=[message])
                session.messages.append(message)
            is_last = number == len(turns) - 1
            lacks_answer = self._answer(session, turn, number, is_last=is_last)
            session.pause_s = times[number]
        return session.requests

    def _answer(
        self, session: TextSession, turn: Turn, number: int, *, is_last: bool
    ) -> bool:
        """Take the answer of a turn that does not end with it. Whether its text is
        missing.
        """
        output = turn.get("output")
        name = f"turns[{number}].output"
        if is_answer(session.messages[-1:]):
            if output is not None:
                raise DataError("answered_twice", field=name)
            return False
        if isinstance(output, str):
            message = {"role": "assistant", "content": output}
            session.request(answer=[message])
            session.messages.append(message)
            return False
        if output is None and not is_last:
            raise DataError("field_missing", field=name)
        tokens = None if output is None else trace_length(output, name)
        session.request(output=tokens)
        return True


def is_answer(messages: Sequence[Any]) -> bool:
    """Whether it is the message of an assistant."""
    return bool(messages) and role_of(as_dict(messages[0])) == "assistant"
