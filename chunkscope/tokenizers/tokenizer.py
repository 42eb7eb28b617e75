"""One tokenizer, as a run needs it: named, made ready, counting texts and chats."""

import datetime
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.errors import ChunkscopeError, InputError, StillRunning
from chunkscope.prompts.chat import Conversation, string_content
from chunkscope.tokenizers.chat_template import TemplateRefused, choose_template, read_template
from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.compiler import (
    as_served,
    compile_once,
    digest,
    is_compiled,
    is_quickly_served,
    is_served,
)
from chunkscope.tokenizers.counting import Counting, settled_engine
from chunkscope.tokenizers.guard import guarded
from chunkscope.tokenizers.mistral import ChatRefused, MistralChat
from chunkscope.tokenizers.references import reference, reference_name
from chunkscope.tokenizers.rendering import Renderer
from chunkscope.tokenizers.resolve import resolve
from chunkscope.tokenizers.watch import Watch

# Its own library counts this much in the time in which all is made ready for a faster engine.
_LITTLE_BYTES = 8_000_000

T = TypeVar("T")


class Tokenizer:
    """Counts prompts as vLLM would feed them to the model.

    Nothing is loaded before it is needed: a run answered from the cache, or a trace that brings
    its own lengths, never loads an engine.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        memo: DigestMemo | None = None,
        chat_template: Path | None = None,
        chat_date: datetime.date | None = None,
        trust_remote_code: bool = False,
        exact_check: bool = False,
        expected_bytes: int = 0,
        on_compile: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._found = resolve(name)
        self.name = self._found.name
        self.kind = str(self._found.kind)
        self.digest = digest(self._found, memo or DigestMemo())
        self._template = read_template(chat_template) if chat_template else None
        self._date = chat_date
        self._remote_code = trust_remote_code
        self._exact = exact_check
        self._expected = expected_bytes
        self._on_compile = on_compile
        self._lock = threading.RLock()
        self._compiled: Compiled | None = None
        self._is_new = False  # no earlier run has used it
        self._failure: ChunkscopeError | None = None
        self._counting: Counting | None = None
        self._mistral: MistralChat | None = None
        self._templates: dict[str, Renderer] = {}

    @property
    def compiled(self) -> Compiled:
        """What is known of it. One that is used for the first time, for little, is not prepared."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._compiled is None:
                if not self._is_little:
                    return self._prepare()
                self._compiled, self._is_new = self._tried(as_served)
            return self._compiled

    @property
    def _is_little(self) -> bool:
        """Whether its own library has counted it before all else is made ready."""
        is_ready = is_compiled(self._found, self.digest)
        return (
            is_quickly_served(self._found)
            and 0 < self._expected < _LITTLE_BYTES
            and not (is_ready or self._exact)
        )

    @property
    def counting(self) -> Counting:
        with self._lock, self._guarded():
            if self._counting is None:
                compiled = self.compiled
                if not compiled.prepared and not self._is_new:  # it is used a second time
                    compiled = self._prepare()
                load = partial(Counting, compiled, expected_chars=self._expected, exact=self._exact)
                try:
                    self._counting = Watch(f"the tokenizer {self.name}").call(load)
                except StillRunning as error:  # nor this
                    self._failure = error
                    raise
            return self._counting

    def _prepare(self) -> Compiled:
        if not is_compiled(self._found, self.digest):
            self._on_compile(self.name)
        self._compiled = self._tried(compile_once)
        return self._compiled

    def _tried(self, make: Callable[..., T]) -> T:
        try:
            return make(self._found, self.digest, trust_remote_code=self._remote_code)
        except ChunkscopeError as error:  # the next dataset need not try again
            self._failure = error
            raise

    @property
    def was_loaded(self) -> bool:
        return self._counting is not None

    def sample_agrees(self) -> bool:
        """Whether a sample of the rows it counted, if any, has the reference's lengths."""
        with self._guarded():
            return self._counting is None or self._counting.sample_agrees()

    @property
    def reference(self) -> str:
        return reference_name(self.compiled)

    def chat_texts(self, chats: Sequence[Conversation]) -> list[str | TemplateRefused]:
        """The texts of conversations by the chat template, as vLLM would render them."""
        texts: list[str | TemplateRefused] = []
        for has_tools, alike in groupby(chats, key=lambda chat: bool(chat.tools)):
            texts += self._chat_template(has_tools=has_tools).texts(list(alike))
        return texts

    def chat_text(self, chat: Conversation) -> str:
        (text,) = self.chat_texts([chat])
        if isinstance(text, TemplateRefused):
            raise text
        return text

    def ignores_tools(self, conversation: Conversation) -> bool:
        """Whether there are tools in it that the chat template never mentions."""
        if not conversation.tools or self.counts_chats_itself:
            return False
        return not self._chat_template(has_tools=True).uses_tools

    @property
    def counts_chats_itself(self) -> bool:
        """Mistral's tokenizers encode conversations directly; a given template goes first."""
        return self.compiled.mistral_chat and self._template is None

    def count_chats(
        self, chats: Sequence[Conversation]
    ) -> list[tuple[list[int], int] | ChatRefused]:
        """Token ids and number of characters of each, where `counts_chats_itself`."""
        return [self._count_chat(chat) for chat in chats]

    def _count_chat(self, chat: Conversation) -> tuple[list[int], int] | ChatRefused:
        try:
            return self._chat.count(string_content(chat.messages), chat.tools)
        except ChatRefused as error:
            return error

    def encode_chat(self, conversation: Conversation) -> tuple[list[int], str]:
        """Token ids and text of a conversation, where `counts_chats_itself`."""
        return self._chat.encode(string_content(conversation.messages), conversation.tools)

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        """The ids that the model is fed. A chat's text has its special tokens already."""
        with self._lock, self._guarded():
            served = reference(self.compiled)
        with self._guarded():
            encode = partial(served.encode, texts, special_tokens)
            return Watch(f"the tokenizer {self.name}").call(encode, sum(map(len, texts)))

    def _guarded(self) -> AbstractContextManager[None]:
        return guarded(f"the tokenizer {self.name}")

    @property
    def _chat(self) -> MistralChat:
        with self._lock, self._guarded():
            if self._mistral is None:
                self._mistral = MistralChat(self.compiled.source.files[0])
            return self._mistral

    @property
    def chat_day(self) -> datetime.date:
        return self._date or datetime.date.today()  # noqa: DTZ011  (templates use local time)

    @property
    def counting_key(self) -> str | None:
        """All that a length depends on beside the text; None before the tokenizer is ready.

        Its files, a given template, the day where the template prints it, and the engine: what a
        since barred engine counted is to be counted again.
        """
        is_ready = is_compiled(self._found, self.digest)
        was_used = self._is_little and is_served(self._found, self.digest)
        if not (is_ready or was_used):
            return None
        if (engine := settled_engine(self.compiled)) is None:
            return None
        template = repr(self._template or self.compiled.chat_template)
        day = self.chat_day.isoformat() if "strftime_now" in template else ""
        return f"{self.digest} {engine} {sha256(template.encode()).hexdigest()} {day}"

    @property
    def renders_the_date(self) -> bool:
        return any(template.uses_date for template in self._templates.values())

    def _chat_template(self, *, has_tools: bool) -> Renderer:
        value: Any = self._template or self.compiled.chat_template
        source = choose_template(value, has_tools)
        if not source:
            raise InputError(
                f"{self.name} has no chat template, and this dataset is chat",
                hint="give one with --chat-template FILE, or count the plain text of the "
                "messages with --no-chat-template",
            )
        with self._lock:
            if source not in self._templates:
                self._templates[source] = Renderer(
                    source, special_tokens=self.compiled.special_tokens, date=self._date
                )
            return self._templates[source]
