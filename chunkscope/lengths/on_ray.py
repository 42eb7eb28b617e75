"""`analyze` on a Ray cluster: files are tasks, and what comes of them is added up here.

A task is a file, or a row group of a large Parquet file. Workers count with the same
readers and counters as threads do. A task whose worker or node died runs again
elsewhere; one that goes on killing its workers is a failure in the profile. What only
this process can read, such as standard input, is counted here.
"""

import heapq
import os
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.note import Note
from chunkscope.console import Progress
from chunkscope.errors import ChunkscopeError, EngineError, MissingError
from chunkscope.lengths.analyze import (
    Paths,
    discovered,
    engines_of,
    info_of,
    profile_of,
)
from chunkscope.lengths.content import Content
from chunkscope.lengths.histogram import added_up
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, LongPrompt, Profile, together
from chunkscope.lengths.scan import Scan, failed
from chunkscope.prefixes.comparison import of_whole
from chunkscope.prefixes.sharing import Sharing
from chunkscope.sources.base import BadRow, DataError, Problems, Source, first_line
from chunkscope.sources.columnar import row_groups
from chunkscope.tokenizers.resolve import TokenizerInfo

SPLIT_BYTES = 256 << 20  # Parquet files from this size on are read by row group
RETRIES = 3  # of a task whose worker or node died
CONNECT_S = 5.0  # Ray itself would ask for minutes


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker has to know, sent to each node once."""

    name: str
    folder: str  # in which relative names are looked for
    options: AnalyzeOptions
    expected_bytes: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What came of a task; its tokenizer has a note where its fast engine was wrong."""

    source: Source
    dataset: DatasetProfile
    tokenizer: TokenizerInfo | None = None


def analyze_on_ray(
    paths: Paths,
    address: str | None = None,
    *,
    options: AnalyzeOptions,
    listener: Progress | None = None,
    split_bytes: int = SPLIT_BYTES,
) -> Profile:
    """The profile that one process would make, by all workers of a cluster.

    Without an address it is the cluster that RAY_ADDRESS names or this machine runs, or
    else a new one on this machine.
    """
    listener = listener or Progress()
    with (
        discovered(paths, options, listener) as sources,
        stdout_as_stderr(),
        connected(address) as ray,
    ):
        size = sum(source.bytes or 0 for source in sources)
        listener.begin(size)
        folder = str(Path.cwd())
        job = Job(uuid.uuid4().hex, folder, options, size)
        cluster = Cluster(ray, job, listener)
        parts: list[Source] = []
        for source in sources:
            if not is_only_here(source):
                parts += parts_of(source, options, split_bytes)
        counted = cluster.count(parts)
        counted = cluster.count_logs_whole(sources, counted)
        here = [source for source in sources if is_only_here(source)]
        counted += count_here(here, options, by_reference=cluster.by_reference)
    datasets = []
    for source in sources:
        own = [task.dataset for task in counted if task.source.name == source.name]
        datasets.append(joined(own, options))
    tokenizers = [task.tokenizer for task in counted if task.tokenizer is not None]
    return profile_of(paths, options, datasets, tokenizers[0] if tokenizers else None)


def is_only_here(source: Source) -> bool:
    """Whether only this machine can read it: a pipe, or what a harness just made."""
    return source.is_read_once or source.rendered


def parts_of(source: Source, options: AnalyzeOptions, split_bytes: int) -> list[Source]:
    """The row groups of a large Parquet file; of anything else the source itself."""
    can_be_split = source.format == "parquet" and source.member is None
    # A sample is drawn from all rows.
    if not can_be_split or options.sample or (source.bytes or 0) < split_bytes:
        return [source]
    try:
        groups = row_groups(source)
    except DataError:  # the task fails with it, too
        return [source]
    if groups < 2:
        return [source]
    return [replace(source, row_group=group) for group in range(groups)]


