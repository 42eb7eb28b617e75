"""Sources x tokenizer -> datasets: read, select, count, add up; from the cache where known.

Sources are read one after the other. Only where there is much to read, or it comes from another
machine, some are read at the same time.
"""

import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from operator import add, sub
from typing import Any

from chunkscope.artefacts.files import sha256
from chunkscope.artefacts.note import Note, note
from chunkscope.console import Progress
from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.lengths import cache as result_cache
from chunkscope.lengths.content import ContentDigest
from chunkscope.lengths.count import PromptCounter
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, Failure, Sample
from chunkscope.lengths.tally import Tally
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.prefixes.reuse import HowSent, PrefixReuse
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prompts.harness.log import LONGEST_FIRST, LogSummary, RequestSelection
from chunkscope.prompts.select import selected
from chunkscope.prompts.selection import Prompts, Selection
from chunkscope.sources.base import Chunk, Problems, Skipped, cannot_read, printable
from chunkscope.sources.reader import Part, RecordReader
from chunkscope.sources.streams import close_archives
from chunkscope.tokenizers.foreign import TokenizerError
from chunkscope.tokenizers.tokenizer import Tokenizer

_LITTLE_BYTES = 64 << 20  # are read by one thread
_MOST_READERS = 8


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
        options: AnalyzeOptions,
        *,
        expected_bytes: int = 0,
        listener: Listener | None = None,
        export: TraceExport | None = None,
        threads: int | None = None,
    ) -> None:
        self.options = options
        self.export = export
        self.threads = threads or os.cpu_count() or 1
        self.listener = listener or Listener()
        self.tokenizer = Tokenizer(
            options.tokenizer,
            chat_template=options.chat_template,
            chat_date=options.chat_date,
            trust_remote_code=options.read.trust_remote_code,
            expected_bytes=expected_bytes,
            on_prepare=self.listener.preparing,
        )
        self.pool = ThreadPoolExecutor(1)  # made anew for each pass
        self.selections: dict[Any, Selection] = {}  # of small files, by their shape
        self.positions = 0  # of the part that was counted last
        self._options_key = cache(options.cache_key)  # by the prefix of a dataset
        self._counted: list[tuple[str, DatasetProfile]] = []  # to be kept
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._done = (0, 0, 0)  # rows, tokens, bytes

    def datasets(self, parts: Sequence[Part]) -> list[DatasetProfile]:
        """Count every source, or part of one. One that fails is in the result, with its error.

        A sample of the rows is compared with the reference. If it agrees, the results are kept in
        the cache; if not, all is counted again, by the reference.
        """
        while True:
            agrees = False
            try:
                datasets = self._pass(parts)
            finally:  # also when it was interrupted: what is done is done
                if agrees := self.tokenizer.sample_agrees():
                    result_cache.store(self._counted, self.tokenizer.counting_key)
                self._counted = []
            if agrees:
                return datasets
            if gone := [part.source.path for part in parts if part.source.is_read_once]:
                raise InputError(
                    f"a fast engine and the reference differ on this data, and {gone[0]} is read "
                    "already",
                    hint="run the same command again: the reference will be used from now on",
                )
            self.listener.recounting(", ".join(sorted(self.tokenizer.engines)))
            self.tokenizer.use_reference()
            self._done = (0, 0, 0)

    def _pass(self, parts: Sequence[Part]) -> list[DatasetProfile]:
        is_much = sum(part.bytes or 0 for part in parts) > _LITTLE_BYTES
        is_remote = any(part.source.url is not None for part in parts)
        readers = min(self.threads, _MOST_READERS, len(parts)) if is_much or is_remote else 1
        read = ThreadPoolExecutor(max(1, readers), "read")
        self.pool = ThreadPoolExecutor(self.threads, "count")
        known_key = self.tokenizer.counting_key if self.options.use_cache else None

        def dataset(part: Part) -> DatasetProfile:
            return self._dataset(part, known_key)

        try:
            return list(map(dataset, parts) if readers <= 1 else read.map(dataset, parts))
        finally:
            # What is being read stops at its next chunk. Nobody waits for that: a thread may be
            # reading from a pipe in which nothing comes.
            self._stop.set()
            for pool in (read, self.pool):
                pool.shutdown(wait=False, cancel_futures=True)
            self._stop = threading.Event()
            close_archives()

    def _dataset(self, part: Part, known_key: str | None) -> DatasetProfile:
        """One source or part, a whole one from the cache if it was counted before."""
        source, scan = part.source, DatasetScan(self, part)
        try:
            before = result_cache.stamp(source)
            if source.file and before and part.start == 0:
                scan.sha256 = sha256(source.file)
        except OSError as error:
            return scan.result(cannot_read(source.path, error))
        if scan.sha256 is None or not self.options.use_cache or not part.is_whole:
            return scan.count()
        options_key = self._options_key(self.options.prefix_of(source.name))
        entry = result_cache.entry(source, scan.sha256, options_key)
        # The cache does not have what prompts are made of, which an exported trace needs.
        if self.export is None and (dataset := result_cache.load(source, entry, known_key)):
            self.advance(dataset.rows, dataset.lengths.total, source.bytes or 0)
            return dataset
        dataset = scan.count()
        if dataset.failure is None and result_cache.stamp(source) == before:
            self._counted.append((entry, dataset))
        return dataset

    def advance(self, rows: int, tokens: int, bytes_read: int) -> None:
        """Tell how much more is done, unless the scan was told to stop."""
        if self._stop.is_set():
            raise Stopped
        with self._lock:
            self._done = tuple(map(add, self._done, (rows, tokens, bytes_read)))
            rows, tokens, bytes_read = self._done
        self.listener.progress.at(rows=rows, tokens=tokens, bytes_read=bytes_read)


