"""`analyze` on a Ray cluster: the pieces of the input as tasks, their parts added up here.

Workers count with the same readers and counters as threads do. A task whose worker or node died
runs again elsewhere. What still dies is tried piece by piece, and a piece that goes on killing its
workers is a failure in the profile. The tokenizer's files travel with the work; each node makes
them ready once, and each worker keeps it loaded.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from chunkscope.artefacts.codec import write_atomically
from chunkscope.artefacts.folders import cache_folder
from chunkscope.errors import ChunkscopeError, MissingError
from chunkscope.lengths.analyze import CountingRun, Paths, Work, found
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.parts import ProfilePart, merged
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.lengths.scan import Listener
from chunkscope.lengths.shards import Shard
from chunkscope.lengths.tally import Counted
from chunkscope.sources.base import first_line
from chunkscope.sources.readers import Part
from chunkscope.tokenizers.resolve import resolve

RETRIES = 3  # of a task whose worker or node died
_TASK_PIECES = 64
_TASK_SHARE = 8  # small files go together up to this part of a piece
_WORTH_BYTES = 16 << 20  # a worker counts so much at least that a prepared tokenizer pays
_CONNECT_S = 5.0
_GIVEN_TEMPLATE = "chat_template.given"


def analyze_on_ray(
    paths: Paths,
    address: str | None = None,
    *,
    options: AnalyzeOptions,
    listener: Listener | None = None,
) -> Profile:
    """The profile that one process would make, by all workers of a cluster.

    Without an address it is the cluster that RAY_ADDRESS names or this machine runs, or else a new
    one on this machine. A process that is connected already stays with its cluster.
    """
    listener = listener or Listener()
    with found(paths, options, listener) as work:
        work.refuse_to_divide("--ray")
        job = _Job.of(work)
        with _cluster(address) as ray:
            return _Tasks(ray, job, listener).profile()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """All that a worker has to know, sent to each node once."""

    name: str
    work: Work
    tokenizer: str  # as people call it
    files: dict[str, bytes]  # of the tokenizer, by their places below its folder
    is_one_file: bool

    @classmethod
    def of(cls, work: Work) -> "_Job":
        options = work.options
        told = resolve(options.tokenizer)
        files = told.files if options.tokenizer is not None else ()  # the default is everywhere
        sent = {file.relative_to(files[0].parent).as_posix(): file.read_bytes() for file in files}
        if options.chat_template is not None:
            sent[_GIVEN_TEMPLATE] = options.chat_template.read_bytes()
        one = options.tokenizer is not None and Path(options.tokenizer).expanduser().is_file()
        name = uuid.uuid4().hex
        return cls(name=name, work=work, tokenizer=told.name, files=sent, is_one_file=one)

    def unpacked(self) -> AnalyzeOptions:
        """The options, with the tokenizer's files where this worker has put them."""
        options, names = self.work.options, [n for n in self.files if n != _GIVEN_TEMPLATE]
        if not self.files:
            return options
        folder = cache_folder() / "ray" / self.name
        for name, data in self.files.items():
            if not (folder / name).is_file():
                write_atomically(folder / name, data, durable=False)
        place = folder / names[0] if names and self.is_one_file else folder
        given = folder / _GIVEN_TEMPLATE if _GIVEN_TEMPLATE in self.files else None
        tokenizer = str(place) if names else options.tokenizer
        return replace(options, tokenizer=tokenizer, chat_template=given)


# -- in a worker ---------------------------------------------------------------------------------


def count_pieces(
    name: str, job: list[Any], places: Sequence[int], *, by_reference: bool
) -> ProfilePart | ChunkscopeError:
    """One task: some pieces, counted by this worker. `job` is in a list: it is fetched once."""
    try:
        return _worker(name).part(job[0], places, by_reference=by_reference)
    except ChunkscopeError as error:  # as a value: it is not the worker's
        return error


@lru_cache(maxsize=1)
def _worker(_name: str) -> "_Worker":
    return _Worker()


