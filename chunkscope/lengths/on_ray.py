"""`analyze` on a Ray cluster: parts of the input are tasks, what comes of them is added up here.

Workers count with the same readers and counters as threads do. A task whose worker or node died
runs again elsewhere; a part that goes on killing its workers is a failure in the profile. Ray runs
in a process of its own: it prints to stdout, and ends the process when its cluster is gone.
"""

import heapq
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.artefacts.note import Note
from chunkscope.errors import ChunkscopeError, EngineError, MissingError, UsageError
from chunkscope.lengths.analyze import Paths, discovered, info_of, profile_of, tokenizer_for
from chunkscope.lengths.content import Content
from chunkscope.lengths.histogram import LengthHistogram, added_up
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, Failure, Profile, TokenizerInfo
from chunkscope.lengths.scan import Listener, Scan
from chunkscope.sources.base import Problems, Source, first_line, printable
from chunkscope.sources.reader import Part, split
from chunkscope.tokenizers.resolve import resolve

PART_BYTES = 256 << 20
RETRIES = 3  # of a task whose worker or node died
_CONNECT_S = 5.0
_DRIVER = "from chunkscope.lengths.on_ray import drive; drive()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a worker has to know, sent to each node once."""

    name: str
    parts: tuple[Part, ...]
    options: AnalyzeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPart:
    """What came of a part, by its place among all of them; it has so many positions."""

    place: int
    dataset: DatasetProfile
    positions: int = 0
    tokenizer: TokenizerInfo | None = None
    only_reference: bool = False  # a fast engine differed, and it was counted without


def analyze_on_ray(
    paths: Paths,
    address: str | None = None,
    *,
    options: AnalyzeOptions,
    listener: Listener | None = None,
    part_bytes: int = PART_BYTES,
) -> Profile:
    """The profile that one process would make, by all workers of a cluster.

    Without an address it is the cluster that RAY_ADDRESS names or this machine runs, or else a new
    one on this machine.
    """
    if options.exact_check:
        raise UsageError("--ray excludes exact_check", hint="check in one process")
    listener = listener or Listener()
    with discovered(paths, options, listener) as sources:
        parts = tuple(part for source in sources for part in _parts(source, options, part_bytes))
        job = Job(name=uuid.uuid4().hex, parts=parts, options=_anywhere(options))
        listener.progress.begin(sum(part.bytes or 0 for part in parts))
        counted = _driven(job, address, listener)
    counted.sort(key=lambda part: part.place)
    datasets = [
        joined([part for part in counted if parts[part.place].source.name == source.name], options)
        for source in sources
    ]
    infos = [part.tokenizer for part in counted if part.tokenizer]
    info = infos[0] if infos else None
    if info is not None:
        notes = _added_up(note for one in infos for note in one.notes)
        info = replace(info, name=printable(resolve(options.tokenizer).name), notes=notes)
    return profile_of(paths, options, datasets, info)


def _anywhere(options: AnalyzeOptions) -> AnalyzeOptions:
    """With whole names of files: a worker has another current folder."""
    tokenizer, template = options.tokenizer, options.chat_template
    if tokenizer is not None and (path := Path(tokenizer).expanduser()).exists():
        tokenizer = str(path.resolve())
    return replace(
        options,
        tokenizer=tokenizer,
        chat_template=template.resolve() if template is not None else None,
    )


def _parts(source: Source, options: AnalyzeOptions, part_bytes: int) -> list[Part]:
    """Of a file that every worker finds: under its whole name."""
    if source.is_read_once or source.rendered:
        what = "a harness's task" if source.rendered else "a pipe, which is read once"
        raise UsageError(
            f"--ray cannot divide {source.path}: it is {what}",
            hint="save it to a file first, or count it in one process",
        )
    file = source.file.resolve() if source.file is not None else None
    source = replace(source, file=file)
    if options.sample is not None:  # which is drawn from all rows
        return [Part(source=source)]
    return split(source, part_bytes)


