"""Conversations into texts by a stranger's chat template, in a process with limits."""

import datetime
import pickle
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from chunkscope.errors import OverLimit
from chunkscope.prompts.chat import Conversation
from chunkscope.tokenizers.chat_template import ChatTemplate, TemplateRefused
from chunkscope.tokenizers.confined import Confined, Limits

SECONDS = 20.0
BYTES_A_SECOND = 100_000  # no template is that slow
MEMORY = 1 << 30
MEMORY_PER_BYTE = 24  # a text exists several times, with up to four bytes for a character


class _Asked(NamedTuple):
    template: bytes  # pickled: what it is made of
    conversations: Sequence[Conversation]


class Renderer:
    """One chat template. Once it took too much it is not asked again."""

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, Any],
        date: datetime.date | None = None,
    ) -> None:
        self._template = pickle.dumps((source, special_tokens, date))
        self._failure: OverLimit | None = None
        self.uses_date, self.uses_tools = False, True  # known once it rendered something

    def texts(self, conversations: Sequence[Conversation]) -> list[str | TemplateRefused]:
        """The prompts' texts, and what the template said of those it will not have."""
        if self._failure is not None:
            raise self._failure
        asked = _Asked(self._template, conversations)
        try:
            (self.uses_date, self.uses_tools), made = _apart.ask(
                asked, _limits, "the chat template"
            )
        except OverLimit as error:
            error.hint = "give another one with --chat-template FILE, or use --no-chat-template"
            self._failure = error
            raise
        return [text if isinstance(text, str) else TemplateRefused(text[0]) for text in made]


def _limits(size: int) -> Limits:
    return Limits(SECONDS + size / BYTES_A_SECOND, MEMORY + MEMORY_PER_BYTE * size)


# -- inside ----------------------------------------------------------------------------------------


def rendered(asked: _Asked) -> tuple[tuple[bool, bool], list[str | list[str]]]:
    """Whether the template uses the date and tools, and a text or a reason in a list for each."""
    template = _made(asked.template)
    uses = (template.uses_date, template.uses_tools)
    return uses, [_text(template, chat) for chat in asked.conversations]


@lru_cache(maxsize=8)
def _made(template: bytes) -> ChatTemplate:
    source, special_tokens, date = pickle.loads(template)  # noqa: S301  (our own)
    return ChatTemplate(source, special_tokens=special_tokens, date=date)


def _text(template: ChatTemplate, chat: Conversation) -> str | list[str]:
    try:
        return template.render(chat)
    except TemplateRefused as error:
        return [error.message.encode(errors="replace").decode()]


_apart = Confined(f"{__name__}:{rendered.__name__}")
