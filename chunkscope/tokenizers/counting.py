"""Counting texts: by the reference, large inputs by the fast engine where it is proved right."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from chunkscope.tokenizers.check import RowSample, Verdict, agree, proved_engine, record_verdict
from chunkscope.tokenizers.fast import FastEngine
from chunkscope.tokenizers.foreign import foreign_errors
from chunkscope.tokenizers.prepare import PreparedTokenizer
from chunkscope.tokenizers.reference import Reference

# The reference counts this much in the time in which the fast engine is loaded.
FAST_CHARS = 8_000_000

T = TypeVar("T")
Engine = FastEngine | Reference


class TextCounter:
    """Tokens of texts, without a prompt's special tokens. Safe to call from several threads."""

    def __init__(
        self,
        prepared: PreparedTokenizer,
        reference: Reference | None = None,
        *,
        expected_chars: int = 0,
    ) -> None:
        self.engines: set[str] = set()  # that counted
        self.checked_texts = 0  # of the run's own rows
        self.only_reference = False  # the fast engine was found wrong in this run
        self._prepared = prepared
        self._reference = reference
        self._chars = 0
        self._sample = RowSample()
        self._lock = threading.RLock()
        self._engine: FastEngine | None = None
        self._has_chosen = False
        with self._guard():
            self._choose(expected_chars)
            if self._engine is None:
                _ = self.reference  # what is wrong with it is known at once

    @property
    def reference(self) -> Reference:
        """The library whose counts are right by definition."""
        with self._lock, self._guard():
            if self._reference is None:
                self._reference = self._prepared.load()
            return self._reference

    def count(self, texts: list[str]) -> list[int]:
        return self._counted(texts, lambda engine: engine.count(texts))

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text as bytes, ID_BYTES each."""
        return self._counted(texts, lambda engine: engine.id_bytes(texts))

    def _counted(self, texts: list[str], by: Callable[[Engine], list[T]]) -> list[T]:
        with self._guard():
            with self._lock:
                self._chars += sum(map(len, texts))
                self._choose(self._chars)
                engine = self._engine
                if engine is not None:
                    self._sample.offer(texts)
            used = engine if engine is not None and engine.takes(texts) else self.reference
            self.engines.add(used.name)
            return by(used)

    def _choose(self, chars: int) -> None:
        """Load the fast engine, once, if so many characters are worth it."""
        if not self._has_chosen and chars >= FAST_CHARS:
            self._has_chosen = True
            self._engine = proved_engine(self._prepared, lambda: self.reference)

    def sample_agrees(self) -> bool:
        """Whether a sample of the rows has the reference's ids; if not, the engine is barred."""
        with self._lock:
            engine, texts = self._engine, list(self._sample.texts)
        if engine is None or not texts:
            return True
        with self._guard():
            agrees = agree(engine, self.reference, texts)
        self.checked_texts = len(texts)
        if not agrees:
            record_verdict(self._prepared, Verdict(agrees=False))
        return agrees

    def use_reference(self) -> None:
        """From now on count without the fast engine."""
        with self._lock:
            self.only_reference = self._has_chosen = True
            self._engine = None
            self.engines.clear()
            self.checked_texts = 0

    def _guard(self) -> AbstractContextManager[None]:
        return foreign_errors(f"the tokenizer {self._prepared.files.name}")
