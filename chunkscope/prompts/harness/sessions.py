"""Sessions that any harness can write: one on each line of a JSONL.

    {"id": 1, "system_tokens": 2000, "turns": [
        {"new_tokens": 812, "output_tokens": 140, "think_s": 0.8}, ...]}

The first prompt is `system_tokens` and `new_tokens`; a later one is the prompt before
it, its answer, and `new_tokens`. Where a client drops a part of what was said,
`kept_tokens` says with how many of these tokens the prompt still begins. `think_s` is
the time from the answer until the next turn is sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    SessionTurn,
    as_dict,
    most_have,
)
from chunkscope.prompts.paths import shorten, wrong_type
from chunkscope.prompts.traces import trace_length
from chunkscope.sources.base import DataError

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
    if not most_have(turns, "new_tokens"):
        return None
    return SessionRows(LogHeader(harness="sessions"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn as it is written, checked."""

    new_tokens: int
    output_tokens: int
    think_s: float | None  # after it
    kept_tokens: int | None


class SessionRows(HarnessLog):
    """Sessions by the numbers of their tokens."""

    def __init__(self, header: LogHeader) -> None:
        super().__init__(header)
        self.has_times: bool | None = None  # what the first turn has, all have to have
        self.is_first = True

    def requests(self, row: Any) -> Iterator[SentRequest]:
        if not isinstance(row, dict):
            raise wrong_type(row, "", "object")
        system_tokens = self._system_tokens(row)
        turns = self._turns(row)
        number = len(self.documents) + 1
        name = str(row.get("id", number))
        if name in self.documents:
            raise DataError("session_twice", id=name[:80])
        requests = requests_of(name, turns, system_tokens)
        self.is_first = False
        self.system_tokens = system_tokens
        self.add_document(name)
        yield from requests

    def _system_tokens(self, row: dict[str, Any]) -> int:
        """All sessions begin with the same tokens, so the number is the same."""
        tokens = trace_length(row.get("system_tokens", 0), "system_tokens")
        if not self.is_first and tokens != self.system_tokens:
            raise DataError(
                "unequal_field",
                field="system_tokens",
                given=tokens,
                earlier=self.system_tokens,
            )
        return tokens

    def _turns(self, row: dict[str, Any]) -> list[Turn]:
        listed = row.get("turns")
        if not isinstance(listed, list) or not listed:
            raise wrong_type(listed or None, "turns", "list")
        turns = []
        for number, turn in enumerate(listed):
            place = f"turns[{number}]"
            if not isinstance(turn, dict):
                raise wrong_type(turn, place, "object")
            turns.append(turn_of(turn, place))
        self._check_times(turns)
        return turns

    def _check_times(self, turns: list[Turn]) -> None:
        """Raises DataError unless all turns have a time, but for the last, or none."""
        has_times = self.has_times
        for number, turn in enumerate(turns[:-1]):
            if has_times is None:
                has_times = turn.think_s is not None
            if has_times != (turn.think_s is not None):
                raise DataError("only_in_some", field=f"turns[{number}].think_s")
        self.has_times = has_times


def turn_of(turn: dict[str, Any], place: str) -> Turn:
    kept = turn.get("kept_tokens")
    if kept is not None:
        kept = trace_length(kept, f"{place}.kept_tokens")
    return Turn(
        new_tokens=trace_length(turn.get("new_tokens"), f"{place}.new_tokens"),
        output_tokens=trace_length(turn.get("output_tokens"), f"{place}.output_tokens"),
        think_s=seconds_of(turn.get("think_s"), f"{place}.think_s"),
        kept_tokens=kept,
    )


def seconds_of(value: Any, name: str) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MOST_THINK_S:
        raise DataError("not_seconds", field=name, given=shorten(value))
    return float(value)


def requests_of(name: str, turns: list[Turn], system_tokens: int) -> list[SentRequest]:
    requests = []
    before = 0  # tokens that the previous prompt and its answer have
    pause_s: float | None = None
    for number, turn in enumerate(turns, start=1):
        kept = before
        if turn.kept_tokens is not None:
            if turn.kept_tokens > before:
                field = f"turns[{number - 1}].kept_tokens"
                raise DataError(
                    "keeps_too_much", field=field, given=turn.kept_tokens, most=before
                )
            kept = turn.kept_tokens
        prompt = kept + turn.new_tokens
        if number == 1:
            prompt += system_tokens
        place = SessionTurn(
            session=name, number=number, pause_s=pause_s, kept_tokens=kept
        )
        requests.append(
            SentRequest(prompt=prompt, output=turn.output_tokens, session=place)
        )
        before = prompt + turn.output_tokens
        pause_s = turn.think_s
    return requests
