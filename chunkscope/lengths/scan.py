"""Sources x tokenizer -> lengths: streamed, parallel, cached, and checked against the reference.

Each dataset is read by one thread, which hands its prompts to a counter and adds up what comes
back, in order.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.artefacts.note import Note, note
from chunkscope.console import Progress
from chunkscope.errors import (
    ChunkscopeError,
    InputError,
    MissingError,
    UsageError,
)
from chunkscope.lengths import cache, sampling
from chunkscope.lengths.counters import CountedBy, NoTokenizer, counter_for
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, Sample
from chunkscope.lengths.tally import Counted, Tally, joined
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.prefixes.reuse import HowSent, NearMiss, PrefixReuse
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prompts.harness.lm_eval import results_file
from chunkscope.prompts.harness.log import LONGEST_FIRST, LogSummary, RequestSelection
from chunkscope.prompts.select import selected
from chunkscope.prompts.selection import LengthsSelection, Selection
from chunkscope.sources.archives import close_archives
from chunkscope.sources.base import Chunk, Problems, Skipped, Source, cannot_read, printable
from chunkscope.sources.reader import RecordReader
from chunkscope.sources.readers import Part, open_part, open_reader, split
from chunkscope.tokenizers.tokenizer import Tokenizer


@dataclass(slots=True)
class Listener:
    """Who wants to know what happens on the way: nobody, by default."""

    skipped: Callable[[Sequence[Skipped]], None] = lambda _: None
    preparing: Callable[[str], None] = lambda _: None
    recounting: Callable[[str], None] = lambda _: None
    running: Callable[[str], None] = lambda _: None
    progress: Progress = field(default_factory=Progress)


def scan(
    work: Sequence[Source] | Sequence[Part],
    tokenizer: Tokenizer,
    options: AnalyzeOptions,
    *,
    memo: DigestMemo,
    listener: Listener,
    export: TraceExport | None = None,
    threads: int,
) -> list[Counted]:
    """Count every source, or pieces of some. One that fails is in the result, with its error.

    At the end a sample of the rows is compared with the reference. If it agrees, the results are
    kept in the cache; if not, all is counted again, by the reference.
    """
    while True:
        run = _Pass(tokenizer, options, memo, listener.progress, export, threads=threads)
        is_right = False
        try:
            counted = run.all(work)
        finally:  # also when it was interrupted: what is done is done
            if is_right := tokenizer.sample_agrees():
                cache.store(run.fresh)
        if is_right:
            return counted
        if gone := [one.path for one in work if isinstance(one, Source) and one.is_read_once]:
            raise InputError(
                f"a fast engine and the reference differ on this data, and {gone[0]} is read "
                "already",
                hint="run the same command again: the reference will be used from now on",
            )
        listener.recounting(", ".join(sorted(tokenizer.counter.engines)))
        tokenizer.counter.use_reference()


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """The scan was told to stop."""


class _Totals(NamedTuple):
    rows: int = 0
    tokens: int = 0
    bytes_read: int = 0

    def plus(self, other: "_Totals") -> "_Totals":
        return _Totals(
            self.rows + other.rows, self.tokens + other.tokens, self.bytes_read + other.bytes_read
        )


class _Pass:
    """All datasets, counted once: what they share while they are read."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        options: AnalyzeOptions,
        memo: DigestMemo,
        progress: Progress,
        export: TraceExport | None = None,
        *,
        threads: int,
    ) -> None:
        self._threads = threads
        self.export = export
        self.tokenizer = tokenizer
        self.options = options
        self.fresh: list[tuple[str, Counted]] = []
        self._memo = memo
        self._progress = progress
        self._known_key: str | None = None  # by which results of earlier runs are known
        self._fresh_key: str | None = None  # and those of this one
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(threads, "count")
        self.counted_by = CountedBy(tokenizer=tokenizer, options=options, pool=self._pool)
        # Prompts are compared in the first piece of a source alone.
        self.only_counted_by = replace(self.counted_by, options=replace(options, prefixes=False))
        self._lock = threading.Lock()
        self._done = _Totals()
        self._open: list[_Dataset] = []

    def all(self, work: Sequence[Source] | Sequence[Part]) -> list[Counted]:
        readers = ThreadPoolExecutor(min(self._threads, max(len(work), 1)), "read")
        try:
            waiting = [
                readers.submit(self._alone, one)
                if isinstance(one, Part)
                else readers.submit(self._dataset, one)
                for one in work
            ]
            return [future.result() for future in waiting]
        except NoTokenizer as error:
            raise error.error from None
        except BaseException:
            # What is being read stops at its next chunk, the rest never starts. Nobody waits for
            # that: a thread may be reading from a pipe in which nothing comes.
            self._end(readers, wait=False)
            raise
        finally:
            self._end(readers, wait=not self._stop.is_set())
            close_archives()

    def _end(self, readers: ThreadPoolExecutor, *, wait: bool) -> None:
        self._stop.set()
        for pool in (readers, self._pool):
            pool.shutdown(wait=wait, cancel_futures=True)

    def _alone(self, piece: Part) -> Counted:
        """One piece, others of whose source may be counted elsewhere; the first has its digest."""
        self.go_on()
        file = piece.source.file
        try:
            sha256 = self._memo.sha256(file) if file and piece.start == 0 else None
        except OSError as error:
            return _Dataset(self, piece, None).result(cannot_read(piece.source.path, error))
        return self._piece(piece, sha256)

    def _dataset(self, source: Source) -> Counted:
        """One source, from the cache if it was counted before."""
        self.go_on()
        try:
            before = cache.stamp(source)
            sha256 = self._memo.sha256(source.file) if source.file and before else None
        except OSError as error:
            failed = _Dataset(self, Part(source=source), None)
            return failed.result(cannot_read(source.path, error))
        if sha256 is None or not self.options.use_cache:
            return self._counted(source, sha256)
        self._known_key = self._known_key or self.tokenizer.counting_key
        # Of a tokenizer that was never used, only lengths that came with the data can be there.
        entry = self._entry(source, sha256, self._known_key or "")
        # The cache does not have what prompts are made of, which an exported trace needs.
        asked = self.options.exact_check or self.export or self.options.order
        if not asked and (known := cache.load(source, entry)):
            lengths = known.profile.lengths
            self._advance(_Totals(lengths.count, lengths.total, source.bytes or 0))
            return known
        counted = self._counted(source, sha256)
        if counted.error or not cache.is_unchanged(source, before):
            return counted
        if not counted.brought_its_lengths:
            # A tokenizer that was just prepared counts with another engine than earlier runs.
            self._fresh_key = self._fresh_key or self.tokenizer.counting_key
            if self._fresh_key is None:
                return counted
            entry = self._entry(source, sha256, self._fresh_key)
        self.fresh.append((entry, counted))
        return counted

    def _entry(self, source: Source, sha256: str, counting_key: str) -> str:
        results = results_file(source)  # what a run's settings were changes what is counted
        beside = self._memo.sha256(results) if results else ""
        asked = self.options.of_dataset(source.name).cache_key()
        return cache.key(source, sha256 + beside, counting_key, asked)

    def _counted(self, source: Source, sha256: str | None) -> Counted:
        """Its pieces, one after the other: after one that failed nothing is read."""
        counted: list[Counted] = []
        for piece in _parts(source, None if self.export else self.options.divided_into):
            counted.append(self._piece(piece, sha256))
            if counted[-1].error:
                break
        return joined(counted, self.options.keep_longest)

    def _piece(self, piece: Part, sha256: str | None) -> Counted:
        dataset = _Dataset(self, piece, sha256)
        with self._lock:
            self._open.append(dataset)
        try:
            return dataset.count()
        finally:
            with self._lock:
                self._open.remove(dataset)
            self._advance(dataset.totals)

    def go_on(self) -> None:
        """Tell how far it is, unless the scan was told to stop."""
        if self._stop.is_set():
            raise Stopped
        self._advance(_Totals())

    def _advance(self, done: _Totals) -> None:
        with self._lock:
            self._done = self._done.plus(done)
            now = self._done
            for dataset in self._open:
                now = now.plus(dataset.totals)
        self._progress.at(rows=now.rows, tokens=now.tokens, bytes_read=now.bytes_read)


