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
BLOCK_TOKENS = 16
MOST_HELD_BLOCKS = 32 << 20  # of prompts to which the next turn is compared


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
    number: int
    sent_at: float | None


@dataclass(frozen=True, slots=True)
class HeldPrompt:
    """The last prompt of a session."""

    tokens: int
    blocks: list[int]


class BailianTrace(HarnessLog):
    sessions_are_rows = False

    def __init__(self, header: LogHeader) -> None:
        super().__init__(header)
        self.chats: dict[str, EarlierChat] = {}
        # By session; of those that went on last.
        self.held: dict[str, HeldPrompt] = {}
        self.held_blocks = 0

    def requests(self, row: Any) -> Iterator[SentRequest]:
        chat = as_dict(row)
        for key in KEYS:
            if key not in chat:
                raise DataError("field_missing", field=key)
        tokens = trace_length(chat["input_length"], "input_length")
        answer = trace_length(chat["output_length"], "output_length")
        blocks = self._blocks(chat)
        sent_at = as_seconds(chat.get("timestamp"))
        name = str(chat["chat_id"])
        turn = self._turn(name, str(chat["parent_chat_id"]), sent_at, blocks)
        self.chats[name] = EarlierChat(turn.session, turn.number, sent_at)
        self._hold(turn.session, HeldPrompt(tokens, blocks or []))
        self.add_document(turn.session)
        yield SentRequest(
            prompt=tokens,
            output=answer,
            logged_tokens=tokens,
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

    def _turn(
        self,
        name: str,
        parent: str,
        sent_at: float | None,
        blocks: list[int] | None,
    ) -> SessionTurn:
        """The time between two turns holds that of the answer: a trace dates requests
        only.
        """
        earlier = self.chats.get(parent)
        if earlier is None:
            return SessionTurn(session=name, number=1)
        pause_s = None
        if sent_at is not None and earlier.sent_at is not None:
            pause_s = max(0.0, sent_at - earlier.sent_at)
        kept = None
        held = self.held.get(earlier.session)
        if held is not None and blocks is not None:
            kept = kept_tokens(blocks, held)
        return SessionTurn(
            session=earlier.session,
            number=earlier.number + 1,
            pause_s=pause_s,
            kept_tokens=kept,
        )

    def _hold(self, session: str, prompt: HeldPrompt) -> None:
        """Keep a prompt for its next turn, and let go of those that wait longest."""
        if session in self.held:
            self.held_blocks -= len(self.held.pop(session).blocks)
        self.held[session] = prompt
        self.held_blocks += len(prompt.blocks)
        while self.held_blocks > MOST_HELD_BLOCKS:
            oldest = next(iter(self.held))
            self.held_blocks -= len(self.held.pop(oldest).blocks)


def kept_tokens(blocks: list[int], held: HeldPrompt) -> int | None:
    """Those of the blocks that the prompt before has, too.

    None where it has all of that prompt's full blocks: then it goes on with the answer,
    of which the trace names no blocks.
    """
    same = 0
    for block, earlier in zip(blocks, held.blocks, strict=False):
        if block != earlier:
            break
        same += 1
    if same >= held.tokens // BLOCK_TOKENS:
        return None
    return same * BLOCK_TOKENS