def count_here(
    sources: Sequence[Source], options: AnalyzeOptions, *, by_reference: bool
) -> list[Counted]:
    """What no other machine can read, counted in this process."""
    if not sources:
        return []
    scan = Scan(options)
    if by_reference:
        scan.tokenizer.use_reference()
    datasets = scan.datasets(sources)
    tokenizer = info_of(scan) if any(dataset.engine for dataset in datasets) else None
    counted = []
    for source, dataset in zip(sources, datasets, strict=True):
        counted.append(Counted(source, dataset, tokenizer))
    return counted


# --- the driver -----------------------------------------------------------------------


@contextmanager
def stdout_as_stderr() -> Iterator[None]:
    """Whatever writes to standard output meanwhile writes to standard error.

    Ray reports the death of workers on standard output, where the profile belongs.
    """
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray with a cluster; one that the caller is connected to already stays."""
    try:
        import ray
    except ImportError as error:
        raise MissingError(
            "--ray needs Ray, which is not installed",
            hint="pip install ray",
        ) from error
    if ray.is_initialized():
        yield ray
        return
    try:
        _expect_listener(address)
        ray.init(address=address or None, log_to_driver=False, logging_level="error")
    except Exception as error:  # Ray raises all sorts, from ValueError to its own
        where = address or "this machine"
        raise MissingError(
            f"there is no Ray cluster at {where}: {first_line(error)}",
            hint="see `ray status`; without RAY_ADDRESS, --ray starts a cluster on "
            "this machine",
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _expect_listener(address: str | None) -> None:
    """OSError unless somebody listens at the host and port of an address."""
    host_and_port = (address or "").rpartition("://")[2]
    host, _, port = host_and_port.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()


class Cluster:
    """Runs the tasks of a job. `by_reference`: no fast engine is trusted any more."""

    def __init__(self, ray: Any, job: Job, listener: Progress) -> None:
        self.by_reference = False
        self._ray = ray
        self._options = job.options
        self._listener = listener
        self._job = ray.put(job)
        self._task = ray.remote(count_task).options(num_cpus=1, max_retries=RETRIES)

    def count(self, sources: Sequence[Source]) -> list[Counted]:
        """One task for each source; all again where a fast engine was wrong."""
        counted = self._count_once(sources)
        if not self.by_reference and any(_is_wrong(task) for task in counted):
            self.by_reference = True
            counted = self._count_once(sources)
        return counted

    def count_logs_whole(
        self, sources: Sequence[Source], counted: list[Counted]
    ) -> list[Counted]:
        """Logs that were split are counted again: their requests belong together."""
        logs = set()
        for task in counted:
            if task.source.row_group is not None and task.dataset.log is not None:
                logs.add(task.source.name)
        if not logs:
            return counted
        others = [task for task in counted if task.source.name not in logs]
        return others + self.count([one for one in sources if one.name in logs])

    def _count_once(self, sources: Sequence[Source]) -> list[Counted]:
        running = {}
        for source in sources:
            task = self._task.remote(self._job, source, by_reference=self.by_reference)
            running[task] = source
        results = {}
        while running:
            (task,), _ = self._ray.wait(list(running), num_returns=1)
            source = running.pop(task)
            results[source] = self._result(task, source)
            self._tell(results.values())
        return [results[source] for source in sources]

    def _tell(self, counted: Iterable[Counted]) -> None:
        rows = 0
        tokens = 0
        bytes_read = 0
        for task in counted:
            rows += task.dataset.lengths.count
            tokens += task.dataset.lengths.total
            if not task.source.row_group:
                bytes_read += task.source.bytes or 0
        self._listener.at(rows=rows, tokens=tokens, bytes_read=bytes_read)

    def _result(self, task: Any, source: Source) -> Counted:
        """What came of a task; one that no worker survives is a failure."""
        exceptions = self._ray.exceptions
        try:
            counted: Counted | ChunkscopeError = self._ray.get(task)
        except (exceptions.WorkerCrashedError, exceptions.OutOfMemoryError) as error:
            why = first_line(error)
            died = DataError("worker_died", times=RETRIES + 1, why=why)
            return Counted(source, failed(source, self._options, died))
        except exceptions.RayTaskError:
            raise  # a bug, not a death
        except exceptions.RayError as error:
            raise EngineError(
                f"the Ray cluster failed: {first_line(error)}",
                hint="see `ray status`; then run the command again",
            ) from error
        if isinstance(counted, ChunkscopeError):
            raise counted
        return counted


def _is_wrong(task: Counted) -> bool:
    """Whether the fast engine of its worker differed from the reference."""
    if task.tokenizer is None:
        return False
    return any(note.code == "counted_again" for note in task.tokenizer.notes)


# --- a worker -------------------------------------------------------------------------

# By the name of the job: the tokenizer stays loaded from task to task.
_scans: dict[str, Scan] = {}


def count_task(
    job: Job, source: Source, *, by_reference: bool
) -> Counted | ChunkscopeError:
    """A source, counted by this worker. An error is a value: it is not the worker's."""
    try:
        scan = _scan_of(job)
        if by_reference:
            scan.tokenizer.use_reference()
        if _has_another_size(source):
            error = DataError("another_size", path=str(source.file))
            return Counted(source, failed(source, job.options, error))
        (dataset,) = scan.datasets([source])
    except ChunkscopeError as error:
        return error
    except OSError as error:
        why = error.strerror
        return MissingError(f"a node of the cluster does not have {job.folder}: {why}")
    return Counted(source, dataset, info_of(scan) if dataset.engine else None)