class _Dataset:
    """A piece of a source while it is read."""

    def __init__(self, run: _Pass, piece: Part, sha256: str | None) -> None:
        self.run = run
        self.piece = piece
        self.source = piece.source
        self.sha256 = sha256
        self.problems = Problems()
        trace = run.export.rows() if run.export else None
        self.tally = Tally(run.options.keep_longest, trace)
        self.sample: Sample | None = None
        self.reader: RecordReader | None = None
        self.selection: Selection | None = None
        self.bytes_read = 0

    @property
    def totals(self) -> _Totals:
        return _Totals(self.tally.rows, self.tally.tokens, self.bytes_read)

    def count(self) -> Counted:
        options = self.run.options.of_dataset(self.source.name)
        try:
            with open_reader(self.source, options.read, self.problems) as reader:
                self.reader = reader
                if head := reader.head():
                    self.selection = selected(reader, head, options.select)
                    if self.piece.is_whole or not is_divisible(reader, self.selection):
                        # What cannot be divided is all in its first piece.
                        if self.piece.start == 0:
                            self._count(reader, self.selection)
                    else:
                        self._count_piece(self.selection)
        except (UsageError, MissingError):
            raise  # it is not about this dataset
        except ChunkscopeError as error:
            return self.result(error)
        return self.result(None)

    def _count_piece(self, selection: Selection) -> None:
        """The rows of a piece, which are what the first rows of the whole source are."""
        self.problems = Problems()
        with open_part(self.piece, self.run.options.read, self.problems) as reader:
            self.reader = reader
            self._count(reader, selection)

    def _chunks(self, reader: RecordReader, selection: Selection) -> Iterable[Chunk]:
        columns = sorted(selection.columns) if selection.columns is not None else None
        chunks, options = reader.chunks(columns), self.run.options
        if options.sample is None:
            return chunks
        chunk, seen = sampling.draw(chunks, options.sample, options.seed)
        if seen > len(chunk.records):
            self.sample = Sample(rows=len(chunk.records), out_of=seen, seed=options.seed)
        return [chunk]

    def _count(self, reader: RecordReader, selection: Selection) -> None:
        chunks = self._chunks(reader, selection)
        by = self.run.counted_by if self.piece.start == 0 else self.run.only_counted_by
        counter = counter_for(selection.kind, by, self.tally, self.problems)
        try:
            for chunk in chunks:
                counter.add(selection.extract(chunk, self.problems))
                self.bytes_read = reader.bytes_read
                self.run.go_on()
        except ChunkscopeError:
            counter.finish()  # the file ends early: what came before still counts
            raise
        counter.finish()
        self.bytes_read = reader.bytes_read

    def result(self, error: ChunkscopeError | None) -> Counted:
        source, reader, selection, tally = self.source, self.reader, self.selection, self.tally
        log = self._log()
        asked_order = self.run.options.order is not None
        prefixes, sharing = self._compared(log)
        notes = [*self._notes(error), *self._about_blocks(prefixes), *self._counted_notes()]
        profile = DatasetProfile(
            name=source.name,
            group=source.group,
            path=source.path,
            format=reader.format if reader else source.format,
            kind=selection.kind if selection else "text",
            field=self._label(),
            unit=reader.unit if reader else "row",
            lengths=tally.lengths,
            skipped=self.problems.count,
            bytes=source.bytes,
            sha256=None if source.rendered else self.sha256,  # no file to look at later
            chars=tally.chars,
            output_field=selection.output_label if selection else None,
            output_lengths=tally.output_lengths,
            longest=tally.longest,
            bad_rows=tuple(self.problems.rows),
            failure=_sentence(error) if error else None,
            notes=tuple(notes),
            uncounted=selection.uncounted if selection else (),
            sample=self.sample,
            engine=" + ".join(tally.engines) or None,
            log=log,
            prefixes=prefixes,
            sharing=sharing,
        )
        if tally.trace is not None:
            tally.trace.longest_first = log is not None and log.order == LONGEST_FIRST
        return Counted(
            profile=profile,
            engines=tally.engines,
            error=error,
            notes=tuple(notes),
            positions=reader.positions if reader else 0,
            trace=tally.trace,
            order=tally.compared.best_order() if asked_order and tally.compared else (),
        )

    def _compared(self, log: LogSummary | None) -> tuple[PrefixReuse, Sharing] | tuple[None, None]:
        """What the prompts share, as they were sent."""
        if self.tally.compared is None:
            return None, None
        outputs = self.tally.output_lengths
        longest_first = log is not None and log.order == LONGEST_FIRST
        answer = round(outputs.total / outputs.count) if outputs and outputs.count else None
        sent = HowSent(longest_first=longest_first, output_tokens=answer)
        reuse, sharing = self.tally.compared.measured(sent)
        if reuse is None or sharing is None:
            return None, None
        misses = self._near_misses(reuse)
        return replace(reuse, near_misses=misses, scoring=self.tally.scoring), sharing

    def _near_misses(self, reuse: PrefixReuse) -> tuple[NearMiss, ...]:
        texts = self.tally.near_misses
        return texts.found(tokens=reuse.tokens, chars=self.tally.chars) if texts else ()

    def _about_blocks(self, prefixes: PrefixReuse | None) -> Iterator[Note]:
        selection = self.selection
        if not isinstance(selection, LengthsSelection) or self.tally.compared is None:
            return
        named = selection.blocks.text if selection.blocks else ""
        if prefixes is None:
            yield note("blocks_unused", blocks=named, field=selection.path.text)
        else:
            yield note("block_size", blocks=named, tokens=prefixes.block_size)

    def _label(self) -> str:
        if self.selection is None:
            return ""
        wrapped = self.selection.kind == "text" and self.run.options.apply_chat_template
        label = printable(self.selection.label)
        return f"{label} (as chat)" if wrapped else label

    def _log(self) -> LogSummary | None:
        if not isinstance(self.selection, RequestSelection):
            return None
        caps = {str(cap): n for cap, n in sorted(self.tally.output_caps.items())}
        kinds = dict(sorted(self.tally.request_kinds.items()))
        summary = self.selection.log.summary(kinds, caps)
        return replace(summary, rendered=self.source.rendered)

    def _notes(self, error: ChunkscopeError | None) -> Iterator[Note]:
        if self.selection is None:
            if error is None:
                yield note("no_rows")
            return
        yield from self.selection.notes
        if isinstance(self.selection, RequestSelection):
            yield from self.selection.log.notes()
            if self.run.options.apply_chat_template and not self.source.rendered:
                option = "--apply-chat-template"
                yield note("unused_with_log", option=option)
        renders = self.selection.kind == "chat" or self.tally.rendered_chats
        if renders and self.run.tokenizer.renders_the_date:
            day = str(self.run.tokenizer.chat_day)
            yield note("date_in_template", day=day)

    def _counted_notes(self) -> Iterator[Note]:
        for (code, name), rows in sorted(self.selection.remarks.items() if self.selection else ()):
            yield note(code, field=name, count=rows)
        if twice := self.tally.begun_twice:
            begin = self.run.tokenizer.facts.begin_text
            yield note("begun_twice", begin=begin, count=twice)
        if ignored := self.tally.ignored_tools:
            yield note("tools_ignored", count=ignored)
        if media := self.tally.media_rows:
            yield note("media_rows", count=media)


def _parts(source: Source, target_bytes: int | None) -> list[Part]:
    return split(source, target_bytes) if target_bytes else [Part(source=source)]


def is_divisible(reader: RecordReader, selection: Selection) -> bool:
    """Whether the parts can be read one without the others; if not, the first one is all.

    A log's requests belong together, as do the blocks that a trace's prompts name.
    """
    if selection.kind == "requests" or (
        isinstance(selection, LengthsSelection) and selection.blocks is not None
    ):
        return False
    return reader.is_divisible


def _sentence(error: ChunkscopeError) -> str:
    return f"{error.message}\n\nhint: {error.hint}" if error.hint else error.message