class _Worker:
    """What a worker's process keeps from task to task: a job, and its tokenizer, loaded."""

    def __init__(self) -> None:
        self._known: tuple[Work, CountingRun] | None = None

    def part(self, job: Any, places: Sequence[int], *, by_reference: bool) -> ProfilePart:
        work, run = self._known = self._known or self._begun(job)
        if by_reference:
            run.use_reference()
        before = run.checks
        counted = run.count([work.pieces[place] for place in places])
        checks = run.checks
        part = work.part(Shard(number=1, of=1), places, counted, run)
        new = replace(
            checks,
            recounted=checks.recounted - before.recounted,
            corrected=checks.corrected - before.corrected,
        )
        return replace(part, checks=new)

    def _begun(self, ref: Any) -> tuple[Work, CountingRun]:
        import ray

        # One CPU is what the task asked for: engines would take all of the machine's.
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
        job: _Job = ray.get(ref)
        run = CountingRun(job.unpacked(), Listener(), threads=1)
        with _one_at_a_time():
            total = sum(piece.bytes or 0 for piece in job.work.pieces)
            run.prepare(max(_WORTH_BYTES, total // cpus_of(ray)))
        return job.work, run


def cpus_of(ray: Any) -> int:
    """So many tasks run at a time."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """On this node: the first worker makes the tokenizer ready, the others find it."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system: each makes its own
        yield
        return
    place = cache_folder() / "ray" / "preparing.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# -- in the driver -------------------------------------------------------------------------------


class _Tasks:
    """All tasks of a job: handed out, waited for, tried again."""

    def __init__(self, ray: Any, job: _Job, listener: Listener) -> None:
        self._ray = ray
        self._work = job.work
        self._name = job.tokenizer
        self._pieces = job.work.pieces
        self._listener = listener
        self._job = (job.name, [ray.put(job)])
        self._count = ray.remote(count_pieces).options(num_cpus=1, max_retries=RETRIES)
        self._parts: list[ProfilePart] = []
        self._done = [0, 0, 0]  # rows, tokens, bytes

    def profile(self) -> Profile:
        self._listener.progress.begin(sum(piece.bytes or 0 for piece in self._pieces))
        self._run(self._batches(), by_reference=False)
        wrong = [part.checks.only_reference for part in self._parts]
        if any(wrong) and not all(wrong):
            self._listener.recounting("a fast engine")
            again = [part for part in self._parts if not part.checks.only_reference]
            self._parts = [part for part in self._parts if part.checks.only_reference]
            self._run([[p.place for p in part.pieces] for part in again], by_reference=True)
        number = len(self._parts)
        parts = [replace(p, shard=n, of=number) for n, p in enumerate(self._parts, start=1)]
        profile = merged(parts, [f"task {part.shard}" for part in parts])
        info = profile.tokenizer
        named = info if info.kind == "none" else replace(info, name=self._name)
        return replace(profile, tokenizer=named, options=self._work.recorded())

    def _batches(self) -> list[list[int]]:
        """Pieces by task: large ones alone, small neighbours together."""
        total = sum(piece.bytes or 0 for piece in self._pieces)
        enough = min(
            self._work.options.piece_bytes // _TASK_SHARE, total // (4 * cpus_of(self._ray))
        )
        batches: list[list[int]] = []
        size = enough
        for place, piece in enumerate(self._pieces):
            if size + (piece.bytes or enough) > enough or len(batches[-1]) == _TASK_PIECES:
                batches.append([])
                size = 0
            batches[-1].append(place)
            size += piece.bytes or enough
        return batches

    def _run(self, batches: list[list[int]], *, by_reference: bool) -> None:
        """Never more on their way than keeps every worker busy: what waits here is not lost."""
        waiting = batches[::-1]
        running: dict[Any, list[int]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < 2 * cpus_of(self._ray):
                    places = waiting.pop()
                    task = self._count.remote(*self._job, places, by_reference=by_reference)
                    running[task] = places
                ready, _ = self._ray.wait(list(running), num_returns=1, timeout=5.0)
                for task in ready:
                    waiting += self._taken(task, running.pop(task))
        except BaseException:
            for task in running:
                self._ray.cancel(task, force=True)
            raise

    def _taken(self, task: Any, places: list[int]) -> list[list[int]]:
        """Take what a task found; what has to be tried again, where it died."""
        try:
            found = self._ray.get(task)
        except self._ray.exceptions.RayTaskError:
            raise  # a bug, not a death
        except self._ray.exceptions.RayError as error:
            if len(places) > 1:
                return [[place] for place in reversed(places)]
            found = self._lost(places[0], error)
        if isinstance(found, ChunkscopeError):
            raise found
        self._parts.append(found)
        for piece in found.pieces:
            lengths = piece.dataset.lengths
            new = (lengths.count, lengths.total, self._pieces[piece.place].bytes or 0)
            self._done = [done + more for done, more in zip(self._done, new, strict=True)]
        rows, tokens, bytes_read = self._done
        self._listener.progress.at(rows=rows, tokens=tokens, bytes_read=bytes_read)
        return []

    def _lost(self, place: int, error: Exception) -> ProfilePart:
        """A piece that no worker survives: a failure in the profile."""
        counted = _failed(
            self._pieces[place],
            f"the worker that counted it died {RETRIES + 1} times ({first_line(error)})\n\n"
            "hint: was it out of memory? See `ray logs`, and count this file by itself",
        )
        run = CountingRun(self._work.options, Listener())
        return self._work.part(Shard(number=1, of=1), [place], [counted], run)


def _failed(piece: Part, why: str) -> Counted:
    source = piece.source
    return Counted(
        profile=DatasetProfile(
            name=source.name,
            group=source.group,
            path=source.path,
            format=source.format,
            field="",
            lengths=LengthHistogram({}),
            bytes=source.bytes,
            failure=why,
        )
    )


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Connected to a cluster, for as long as this takes."""
    try:
        import ray
    except ImportError as error:
        raise MissingError(
            "--ray needs Ray, which is not installed", hint="pip install 'chunkscope[ray]'"
        ) from error
    if ray.is_initialized():
        yield ray
        return
    try:
        _knock(address)
        ray.init(address=address or None, log_to_driver=False, logging_level="error")
    except Exception as error:  # Ray raises all sorts, from ValueError to its own
        raise MissingError(
            f"there is no Ray cluster at {address or 'this machine'}: {first_line(error)}",
            hint="see `ray status`; without an address --ray starts a cluster on this machine",
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Is anybody there at all? Ray would ask for minutes."""
    import socket

    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
