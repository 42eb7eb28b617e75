"""Counting texts: by the reference, large inputs by the fast engine where it is proved right."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import orjson

from chunkscope.errors import InputError
from chunkscope.tokenizers.check import (
    RowSample,
    Verdict,
    known_verdict,
    longest_row,
    record_verdict,
    suite,
)
from chunkscope.tokenizers.fast import ENGINE, FastEngine, load_fast, pack
from chunkscope.tokenizers.foreign import foreign_errors
from chunkscope.tokenizers.prepare import PreparedTokenizer
from chunkscope.tokenizers.reference import Reference, engine_name, load_source

# The reference counts this much in the time in which the fast engine is loaded.
FAST_CHARS = 8_000_000

T = TypeVar("T")


def fast_is_barred(prepared: PreparedTokenizer) -> bool:
    """Whether the fast engine was found to differ from the reference, in this run or before."""
    verdict = known_verdict(prepared.folder, engine_name(ENGINE), prepared.reference_name)
    return verdict is not None and not verdict.agrees


class TextCounter:
    """Tokens of texts, without the special tokens of a prompt. Safe to call from several threads.

    With `exact`, all is counted again by the tokenizer's own files, and those counts hold.
    """

    def __init__(
        self,
        prepared: PreparedTokenizer,
        reference: Reference | None = None,
        *,
        expected_chars: int = 0,
        exact: bool = False,
    ) -> None:
        self.engines: set[str] = set()  # that counted
        self.checked_texts = 0  # of the run's own rows
        self.recounted = 0  # by the exact check
        self.corrected = 0
        self.only_reference = False  # the fast engine was found wrong in this run
        self._prepared = prepared
        self._reference = reference
        self._exact = exact
        self._source: Reference | None = None
        self._chars = 0
        self._sample = RowSample()
        self._lock = threading.RLock()
        self._engine: FastEngine | None = None
        self._has_chosen = False
        with self._guard():
            if self._fast(expected_chars) is None:
                _ = self.reference  # what is wrong with it is known at once

    @property
    def reference(self) -> Reference:
        """The library whose counts are right by definition."""
        with self._lock, self._guard():
            if self._reference is None:
                self._reference = self._prepared.load()
            return self._reference

    def count(self, texts: list[str]) -> list[int]:
        return self._counted(texts, FastEngine.count, lambda by, some: by.count(some))

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text as bytes, ID_BYTES each."""
        return self._counted(texts, FastEngine.id_bytes, _id_bytes)

    def _counted(
        self,
        texts: list[str],
        by_engine: Callable[[FastEngine, list[str]], list[T]],
        by_reference: Callable[[Reference, list[str]], list[T]],
    ) -> list[T]:
        with self._guard():
            with self._lock:
                self._chars += sum(map(len, texts))
                engine = self._fast(self._chars)
            if engine is None:
                results = by_reference(self._used_reference(), texts)
            else:
                self._sample_rows(texts)
                self.engines.add(engine.name)
                too_long = [text for text in texts if engine.is_slow_with(text)]
                if too_long:
                    slow = iter(by_reference(self._used_reference(), too_long))
                    rest = [text for text in texts if not engine.is_slow_with(text)]
                    quick = iter(by_engine(engine, rest))
                    results = [
                        next(slow) if engine.is_slow_with(text) else next(quick) for text in texts
                    ]
                else:
                    results = by_engine(engine, texts)
            return self._recount(texts, results, by_reference) if self._exact else results

    def _used_reference(self) -> Reference:
        self.engines.add(self.reference.name)
        return self.reference

    def _recount(
        self,
        texts: list[str],
        results: list[T],
        by_reference: Callable[[Reference, list[str]], list[T]],
    ) -> list[T]:
        """The same by the tokenizer's own files, and nothing that was made of them before."""
        with self._lock:
            if self._source is None:
                trusted = self._prepared.facts.remote_code
                self._source = load_source(self._prepared.files, trust_remote_code=trusted)
        right = by_reference(self._source, texts)
        with self._lock:
            self.engines.add(self._source.name)
            self.recounted += len(texts)
            self.corrected += sum(a != b for a, b in zip(results, right, strict=True))
        return right

    # -- the fast engine -----------------------------------------------------------------------

    def _fast(self, chars: int) -> FastEngine | None:
        """The fast engine, where so many characters are worth it and it is proved to agree."""
        if not self._has_chosen and chars >= FAST_CHARS:
            self._has_chosen = True
            self._engine = self._proved()
        return self._engine

    def _proved(self) -> FastEngine | None:
        prepared, name = self._prepared, engine_name(ENGINE)
        verdict = known_verdict(prepared.folder, name, prepared.reference_name)
        if verdict is not None and not verdict.agrees:
            return None
        try:
            with foreign_errors(name):
                engine = load_fast(prepared, self._reference)
                if engine is not None and verdict is None:
                    verdict = self._judge(engine)
        except InputError:  # it refuses what it does not know, or stumbles over a test string
            engine = None
        if engine is None or verdict is None:
            verdict = Verdict(agrees=False, strings=0, different=0)
        record_verdict(prepared.folder, name, prepared.reference_name, verdict)
        if engine is None or not verdict.agrees:
            return None
        engine.longest_row = verdict.longest_row
        return engine

    def _judge(self, engine: FastEngine) -> Verdict:
        """Compare the ids of all test strings, and the time that long rows take."""
        file, reference = self._prepared.json_file, self.reference
        texts = suite(orjson.loads(file.read_bytes()) if file else {})
        different = _differing(engine, reference, texts)
        return Verdict(
            agrees=not different,
            strings=len(texts),
            different=different,
            longest_row=None if different else longest_row(engine.count, reference.count),
        )

    def _sample_rows(self, texts: list[str]) -> None:
        """Remember some of the run's own texts for the check at the end, from all over it."""
        with self._lock:
            self._sample.offer(texts)

    def sample_agrees(self) -> bool:
        """Whether a sample of the rows has the reference's ids; if not, the engine is barred."""
        with self._lock:
            engine, texts = self._engine, self._sample.texts()
        if engine is None or not texts or self._exact:
            return True
        with self._guard():
            different = _differing(engine, self.reference, texts)
        self.checked_texts = len(texts)
        if different:
            verdict = Verdict(agrees=False, strings=len(texts), different=different)
            name = self._prepared.reference_name
            record_verdict(self._prepared.folder, engine.name, name, verdict)
        return not different

    def use_reference(self) -> None:
        """From now on count without the fast engine."""
        with self._lock:
            self.only_reference = self._has_chosen = True
            self._engine = None
            self.engines.clear()
            self.checked_texts = 0

    def _guard(self) -> AbstractContextManager[None]:
        return foreign_errors(f"the tokenizer {self._prepared.files.name}")


def _id_bytes(reference: Reference, texts: list[str]) -> list[bytes]:
    return list(map(pack, reference.ids(texts)))


def _differing(engine: FastEngine, reference: Reference, texts: list[str]) -> int:
    """How many texts have other ids."""
    pairs = zip(engine.id_bytes(texts), _id_bytes(reference, texts), strict=True)
    return sum(ours != right for ours, right in pairs)
