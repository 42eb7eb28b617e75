"""Prompts x tokenizer -> lengths: streamed, parallel, cached.

Each dataset is read by one thread, which hands lists of texts to a pool of counting threads (the
engines release the interpreter lock) and adds up what comes back, in order. Only a few lists are
on their way at any time, so memory does not depend on the size of a file.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.console import ScanProgress
from chunkscope.errors import ChunkscopeError, MissingError, UsageError
from chunkscope.lengths import cache, sampling
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Sample
from chunkscope.lengths.tally import Tally
from chunkscope.sources.archives import close_idle
from chunkscope.sources.base import (
    Chunk,
    Problems,
    ReadOptions,
    Source,
    cannot_read,
    printable,
)
from chunkscope.sources.chat import Conversation
from chunkscope.sources.prompt_field import select
from chunkscope.sources.reader import RecordReader
from chunkscope.sources.readers import open_reader
from chunkscope.sources.selection import Prompts, Selection, SelectOptions
from chunkscope.tokenizers.chat_template import TemplateRefused
from chunkscope.tokenizers.counting import Counting
from chunkscope.tokenizers.engines import version
from chunkscope.tokenizers.mistral import ChatRefused
from chunkscope.tokenizers.shared_prefixes import SharedPrefixes
from chunkscope.tokenizers.tokenizer import Tokenizer

_BATCH_CHARS = 1 << 20
_BATCH_ROWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """What a scan does with its sources."""

    read: ReadOptions = field(default_factory=ReadOptions)
    select: SelectOptions = field(default_factory=SelectOptions)
    special_tokens: bool = True
    sample: int | None = None
    seed: int = 0
    keep_longest: int = 10
    use_cache: bool = True
    exact_check: bool = False
    # Send text prompts as one user message through the chat template, as harnesses can.
    apply_chat_template: bool = False


def scan(
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    options: ScanOptions,
    *,
    memo: DigestMemo,
    progress: ScanProgress | None = None,
) -> tuple[list[DatasetProfile], Callable[[], None]]:
    """Count every source. One that fails is in the result, with its failure.

    Also gives back a function that keeps the new results in the cache: to be called once they
    are known to be right.
    """
    cores = os.cpu_count() or 1
    stop = threading.Event()
    counters = ThreadPoolExecutor(cores, "count")
    readers = ThreadPoolExecutor(min(cores, max(len(sources), 1)), "read")
    run = _Run(tokenizer, options, memo, progress or ScanProgress(), counters, stop)
    try:
        waiting = [readers.submit(run.dataset, source) for source in sources]
        return [future.result() for future in waiting], run.commit
    except _NoTokenizer as error:
        raise error.__cause__ or error from None
    except BaseException:
        # What is being read stops at its next chunk, the rest never starts. Nobody waits for
        # that: a thread may be reading from a pipe in which nothing comes.
        _stop(stop, readers, counters, wait=False)
        if not tokenizer.was_loaded or tokenizer.counting.sample_agrees():
            run.commit()  # what is done is done
        raise
    finally:
        _stop(stop, readers, counters, wait=not stop.is_set())
        close_idle()


def _stop(stop: threading.Event, *pools: ThreadPoolExecutor, wait: bool) -> None:
    stop.set()
    for pool in pools:
        pool.shutdown(wait=wait, cancel_futures=True)


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """The scan was told to stop."""


@dataclass(slots=True)
class _Run:
    """What the datasets of one scan share."""

    tokenizer: Tokenizer
    options: ScanOptions
    memo: DigestMemo
    progress: ScanProgress
    counters: ThreadPoolExecutor
    stop: threading.Event
    fresh: list[tuple[str, DatasetProfile]] = field(default_factory=list)

    def commit(self) -> None:
        while self.fresh:
            cache.store(*self.fresh.pop())

    def dataset(self, source: Source) -> DatasetProfile:
        """One source, from the cache if it was counted before."""
        if self.stop.is_set():
            raise Stopped
        try:
            before = _stamp(source)
            sha256 = self.memo.sha256(source.file) if source.file and before else None
        except OSError as error:
            return _failed(source, cannot_read(source.path, error), Problems())
        use_cache = sha256 and self.options.use_cache
        if use_cache and sha256 and (known := cache.load(source, self._entry(source, sha256))):
            self.progress.advance(
                rows=known.rows, tokens=known.lengths.total, bytes_read=source.bytes or 0
            )
            return known
        dataset = _Dataset(self, source, sha256).count()
        if sha256 and not dataset.failure and _is_unchanged(source, before):
            # Asked again: the tokenizer's chat template is known only now.
            self.fresh.append((self._entry(source, sha256), dataset))
        return dataset

    def _entry(self, source: Source, sha256: str) -> str:
        return cache.key(
            source, sha256, self.tokenizer.counting_key or "", _what_matters(self.options)
        )


def _what_matters(options: ScanOptions) -> dict[str, Any]:
    """Every option that changes a dataset's profile."""
    read, chosen = options.read, options.select
    return {
        "read": [read.encoding, read.per_line, read.delimiter, read.header],
        "fields": chosen.fields,
        "text_template": chosen.template,
        "prefix": chosen.prefix,
        "output_field": chosen.output_field,
        "chat": [chosen.chat, options.apply_chat_template],
        "special_tokens": options.special_tokens,
        "sample": [options.sample, options.seed if options.sample else None],
        "longest": options.keep_longest,
    }


