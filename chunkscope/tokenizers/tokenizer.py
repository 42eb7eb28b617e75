"""One tokenizer, as a run needs it: named, made ready, counting texts and chats.

Texts are counted by the reference, large inputs by a fast engine where it is proved
right.
"""

import datetime
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.chat import Conversation
from chunkscope.sources.base import DataError
from chunkscope.tokenizers.check import (
    RowSample,
    proved_engine,
    record_verdict,
)
from chunkscope.tokenizers.fast import FastEngine, pays_off
from chunkscope.tokenizers.foreign import engine_name, foreign_errors
from chunkscope.tokenizers.mistral import MistralChat
from chunkscope.tokenizers.prepare import (
    Template,
    TokenizerFacts,
    facts_before,
    prepare,
)
from chunkscope.tokenizers.reference import (
    ID_BYTES,
    Reference,
    TokenizersReference,
    load_source,
)
from chunkscope.tokenizers.resolve import TokenizerKind, resolve

if TYPE_CHECKING:  # jinja2, which only chats need
    from chunkscope.tokenizers.chat_template import ChatTemplate


def _tell_nobody(_: str) -> None:
    pass


class Tokenizer:
    """Counts prompts as vLLM would feed them to the model. Safe to call from several
    threads; a library is loaded when it is first needed."""

    def __init__(  # noqa: PLR0913  (all by name)
        self,
        name: str | None = None,
        *,
        chat_template: Path | None = None,
        chat_date: datetime.date | None = None,
        trust_remote_code: bool = False,
        expected_bytes: int = 0,
        on_prepare: Callable[[str], None] = _tell_nobody,
    ) -> None:
        self._files = resolve(name)
        self.name = self._files.name
        self._title = f"the tokenizer {self.name}"  # in messages
        self.kind = str(self._files.kind)
        self.digest = self._files.digest()
        self.engines: set[str] = set()  # that counted
        self.only_reference = False  # the fast engine was found wrong in this run
        self._template: Template = None  # instead of the tokenizer's own
        if chat_template is not None:
            from chunkscope.tokenizers.chat_template import read_template

            self._template = read_template(chat_template)
        self._date = chat_date
        self._trusted = trust_remote_code
        self._chars = expected_bytes  # to be counted, as far as it is known
        self._counted_chars = 0
        self._on_prepare = on_prepare
        self._lock = threading.RLock()
        self._facts = facts_before(
            self._files, self.digest, trust_remote_code=trust_remote_code
        )
        self._reference: Reference | None = None
        self._engine: FastEngine | None = None
        self._engine_was_tried = False
        self._sample = RowSample()  # of what the fast engine counted
        self.templates: dict[bool, ChatTemplate] = {}  # by whether there are tools

    @property
    def notes(self) -> Iterator[Note]:
        if self.only_reference:
            yield note("counted_again", reference=engine_name(self.facts.package))
        if not self._files.is_complete:
            yield note("no_tokenizer_config", tokenizer=self.name)

    # -- what is loaded when it is needed

    @property
    def facts(self) -> TokenizerFacts:
        """What is known of it, made ready if no run did that before."""
        if self._facts is not None:
            return self._facts
        with self._lock, foreign_errors(self._title):
            if self._facts is None:
                if self._files.kind is TokenizerKind.HF:
                    self._on_prepare(self.name)
                prepared = prepare(
                    self._files, self.digest, trust_remote_code=self._trusted
                )
                self._facts, self._reference = prepared.facts, prepared.reference
            return self._facts

    def load_reference(self) -> Reference:
        """The library whose counts are right by definition."""
        with self._lock, foreign_errors(self._title):
            file = self.facts.json_file  # the reference may be loaded with it
            if self._reference is None and file:
                self._reference = TokenizersReference.of_file(file)
            elif self._reference is None:
                self._reference = load_source(
                    self._files, trust_remote_code=self._trusted
                )
            return self._reference

    @property
    def reference(self) -> Reference:
        return self.load_reference()

    # -- texts

    def count(self, texts: list[str]) -> list[int]:
        """Tokens of each text, without a prompt's special tokens."""
        return [len(ids) // ID_BYTES for ids in self.id_bytes(texts)]

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text as bytes, ID_BYTES each; by a fast engine where there is
        much."""
        with foreign_errors(self._title):
            engine = self._engine_for(texts)
            self.engines.add(engine_name(engine.package))
            return engine.id_bytes(texts)

    def _engine_for(self, texts: list[str]) -> FastEngine | Reference:
        with self._lock:
            self._counted_chars += sum(len(text) for text in texts)
            chars = max(self._chars, self._counted_chars)
            if self.only_reference or not pays_off(self.facts, chars):
                return self.reference
            if not self._engine_was_tried:
                self._engine = proved_engine(self.facts, self.load_reference)
                self._engine_was_tried = True
            if self._engine is None:
                return self.reference
            self._sample.offer(texts)
            return self._engine

    def sample_agrees(self) -> bool:
        """Whether a sample of the rows has the reference's ids; if not, the engine is
        barred."""
        with self._lock, foreign_errors(self._title):
            texts = self._sample.items
            if self._engine is None or not texts:
                return True
            agrees = self._engine.id_bytes(texts) == self.reference.id_bytes(texts)
            if not agrees:
                record_verdict(self.facts, is_equal=False)
            return agrees

    def use_reference(self) -> None:
        """From now on count without a fast engine."""
        with self._lock:
            self.only_reference = True
            self._engine = None
            self.engines.clear()

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        """The ids that the model is fed. A chat's text has its special tokens
        already."""
        with foreign_errors(self._title):
            return self.reference.encode(texts, special_tokens=special_tokens)

    # -- chats

    def chat_text(self, chat: Conversation) -> str:
        return self._chat_template(has_tools=bool(chat.tools)).render(chat)

    def ignores_tools(self, chat: Conversation) -> bool:
        """Whether there are tools in it that the chat template never mentions."""
        if not chat.tools or self.counts_chats_itself:
            return False
        return not self._chat_template(has_tools=True).uses_tools

    @property
    def counts_chats_itself(self) -> bool:
        """Mistral's tokenizers encode conversations directly; a given template goes
        first."""
        return self._files.kind is TokenizerKind.TEKKEN and self._template is None

    @cached_property
    def mistral_chat(self) -> MistralChat:
        with foreign_errors(self._title):
            return MistralChat(self._files.files[0])

    @property
    def chat_day(self) -> datetime.date:
        # Templates use local time.
        return self._date or datetime.date.today()  # noqa: DTZ011

    def _chat_template(self, *, has_tools: bool) -> "ChatTemplate":
        template = self.templates.get(has_tools)
        if template is not None:
            return template
        from chunkscope.tokenizers.chat_template import ChatTemplate, choose_template

        source = choose_template(self._template or self.facts.chat_template, has_tools)
        if not source:
            raise DataError("no_chat_template", tokenizer=self.name)
        template = ChatTemplate(
            source, special_tokens=self.facts.special_tokens, date=self._date
        )
        return self.templates.setdefault(has_tools, template)
