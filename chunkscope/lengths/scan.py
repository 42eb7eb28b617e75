"""Sources -> dataset profiles: open, choose the prompt, render, count, add up.

One thread for each source does all of it but the tokenizing, which a pool of threads
does. Nothing is shared between sources but the tokenizer and the progress.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

from chunkscope.artefacts.note import note
from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.lengths.content import Content
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.pools import bounded_map, threads
from chunkscope.lengths.profile import DatasetProfile, Sample
from chunkscope.lengths.render import Batch, Renderer
from chunkscope.lengths.tally import Tally
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.prompts.choose import choose_prompt
from chunkscope.prompts.prompt import PromptReader, read_prompts
from chunkscope.sources.archive import close_archives
from chunkscope.sources.base import Chunk, DataError, Source, cannot_read
from chunkscope.sources.formats import FORMATS
from chunkscope.sources.reader import RecordReader
from chunkscope.tokenizers.cache import file_digest
from chunkscope.tokenizers.check import Reservoir
from chunkscope.tokenizers.tokenizer import Tokenizer

_LITTLE_BYTES = 64 << 20  # are read by one thread
_FEW_SOURCES = 16  # likewise
_MOST_READERS = 8
# Of texts under way: as much as is read while an engine is loaded.
_MOST_BYTES = 224 << 20


class Done:
    """How far all sources are together, as the listener is told."""

    def __init__(self, listener: Progress) -> None:
        self.listener = listener
        self.lock = threading.Lock()
        self.rows = 0
        self.tokens = 0
        self.bytes_read = 0

    def add(self, rows: int, tokens: int, bytes_read: int) -> None:
        with self.lock:
            self.rows += rows
            self.tokens += tokens
            self.bytes_read += bytes_read
            self.listener.at(
                rows=self.rows, tokens=self.tokens, bytes_read=self.bytes_read
            )


class Digests:
    """The digest of each file, computed once: an archive holds several sources."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.lock = threading.Lock()
        self.futures: dict[Path, Future[str]] = {}

    def of(self, source: Source) -> Future[str] | None:
        """None where there is no file to look at later."""
        if source.file is None or source.is_read_once or source.rendered:
            return None
        with self.lock:
            if source.file not in self.futures:
                self.futures[source.file] = self.pool.submit(file_digest, source.file)
            return self.futures[source.file]


def _digest_of(source: Source, digest: Future[str]) -> str:
    """DataError where the file was taken away while it was read."""
    try:
        return digest.result()
    except OSError as error:
        raise cannot_read(source.path, error) from error