def _scan_of(job: Job) -> Scan:
    if job.name not in _scans:
        # One CPU is what the task asked for: engines would take all of the machine's.
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
        os.chdir(job.folder)
        _scans[job.name] = Scan(
            job.options, expected_bytes=job.expected_bytes, threads=1
        )
    return _scans[job.name]


def _has_another_size(source: Source) -> bool:
    """Whether the file of this name is another one on this node."""
    file = source.file
    if file is None or source.member is not None or not file.is_file():
        return False
    return file.stat().st_size != source.bytes


# --- added up -------------------------------------------------------------------------


def joined(parts: Sequence[DatasetProfile], options: AnalyzeOptions) -> DatasetProfile:
    """A dataset from its row groups; those after one that failed do not count."""
    if len(parts) == 1:
        return parts[0]
    counted: list[DatasetProfile] = []
    for part in parts:
        counted.append(part)
        if part.failure is not None:
            break
    first = counted[0]
    lengths = together(counted)
    longest: list[LongPrompt] = []
    bad_rows: list[BadRow] = []
    notes: list[Note] = []
    for part in counted:
        longest += part.longest
        bad_rows += part.bad_rows
        notes += part.notes
    prefixes = first.prefixes
    if prefixes is not None:  # only prompts of the first row group were compared
        prefixes = of_whole(prefixes, first.sharing or Sharing(), lengths.counts)
    outputs = [part.output_lengths for part in counted if part.output_lengths]
    return replace(
        first,
        lengths=lengths,
        output_lengths=added_up(outputs) if outputs else None,
        chars=_sum_of_chars(counted),
        skipped=sum(part.skipped for part in counted),
        longest=tuple(
            heapq.nlargest(
                options.keep_longest, longest, key=lambda prompt: prompt.tokens
            )
        ),
        bad_rows=tuple(bad_rows[: Problems().keep]),
        failure=counted[-1].failure,
        notes=summed_notes(notes),
        engine=engines_of(counted) or None,
        content=_content_of(counted),
        prefixes=prefixes,
    )


def _sum_of_chars(parts: Sequence[DatasetProfile]) -> int | None:
    if parts[0].chars is None:
        return None
    return sum(part.chars or 0 for part in parts)


def _content_of(parts: Sequence[DatasetProfile]) -> Content | None:
    total = Content()
    for part in parts:
        if part.content is None:
            return None
        total += part.content
    return total


def summed_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Each note once, with its `count` summed up."""
    sums: dict[str, Note] = {}
    for note in notes:
        key = repr((note.code, {**note.values, "count": None}))
        earlier = sums.get(key)
        if earlier is not None and "count" in note.values:
            count = _count_of(note) + _count_of(earlier)
            note = Note(code=note.code, values={**note.values, "count": count})
        sums[key] = note
    return tuple(sums.values())


def _count_of(note: Note) -> int:
    count = note.values["count"]
    return count if isinstance(count, int) else 0
