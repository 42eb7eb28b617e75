"""`analyze` on a Ray cluster: each file is a task, counted as by one process.

A task whose worker or node died runs again elsewhere; one that goes on killing its
workers is a failure in the profile. What only this process can read, such as standard
input, is counted here.
"""

import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chunkscope.console import Progress
from chunkscope.errors import (
    ChunkscopeError,
    EngineError,
    MissingError,
    first_line,
)
from chunkscope.lengths.analyze import Paths, discovered, info_of, profile_of
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.lengths.scan import Scan, failed
from chunkscope.sources.base import DataError, Source
from chunkscope.tokenizers.resolve import TokenizerInfo

RETRIES = 3  # of a task whose worker or node died


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker has to know, sent to each node once."""

    name: str
    folder: str  # in which relative names are looked for
    options: AnalyzeOptions
    expected_bytes: int
    by_reference: bool = False  # no fast engine is trusted any more


@dataclass(frozen=True, slots=True)
class Counted:
    """What came of a source; the tokenizer notes it if its fast engine was wrong."""

    dataset: DatasetProfile
    tokenizer: TokenizerInfo | None = None


def analyze_on_ray(
    paths: Paths,
    address: str | None = None,
    *,
    options: AnalyzeOptions,
    listener: Progress | None = None,
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
        job = Job(uuid.uuid4().hex, str(Path.cwd()), options, size)
        counted = count_all(ray, job, sources, listener)
    infos = [task.tokenizer for task in counted.values() if task.tokenizer is not None]
    datasets = [counted[source].dataset for source in sources]
    return profile_of(paths, options, datasets, infos[0] if infos else None)


def count_all(
    ray: Any, job: Job, sources: Sequence[Source], listener: Progress
) -> dict[Source, Counted]:
    """What came of each source: by the cluster, or here if nobody else can read it."""
    far = [source for source in sources if not is_here(source)]
    counted = count_far(ray, job, far, listener)
    if any(was_wrong(task) for task in counted.values()):
        job = replace(job, name=uuid.uuid4().hex, by_reference=True)
        counted = count_far(ray, job, far, listener)
    scan = scan_of(job)
    for source in sources:
        if is_here(source):
            counted[source] = count(scan, source)
    return counted


def is_here(source: Source) -> bool:
    """Whether only this machine can read it: a pipe, or what a harness just made."""
    return source.is_read_once or source.rendered


def count(scan: Scan, source: Source) -> Counted:
    (dataset,) = scan.datasets([source])
    return Counted(dataset, info_of(scan) if dataset.engine else None)


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


def count_far(
    ray: Any, job: Job, sources: Sequence[Source], listener: Progress
) -> dict[Source, Counted]:
    """One task for each source; one that no worker survives is a failure."""
    task = ray.remote(count_task).options(num_cpus=1, max_retries=RETRIES)
    everywhere = ray.put(job)
    running = {task.remote(everywhere, source): source for source in sources}
    counted: dict[Source, Counted] = {}
    while running:
        (done,), _ = ray.wait(list(running), num_returns=1)
        source = running.pop(done)
        counted[source] = result_of(ray, done, source, job.options)
        datasets = [result.dataset for result in counted.values()]
        listener.at(
            rows=sum(dataset.lengths.count for dataset in datasets),
            tokens=sum(dataset.lengths.total for dataset in datasets),
            bytes_read=sum(dataset.bytes or 0 for dataset in datasets),
        )
    return counted


def result_of(ray: Any, task: Any, source: Source, options: AnalyzeOptions) -> Counted:
    try:
        result: Counted | ChunkscopeError = ray.get(task)
    except (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.OutOfMemoryError,
    ) as error:
        why = first_line(error)
        died = DataError("worker_died", times=RETRIES + 1, why=why)
        return Counted(failed(source, options, died))
    except ray.exceptions.RayTaskError:
        raise  # a bug, not a death
    except ray.exceptions.RayError as error:
        raise EngineError(
            f"the Ray cluster failed: {first_line(error)}",
            hint="see `ray status`; then run the command again",
        ) from error
    if isinstance(result, ChunkscopeError):
        raise result
    return result


def was_wrong(task: Counted) -> bool:
    """Whether the fast engine of its worker differed from the reference."""
    notes = () if task.tokenizer is None else task.tokenizer.notes
    return any(note.code == "counted_again" for note in notes)


# --- a worker -------------------------------------------------------------------------

# By the name of the job: the tokenizer stays loaded from task to task.
scans: dict[str, Scan] = {}


def count_task(job: Job, source: Source) -> Counted | ChunkscopeError:
    """A source, counted by this worker. An error is a value: it is not the worker's."""
    # One CPU is what the task asked for: engines would take all there are.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    try:
        os.chdir(job.folder)
        if job.name not in scans:
            scans[job.name] = scan_of(job)
        return count(scans[job.name], source)
    except ChunkscopeError as error:
        return error
    except OSError as error:
        why = error.strerror
        return MissingError(f"a node of the cluster does not have {job.folder}: {why}")


def scan_of(job: Job) -> Scan:
    scan = Scan(job.options, expected_bytes=job.expected_bytes, threads=1)
    if job.by_reference:
        scan.tokenizer.use_reference()
    return scan
