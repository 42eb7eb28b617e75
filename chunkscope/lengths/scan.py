"""Sources x tokenizer -> datasets: read, select, count, add up; from the cache where known.

Sources are read one after the other. Only where there is much to read, or it comes from another
machine, some are read at the same time.
"""

import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.artefacts.note import Note, note
from chunkscope.console import Progress
from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.lengths import cache
from chunkscope.lengths.content import ContentDigest
from chunkscope.lengths.count import NoTokenizer, PromptCounter
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, Failure, Sample
from chunkscope.lengths.tally import Tally
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.prefixes.reuse import HowSent, PrefixReuse
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prompts.harness.lm_eval import results_file
from chunkscope.prompts.harness.log import LONGEST_FIRST, LogSummary, RequestSelection
from chunkscope.prompts.select import selected
from chunkscope.prompts.selection import LengthsSelection, Prompts, Selection
from chunkscope.sources.archives import close_archives
from chunkscope.sources.base import Chunk, Problems, Skipped, Source, cannot_read, printable
from chunkscope.sources.reader import Part, RecordReader, open_part, open_reader
from chunkscope.tokenizers.tokenizer import Tokenizer

_LITTLE_BYTES = 64 << 20  # are read by one thread
_MOST_READERS = 8

W = TypeVar("W", Source, Part)
R = TypeVar("R")


@dataclass(slots=True)
class Listener:
    """Who wants to know what happens on the way: nobody, by default."""

    skipped: Callable[[Sequence[Skipped]], None] = lambda _: None
    preparing: Callable[[str], None] = lambda _: None
    recounting: Callable[[str], None] = lambda _: None
    running: Callable[[str], None] = lambda _: None
    progress: Progress = field(default_factory=Progress)


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """The scan was told to stop."""


