"""`analyze` on a Ray cluster: parts of the input are tasks, what comes of them is added up here.

Workers count with the same readers and counters as threads do. A task whose worker or node died
runs again elsewhere; a part that goes on killing its workers is a failure in the profile. Ray runs
in a process of its own: it prints to stdout, and ends the process when its cluster is gone.
"""

import heapq
import os
import pickle
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from chunkscope.artefacts.note import Note
from chunkscope.console import Progress
from chunkscope.errors import ChunkscopeError, EngineError, MissingError, UsageError
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
from chunkscope.lengths.profile import DatasetProfile, Profile, together
from chunkscope.lengths.scan import Scan, failed
from chunkscope.prefixes.comparison import of_whole
from chunkscope.prefixes.sharing import Sharing
from chunkscope.sources.base import DataError, Problems, Source, first_line
from chunkscope.tokenizers.resolve import TokenizerInfo

RETRIES = 3  # of a task whose worker or node died


class Job(NamedTuple):
    """All that a worker has to know, sent to each node once."""

    name: str
    folder: str  # in which relative names are looked for
    parts: list[Source]
    options: AnalyzeOptions


class CountedPart(NamedTuple):
    """What came of a part, by its place among all of them; it has so many positions."""

    place: int
    dataset: DatasetProfile
    positions: int = 0
    tokenizer: TokenizerInfo | None = (
        None  # with a note where its fast engine was wrong
    )


def analyze_on_ray(
    paths: Paths,
    address: str | None = None,
    *,
    options: AnalyzeOptions,
    listener: Progress | None = None,
) -> Profile:
    """The profile that one process would make, by all workers of a cluster; without an address the
    one that RAY_ADDRESS names or this machine runs, or else a new one on this machine."""
    listener = listener or Progress()
    with discovered(paths, options, listener) as sources:
        if here := [
            source.path for source in sources if source.is_read_once or source.rendered
        ]:
            raise UsageError(
                f"--ray cannot read {here[0]}: pipes and harness tasks are only on this machine",
                hint="save it to a file first, or count it without --ray",
            )
        parts = list(sources)
        folder = str(Path.cwd())
        job = Job(uuid.uuid4().hex, folder, parts, options)
        listener.begin(sum(part.part_bytes or 0 for part in parts))
        counted = _driven(job, address, listener)
    datasets = [
        joined(
            [part for part in counted if parts[part.place].name == source.name], options
        )
        for source in sources
    ]
    tokenizers = (part.tokenizer for part in counted if part.tokenizer)
    return profile_of(paths, options, datasets, next(tokenizers, None))


def joined(parts: Sequence[CountedPart], options: AnalyzeOptions) -> DatasetProfile:
    """A dataset from its parts; those after one that failed do not count."""
    failed = next(
        (n for n, part in enumerate(parts) if part.dataset.failure), len(parts)
    )
    datasets = [part.dataset for part in parts[: failed + 1]]
    first = datasets[0]
    starts = accumulate((part.positions for part in parts), initial=0)
    pairs = list(zip(starts, datasets, strict=False))
    longest = [
        replace(p, position=at + p.position) for at, d in pairs for p in d.longest
    ]
    bad_rows = [
        replace(r, position=at + r.position) for at, d in pairs for r in d.bad_rows
    ]
    lengths = together(datasets)
    outputs = [d.output_lengths for d in datasets if d.output_lengths is not None]
    contents = [d.content for d in datasets if d.content is not None]
    return replace(
        first,
        lengths=lengths,
        output_lengths=added_up(outputs) if outputs else None,
        chars=sum(d.chars or 0 for d in datasets) if first.chars is not None else None,
        skipped=sum(dataset.skipped for dataset in datasets),
        longest=tuple(
            heapq.nlargest(options.keep_longest, longest, key=lambda p: p.tokens)
        ),
        bad_rows=tuple(bad_rows[: Problems().keep]),
        failure=datasets[-1].failure,
        notes=_summed_notes(note for dataset in datasets for note in dataset.notes),
        engine=engines_of(datasets) or None,
        content=sum(contents, start=Content())
        if len(contents) == len(datasets)
        else None,
        prefixes=first.prefixes
        and of_whole(first.prefixes, first.sharing or Sharing(), lengths.counts),
    )


