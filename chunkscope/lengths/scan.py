"""Sources x tokenizer -> datasets: read, select, count, add up; from the cache where known.

Only where there is much to read, or it is on another machine, sources are read at the same time.
"""

import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from operator import add, itemgetter, sub
from typing import Any

import orjson
from xxhash import xxh3_128

from chunkscope.artefacts.artefact import built, dumped
from chunkscope.artefacts.files import write_atomically
from chunkscope.artefacts.note import Note, note
from chunkscope.console import Progress, printable
from chunkscope.errors import InputError
from chunkscope.lengths.content import Content
from chunkscope.lengths.count import Batch, PromptCounter, in_order
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, LongPrompt, Sample
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.prefixes.comparison import TextComparison, WholeDataset
from chunkscope.prefixes.near_misses import misses_in, near_misses
from chunkscope.prefixes.reuse import PrefixReuse
from chunkscope.prompts.harness.lm_eval import results_file
from chunkscope.prompts.harness.log import LONGEST_FIRST, LogSummary
from chunkscope.prompts.options import selected
from chunkscope.prompts.selection import Selection
from chunkscope.sources.archive import close_archives
from chunkscope.sources.base import (
    CHUNK_BYTES,
    Chunk,
    DataError,
    Problems,
    Source,
    cannot_read,
)
from chunkscope.sources.formats import FORMATS, format_of_name
from chunkscope.sources.reader import RecordReader
from chunkscope.tokenizers.cache import (
    cache_file,
    file_digest,
    prune_cache,
    read_cached,
)
from chunkscope.tokenizers.check import Reservoir
from chunkscope.tokenizers.tokenizer import Tokenizer

# Of what the cache keeps and what it means, not of the package: raise it when the same bytes would
# be read, counted or described differently.
_LAYOUT = 45
_LITTLE_BYTES = 64 << 20  # are read by one thread
_MOST_READERS = 8
_MOST_BYTES = (
    224 << 20
)  # of texts under way: what is read while a fast engine is loaded

Done = tuple[int, int, int]  # rows, tokens, bytes


class Scan:
    """All that datasets share while they are counted."""

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
            on_prepare=lambda name: self.listener.tell(
                note("preparing", tokenizer=name)
            ),
        )
        self.most_bytes, self.pool = 0, ThreadPoolExecutor(1)  # anew for each pass
        self.selections: dict[Any, Selection] = {}  # of small files, by their shape
        same = options.for_dataset("")
        self.for_dataset = options.for_dataset if options.named else lambda _: same
        self.options_key = cache(options.cache_key)  # by the prefix of a dataset
        self.digest = cache(
            lambda file, _changed_ns: file_digest(file)
        )  # once for an archive
        self.counting_key: str | None = None
        self._counted: list[tuple[str, DatasetProfile]] = []  # to be kept
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.done: Done = (0, 0, 0)

    def datasets(self, sources: Sequence[Source]) -> list[DatasetProfile]:
        """Count every source, or part of one. One that fails is in the result, with its error.

        A sample of the rows is compared with the reference. If it agrees, the results are kept in
        the cache; if not, all is counted again, by the reference.
        """
        while True:
            size = sum(source.bytes or 0 for source in sources)
            is_slow = size > _LITTLE_BYTES or any(
                source.url is not None for source in sources
            )
            readers = min(self.threads, len(sources), _MOST_READERS if is_slow else 1)
            self.most_bytes, read = (
                _MOST_BYTES // readers,
                ThreadPoolExecutor(readers, "read"),
            )
            self.pool = ThreadPoolExecutor(self.threads, "count")
            self.counting_key = (
                self.tokenizer.counting_key if self.options.use_cache else None
            )
            results: dict[str, DatasetProfile] = {}  # by name
            scans = map(
                partial(DatasetScan, self), sources
            )  # each goes to one of the readers
            try:
                list(read.map(self._count, [scans] * readers, [results] * readers))
            finally:
                # What is being read stops at its next chunk. Nobody waits for that: a thread may be
                # reading from a pipe in which nothing comes.
                self.stop.set()
                for pool in (read, self.pool):
                    pool.shutdown(wait=False, cancel_futures=True)
                self.stop = threading.Event()
                close_archives()
                # Also when it was interrupted: what is done is done.
                if (agrees := self.tokenizer.sample_agrees()) and self._counted:
                    key = self.tokenizer.counting_key or ""
                    try:
                        for entry, dataset in self._counted:
                            file = cache_file("results", f"{entry}{key}")
                            write_atomically(file, dumped(dataset))
                    except InputError as error:  # it costs time, not truth
                        self.listener.tell(note("nothing_cached", why=error.message))
                    prune_cache()
                self._counted = []
            if agrees:
                return [results[source.name] for source in sources]
            if gone := [source.path for source in sources if source.is_read_once]:
                what = f"engine and reference differ on this data, and {gone[0]} is read only once"
                raise InputError(
                    what, hint="run it again: the reference will be used from now on"
                )
            engine = ", ".join(sorted(self.tokenizer.engines))
            self.listener.tell(note("counting_again", engine=engine))
            self.tokenizer.use_reference()
            self.done = (0, 0, 0)

    def _count(
        self, scans: Iterator["DatasetScan"], results: dict[str, DatasetProfile]
    ) -> None:
        """Count as long as there are any. The texts of small files are tokenized together."""
        batches = chain.from_iterable(scan.batches() for scan in scans)
        for scan, batch in in_order(
            self.pool, self.tokenizer, batches, self.most_bytes
        ):
            if batch is not None:
                scan.counter.add(batch)
                scan.tell()
                continue
            results[scan.source.name] = dataset = scan.earlier or scan.result(
                scan.error
            )
            if scan.error or not scan.entry:
                continue
            file = scan.source.file if scan.changed_ns else None
            if file is None or file.stat().st_mtime_ns == scan.changed_ns:
                self._counted.append((scan.entry, dataset))