def joined(parts: Sequence[CountedPart], options: AnalyzeOptions) -> DatasetProfile:
    """A dataset from its parts; those after one that failed do not count."""
    failed = next((n for n, part in enumerate(parts) if part.dataset.failure), len(parts))
    parts = parts[: failed + 1]
    datasets = [part.dataset for part in parts]
    first = datasets[0]
    if len(parts) == 1:
        return first
    starts = accumulate((part.positions for part in parts), initial=0)
    pairs = list(zip(starts, datasets, strict=False))
    longest = [replace(p, position=at + p.position) for at, d in pairs for p in d.longest]
    bad_rows = [replace(r, position=at + r.position) for at, d in pairs for r in d.bad_rows]
    lengths = added_up(dataset.lengths for dataset in datasets)
    outputs = [d.output_lengths for d in datasets if d.output_lengths is not None]
    engines = {e for d in datasets for e in (d.engine or "").split(" + ") if e}
    return replace(
        first,
        lengths=lengths,
        output_lengths=added_up(outputs) if outputs else None,
        chars=sum(d.chars or 0 for d in datasets) if first.chars is not None else None,
        skipped=sum(dataset.skipped for dataset in datasets),
        longest=tuple(heapq.nlargest(options.keep_longest, longest, key=lambda p: p.tokens)),
        bad_rows=tuple(bad_rows[: Problems().keep]),
        failure=datasets[-1].failure,
        notes=_added_up(note for dataset in datasets for note in dataset.notes),
        engine=" + ".join(sorted(engines)) or None,
        content=_whole_content([dataset.content for dataset in datasets]),
        prefixes=first.prefixes
        and replace(first.prefixes, out_of_prompts=lengths.count, out_of_tokens=lengths.total),
    )


def _whole_content(parts: Sequence[Content | None]) -> Content | None:
    known = [part for part in parts if part is not None]
    return sum(known[1:], start=known[0]) if known and len(known) == len(parts) else None