def _summed_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Each once, with its `count` summed up."""
    sums: dict[str, Note] = {}
    for note in notes:
        key = repr((note.code, {**note.values, "count": None}))
        if key in sums and "count" in note.values:
            counts: Any = (note.values["count"], sums[key].values["count"])
            note = replace(note, values={**note.values, "count": sum(counts)})
        sums[key] = note
    return tuple(sums.values())


def _driven(job: Job, address: str | None, listener: Progress) -> list[CountedPart]:
    """What all tasks found, from a process whose messages are pickles on its stdout."""
    environment = {"RAY_gcs_rpc_server_reconnect_timeout_s": "20", **os.environ}
    command = [
        sys.executable,
        "-c",
        "from chunkscope.lengths.on_ray import drive; drive()",
    ]
    with subprocess.Popen(command, stdin=-1, stdout=-1, env=environment) as process:  # noqa: S603
        try:
            process.stdin.write(pickle.dumps((job, address)))  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]
            while isinstance(value := pickle.load(process.stdout), dict):  # type: ignore[arg-type]  # noqa: S301
                listener.at(**value)
        except (EOFError, pickle.UnpicklingError, BrokenPipeError):
            value = EngineError(
                "the Ray cluster is gone, and not all files were counted",
                hint="see `ray status` and what Ray says above; then run the command again",
            )
        except BaseException:
            process.terminate()
            raise
    if isinstance(value, ChunkscopeError):
        raise value
    return list(value)


def drive() -> None:
    """The process: a job on stdin, messages on what was stdout, whatever Ray prints on stderr."""
    messages = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def tell(value: Any) -> None:
        pickle.dump(value, messages)
        messages.flush()

    job, address = pickle.load(sys.stdin.buffer)  # noqa: S301  (our own process)
    try:
        ray = _connected(address)
        tell(run_tasks(ray, job, tell))
        ray.shutdown()
    except ChunkscopeError as error:
        tell(error)
    except KeyboardInterrupt:
        pass


def _connected(address: str | None) -> Any:
    """Ray, with a cluster."""
    try:
        import ray
    except ImportError as error:
        raise MissingError(
            "--ray needs Ray, which is not installed",
            hint="pip install 'chunkscope[ray]'",
        ) from error
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    try:
        if (
            host and port.isdigit()
        ):  # is anybody there at all? Ray would ask for minutes
            socket.create_connection((host, int(port)), timeout=5.0).close()
        ray.init(address=address or None, log_to_driver=False, logging_level="error")
    except Exception as error:  # Ray raises all sorts, from ValueError to its own
        raise MissingError(
            f"there is no Ray cluster at {address or 'this machine'}: {first_line(error)}",
            hint="see `ray status`; without RAY_ADDRESS, --ray starts a cluster on this machine",
        ) from error
    return ray


def run_tasks(
    ray: Any, job: Job, tell: Callable[[Any], None], *, by_reference: bool = False
) -> list[CountedPart]:
    """One task for each part. Where one worker's fast engine was wrong, none is trusted."""
    count = ray.remote(count_part).options(num_cpus=1, max_retries=RETRIES)
    sent = ray.put(job)
    running = {
        count.remote(sent, n, by_reference=by_reference): n
        for n in range(len(job.parts))
    }
    counted: list[CountedPart] = []
    while running:
        (task,), _ = ray.wait(list(running), num_returns=1)
        counted.append(_result(ray, task, job, running.pop(task)))
        lengths = together(part.dataset for part in counted)
        done = sum(job.parts[part.place].part_bytes or 0 for part in counted)
        tell({"rows": lengths.count, "tokens": lengths.total, "bytes_read": done})
    notes = [
        one.code for part in counted if part.tokenizer for one in part.tokenizer.notes
    ]
    if not by_reference and "counted_again" in notes:
        return run_tasks(ray, job, tell, by_reference=True)
    return sorted(counted, key=lambda part: part.place)


def _result(ray: Any, task: Any, job: Job, place: int) -> CountedPart:
    """What came of a part; one that no worker survives is a failure in the profile."""
    try:
        counted: CountedPart | ChunkscopeError = ray.get(task)
    except (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.OutOfMemoryError,
    ) as error:
        died = DataError("worker_died", times=RETRIES + 1, why=first_line(error))
        return CountedPart(place, failed(job.parts[place], job.options, died))
    except ray.exceptions.RayTaskError:
        raise  # a bug, not a death
    except (
        ray.exceptions.RayError
    ) as error:  # the end of nodes, not of this part's worker
        sys.exit(first_line(error))
    if isinstance(counted, ChunkscopeError):
        raise counted
    return counted


_scans: dict[
    str, Scan
] = {}  # in a worker, from task to task: the tokenizer of a job, loaded


def count_part(
    job: Job, place: int, *, by_reference: bool
) -> CountedPart | ChunkscopeError:
    """One task: a part, counted by this worker. An error is a value: it is not the worker's."""
    part, file = job.parts[place], job.parts[place].file
    try:
        if job.name not in _scans:
            # One CPU is what the task asked for: engines would take all of the machine's.
            os.environ.setdefault("RAYON_NUM_THREADS", "1")
            os.chdir(job.folder)
            total = sum(part.part_bytes or 0 for part in job.parts)
            _scans[job.name] = Scan(job.options, expected_bytes=total, threads=1)
        scan = _scans[job.name]
        if by_reference:
            scan.tokenizer.use_reference()
        if (
            file
            and not part.member
            and file.is_file()
            and file.stat().st_size != part.bytes
        ):
            error = DataError("another_size", path=str(file))
            return CountedPart(place, failed(part, job.options, error))
        (dataset,) = scan.datasets([part])
    except ChunkscopeError as error:
        return error
    except OSError as error:
        return MissingError(
            f"a node of the cluster does not have {job.folder}: {error.strerror}"
        )
    return CountedPart(place, dataset, 0, info_of(scan) if dataset.engine else None)
