"""One tokenizer, as a run needs it: named, made ready, counting texts and chats.

Texts are counted by the reference, large inputs by a fast engine where it is proved right.
"""

import datetime
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from signal import SIGINT
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import ChunkscopeError
from chunkscope.prompts.chat import Conversation
from chunkscope.sources.base import DataError
from chunkscope.tokenizers.check import (
    RowSample,
    known_verdict,
    proved_engine,
    record_verdict,
)
from chunkscope.tokenizers.fast import MUCH, FastEngine, engines_for
from chunkscope.tokenizers.foreign import engine_name, foreign_errors
from chunkscope.tokenizers.mistral import MistralChat
from chunkscope.tokenizers.prepare import (
    TokenizerFacts,
    facts_before,
    of_raw,
    prepare,
    run_apart,
)
from chunkscope.tokenizers.reference import (
    ID_BYTES,
    RANKS_PAY,
    LoadedBeside,
    Reference,
    TokenizersReference,
    beside,
    load_source,
)
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind, resolve


class Tokenizer:
    """Counts prompts as vLLM would feed them to the model. Safe to call from several threads; a
    library is loaded when it is first needed."""

    def __init__(
        self,
        name: str | None = None,
        *,
        chat_template: Path | None = None,
        chat_date: datetime.date | None = None,
        trust_remote_code: bool = False,
        expected_bytes: int = 0,
        on_prepare: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._files = resolve(name)
        self.name = self._files.name
        self._title = f"the tokenizer {self.name}"  # in messages
        self.kind = str(self._files.kind)
        self.digest = self._files.digest()
        self.engines: set[str] = set()  # that counted
        self.only_reference = False  # a fast engine was found wrong in this run
        self._template: Any = None
        if chat_template is not None:
            from chunkscope.tokenizers.chat_template import read_template

            self._template = read_template(chat_template)
        self._date = chat_date
        self._trusted = trust_remote_code
        self._chars = expected_bytes  # to be counted, as far as it is known
        self._counted_chars = 0
        self._on_prepare = on_prepare
        self._lock = threading.RLock()
        self._facts = facts_before(self._files, self.digest, trust_remote_code)
        self._reference: Reference | None = None
        self._beside: LoadedBeside | None = None  # for what a fast engine cannot do
        self._engine: FastEngine | Reference | None = (
            None  # where there is much to count
        )
        self._sample = RowSample()  # of what the fast engine counted
        self.templates: dict[bool, Any] = {}  # by whether there are tools

    @property
    def notes(self) -> Iterator[Note]:
        if self.only_reference:
            yield note("counted_again", reference=engine_name(self.facts.package))
        if not self._files.is_complete:
            yield note("no_tokenizer_config", tokenizer=self.name)

    @property
    def facts(self) -> TokenizerFacts:
        """What is known of it, made ready if no run did that before."""
        with (
            nullcontext() if self._facts else self._lock
        ):  # which a loading engine holds for long
            if self._facts is None and self._files.kind is TokenizerKind.HF:
                self._on_prepare(self.name)
                self._prepare_beside()
            if self._facts is None:
                with foreign_errors(self._title):
                    self._facts, self._reference = prepare(
                        self._files, self.digest, self._trusted
                    )
            return self._facts

    def _prepare_beside(self) -> None:
        """Let another process ask transformers, which takes long to import: meanwhile the raw
        tokenizer.json, which mostly counts alike, is loaded here, and an engine proved with it."""
        raw = self._files.files[0].with_name("tokenizer.json")
        kinds = engines_for(self._chars) if self._chars else []
        is_quick = "transformers" in sys.modules and not kinds
        if is_quick or not (raw.is_file() and sys.executable):
            return
        call = (run_apart, str(raw.parent), self.digest, self._trusted)
        with (
            beside(*call) as process,
            suppress(ChunkscopeError),
            foreign_errors(self._title),
        ):
            facts, reference = of_raw(raw)
            engine = proved_engine(kinds, facts, lambda: reference)
            process.communicate()
            if process.returncode == -SIGINT:  # Ctrl-C, which both are told of
                raise KeyboardInterrupt
            self._facts = facts_before(self._files, self.digest, self._trusted)
            if self._facts and self._facts.json_digest == facts.json_digest:
                self._reference, self._engine = (
                    reference,
                    (engine or reference) if kinds else None,
                )

    @property
    def reference(self) -> Reference:
        """The library whose counts are right by definition."""
        with self._lock, foreign_errors(self._title):
            file, own = (
                self.facts.json_file,
                (self._files, self._trusted),
            )  # it may be loaded now
            if self._reference is None:
                self._reference = (
                    TokenizersReference.of_file(file) if file else load_source(*own)
                )
            return self._reference

    def count(self, texts: list[str]) -> list[int]:
        """Tokens of each text, without a prompt's special tokens."""
        return [len(ids) // ID_BYTES for ids in self.id_bytes(texts)]

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text as bytes, ID_BYTES each; by a fast engine where there is much."""
        with foreign_errors(self._title):
            with self._lock:
                self._counted_chars += sum(map(len, texts))
                chars = max(self._chars, self._counted_chars)
                facts, file, files = self.facts, self.facts.json_file, self._files
                files = (
                    TokenizerFiles("", TokenizerKind.RAW, (file,)) if file else files
                )
                is_loaded = self._beside or self._reference or not sys.executable
                if chars in LoadedBeside.pays.get(files.kind, ()) and not is_loaded:
                    self._beside = LoadedBeside(
                        facts.package, files, lambda: self.reference
                    )
                engines = engines_for(chars) if file or chars >= RANKS_PAY else []
                if engines and self._engine is None and not self.only_reference:
                    if found := proved_engine(
                        engines, self.facts, lambda: self.reference
                    ):
                        found.reference = lambda: self._beside or self.reference
                    self._engine = found or self.reference
                if isinstance(self._engine, FastEngine):
                    self._sample.offer(texts)
            used = self._engine or self._beside or self.reference
            self.engines.add(engine_name(used.package))
            return used.id_bytes(texts)

    def sample_agrees(self) -> bool:
        """Whether a sample of the rows has the reference's ids; if not, the engine is barred."""
        with self._lock, foreign_errors(self._title):
            engine, texts, agrees = self._engine, self._sample.items[:], True
            if texts and isinstance(engine, FastEngine):
                agrees = engine.id_bytes(texts) == engine.reference().id_bytes(texts)
                if not agrees:
                    record_verdict(type(engine), self.facts, is_equal=False)
            self._beside = None
        return agrees

    def use_reference(self) -> None:
        """From now on count without a fast engine."""
        with self._lock:
            self.only_reference, self._engine = True, None
            self.engines.clear()

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        """The ids that the model is fed. A chat's text has its special tokens already."""
        with foreign_errors(self._title):
            return self.reference.encode(texts, special_tokens=special_tokens)

    @property
    def counting_key(self) -> str | None:
        """All that a length depends on beside the text; None before the tokenizer is prepared. What
        an engine counted that is barred now is to be counted again."""
        if (facts := self._facts) is None:
            return None
        template = repr(self._template or facts.chat_template)
        itself = (
            engine_name("mistral-common")
            if self._files.kind is TokenizerKind.TEKKEN
            else ""
        )
        day = self.chat_day.isoformat() if "strftime_now" in template else ""
        barred = [
            one.package
            for one in engines_for(MUCH)
            if known_verdict(one, facts) is False
        ]
        parts = (
            self.digest,
            engine_name(facts.package),
            repr(barred),
            template,
            itself,
            day,
        )
        return sha256("\n".join(parts).encode()).hexdigest()

    def chat_text(self, chat: Conversation) -> str:
        return str(self._chat_template(has_tools=bool(chat.tools)).render(chat))

    def ignores_tools(self, chat: Conversation) -> bool:
        """Whether there are tools in it that the chat template never mentions."""
        is_rendered = chat.tools and not self.counts_chats_itself
        return bool(is_rendered) and not self._chat_template(has_tools=True).uses_tools

    @property
    def counts_chats_itself(self) -> bool:
        """Mistral's tokenizers encode conversations directly; a given template goes first."""
        return self._files.kind is TokenizerKind.TEKKEN and self._template is None

    @cached_property
    def mistral_chat(self) -> MistralChat:
        with foreign_errors(self._title):
            return MistralChat(self._files.files[0], lambda: self.reference)

    def joined(self, chats: list[tuple[Any, ...]]) -> Iterator[bytes]:
        """The ids of chats in parts, special tokens by numbers that no others have."""
        ids = iter(
            self.id_bytes([p for chat in chats for p in chat if isinstance(p, str)])
        )
        for chat in chats:
            yield b"".join(
                next(ids) if isinstance(p, str) else array("i", [~p]) for p in chat
            )

    @property
    def chat_day(self) -> datetime.date:
        return self._date or datetime.date.today()  # noqa: DTZ011  (templates use local time)

    def _chat_template(self, *, has_tools: bool) -> Any:
        if template := self.templates.get(has_tools):
            return template
        from chunkscope.tokenizers.chat_template import ChatTemplate, choose_template

        source = choose_template(self._template or self.facts.chat_template, has_tools)
        if not source:
            raise DataError("no_chat_template", tokenizer=self.name)
        template = ChatTemplate(
            source, special_tokens=self.facts.special_tokens, date=self._date
        )
        return self.templates.setdefault(has_tools, template)