class DatasetScan:
    """One source, or a part of it, while it is read."""

    def __init__(self, scan: Scan, source: Source) -> None:
        self.scan = scan
        self.source = source
        self.options = scan.options
        # Prompts are compared in the first row group.
        self.is_later = source.row_group is not None and source.row_group > 0
        if self.is_later:
            self.options = replace(self.options, prefixes=False)
        trace = scan.export.rows(source.name) if scan.export else None
        self.counter = PromptCounter(scan.tokenizer, self.options, trace)
        self.problems = Problems()
        self.contents: list[
            Content
        ] = []  # of what is read by now, the last of it first
        self._told: Done = (0, 0, 0)  # as progress knows it
        self.digest: Callable[[], str | None] = lambda: None  # waits for it
        self.sample: Sample | None = None
        self.reader: RecordReader | None = None
        self.selection: Selection | None = None
        self.error: DataError | None = None
        self.entry: str | None = None  # of the cache
        self.earlier: DatasetProfile | None = None  # what it has
        self.changed_ns: int | None = (
            None  # the file, when it was looked up; None: all was read
        )

    def batches(self) -> Iterator[tuple["DatasetScan", Batch | None] | None]:
        """What is to be counted, unless the cache knows it; None at the end."""
        if self.source.is_read_once or self.source.url:  # it may take long
            yield None
        try:
            data = self._look_up()
            if self.earlier is None:
                with RecordReader(
                    self.source, self.options.read, self.problems, data=data
                ) as self.reader:
                    for batch in self._read(self.reader):
                        yield self, batch
            self.digest()
        except OSError as error:
            self.error, self.digest = cannot_read(self.source.path, error), lambda: None
        except DataError as error:  # any other is not about this dataset
            self.error = error
        yield self, None

    def _look_up(self) -> bytes | None:
        """The digest of the file, and what the cache has of it; its bytes, if it is small."""
        source, options, scan, data = self.source, self.options, self.scan, None
        file = None if source.is_read_once or self.is_later else source.file
        is_whole = not (source.member or source.format == "saved")
        if file and is_whole and (source.bytes or 0) <= CHUNK_BYTES:
            with io.FileIO(
                file
            ) as opened:  # once: its records are read from these bytes
                data = opened.readall()
            self.digest = xxh3_128(data).hexdigest
        elif file:
            self.changed_ns = file.stat().st_mtime_ns
            self.digest = scan.pool.submit(scan.digest, file, self.changed_ns).result
        if not file or not options.use_cache or source.row_group is not None:
            return data
        # A harness's settings change what is counted; a .tsv is rather split at tabs than a .csv.
        results, suffix = results_file(source), format_of_name(source.path).suffix
        beside = (
            results and file_digest(results),
            source.member,
            source.format,
            suffix,
        )
        key = scan.options_key(*scan.for_dataset(source.name))
        self.entry = repr((_LAYOUT, self.digest(), *beside, key))
        # The cache does not have what prompts are made of, which an exported trace needs. Of a
        # tokenizer that was never used, only lengths that came with the data can be there.
        known = read_cached("results", f"{self.entry}{scan.counting_key or ''}")
        if known and scan.export is None:
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                earlier: DatasetProfile = built(DatasetProfile, orjson.loads(known))
                self.tell((earlier.rows, earlier.lengths.total, source.bytes or 0))
                name, group, path = source.name, source.group, source.path
                self.earlier, self.entry = (
                    replace(earlier, name=name, group=group, path=path),
                    None,
                )
        return data

    def _read(self, reader: RecordReader) -> Iterator[Batch]:
        """Read and select; what is opened on the way is closed with the reader."""
        source, options, scan = self.source, self.options, self.scan
        if not (head := reader.head()):
            return
        prefix, paths = scan.for_dataset(source.name)
        self.selection = selection = selected(
            reader,
            head,
            paths,
            scan.selections,
            prefix=prefix,
            counts_texts=options.tokenizer is not None,
        )
        columns, form = None, FORMATS.get(source.format)
        if form and form.is_columnar and selection.columns is not None:
            columns = sorted(selection.columns | columns_without_media(head))
        chunks = self._chunks(reader, columns)
        if options.sample is not None:
            chunk, seen = draw(chunks, options.sample, options.seed)
            if seen > len(chunk.records):
                self.sample = Sample(
                    rows=len(chunk.records), out_of=seen, seed=options.seed
                )
            chunks = iter([chunk])
        if options.prefixes and selection.kind != "lengths":
            self.counter.comparison = TextComparison()
        for chunk in chunks:
            prompts = selection.extract(chunk, self.problems)
            if selection.kind == "lengths":
                self.counter.add_lengths(prompts)
            else:
                yield self.counter.batch(selection.kind, self.problems, prompts)
        if self.counter.comparison:  # what can be done while others count
            self.counter.misses = misses_in(self.counter.sample.items)
            if (source.bytes or 0) > _LITTLE_BYTES:
                import numpy  # noqa: F401  (comparing needs it)

    def _chunks(
        self, reader: RecordReader, columns: Sequence[str] | None
    ) -> Iterator[Chunk]:
        """All records, which are part of the content whether they are used or not."""
        for chunk in reader.chunks(columns):
            self.contents.insert(0, Content.of(chunk.records))
            if len(self.contents) > 16:  # seldom, for all hashes are sorted
                self.contents = [sum(self.contents[1:], start=self.contents[0])]
            yield chunk
            self.tell()

    def tell(self, done: Done | None = None) -> None:
        """What is counted by now, unless the scan was told to stop.

        Of the bytes that were read as large a share as of the rows.
        """
        scan, counter = self.scan, self.counter
        if scan.stop.is_set():
            raise CancelledError
        if done is None:
            share = min(1, counter.rows / counter.selected) if counter.selected else 1
            bytes_counted = int(self.reader.bytes_read * share) if self.reader else 0
            done = (counter.rows, counter.tokens, bytes_counted)
        with scan.lock:
            rows, tokens, bytes_read = map(add, scan.done, map(sub, done, self._told))
            scan.done = rows, tokens, bytes_read
        self._told = done
        scan.listener.at(rows=rows, tokens=tokens, bytes_read=bytes_read)

    def result(self, error: DataError | None = None) -> DatasetProfile:
        source, reader, selection = self.source, self.reader, self.selection
        counter, outputs, contents = self.counter, None, self.contents or [Content()]
        if reader:
            self.tell()
        if counter.output_lengths is not None:
            outputs = LengthHistogram(dict(counter.output_lengths))
        log: LogSummary | None = None
        if selection and selection.log:
            caps = {str(cap): n for cap, n in sorted(counter.output_caps.items())}
            kinds = dict(sorted(counter.request_kinds.items()))
            log = replace(selection.log.summary(kinds, caps), rendered=source.rendered)
        longest_first = log is not None and log.order == LONGEST_FIRST
        size = {
            "prompts": counter.rows,
            "tokens": counter.tokens,
            "chars": counter.chars or 1,
        }
        whole = WholeDataset(
            lengths=counter.lengths,
            near_misses=near_misses(
                counter.misses, compared=len(counter.sample.items), **size
            ),
            scoring=counter.scoring if counter.request_kinds else None,
        )
        prefixes = sharing = None
        if counter.comparison:
            measured = counter.comparison.measured(whole, longest_first=longest_first)
            if measured:
                prefixes, sharing = measured.reuse, measured.sharing
        if counter.trace is not None:
            counter.trace.longest_first = longest_first
        wrapped = (
            selection and selection.kind == "text" and self.options.apply_chat_template
        )
        label = printable(selection.label) if selection else ""
        return DatasetProfile(
            name=source.name,
            group=source.group,
            path=source.path,
            format=reader.format if reader else source.format,
            kind=selection.kind if selection else "text",
            field=f"{label} (as chat)" if wrapped else label,
            unit=reader.unit if reader else "row",
            lengths=LengthHistogram(dict(counter.lengths)),
            skipped=self.problems.count,
            bytes=source.bytes,
            digest=None
            if source.rendered
            else self.digest(),  # no file to look at later
            chars=counter.chars,
            output_field=selection.output_label if selection else None,
            output_lengths=outputs,
            longest=tuple(
                LongPrompt(tokens=n, position=at) for n, at in counter.longest
            ),
            bad_rows=tuple(self.problems.rows),
            failure=error.note if error else None,
            notes=tuple(self._notes(prefixes)),
            uncounted=selection.uncounted if selection else (),
            sample=self.sample,
            engine=" + ".join(sorted(counter.engines)) or None,
            log=log,
            content=sum(contents[1:], start=contents[0]) if error is None else None,
            scored={*counter.request_kinds} == {"likelihood"},
            prefixes=prefixes,
            sharing=sharing,
        )

    def _notes(self, prefixes: PrefixReuse | None) -> Iterator[Note]:
        selection, counter, tokenizer = (
            self.selection,
            self.counter,
            self.scan.tokenizer,
        )
        if selection is None:
            return
        yield from selection.notes
        if selection.log:
            yield from selection.log.notes()
            if self.options.apply_chat_template and not self.source.rendered:
                yield note("unused_with_log", option="--apply-chat-template")
        if counter.rendered_chats and any(
            t.uses_date for t in tokenizer.templates.values()
        ):
            yield note("date_in_template", day=str(tokenizer.chat_day))
        if (
            selection.kind == "lengths"
            and counter.comparison is not None
            and prefixes is None
        ):
            named = selection.blocks.text if selection.blocks else ""
            yield note("blocks_unused", blocks=named, field=selection.paths[0].text)
        if counter.begun_twice:
            yield note(
                "begun_twice",
                begin=tokenizer.facts.begin_text,
                count=counter.begun_twice,
            )
        counts = {
            "tools_ignored": counter.ignored_tools,
            "media_rows": counter.media_rows,
        }
        counts["empty_prompts"] = counter.lengths[0]
        yield from (note(code, count=count) for code, count in counts.items() if count)


def columns_without_media(head: Sequence[Any]) -> set[str]:
    """The fields of the records, but for those that hold bytes: pictures and sounds."""

    def has_bytes(value: Any) -> bool:
        if isinstance(value, dict):
            value = list(value.values())
        return isinstance(value, bytes) or (
            isinstance(value, list) and any(map(has_bytes, value))
        )

    cells = [
        cell for record in head if isinstance(record, dict) for cell in record.items()
    ]
    return {str(name) for name, _ in cells} - {
        str(name) for name, v in cells if has_bytes(v)
    }


def draw(chunks: Iterable[Chunk], size: int, seed: int) -> tuple[Chunk, int]:
    """`size` rows out of all, each as likely as any other, and how many there were."""
    rows: Reservoir[tuple[int, Any]] = Reservoir(size, seed)
    for chunk in chunks:
        rows.add(zip(chunk.positions, chunk.records, strict=True))
    drawn = sorted(rows.items, key=itemgetter(0))
    return Chunk(
        [position for position, _ in drawn], [record for _, record in drawn]
    ), rows.offered