class Scan:
    """Counts the datasets of one run."""

    def __init__(
        self,
        options: AnalyzeOptions,
        *,
        expected_bytes: int = 0,
        listener: Progress | None = None,
        export: TraceExport | None = None,
        threads: int | None = None,
    ) -> None:
        self.options = options
        self.export = export
        self.threads = threads or os.cpu_count() or 1
        self.listener = listener or Progress()
        self.tokenizer = Tokenizer(
            options.tokenizer,
            chat_template=options.chat_template,
            chat_date=options.chat_date,
            trust_remote_code=options.read.trust_remote_code,
            expected_bytes=expected_bytes,
            on_prepare=self._tell_preparing,
        )

    def _tell_preparing(self, name: str) -> None:
        self.listener.tell(note("preparing", tokenizer=name))

    def datasets(self, sources: Sequence[Source]) -> list[DatasetProfile]:
        """Count every source. One that fails is in the result, with its error.

        A sample of the rows is compared with the reference. If it differs, all is
        counted again, by the reference.
        """
        datasets = self.count_sources(sources)
        if self.tokenizer.sample_agrees():
            return datasets
        for source in sources:
            if source.is_read_once:
                raise InputError(
                    "engine and reference differ on this data, and "
                    f"{source.path} is read only once",
                    hint="run it again: the reference will be used from now on",
                )
        engine = ", ".join(sorted(self.tokenizer.engines))
        self.listener.tell(note("counting_again", engine=engine))
        self.tokenizer.use_reference()
        return self.count_sources(sources)

    def count_sources(self, sources: Sequence[Source]) -> list[DatasetProfile]:
        """One source at a time; several where they are many, large or remote."""
        total = sum(source.bytes or 0 for source in sources)
        is_remote = any(source.url is not None for source in sources)
        readers = 1
        if total > _LITTLE_BYTES or is_remote or len(sources) > _FEW_SOURCES:
            readers = max(1, min(self.threads, len(sources), _MOST_READERS))
        stop = threading.Event()
        try:
            with (
                threads(self.threads, "count") as pool,
                threads(readers, "read") as read,
            ):
                counting = Counting(self, pool, stop, _MOST_BYTES // readers)
                futures = []
                for source in sources:
                    futures.append(read.submit(counting.count_source, source))
                return [future.result() for future in futures]
        finally:
            stop.set()  # what is being read stops at its next chunk
            close_archives()


class Counting:
    """One pass over the sources."""

    def __init__(
        self,
        scan: Scan,
        pool: ThreadPoolExecutor,
        stop: threading.Event,
        most_bytes: int,
    ) -> None:
        self.scan = scan
        self.options = scan.options
        self.pool = pool
        self.stop = stop
        self.most_bytes = most_bytes
        self.renderer = Renderer(scan.tokenizer, scan.options)
        self.done = Done(scan.listener)
        self.digests = Digests(pool)

    def count_source(self, source: Source) -> DatasetProfile:
        """The profile of a dataset, also of one that could not be read to its end."""
        export = self.scan.export
        trace = export.rows(source.name) if export is not None else None
        tally = Tally(source, self.options, self.renderer, trace)
        try:
            digest = self.digests.of(source)
            with RecordReader(source, self.options.read, tally.problems) as records:
                tally.records = records
                self._count_records(tally, records)
            if digest is not None:
                tally.digest = _digest_of(source, digest)
        except DataError as error:  # any other error is not about this dataset
            tally.failure = error
        return tally.profile()

    def _count_records(self, tally: Tally, records: RecordReader) -> None:
        head = records.head()
        read = 0  # bytes of the file
        if head:
            prefix = self.options.prefix_for(tally.source.name)
            options = self.options.for_dataset(tally.source.name)
            counts_texts = self.options.tokenizer is not None
            reader = choose_prompt(
                records, head, options, prefix=prefix, counts_texts=counts_texts
            )
            tally.begin(reader)
            chunks = self._chunks(tally, records, _columns(records, reader, head))
            batches = self._batches(tally, reader, chunks)
            count = self.renderer.count
            for batch in bounded_map(self.pool, count, batches, self.most_bytes):
                rows = tally.rows
                tokens = tally.tokens
                tally.add(batch)
                rows = tally.rows - rows
                self.done.add(rows, tally.tokens - tokens, batch.bytes_read - read)
                read = batch.bytes_read
        self.done.add(0, 0, records.bytes_read - read)

    def _chunks(
        self, tally: Tally, records: RecordReader, columns: list[str] | None
    ) -> Iterator[Chunk]:
        """All records, or a sample; all are part of the content."""
        chunks = self._all_chunks(tally, records, columns)
        if self.options.sample is None:
            yield from chunks
            return
        chunk, seen = draw(chunks, self.options.sample, self.options.seed)
        rows = len(chunk.records)
        if seen > rows:
            tally.sample = Sample(rows=rows, out_of=seen, seed=self.options.seed)
        yield chunk

    def _all_chunks(
        self, tally: Tally, records: RecordReader, columns: list[str] | None
    ) -> Iterator[Chunk]:
        for chunk in records.chunks(columns):
            if self.stop.is_set():
                raise CancelledError
            tally.content += Content.of(chunk.records)
            yield chunk

    def _batches(
        self, tally: Tally, reader: PromptReader, chunks: Iterable[Chunk]
    ) -> Iterator[Batch]:
        for chunk in chunks:
            prompts = read_prompts(reader, chunk, tally.problems)
            rendered = self.renderer.render(prompts, tally.problems)
            read = tally.records.bytes_read if tally.records else 0
            yield Batch(rendered, read)


def failed(source: Source, options: AnalyzeOptions, error: DataError) -> DatasetProfile:
    """The profile of a dataset that could not be counted at all."""
    tally = Tally(source, options, Renderer(Tokenizer(), options))
    tally.failure = error
    return tally.profile()


def _columns(
    records: RecordReader, reader: PromptReader, head: Sequence[Any]
) -> list[str] | None:
    """The columns of a table without pictures and sounds; None: everything."""
    form = FORMATS.get(records.source.format)
    if form is None or not form.is_columnar or reader.columns is None:
        return None
    return sorted(reader.columns | columns_without_media(head))


def columns_without_media(head: Sequence[Any]) -> set[str]:
    """The fields of the records, but for those that hold bytes: pictures and sounds."""
    names: set[str] = set()
    media: set[str] = set()
    for record in head:
        if isinstance(record, dict):
            for name, value in record.items():
                names.add(str(name))
                if _has_bytes(value):
                    media.add(str(name))
    return names - media


def _has_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(_has_bytes(element) for element in value)
    return isinstance(value, bytes)


def draw(chunks: Iterable[Chunk], size: int, seed: int) -> tuple[Chunk, int]:
    """`size` rows out of all, each as likely as any other, and how many there were."""
    rows: Reservoir[tuple[int, Any]] = Reservoir(size, seed)
    for chunk in chunks:
        rows.add(zip(chunk.positions, chunk.records, strict=True))
    drawn = sorted(rows.items, key=itemgetter(0))
    positions = [position for position, _ in drawn]
    return Chunk(positions, [record for _, record in drawn]), rows.offered
