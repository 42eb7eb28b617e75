"""Counting with the fastest engine that is proved right, and the reference where there is none."""

import random
import re
import threading
from collections.abc import Callable, Iterator
from itertools import accumulate

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
_CALL_CHARS = 4_000_000
_FEW_CHARS = 200_000
_SAMPLE_TEXTS = 128
_SAMPLE_WINDOW = 1000  # of a longer row, some part that may lie anywhere in it
_SAMPLE_CHARS = 24_000


def chosen_name(compiled: Compiled) -> str:
    """The first engine that has not been found to differ: by the verdicts there are so far."""
    reference_version = reference_name(compiled)
    for loader in (*QUICK_TO_LOAD, QUICK_TO_COUNT):
        verdict = conformance.known(compiled, loader.name, reference_version)
        if verdict is not None and verdict.agrees:
            return loader.name
    return reference_version


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
        self._offered = 0
        self._chance = random.Random(0)  # noqa: S311  (a sample, not a secret)
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._trusted: list[tuple[Loader, Engine]] = []  # all that counted in this run
        self._only_reference = False
        if compiled.form in ("json", "ranks"):
            self._choose((*QUICK_TO_LOAD, QUICK_TO_COUNT))
        self._expected = expected_chars
        self._read_chars = 0
        self._counted_chars = 0
        self._may_hand_over = any(loader is not QUICK_TO_COUNT for loader, _ in self._trusted)

    @property
    def reference(self) -> Engine:
        with self._lock:
            return reference(self.compiled)

    def count(self, texts: list[str]) -> Counts:
        """Safe to call from several threads."""
        engine = self._engine or self.reference
        self.used.add(engine.name)
        # An engine copies its texts and keeps all ids of a call: of a row cut into hundreds of
        # pieces, it gets some at a time.
        counts = [n for some in _some_at_a_time(texts) for n in engine.count(some)]
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
        """Remember some of the run's own texts for the check at the end, from all over it."""
        with self._lock:
            for text in texts[:: max(1, len(texts) // 32)]:
                self._offered += 1
                place = len(self._sample)
                if place == _SAMPLE_TEXTS:
                    place = self._chance.randrange(self._offered)
                if place < _SAMPLE_TEXTS:
                    self._sample[place : place + 1] = [self._window(text)]

    def _window(self, text: str) -> str:
        start = self._chance.randint(0, max(0, len(text) - _SAMPLE_WINDOW))
        return text[start : start + _SAMPLE_WINDOW]

    def sample_agrees(self) -> bool:
        """Whether the sample has the same lengths by the reference; a wrong engine is barred."""
        with self._lock:
            engines, sample = list(self._trusted), self._limited_sample()
        if not engines or not sample or self._exact:
            return True
        expected = relevant.count(self.compiled, sample)
        if expected is None:
            expected = list(self.reference.count(sample))
        self.checked_texts = sum(right is not None for right in expected)
        wrong = {
            loader: sum(
                right is not None and ours != right
                for ours, right in zip(engine.count(sample), expected, strict=True)
            )
            for loader, engine in engines
        }
        for loader, different in wrong.items():
            if different:
                self._bar(loader, strings=self.checked_texts, different=different)
        return not any(wrong.values())

    def _limited_sample(self) -> list[str]:
        """As much of the sample, in any order, as can be counted at once."""
        chosen = self._chance.sample(self._sample, len(self._sample))
        ends = accumulate(map(len, chosen))
        return [text for text, end in zip(chosen, ends, strict=True) if end <= _SAMPLE_CHARS]

    @property
    def only_reference(self) -> bool:
        """Whether a fast engine was found wrong in this run."""
        return self._only_reference

    def use_reference(self) -> None:
        with self._lock:
            self._only_reference = True  # also for an engine that is still being loaded
            self._engine = None
            self._trusted.clear()
            self.used.clear()
            self.checked_texts = 0

    def _recounted(self, texts: list[str], counts: Counts) -> Counts:
        right = self.reference.count(texts)
        with self._lock:
            self.recounted += len(texts)
            self.corrected += conformance.differing(counts, right)
        return right

    def _choose(self, loaders: tuple[Loader, ...]) -> None:
        for loader in loaders:
            if engine := self._proved(loader):
                with self._lock:
                    if not self._only_reference:
                        self._engine = engine
                        self._trusted.append((loader, engine))
                return

    def _proved(self, loader: Loader) -> Engine | None:
        """The engine, if it takes this tokenizer and is proved to agree with the reference."""
        verdict = conformance.known(self.compiled, loader.name, reference_name(self.compiled))
        if verdict is not None and not verdict.agrees:
            return None
        try:
            engine = loader.load(self.compiled)
        except Exception:  # engines refuse what they do not know, with errors of many kinds
            engine = None
        if engine is None:
            self._bar(loader, strings=0, different=0)
            return None
        if verdict is None:
            verdict = conformance.judge(self.compiled, loader.name, engine, self.reference)
        if not verdict.agrees:
            return None
        exceptions = verdict.exceptions()
        return _guarded(engine, exceptions, self._count_few) if exceptions else engine

    def _count_few(self, texts: list[str]) -> Counts:
        """By the reference; a few texts are not worth loading all of it for."""
        if sum(map(len, texts)) <= _FEW_CHARS:
            counts = relevant.count(self.compiled, texts)
            if counts is not None and None not in counts:
                return [count for count in counts if count is not None]
        return self.reference.count(texts)

    def _bar(self, loader: Loader, *, strings: int, different: int) -> None:
        verdict = conformance.Verdict(agrees=False, strings=strings, different=different)
        conformance.record(self.compiled, loader.name, reference_name(self.compiled), verdict)


def _some_at_a_time(texts: list[str]) -> Iterator[list[str]]:
    start = chars = 0
    for index, text in enumerate(texts):
        chars += len(text)
        if chars >= _CALL_CHARS:
            yield texts[start : index + 1]
            start, chars = index + 1, 0
    if start < len(texts) or not texts:
        yield texts[start:]


def _guarded(
    engine: Engine, exceptions: "re.Pattern[str]", fallback: Callable[[list[str]], Counts]
) -> Engine:
    """The engine, but texts with characters it does not know go to the reference."""
    # Finding a byte is ten times faster than matching a class, and most scripts have none of these.
    leads = {character.encode()[:1] for character in exceptions.pattern if not character.isascii()}

    def is_odd(text: str) -> bool:
        if text.isascii():
            return False
        raw = text.encode()
        return any(lead in raw for lead in leads) and exceptions.search(text) is not None

    def count(texts: list[str]) -> Counts:
        if all(map(str.isascii, texts)):
            return engine.count(texts)
        odd = {i for i, text in enumerate(texts) if is_odd(text)}
        if not odd:
            return engine.count(texts)
        known = iter(engine.count([text for i, text in enumerate(texts) if i not in odd]))
        other = iter(fallback([text for i, text in enumerate(texts) if i in odd]))
        return [next(other) if i in odd else next(known) for i in range(len(texts))]

    return Engine(engine.name, count, engine.ids)