def _added_up(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Each once, with its `count` summed up."""
    counts: dict[str, int] = {}
    last: dict[str, Note] = {}
    for note in notes:
        others = {name: value for name, value in note.values.items() if name != "count"}
        key = repr((note.code, others))
        counts[key] = counts.get(key, 0) + int(note.values.get("count") or 0)  # type: ignore[arg-type]
        last[key] = replace(note, values=others | ({"count": counts[key]} if counts[key] else {}))
    return tuple(last.values())


# -- the process that speaks with Ray --------------------------------------------------------------


def _driven(job: Job, address: str | None, listener: Listener) -> list[CountedPart]:
    """What all tasks found, from a process whose messages are pickles on its stdout."""
    environment = {"RAY_gcs_rpc_server_reconnect_timeout_s": "20", **os.environ}
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        try:
            pickle.dump((job, address), process.stdin)  # type: ignore[arg-type]
            process.stdin.close()  # type: ignore[union-attr]
            kind: str = ""
            value: Any = None
            while kind not in ("done", "error"):
                kind, value = pickle.load(process.stdout)  # type: ignore[arg-type]  # noqa: S301
                if kind == "progress":
                    rows, tokens, bytes_read = value
                    listener.progress.at(rows=rows, tokens=tokens, bytes_read=bytes_read)
        except (EOFError, pickle.UnpicklingError, BrokenPipeError):
            value = EngineError(
                "the Ray cluster is gone, and nothing was counted to its end",
                hint="see `ray status` and what Ray says above; then run the command again",
            )
        except BaseException:
            process.terminate()
            raise
    if isinstance(value, ChunkscopeError):
        raise value
    counted: list[CountedPart] = value
    return counted


def drive() -> None:
    """The process: a job on stdin, messages on what was stdout, whatever Ray prints on stderr."""
    messages = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def tell(kind: str, value: Any) -> None:
        pickle.dump((kind, value), messages)
        messages.flush()

    job, address = pickle.load(sys.stdin.buffer)  # noqa: S301  (our own process)
    try:
        with _cluster(address) as ray:
            tell("done", Tasks(ray, job, tell).counted())
    except ChunkscopeError as error:
        tell("error", error)
    except KeyboardInterrupt:
        pass


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    try:
        import ray
    except ImportError as error:
        raise MissingError(
            "--ray needs Ray, which is not installed", hint="pip install 'chunkscope[ray]'"
        ) from error
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


class Tasks:
    """All tasks of a job, one for each part: handed out, waited for, tried again."""

    def __init__(self, ray: Any, job: Job, tell: Callable[[str, Any], None]) -> None:
        self._ray = ray
        self._job = job
        self._tell = tell
        self._sent = (job.name, [ray.put(job)])
        self._count = ray.remote(count_part).options(num_cpus=1, max_retries=RETRIES)
        self._counted: list[CountedPart] = []

    def counted(self) -> list[CountedPart]:
        self._run(range(len(self._job.parts)), by_reference=False)
        wrong = [part.only_reference for part in self._counted if part.tokenizer]
        if any(wrong) and not all(wrong):  # where one engine was wrong none is trusted
            again = [part.place for part in self._counted if not part.only_reference]
            self._counted = [part for part in self._counted if part.only_reference]
            self._run(again, by_reference=True)
        return self._counted

    def _run(self, places: Iterable[int], *, by_reference: bool) -> None:
        running = {self._count.remote(*self._sent, p, by_reference=by_reference): p for p in places}
        try:
            while running:
                (task,), _ = self._ray.wait(list(running), num_returns=1)
                self._counted.append(self._result(task, running.pop(task)))
                lengths = [part.dataset.lengths for part in self._counted]
                done = sum(self._job.parts[part.place].bytes or 0 for part in self._counted)
                rows, tokens = sum(one.count for one in lengths), sum(one.total for one in lengths)
                self._tell("progress", (rows, tokens, done))
        except BaseException:
            for task in running:
                self._ray.cancel(task, force=True)
            raise

    def _result(self, task: Any, place: int) -> CountedPart:
        """What came of a part; one that no worker survives is a failure in the profile."""
        source = self._job.parts[place].source
        try:
            counted: CountedPart | ChunkscopeError = self._ray.get(task)
        except self._ray.exceptions.RayTaskError:
            raise  # a bug, not a death
        except self._ray.exceptions.RayError as error:
            failure = Failure(
                message=f"its worker died {RETRIES + 1} times ({first_line(error)})",
                hint="was it out of memory? See `ray logs`, and count this file by itself",
            )
            dataset = DatasetProfile(
                name=source.name,
                group=source.group,
                path=source.path,
                format=source.format,
                field="",
                lengths=LengthHistogram({}),
                bytes=source.bytes,
                failure=failure,
            )
            return CountedPart(place=place, dataset=dataset)
        if isinstance(counted, ChunkscopeError):
            raise counted
        return counted


# -- in a worker -----------------------------------------------------------------------------------


def count_part(
    name: str, job: list[Any], place: int, *, by_reference: bool
) -> CountedPart | ChunkscopeError:
    """One task: a part, counted by this worker. `job` is in a list: it is fetched once."""
    try:
        parts, scan = _begun.get(name) or _begin(name, job[0])
        if by_reference:
            scan.tokenizer.counter.use_reference()
        ((dataset, positions),) = scan.parts([parts[place]])
        info = info_of(scan.tokenizer, scan.options) if dataset.engine else None
    except ChunkscopeError as error:  # as a value: it is not the worker's
        return error
    return CountedPart(
        place=place,
        dataset=dataset,
        positions=positions,
        tokenizer=info,
        only_reference=info is not None and scan.tokenizer.counter.only_reference,
    )


# What a worker's process keeps from task to task: a job's parts, and its tokenizer, loaded.
_begun: dict[str, tuple[tuple[Part, ...], Scan]] = {}


def _begin(name: str, ref: Any) -> tuple[tuple[Part, ...], Scan]:
    import ray

    # One CPU is what the task asked for: engines would take all of the machine's.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    job: Job = ray.get(ref)
    memo = DigestMemo()
    total = sum(part.bytes or 0 for part in job.parts)
    tokenizer = tokenizer_for(job.options, memo, Listener(), total)
    scan = Scan(tokenizer, job.options, memo=memo, listener=Listener(), threads=1)
    _begun[name] = job.parts, scan
    return _begun[name]
