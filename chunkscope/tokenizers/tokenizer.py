"""One tokenizer, as a run needs it: named, made ready, counting texts and chats."""

import datetime
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.errors import InputError
from chunkscope.prompts.chat import Conversation
from chunkscope.tokenizers import prepare
from chunkscope.tokenizers.check import known_verdict
from chunkscope.tokenizers.counting import TextCounter
from chunkscope.tokenizers.foreign import TokenizerError, foreign_errors
from chunkscope.tokenizers.mistral import MistralChat
from chunkscope.tokenizers.prepare import PreparedTokenizer, TokenizerFacts
from chunkscope.tokenizers.reference import Ids, Reference
from chunkscope.tokenizers.resolve import TokenizerKind, resolve

if TYPE_CHECKING:  # Jinja, which only chats need
    from chunkscope.tokenizers.chat_template import ChatTemplate


class Tokenizer:
    """Counts prompts as vLLM would feed them to the model.

    Nothing is loaded before it is needed: a run answered from the cache, or a trace that brings
    its own lengths, loads no library.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        memo: DigestMemo | None = None,
        chat_template: Path | None = None,
        chat_date: datetime.date | None = None,
        trust_remote_code: bool = False,
        expected_bytes: int = 0,
        on_prepare: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._files = resolve(name)
        self.name = self._files.name
        self.kind = str(self._files.kind)
        self.digest = self._files.digest(memo or DigestMemo())
        self._template: Any = None
        if chat_template is not None:
            from chunkscope.tokenizers.chat_template import read_template

            self._template = read_template(chat_template)
        self._date = chat_date
        self._remote_code = trust_remote_code
        self._expected = expected_bytes
        self._on_prepare = on_prepare
        self._lock = threading.RLock()
        self._prepared: PreparedTokenizer | None = None
        self._reference: Reference | None = None  # loaded to prepare it
        self._counter: TextCounter | None = None
        self._templates: dict[str, ChatTemplate] = {}

    @property
    def prepared(self) -> PreparedTokenizer:
        with self._lock:
            self._prepared = self._prepared or self._prepared_before()
            if self._prepared is None:
                if self._files.kind is TokenizerKind.HF:
                    self._on_prepare(self.name)
                try:
                    with self._guard():
                        self._prepared, self._reference = prepare.prepare(
                            self._files, self.digest, self._remote_code
                        )
                except InputError as error:
                    raise TokenizerError(error.message, hint=error.hint) from error
            return self._prepared

    def _prepared_before(self) -> PreparedTokenizer | None:
        return prepare.prepared_before(self._files, self.digest, self._remote_code)

    @property
    def facts(self) -> TokenizerFacts:
        return self.prepared.facts

    @property
    def counter(self) -> TextCounter:
        """What counts texts, loaded."""
        with self._lock:
            prepared = self.prepared
            if self._counter is None:
                self._counter = TextCounter(
                    prepared, self._reference, expected_chars=self._expected
                )
            return self._counter

    @property
    def was_loaded(self) -> bool:
        return self._counter is not None

    def sample_agrees(self) -> bool:
        """Whether a sample of the rows it counted, if any, has the reference's ids."""
        return self._counter is None or self._counter.sample_agrees()

    def encode(self, texts: list[str], *, special_tokens: bool) -> Ids:
        """The ids that the model is fed. A chat's text has its special tokens already."""
        with self._guard():
            return self.counter.reference.encode(texts, special_tokens=special_tokens)

    @property
    def counting_key(self) -> str | None:
        """All that a length depends on beside the text; None before the tokenizer is prepared.

        Its files, the reference, a given template, the day where the template prints it, and
        whether the fast engine is barred: what it counted before is to be counted again.
        """
        prepared = self._prepared or self._prepared_before()
        if prepared is None:
            return None
        verdict = known_verdict(prepared)
        template = repr(self._template or prepared.facts.chat_template)
        day = self.chat_day.isoformat() if "strftime_now" in template else ""
        barred = "barred" if verdict and not verdict.agrees else ""
        parts = (self.digest, prepared.reference_name, barred, template, day)
        return sha256("\n".join(parts).encode()).hexdigest()

    def _guard(self) -> AbstractContextManager[None]:
        return foreign_errors(f"the tokenizer {self.name}")

    # -- chats ---------------------------------------------------------------------------------

    def chat_text(self, chat: Conversation) -> str:
        return self._chat_template(has_tools=bool(chat.tools)).render(chat)

    def ignores_tools(self, chat: Conversation) -> bool:
        """Whether there are tools in it that the chat template never mentions."""
        if not chat.tools or self.counts_chats_itself:
            return False
        return not self._chat_template(has_tools=True).uses_tools

    @property
    def counts_chats_itself(self) -> bool:
        """Mistral's tokenizers encode conversations directly; a given template goes first."""
        return self._files.kind is TokenizerKind.TEKKEN and self._template is None

    def count_chat(self, chat: Conversation) -> tuple[list[int], int]:
        """Token ids and number of characters, where `counts_chats_itself`."""
        return self._mistral_chat.count(chat)

    def encode_chat(self, chat: Conversation) -> tuple[list[int], str]:
        """Token ids and text of a conversation, where `counts_chats_itself`."""
        return self._mistral_chat.encode(chat)

    @cached_property
    def _mistral_chat(self) -> MistralChat:
        with self._guard():
            return MistralChat(self._files.files[0])

    @property
    def chat_day(self) -> datetime.date:
        return self._date or datetime.date.today()  # noqa: DTZ011  (templates use local time)

    @property
    def renders_the_date(self) -> bool:
        return any(template.uses_date for template in self._templates.values())

    def _chat_template(self, *, has_tools: bool) -> "ChatTemplate":
        from chunkscope.tokenizers.chat_template import ChatTemplate, choose_template

        value: Any = self._template or self.facts.chat_template
        source = choose_template(value, has_tools)
        if not source:
            raise InputError(
                f"{self.name} has no chat template, and this dataset is chat",
                hint="give one with --chat-template FILE, or count the texts of the messages with "
                "--field 'messages[].content'",
            )
        with self._lock:
            if source not in self._templates:
                self._templates[source] = ChatTemplate(
                    source, special_tokens=self.facts.special_tokens, date=self._date
                )
            return self._templates[source]