def _stamp(source: Source) -> list[tuple[int, ...]] | None:
    """What changes when the source's files do; None for a pipe, which can be read only once."""
    if source.file is None:
        return None
    files = [source.file]
    if source.file.is_dir():
        files = sorted(source.file.iterdir())
    elif not source.file.is_file():
        return None
    stats = [file.stat() for file in files]
    return [(s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in stats]


def _is_unchanged(source: Source, before: list[tuple[int, ...]] | None) -> bool:
    """Whether what was counted is what was hashed: others may have been writing to the file."""
    try:
        return _stamp(source) == before
    except OSError:
        return False


class _Dataset:
    """Reads one source and keeps the books."""

    def __init__(self, run: _Run, source: Source, sha256: str | None) -> None:
        self.run = run
        self.source = source
        self.sha256 = sha256
        self.problems = Problems()
        self.tally = Tally(run.options.keep_longest)
        self.sample: Sample | None = None
        self.failure: ChunkscopeError | None = None
        self.reader: RecordReader | None = None
        self.selection: Selection | None = None
        self._bytes_told = 0

    def count(self) -> DatasetProfile:
        options = self.run.options
        try:
            with open_reader(self.source, options.read, self.problems) as self.reader:
                head = self.reader.head()
                if head:
                    self.selection = select(head, options.select, rows_at=self.reader.rows_at)
                    self._count_chunks(self._chunks(self.selection))
        except (UsageError, MissingError):
            raise  # it is not about this dataset
        except ChunkscopeError as error:
            self.failure = error
        return self._result()

    def _chunks(self, selection: Selection) -> Iterable[Chunk]:
        assert self.reader is not None  # noqa: S101  (count opened it)
        columns = sorted(selection.columns) if selection.columns is not None else None
        chunks = self.reader.chunks(columns)
        options = self.run.options
        if options.sample is None:
            return chunks
        chunk, seen = sampling.draw(chunks, options.sample, options.seed)
        if seen > len(chunk.records):
            self.sample = Sample(rows=len(chunk.records), out_of=seen, seed=options.seed)
        return [chunk]

    def _count_chunks(self, chunks: Iterable[Chunk]) -> None:
        assert self.selection is not None  # noqa: S101
        counter = self._counter(self.selection.kind)
        try:
            for chunk in chunks:
                if self.run.stop.is_set():
                    raise Stopped
                prompts = self.selection.extract(chunk, self.problems)
                counter.add(prompts)
                self._tell(len(prompts.items))
        except ChunkscopeError:
            counter.finish()  # the file ends early: what came before still counts
            raise
        counter.finish()
        self._tell(0)

    def _counter(self, kind: str) -> "_Lengths | _Texts | _Chats":
        if kind == "lengths":
            return _Lengths(self)
        if kind == "chat":
            return _Chats(self)
        return _WrappedTexts(self) if self.run.options.apply_chat_template else _Texts(self)

    def _tell(self, rows: int) -> None:
        read = self.reader.bytes_read if self.reader else 0
        tokens = self.tally.untold_tokens()
        self.run.progress.advance(
            rows=rows, tokens=tokens, bytes_read=max(0, read - self._bytes_told)
        )
        self._bytes_told = max(read, self._bytes_told)

    def _result(self) -> DatasetProfile:
        if self.reader is None or (self.selection is None and self.failure):
            return _failed(self.source, self.failure, self.problems, self.sha256)
        selection, tally = self.selection, self.tally
        return DatasetProfile(
            name=self.source.name,
            group=self.source.group,
            path=self.source.path,
            format=self.reader.format,
            kind=selection.kind if selection else "text",
            field=self._label(),
            unit=self.reader.unit,
            lengths=tally.lengths,
            skipped=self.problems.count,
            bytes=self.source.bytes,
            sha256=self.sha256,
            chars=tally.chars,
            output_field=selection.output_label if selection else None,
            output_lengths=tally.output_lengths,
            longest=tally.longest,
            bad_rows=tuple(self.problems.rows),
            failure=_sentence(self.failure),
            notes=tuple(self._notes()),
            sample=self.sample,
            engine=tally.engine,
        )

    def _label(self) -> str:
        if self.selection is None:
            return ""
        wrapped = self.selection.kind == "text" and self.run.options.apply_chat_template
        label = printable(self.selection.label)
        return f"{label} (as chat)" if wrapped else label

    def _notes(self) -> Iterable[str]:
        if self.selection is None:
            yield "there are no rows in it"
            return
        yield from self.selection.notes
        if self.selection.kind == "chat" and self.run.tokenizer.renders_the_date:
            yield (
                f"the chat template prints the date ({self.run.tokenizer.chat_day}): lengths can "
                "differ by a token on another day; --chat-date pins it"
            )
        if media := self.tally.media_rows:
            yield f"{media:,} rows hold images, audio or video: only their text is counted"


class _NoTokenizer(Exception):  # noqa: N818  (it carries the error)
    """The tokenizer cannot be loaded: that is not about one dataset, so the scan ends."""


def _loaded(tokenizer: Tokenizer) -> Counting:
    try:
        return tokenizer.counting
    except ChunkscopeError as error:
        raise _NoTokenizer from error


class _Lengths:
    """Rows that bring their lengths along."""

    def __init__(self, dataset: _Dataset) -> None:
        self.tally = dataset.tally

    def add(self, prompts: Prompts) -> None:
        self.tally.add(prompts.positions, prompts.items)
        if prompts.outputs is not None:
            self.tally.add_outputs([n for n in prompts.outputs if n is not None])

    def finish(self) -> None:
        pass


class _Texts:
    """Rows of text, counted by an engine in other threads."""

    def __init__(self, dataset: _Dataset, *, special_tokens: bool = True) -> None:
        run = dataset.run
        self.run = run
        self.tally = dataset.tally
        self.counting = _loaded(run.tokenizer)
        wanted = special_tokens and run.options.special_tokens
        self.added = run.tokenizer.compiled.special_added if wanted else 0
        # An exact check counts every row whole: cuts are part of what it checks.
        may_cut = run.tokenizer.compiled.may_cut and not run.options.exact_check
        self.shared = SharedPrefixes(allowed=may_cut)
        self.on_their_way: deque[tuple[list[int], Future[list[int]]]] = deque()

    def add(self, prompts: Prompts) -> None:
        for start, end in _batches(prompts.items):
            texts = prompts.items[start:end]
            self.counting.sample(texts)
            cut = self.shared.cut(texts)
            chars = sum(map(len, texts))
            self.tally.add_chars(chars)
            self.counting.expect(chars, sum(map(len, cut)))
            future = self.run.counters.submit(self.counting.count, cut)
            self.on_their_way.append((prompts.positions[start:end], future))
            if len(self.on_their_way) > 4:
                self._take()
        if prompts.outputs is not None:
            outputs = [text for text in prompts.outputs if text is not None]
            self.tally.add_outputs(self.counting.count(outputs) if outputs else [])

    def finish(self) -> None:
        while self.on_their_way:
            self._take()
        self.tally.engine = " + ".join(sorted(self.counting.used)) or None

    def _take(self) -> None:
        positions, future = self.on_their_way.popleft()
        lengths = self.shared.lengths(future.result())
        if self.added:
            lengths = [length + self.added for length in lengths]
        self.tally.add(positions, lengths)


class _Chats:
    """Conversations: made into text by the chat template, or counted by mistral-common."""

    def __init__(self, dataset: _Dataset) -> None:
        self.dataset = dataset
        self.tokenizer = dataset.run.tokenizer
        self.tally = dataset.tally
        self.direct = self.tokenizer.counts_chats_itself
        # The template writes the special tokens itself, as vLLM expects it to.
        self.texts = _Texts(dataset, special_tokens=False)

    def add(self, prompts: Prompts) -> None:
        make = self.tokenizer.count_chat if self.direct else self.tokenizer.chat_text
        positions: list[int] = []
        made: list[Any] = []
        outputs: list[Any] | None = [] if prompts.outputs is not None else None
        for row, conversation in enumerate(prompts.items):
            try:
                made.append(make(conversation))
            except (TemplateRefused, ChatRefused) as error:
                self.dataset.problems.bad(prompts.positions[row], error.message)
                continue
            positions.append(prompts.positions[row])
            if outputs is not None and prompts.outputs is not None:
                outputs.append(prompts.outputs[row])
            self.tally.media_rows += bool(conversation.media)
        if self.direct:
            self.tally.add(positions, [tokens for tokens, _ in made])
            self.tally.add_chars(sum(chars for _, chars in made))
            positions, made = [], []
        self.texts.add(Prompts(positions, made, outputs))

    def finish(self) -> None:
        self.texts.finish()
        if self.direct:
            self.tally.engine = f"mistral-common {version('mistral-common')}"


class _WrappedTexts(_Chats):
    """Texts that are sent as one user message each."""

    def add(self, prompts: Prompts) -> None:
        chats = [Conversation([{"role": "user", "content": text}]) for text in prompts.items]
        super().add(prompts._replace(items=chats))


def _batches(texts: list[str]) -> Iterable[tuple[int, int]]:
    """Slices of at most so many rows and characters, though never less than one row."""
    start = chars = 0
    for index, text in enumerate(texts):
        if index > start and (chars + len(text) > _BATCH_CHARS or index - start >= _BATCH_ROWS):
            yield start, index
            start, chars = index, 0
        chars += len(text)
    if start < len(texts):
        yield start, len(texts)


def _failed(
    source: Source,
    error: ChunkscopeError | None,
    problems: Problems,
    sha256: str | None = None,
) -> DatasetProfile:
    return DatasetProfile(
        name=source.name,
        group=source.group,
        path=source.path,
        format=source.format,
        field="",
        lengths=LengthHistogram({}),
        bytes=source.bytes,
        sha256=sha256,
        skipped=problems.count,
        bad_rows=tuple(problems.rows),
        failure=_sentence(error),
    )


def _sentence(error: ChunkscopeError | None) -> str | None:
    if error is None:
        return None
    return f"{error.message}\n\nhint: {error.hint}" if error.hint else error.message
