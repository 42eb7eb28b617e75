"""Counting with the fastest engine that is proved right, and the reference where there is none."""

import re
import threading
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import version

from chunkscope.tokenizers import conformance
from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.engines import FAST, Counts, Engine, reference, reference_name
from chunkscope.tokenizers.worker import ReferenceProcess

# fastokens takes a second longer to load than splintr and then counts about twice as fast.
LARGE_BYTES = 48 << 20
_DISTRIBUTIONS = {"splintr": "splintr-rs", "fastokens": "fastokens"}
_SAMPLE_TEXTS = 256
_SAMPLE_CHARS = 100_000


class Counting:
    """The engines of one tokenizer: loaded as they are needed, checked against the reference.

    Every run compares a sample of its own rows with the reference. For that the reference is
    loaded beside the counting, in another process.
    """

    def __init__(self, compiled: Compiled, *, large: bool = False, exact: bool = False) -> None:
        self.compiled = compiled
        self.used: set[str] = set()
        self.checked_texts = 0
        self.recounted = 0
        self.corrected = 0
        self._exact = exact
        self._sample: list[str] = []
        self._sample_chars = 0
        self._lock = threading.Lock()
        self._process: ReferenceProcess | None = None
        self._handover: threading.Thread | None = None
        self._engine = self._first_engine()
        if self._engine is not None and large:
            self._handover = threading.Thread(target=self._hand_over, daemon=True)
            self._handover.start()

    @cached_property
    def reference(self) -> Engine:
        return reference(self.compiled)

    def count(self, texts: list[str]) -> Counts:
        """Safe to call from several threads."""
        engine = self._engine
        if engine is None:
            with self._lock:  # cached_property is not thread-safe, and loading twice is waste
                engine = self.reference
        self.used.add(engine.name)
        counts = engine.count(texts)
        return self._recounted(texts, counts) if self._exact else counts

    def sample(self, texts: list[str]) -> None:
        """Remember some of the run's own texts for the check at the end."""
        if self._process is None:
            return
        step = max(1, len(texts) // 16)
        for text in texts[::step][:16]:
            if len(self._sample) < _SAMPLE_TEXTS and self._sample_chars < _SAMPLE_CHARS:
                self._sample.append(text[:20_000])
                self._sample_chars += len(self._sample[-1])

    def sample_agrees(self) -> bool:
        """Whether the sample has the same lengths by the reference; a wrong engine is barred."""
        if self._process is None or not self._sample:
            return True
        expected = self._process.count(self._sample)
        self._process = None
        if expected is None:
            expected = self.reference.count(self._sample)
        engine, ours = self._engine, self._engine_count(self._sample)
        self.checked_texts = len(self._sample)
        wrong = conformance.differing(ours, expected)
        if wrong and engine is not None:
            verdict = conformance.Verdict(
                agrees=False, strings=len(self._sample), different=wrong
            )
            conformance.record(
                self.compiled, engine.name, reference_name(self.compiled), verdict
            )
        return not wrong

    def use_reference(self) -> None:
        self._engine = None
        self.used.clear()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _engine_count(self, texts: list[str]) -> Counts:
        return self._engine.count(texts) if self._engine else self.reference.count(texts)

    def _recounted(self, texts: list[str], counts: Counts) -> Counts:
        with self._lock:
            right = self.reference.count(texts)
            self.recounted += len(texts)
            self.corrected += conformance.differing(counts, right)
        return right

    def _first_engine(self) -> Engine | None:
        engine = self._trusted("splintr") or self._trusted("fastokens")
        return engine

    def _trusted(self, name: str) -> Engine | None:
        """The engine called `name` if it loads this tokenizer and is proved to agree."""
        if self.compiled.form not in ("json", "ranks"):
            return None
        engine_name = f"{name} {version(_DISTRIBUTIONS[name])}"
        verdict = conformance.known(self.compiled, engine_name, reference_name(self.compiled))
        if verdict is not None and not verdict.agrees:
            return None
        if verdict is not None and self._process is None and not self._exact:
            self._process = ReferenceProcess(self.compiled)
        engine = FAST[name](self.compiled)
        if engine is None:
            refused = conformance.Verdict(agrees=False, strings=0, different=0)
            conformance.record(
                self.compiled, engine_name, reference_name(self.compiled), refused
            )
            return None
        if verdict is None:
            with self._lock:
                verdict = conformance.judge(self.compiled, engine, self.reference)
        if not verdict.agrees:
            return None
        exceptions = verdict.exceptions()
        return _guarded(engine, exceptions, lambda: self.reference) if exceptions else engine

    def _hand_over(self) -> None:
        """Load the engine for large inputs beside the counting, then go on with it."""
        if better := self._trusted("fastokens"):
            self._engine = better


def _guarded(
    engine: Engine, exceptions: "re.Pattern[str]", fallback: Callable[[], Engine]
) -> Engine:
    """The engine, but texts with characters it does not know go to the reference."""

    def count(texts: list[str]) -> Counts:
        if all(map(str.isascii, texts)):
            return engine.count(texts)
        odd = {
            i for i, text in enumerate(texts) if not text.isascii() and exceptions.search(text)
        }
        if not odd:
            return engine.count(texts)
        known = iter(engine.count([text for i, text in enumerate(texts) if i not in odd]))
        other = iter(fallback().count([text for i, text in enumerate(texts) if i in odd]))
        return [next(other) if i in odd else next(known) for i in range(len(texts))]

    return Engine(engine.name, count, engine.ids)