class DatasetScan:
    """One source, or a part of it, while it is read."""

    def __init__(self, scan: Scan, part: Part) -> None:
        self.scan = scan
        self.part = part
        self.options = scan.options
        if part.start > 0:  # prompts are compared in the first part
            self.options = replace(self.options, prefixes=False)
        export = scan.export
        self.tally = Tally(
            self.options.keep_longest, export.rows(part.source.name) if export else None
        )
        self.problems = Problems()
        self.content = ContentDigest()
        self._told = (0, 0, 0)  # rows, tokens and bytes, as progress knows them
        self.sha256: str | None = None
        self.sample: Sample | None = None
        self.reader: RecordReader | None = None
        self.selection: Selection | None = None

    def count(self) -> DatasetProfile:
        try:
            with ExitStack() as opened:
                self._count(opened)
        except (UsageError, MissingError, TokenizerError):
            raise  # it is not about this dataset
        except ChunkscopeError as error:
            return self.result(error)
        return self.result()

    def _count(self, opened: ExitStack) -> None:
        part, options = self.part, self.options
        reader = opened.enter_context(RecordReader(part.source, options.read, self.problems))
        self.reader = reader
        if not (head := reader.head()):
            return
        prefix = options.prefix_of(part.source.name)
        self.selection = selection = selected(
            reader, head, options.select, earlier=self.scan.selections, prefix=prefix
        )
        if not part.is_whole:
            # A log's requests belong together, as do the blocks that a trace's prompts name.
            belong = selection.kind == "requests" or selection.blocks is not None
            if reader.is_divisible and not belong:
                self.problems = Problems()
                reader = opened.enter_context(RecordReader(part, options.read, self.problems))
                self.reader = reader
            elif part.start > 0:
                return  # all of it is the first part
        columns = None
        if selection.columns is not None:  # whole rows, but for pictures and sounds
            columns = sorted(selection.columns | columns_without_media(head))
        counter = PromptCounter(
            selection.kind, self.scan.tokenizer, options, self.scan.pool, self.tally, self.problems
        )
        counter.count(self._prompts(selection, self._chunks(reader, columns)))
        self._tell(reader)
        self.scan.positions = reader.positions

    def _chunks(self, reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
        """All records, which are part of the content whether they are used or not."""
        for chunk in reader.chunks(columns):
            self.content.add(chunk.records)
            yield chunk
            self._tell(reader)

    def _tell(self, reader: RecordReader) -> None:
        done = (self.tally.rows, self.tally.tokens, reader.bytes_read)
        self.scan.advance(*map(sub, done, self._told))
        self._told = done

    def _prompts(self, selection: Selection, chunks: Iterable[Chunk]) -> Iterator[Prompts]:
        if self.options.sample is not None:
            chunk, seen = draw(chunks, self.options.sample, self.options.seed)
            if seen > len(chunk.records):
                self.sample = Sample(rows=len(chunk.records), out_of=seen, seed=self.options.seed)
            chunks = [chunk]
        for chunk in chunks:
            yield selection.extract(chunk, self.problems)

    def result(self, error: ChunkscopeError | None = None) -> DatasetProfile:
        source, reader, selection, tally = self.part.source, self.reader, self.selection, self.tally
        log: LogSummary | None = None
        if isinstance(selection, RequestSelection):
            caps = {str(cap): n for cap, n in sorted(tally.output_caps.items())}
            kinds = dict(sorted(tally.request_kinds.items()))
            log = replace(selection.log.summary(kinds, caps), rendered=source.rendered)
        longest_first = log is not None and log.order == LONGEST_FIRST
        prefixes, sharing = self._compared(longest_first=longest_first) or (None, None)
        if tally.trace is not None:
            tally.trace.longest_first = longest_first
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
            output_field=selection.output.text if selection and selection.output else None,
            output_lengths=tally.output_lengths,
            longest=tally.longest,
            bad_rows=tuple(self.problems.rows),
            failure=Failure(message=error.message, hint=error.hint) if error else None,
            notes=tuple(self._notes(prefixes)),
            uncounted=selection.uncounted if selection else (),
            sample=self.sample,
            engine=" + ".join(sorted(tally.engines)) or None,
            log=log,
            content=self.content.content() if error is None else None,
            scored={*tally.request_kinds} == {"likelihood"},
            prefixes=prefixes,
            sharing=sharing,
        )

    def _compared(self, *, longest_first: bool) -> tuple[PrefixReuse, Sharing] | None:
        """What the prompts share, as they were sent."""
        tally = self.tally
        if tally.comparison is None:
            return None
        outputs = tally.output_lengths
        answer = round(outputs.total / outputs.count) if outputs and outputs.count else None
        sent = HowSent(longest_first=longest_first, output_tokens=answer)
        if (measured := tally.comparison.measured(sent)) is None:
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

    def _notes(self, prefixes: PrefixReuse | None) -> Iterator[Note]:
        selection, tally, tokenizer = self.selection, self.tally, self.scan.tokenizer
        if selection is None:
            return
        yield from selection.notes
        if isinstance(selection, RequestSelection):
            yield from selection.log.notes()
            if self.options.apply_chat_template and not self.part.source.rendered:
                yield note("unused_with_log", option="--apply-chat-template")
        if tally.rendered_chats and tokenizer.renders_the_date:
            yield note("date_in_template", day=str(tokenizer.chat_day))
        if selection.kind == "lengths" and tally.comparison is not None and prefixes is None:
            named = selection.blocks.text if selection.blocks else ""
            yield note("blocks_unused", blocks=named, field=selection.paths[0].text)
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
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, bytes) or (isinstance(value, list) and any(map(_has_bytes, value)))


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
