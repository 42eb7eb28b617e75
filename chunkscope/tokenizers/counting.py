"""Counting with the fastest engine that is proved right, and the reference where there is none."""

import re
import threading
from collections.abc import Callable

from chunkscope.tokenizers import conformance, relevant
from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.engines import (
    QUICK_TO_COUNT,
    QUICK_TO_LOAD,
    Counts,
    Engine,
    Loader,
    reference,
    reference_name,
)

# With less text than this to come, an engine that loads at once is done before one that counts
# twice as fast has been loaded.
_LARGE_CHARS = 150_000_000
_SETTLED_CHARS = 4_000_000  # by then it is clear how much of the text is shared
_SAMPLE_TEXTS = 128
_SAMPLE_CHARS = 24_000


class Counting:
    """The engines of one tokenizer, loaded as they are needed.

    A fast engine must have passed the conformance check, and every run compares a sample of its
    own rows with the reference.
    """

    def __init__(self, compiled: Compiled, *, expected_chars: int = 0, exact: bool = False) -> None:
        self.compiled = compiled
        self.used: set[str] = set()
        self.checked_texts = 0
        self.recounted = 0
        self.corrected = 0
        self._exact = exact
        self._sample: list[str] = []
        self._sample_chars = 0
        self._lock = threading.RLock()
        self._loader: Loader | None = None
        self._engine: Engine | None = None
        if compiled.form in ("json", "ranks"):
            self._choose((*QUICK_TO_LOAD, QUICK_TO_COUNT))
        self._expected = expected_chars
        self._read_chars = 0
        self._counted_chars = 0
        self._may_hand_over = self._loader not in (None, QUICK_TO_COUNT)

    @property
    def reference(self) -> Engine:
        with self._lock:
            return reference(self.compiled)

    def count(self, texts: list[str]) -> Counts:
        """Safe to call from several threads."""
        engine = self._engine or self.reference
        self.used.add(engine.name)
        counts = engine.count(texts)
        return self._recounted(texts, counts) if self._exact else counts

    def expect(self, read_chars: int, counted_chars: int) -> None:
        """Told how much was read, and how much of it had to be counted.

        When much is still to come, the engine that is quicker at counting is loaded beside the
        work and takes over when it is ready.
        """
        self._read_chars += read_chars
        self._counted_chars += counted_chars
        if not self._may_hand_over or self._read_chars < _SETTLED_CHARS:
            return
        # A compressed file holds more than its size says: expect as much again.
        left = max(self._expected - self._read_chars, self._read_chars)
        if left * self._counted_chars / self._read_chars >= _LARGE_CHARS:
            self._may_hand_over = False
            threading.Thread(target=self._choose, args=((QUICK_TO_COUNT,),), daemon=True).start()

    def sample(self, texts: list[str]) -> None:
        """Remember some of the run's own texts for the check at the end."""
        for text in texts[:: max(1, len(texts) // 32)]:
            if len(self._sample) >= _SAMPLE_TEXTS or self._sample_chars >= _SAMPLE_CHARS:
                return
            self._sample.append(text[:4000])
            self._sample_chars += len(self._sample[-1])

    def sample_agrees(self) -> bool:
        """Whether the sample has the same lengths by the reference; a wrong engine is barred."""
        engine, loader = self._engine, self._loader
        if engine is None or loader is None or self._exact or not self._sample:
            return True
        expected = relevant.count(self.compiled, self._sample)
        if expected is None:
            expected = list(self.reference.count(self._sample))
        pairs = zip(engine.count(self._sample), expected, strict=True)
        known = [(ours, right) for ours, right in pairs if right is not None]
        self.checked_texts = len(known)
        wrong = sum(ours != right for ours, right in known)
        if wrong:
            verdict = conformance.Verdict(agrees=False, strings=len(known), different=wrong)
            self._record(loader, verdict)
        return not wrong

    def use_reference(self) -> None:
        self._engine = self._loader = None
        self.used.clear()

    def _recounted(self, texts: list[str], counts: Counts) -> Counts:
        right = self.reference.count(texts)
        with self._lock:
            self.recounted += len(texts)
            self.corrected += conformance.differing(counts, right)
        return right

    def _choose(self, loaders: tuple[Loader, ...]) -> None:
        for loader in loaders:
            if engine := self._trusted(loader):
                self._engine, self._loader = engine, loader
                return

    def _trusted(self, loader: Loader) -> Engine | None:
        """The engine, if it takes this tokenizer and is proved to agree with the reference."""
        verdict = conformance.known(self.compiled, loader.name, reference_name(self.compiled))
        if verdict is not None and not verdict.agrees:
            return None
        try:
            engine = loader.load(self.compiled)
        except Exception:  # engines refuse what they do not know, with errors of many kinds
            engine = None
        if engine is None:
            self._record(loader, conformance.Verdict(agrees=False, strings=0, different=0))
            return None
        if verdict is None:
            verdict = conformance.judge(self.compiled, loader.name, engine, self.reference)
        if not verdict.agrees:
            return None
        exceptions = verdict.exceptions()
        return _guarded(engine, exceptions, lambda: self.reference) if exceptions else engine

    def _record(self, loader: Loader, verdict: conformance.Verdict) -> None:
        conformance.record(self.compiled, loader.name, reference_name(self.compiled), verdict)


def _guarded(
    engine: Engine, exceptions: "re.Pattern[str]", fallback: Callable[[], Engine]
) -> Engine:
    """The engine, but texts with characters it does not know go to the reference."""

    def count(texts: list[str]) -> Counts:
        if all(map(str.isascii, texts)):
            return engine.count(texts)
        odd = {i for i, text in enumerate(texts) if not text.isascii() and exceptions.search(text)}
        if not odd:
            return engine.count(texts)
        known = iter(engine.count([text for i, text in enumerate(texts) if i not in odd]))
        other = iter(fallback().count([text for i, text in enumerate(texts) if i in odd]))
        return [next(other) if i in odd else next(known) for i in range(len(texts))]

    return Engine(engine.name, count, engine.ids)
