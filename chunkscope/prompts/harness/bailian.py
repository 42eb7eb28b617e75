"""Alibaba's traces of its Bailian service: chats by their lengths and blocks.

    {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521,
     "output_length": 132, "type": "text", "turn": 2, "hash_ids": [1, 2, 3]}

A block has 16 tokens. A chat whose parent is in the file goes on with its session.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chunkscope.prompts.harness.log import (
    AS_SENT,
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    SessionTurn,
    as_dict,
    as_seconds,
    most_have,
)
from chunkscope.prompts.traces import are_blocks, trace_length
from chunkscope.sources.base import DataError

KEYS = ("chat_id", "parent_chat_id", "input_length", "output_length")


def recognise(start: LogStart) -> HarnessLog | None:
    if not most_have(start.records, *KEYS):
        return None
    log = BailianTrace(LogHeader(harness="Bailian", order=AS_SENT))
    log.has_blocks = most_have(start.records, "hash_ids")
    return log


@dataclass(frozen=True, slots=True)
class EarlierChat:
    """A chat that another one may go on with."""

    session: str
    sent_at: float | None


class BailianTrace(HarnessLog):
    sessions_are_rows = False

    def __init__(self, header: LogHeader) -> None:
        super().__init__(header)
        self.chats: dict[str, EarlierChat] = {}

    def requests(self, row: Any) -> Iterator[SentRequest]:
        chat = as_dict(row)
        for key in KEYS:
            if key not in chat:
                raise DataError("field_missing", field=key)
        tokens = trace_length(chat["input_length"], "input_length")
        answer = trace_length(chat["output_length"], "output_length")
        blocks = self._blocks(chat)
        turn = self._turn(chat)
        self.add_document(turn.session)
        yield SentRequest(
            prompt=tokens,
            output=answer,
            session=turn,
            blocks=blocks,
        )

    def _blocks(self, chat: dict[str, Any]) -> list[int] | None:
        if not self.has_blocks:
            return None
        blocks = chat.get("hash_ids")
        if not isinstance(blocks, list) or not are_blocks(blocks):
            raise DataError("not_blocks", field="hash_ids")
        return blocks

    def _turn(self, chat: dict[str, Any]) -> SessionTurn:
        """The time between two turns holds that of the answer, too: a trace dates
        requests only.
        """
        name = str(chat["chat_id"])
        session = name
        sent_at = as_seconds(chat.get("timestamp"))
        pause_s = None
        earlier = self.chats.get(str(chat["parent_chat_id"]))
        if earlier is not None:
            session = earlier.session
            if sent_at is not None and earlier.sent_at is not None:
                pause_s = max(0.0, sent_at - earlier.sent_at)
        self.chats[name] = EarlierChat(session, sent_at)
        return SessionTurn(session=session, pause_s=pause_s)
