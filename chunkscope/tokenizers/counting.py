"""Counting with the fastest engine that is proved right, and the reference where there is none."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TypeVar

from chunkscope.errors import InputError
from chunkscope.tokenizers import conformance, relevant
from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.engines import (
    QUICK_TO_COUNT,
    QUICK_TO_LOAD,
    CountingEngine,
    Counts,
    Ids,
    Loader,
    pack,
)
from chunkscope.tokenizers.guard import guarded
from chunkscope.tokenizers.references import Reference, reference, reference_name, source_reference
from chunkscope.tokenizers.row_sample import RowSample
from chunkscope.tokenizers.watch import Watch

# With less text than this to come for each core, an engine that loads at once is done before one
# that counts twice as fast has been loaded.
_LARGE_CHARS = 35_000_000
_SETTLED_CHARS = 4_000_000  # by then it is clear how much of the text is shared
_CALL_CHARS = 4_000_000
_FEW_CHARS = 200_000
_CORES = os.cpu_count() or 1

T = TypeVar("T")


def settled_engine(compiled: Compiled) -> str | None:
    """The engine that counts, by the verdicts there are so far; None before they are made."""
    reference_version = reference_name(compiled)
    if not compiled.prepared:
        return reference_version
    for loader in (*QUICK_TO_LOAD, QUICK_TO_COUNT):
        verdict = conformance.known(compiled, loader.name, reference_version)
        if verdict is None:
            return None
        if verdict.agrees:
            return loader.name
    return reference_version


class _HandOver:
    """Whether the engine that is quicker at counting is worth its loading time, asked as we go."""

    def __init__(self, expected_chars: int) -> None:
        self._expected = expected_chars
        self._read = 0
        self._counted = 0

    def pays(self, read_chars: int, counted_chars: int) -> bool:
        """Told how much more was read, and how much of that had to be counted."""
        self._read += read_chars
        self._counted += counted_chars
        if self._read < _SETTLED_CHARS:
            return False
        # A compressed file holds more than its size says: expect as much again.
        left = max(self._expected - self._read, self._read)
        return left * self._counted / self._read >= _LARGE_CHARS * _CORES


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
        self.only_reference = False  # a fast engine was found wrong in this run
        # What is made ready may be wrong with its engines: an exact check trusts the source alone.
        self._source: Reference | None = source_reference(compiled) if exact else None
        self._exact = exact
        self._watch = Watch(f"the tokenizer {compiled.source.name}")
        self._odd_chars = 0  # that no fast engine was trusted with
        self._sample = RowSample()
        self._lock = threading.RLock()
        self._may_count = threading.Event()
        self._may_count.set()
        self._has_counted = False
        self._engine: CountingEngine | None = None
        self._trusted: list[tuple[Loader, CountingEngine]] = []  # all that counted in this run
        if compiled.prepared:
            self._choose((*QUICK_TO_LOAD, QUICK_TO_COUNT))
        quick = any(loader is not QUICK_TO_COUNT for loader, _ in self._trusted)
        self._hand_over = _HandOver(expected_chars) if quick else None

    @property
    def reference(self) -> CountingEngine:
        with self._lock:
            return self._source or self._compiled_reference

    @property
    def _compiled_reference(self) -> Reference:
        with self._lock, self._guarded():
            return reference(self.compiled)

    def count(self, texts: list[str]) -> Counts:
        """Safe to call from several threads."""
        with self._guarded():
            counts = self._asked(texts, lambda engine, some: engine.count(some))
            return self._recounted(texts, counts) if self._exact else counts

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text, as bytes: what `count` counts."""
        if self._exact:
            self.count(texts)  # it compares
            self.used.add(self.reference.name)
            with self._guarded():
                return self.reference.id_bytes(texts)
        with self._guarded():
            return self._asked(texts, lambda engine, some: engine.id_bytes(some))

    def _asked(
        self, texts: list[str], ask: Callable[[CountingEngine, list[str]], list[T]]
    ) -> list[T]:
        self._may_count.wait()
        # An engine copies its texts and keeps all ids of a call: of a row cut into hundreds of
        # pieces, it gets some at a time.
        return [one for some in _some_at_a_time(texts) for one in ask(self._current(), some)]

    def _current(self) -> CountingEngine:
        engine = self._engine or self.reference
        self.used.add(engine.name)
        return engine

    def awaited(self, job: "Future[T]", chars: int) -> T:
        """What a job makes that another thread does with this; StillRunning if it never ends."""
        return self._watch.result(job, chars)

    def counted(self, texts: list[str]) -> Counts:
        """`count`, in another thread."""
        return self._watch.call(lambda: self.count(texts), sum(map(len, texts)))

    def _guarded(self) -> AbstractContextManager[None]:
        return guarded(f"the tokenizer {self.compiled.source.name}")

    def expect(self, read_chars: int, counted_chars: int) -> None:
        """Told how much was read, and how much of it had to be counted.

        When much is still to come, the engine that is quicker at counting is loaded beside the
        work and takes over when it is ready.
        """
        if self._hand_over and self._hand_over.pays(read_chars, counted_chars):
            self._hand_over = None
            known = conformance.known(
                self.compiled, QUICK_TO_COUNT.name, reference_name(self.compiled)
            )
            if _CORES <= 2 and known is not None and known.agrees:
                # On few cores it would be ready late: to wait for it takes the least time.
                self._may_count.clear()
            # No daemon: native code that still loads when Python ends aborts the process.
            threading.Thread(target=self._take_over, daemon=False).start()

    def _take_over(self) -> None:
        try:
            self._choose((QUICK_TO_COUNT,))
        finally:
            self._may_count.set()

    def sample(self, texts: list[str]) -> None:
        """Remember some of the run's own texts for the check at the end, from all over it."""
        with self._lock:
            self._sample.offer(texts)

    def sample_agrees(self) -> bool:
        """Whether the sample has the same lengths by the reference; a wrong engine is barred."""
        with self._lock:
            self._has_counted = True
            engines, sample = list(self._trusted), self._sample.texts()
        if not engines or not sample or self._exact:
            return True
        if self._watch.gave_up:
            return False
        return self._watch.call(lambda: self._agree(engines, sample), sum(map(len, sample)))

    def _agree(self, engines: list[tuple[Loader, CountingEngine]], sample: list[str]) -> bool:
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

    def use_reference(self) -> None:
        with self._lock:
            self.only_reference = True  # also for an engine that is still being loaded
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
                    if not self.only_reference:
                        self._engine = engine
                        self._trusted.append((loader, engine))
                return

    def _proved(self, loader: Loader) -> CountingEngine | None:
        """The engine, if it takes this tokenizer and is proved to agree with the reference."""
        verdict = conformance.known(self.compiled, loader.name, reference_name(self.compiled))
        if verdict is not None and not verdict.agrees:
            return None
        try:
            with guarded(loader.label):
                engine = loader.load(self.compiled)
        except InputError:  # engines refuse what they do not know, with errors of many kinds
            engine = None
        if engine is None:
            self._bar(loader, strings=0, different=0)
            return None
        if verdict is None and self._has_counted:
            return None  # it is too late for it: let another run judge
        if verdict is None:
            verdict = conformance.judge(
                self.compiled, loader.name, engine, self._compiled_reference
            )
        if not verdict.agrees:
            return None
        exceptions = verdict.exceptions()
        if not exceptions:
            return engine
        return _guarded(engine, exceptions, self._count_odd, self._odd_ids)

    def _count_odd(self, texts: list[str]) -> Counts:
        few = self._few_ids(texts)
        return self.reference.count(texts) if few is None else list(map(len, few))

    def _odd_ids(self, texts: list[str]) -> list[bytes]:
        few = self._few_ids(texts)
        return self.reference.id_bytes(texts) if few is None else list(map(pack, few))

    def _few_ids(self, texts: list[str]) -> Ids | None:
        """By the reference: a few texts in all of a run are not worth loading all of it for."""
        self._odd_chars += sum(map(len, texts))
        if self._odd_chars > _FEW_CHARS:
            return None
        found = relevant.ids(self.compiled, texts) or [None]
        return None if None in found else [ids for ids in found if ids is not None]

    def _bar(self, loader: Loader, *, strings: int, different: int) -> None:
        verdict = conformance.Agreement(agrees=False, strings=strings, different=different)
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
    engine: CountingEngine,
    exceptions: "re.Pattern[str]",
    count_odd: Callable[[list[str]], Counts],
    odd_ids: Callable[[list[str]], list[bytes]],
) -> CountingEngine:
    """The engine, but texts with characters it does not know go to the reference."""
    # Finding a byte is ten times faster than matching a class, and most scripts have none of these.
    leads = {character.encode()[:1] for character in exceptions.pattern if not character.isascii()}

    def is_odd(text: str) -> bool:
        if text.isascii():
            return False
        raw = text.encode()
        return any(lead in raw for lead in leads) and exceptions.search(text) is not None

    def guarded(
        usual: Callable[[list[str]], list[T]], other: Callable[[list[str]], list[T]]
    ) -> Callable[[list[str]], list[T]]:
        def each(texts: list[str]) -> list[T]:
            if all(map(str.isascii, texts)):
                return usual(texts)
            odd = {i for i, text in enumerate(texts) if is_odd(text)}
            if not odd:
                return usual(texts)
            known = iter(usual([text for i, text in enumerate(texts) if i not in odd]))
            others = iter(other([text for i, text in enumerate(texts) if i in odd]))
            return [next(others) if i in odd else next(known) for i in range(len(texts))]

        return each

    return CountingEngine(
        engine.name,
        guarded(engine.count, count_odd),
        engine.ids,
        guarded(engine.id_bytes, odd_ids),
    )