class Scan:
    """All that datasets share while they are counted."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        options: AnalyzeOptions,
        *,
        memo: DigestMemo,
        listener: Listener,
        export: TraceExport | None = None,
        threads: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.options = options
        self.export = export
        self.threads = threads or os.cpu_count() or 1
        self._memo = memo
        self._listener = listener
        self._counted: list[tuple[str, DatasetProfile]] = []  # to be kept, by key
        self._known_key: str | None = None  # by which results of earlier runs are known
        self._fresh_key: str | None = None  # and those of this one
        self.pool = ThreadPoolExecutor(1)  # made anew for each pass
        self.selections: dict[Any, Selection] = {}  # of small files, by their shape
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._done = [0, 0, 0]  # rows, tokens, bytes

    def datasets(self, sources: Sequence[Source]) -> list[DatasetProfile]:
        """Count every source. One that fails is in the result, with its error."""
        return self._checked(sources, self._dataset)

    def parts(self, parts: Sequence[Part]) -> list[tuple[DatasetProfile, int]]:
        """Count parts of sources; with each, how many positions it has."""
        return self._checked(parts, self._part)

    def _checked(self, work: Sequence[W], count: Callable[[W], R]) -> list[R]:
        """Everything counted, and a sample of the rows compared with the reference.

        If it agrees, the results are kept in the cache; if not, all is counted again, by the
        reference.
        """
        while True:
            agrees = False
            try:
                results = self._all(work, count)
            finally:  # also when it was interrupted: what is done is done
                if agrees := self.tokenizer.sample_agrees():
                    cache.store(self._counted)
                self._counted = []
            if agrees:
                return results
            sources: list[Any] = [one for one in work if isinstance(one, Source)]
            if gone := [source.path for source in sources if source.is_read_once]:
                raise InputError(
                    f"a fast engine and the reference differ on this data, and {gone[0]} is read "
                    "already",
                    hint="run the same command again: the reference will be used from now on",
                )
            self._listener.recounting(", ".join(sorted(self.tokenizer.counter.engines)))
            self.tokenizer.counter.use_reference()
            self._done = [0, 0, 0]

    def _all(self, work: Sequence[W], count: Callable[[W], R]) -> list[R]:
        is_much = sum(one.bytes or 0 for one in work) > _LITTLE_BYTES
        is_remote = any(isinstance(one, Source) and one.url is not None for one in work)
        readers = min(self.threads, _MOST_READERS, len(work)) if is_much or is_remote else 1
        read = ThreadPoolExecutor(max(1, readers), "read")
        self.pool = ThreadPoolExecutor(self.threads, "count")
        try:
            each = map if readers <= 1 else read.map
            return list(each(count, work))
        except NoTokenizer as error:
            raise error.error from None
        finally:
            # What is being read stops at its next chunk. Nobody waits for that: a thread may be
            # reading from a pipe in which nothing comes.
            self._stop.set()
            for pool in (read, self.pool):
                pool.shutdown(wait=False, cancel_futures=True)
            self._stop = threading.Event()
            close_archives()

    def _dataset(self, source: Source) -> DatasetProfile:
        """One source, from the cache if it was counted before."""
        try:
            before = cache.stamp(source)
            sha256 = self._memo.sha256(source.file) if source.file and before else None
        except OSError as error:
            return DatasetScan(self, source).result(cannot_read(source.path, error))
        if sha256 is None or not self.options.use_cache:
            return DatasetScan(self, source, sha256).count()
        self._known_key = self._known_key or self.tokenizer.counting_key
        # Of a tokenizer that was never used, only lengths that came with the data can be there.
        entry = self._entry(source, sha256, self._known_key or "")
        # The cache does not have what prompts are made of, which an exported trace needs.
        may_load = not (self.options.exact_check or self.export)
        if may_load and (dataset := cache.load(source, entry)):
            self.advance(dataset.rows, dataset.lengths.total, source.bytes or 0)
            return dataset
        dataset = DatasetScan(self, source, sha256).count()
        if dataset.failure or not cache.is_unchanged(source, before):
            return dataset
        if dataset.engine is not None:
            # A tokenizer that was just prepared counts with another engine than earlier runs.
            self._fresh_key = self._fresh_key or self.tokenizer.counting_key
            if self._fresh_key is None:
                return dataset
            if self._fresh_key != self._known_key:
                entry = self._entry(source, sha256, self._fresh_key)
        self._counted.append((entry, dataset))
        return dataset

    def _entry(self, source: Source, sha256: str, counting_key: str) -> str:
        results = results_file(source)  # what a run's settings were changes what is counted
        beside = self._memo.sha256(results) if results else ""
        options = self.options.cache_key(self.options.prefix_of(source.name))
        return cache.key(source, sha256 + beside, counting_key, options)

    def _part(self, part: Part) -> tuple[DatasetProfile, int]:
        """The first part has the digest; a file that is another on this machine is a failure."""
        source, scan = part.source, DatasetScan(self, part.source, part=part)
        try:
            file = source.file if source.file and source.file.is_file() else None
            if file and source.member is None and file.stat().st_size != source.bytes:
                other = InputError(
                    f"{source.path} has another size where it is counted",
                    hint="every node has to find the same file under the same name",
                )
                return scan.result(other), 0
            if source.file and part.start == 0:
                scan.sha256 = self._memo.sha256(source.file)
        except OSError as error:
            return scan.result(cannot_read(source.path, error)), 0
        dataset = scan.count()
        return dataset, scan.reader.positions if scan.reader else 0

    def advance(self, rows: int, tokens: int, bytes_read: int) -> None:
        """Tell how much more is done, unless the scan was told to stop."""
        if self._stop.is_set():
            raise Stopped
        with self._lock:
            self._done = [
                a + b for a, b in zip(self._done, (rows, tokens, bytes_read), strict=True)
            ]
            rows, tokens, bytes_read = self._done
        self._listener.progress.at(rows=rows, tokens=tokens, bytes_read=bytes_read)


class DatasetScan:
    """One source while it is read."""

    def __init__(
        self,
        scan: Scan,
        source: Source,
        sha256: str | None = None,
        *,
        part: Part | None = None,
    ) -> None:
        self.scan = scan
        self.part = part
        self.source = source
        self.sha256 = sha256
        self.options = scan.options
        if part is not None and part.start > 0:  # prompts are compared in the first part
            self.options = replace(self.options, prefixes=False)
        self.problems = Problems()
        self.tally = Tally(
            scan.options.keep_longest, scan.export.rows(source.name) if scan.export else None
        )
        self.content = ContentDigest()
        self._told = (0, 0, 0)  # rows, tokens and bytes, as progress knows them
        self.sample: Sample | None = None
        self.reader: RecordReader | None = None
        self.selection: Selection | None = None
        self._columns: set[str] = set()

    def count(self) -> DatasetProfile:
        try:
            with open_reader(self.source, self.options.read, self.problems) as reader:
                self.reader = reader
                if head := reader.head():
                    self._columns = columns_without_media(head)
                    self.selection = selected(
                        reader,
                        head,
                        self.options.select,
                        earlier=self.scan.selections,
                        prefix=self.options.prefix_of(self.source.name),
                    )
                    self._count(reader, self.selection)
        except (UsageError, MissingError):
            raise  # it is not about this dataset
        except ChunkscopeError as error:
            return self.result(error)
        return self.result()

    def _count(self, reader: RecordReader, selection: Selection) -> None:
        part = self.part
        if part is None or part.is_whole:
            return self._count_prompts(reader, selection)
        # A log's requests belong together, as do the blocks that a trace's prompts name.
        belong = selection.kind == "requests" or (
            isinstance(selection, LengthsSelection) and selection.blocks is not None
        )
        if belong or not reader.is_divisible:  # then all of it is the first part
            return self._count_prompts(reader, selection) if part.start == 0 else None
        self.problems = Problems()
        with open_part(part, self.options.read, self.problems) as reader:
            self.reader = reader
            return self._count_prompts(reader, selection)

    def _count_prompts(self, reader: RecordReader, selection: Selection) -> None:
        counter = PromptCounter(
            selection.kind,
            self.scan.tokenizer,
            self.options,
            self.scan.pool,
            self.tally,
            self.problems,
        )
        counter.count(self._prompts(reader, selection))
        self._tell(reader)

    def _prompts(self, reader: RecordReader, selection: Selection) -> Iterator[Prompts]:
        chunks: Iterable[Chunk] = self._chunks(reader, selection)
        if self.options.sample is not None:
            chunk, seen = draw(chunks, self.options.sample, self.options.seed)
            if seen > len(chunk.records):
                self.sample = Sample(rows=len(chunk.records), out_of=seen, seed=self.options.seed)
            chunks = [chunk]
        for chunk in chunks:
            yield selection.extract(chunk, self.problems)
            self._tell(reader)

    def _chunks(self, reader: RecordReader, selection: Selection) -> Iterator[Chunk]:
        """All records, whole but for pictures and sounds, which no prompt is made of."""
        columns = None
        if selection.columns is not None:
            columns = sorted(selection.columns | self._columns)
        for chunk in reader.chunks(columns):
            self.content.add(chunk.records)
            yield chunk

    def _tell(self, reader: RecordReader) -> None:
        now = (self.tally.rows, self.tally.tokens, reader.bytes_read)
        self.scan.advance(*(new - old for new, old in zip(now, self._told, strict=True)))
        self._told = now

    def result(self, error: ChunkscopeError | None = None) -> DatasetProfile:
        source, reader, selection, tally = self.source, self.reader, self.selection, self.tally
        log = self._log()
        prefixes, sharing = self._compared(log) or (None, None)
        if tally.trace is not None:
            tally.trace.longest_first = log is not None and log.order == LONGEST_FIRST
        wrapped = selection and selection.kind == "text" and self.options.apply_chat_template
        label = printable(selection.label) if selection else ""
        return DatasetProfile(
            name=source.name,
            group=source.group,
            path=source.path,
            format=reader.format if reader else source.format,
            kind=selection.kind if selection else "text",
            field=f"{label} (as chat)" if wrapped else label,
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
            failure=Failure(message=error.message, hint=error.hint) if error else None,
            notes=tuple(self._notes(error, prefixes)),
            uncounted=selection.uncounted if selection else (),
            sample=self.sample,
            engine=" + ".join(sorted(tally.engines)) or None,
            log=log,
            content=self.content.content() if error is None else None,
            scored={*tally.request_kinds} == {"likelihood"},
            prefixes=prefixes,
            sharing=sharing,
        )

    def _log(self) -> LogSummary | None:
        if not isinstance(self.selection, RequestSelection):
            return None
        caps = {str(cap): n for cap, n in sorted(self.tally.output_caps.items())}
        kinds = dict(sorted(self.tally.request_kinds.items()))
        summary = self.selection.log.summary(kinds, caps)
        return replace(summary, rendered=self.source.rendered)

    def _compared(self, log: LogSummary | None) -> tuple[PrefixReuse, Sharing] | None:
        """What the prompts share, as they were sent."""
        tally = self.tally
        if tally.comparison is None:
            return None
        outputs = tally.output_lengths
        answer = round(outputs.total / outputs.count) if outputs and outputs.count else None
        longest_first = log is not None and log.order == LONGEST_FIRST
        sent = HowSent(longest_first=longest_first, output_tokens=answer)
        measured = tally.comparison.measured(sent)
        if measured is None:
            return None
        reuse, sharing = measured
        whole = replace(
            reuse,
            out_of_prompts=tally.rows,
            out_of_tokens=tally.tokens,
            near_misses=tally.near_misses.found(tokens=reuse.tokens, chars=tally.chars),
            scoring=tally.scoring,
        )
        return whole, sharing

    def _notes(self, error: ChunkscopeError | None, prefixes: PrefixReuse | None) -> Iterator[Note]:
        selection, tally, tokenizer = self.selection, self.tally, self.scan.tokenizer
        if selection is None:
            if error is None:
                yield note("no_rows")
            return
        yield from selection.notes
        if isinstance(selection, RequestSelection):
            yield from selection.log.notes()
            if self.options.apply_chat_template and not self.source.rendered:
                yield note("unused_with_log", option="--apply-chat-template")
        if tally.rendered_chats and tokenizer.renders_the_date:
            yield note("date_in_template", day=str(tokenizer.chat_day))
        if isinstance(selection, LengthsSelection) and tally.comparison is not None:
            named = selection.blocks.text if selection.blocks else ""
            if prefixes is None:
                yield note("blocks_unused", blocks=named, field=selection.path.text)
            else:
                yield note("block_size", blocks=named, tokens=prefixes.block_size)
        if tally.begun_twice:
            begin = tokenizer.facts.begin_text
            yield note("begun_twice", begin=begin, count=tally.begun_twice)
        if tally.ignored_tools:
            yield note("tools_ignored", count=tally.ignored_tools)
        if tally.media_rows:
            yield note("media_rows", count=tally.media_rows)


def columns_without_media(head: Sequence[Any]) -> set[str]:
    """The fields of the records, but for those that hold bytes."""
    cells = [cell for record in head if isinstance(record, dict) for cell in record.items()]
    return {str(name) for name, _ in cells} - {str(name) for name, v in cells if _has_bytes(v)}


def _has_bytes(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_bytes, value[:1]))
    return (
        any(map(_has_bytes, value.values()))
        if isinstance(value, dict)
        else isinstance(value, bytes)
    )


def draw(chunks: Iterable[Chunk], size: int, seed: int) -> tuple[Chunk, int]:
    """`size` rows out of all, each as likely as any other, and how many there were.

    One pass with room for the sample only (reservoir sampling), so any file size will do; the same
    on every machine.
    """
    chance = random.Random(seed)  # noqa: S311  (a sample, not a secret)
    rows: list[tuple[int, Any]] = []
    seen = 0
    for chunk in chunks:
        for row in zip(chunk.positions, chunk.records, strict=True):
            seen += 1
            if len(rows) < size:
                rows.append(row)
            elif (place := chance.randrange(seen)) < size:
                rows[place] = row
    rows.sort(key=lambda row: row[0])
    return Chunk([position for position, _ in rows], [record for _, record in rows]), seen
