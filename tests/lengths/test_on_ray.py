"""`analyze --ray`: the same profile as one process makes, whatever dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chunkscope import AnalyzeOptions, analyze
from chunkscope.artefacts.note import note
from chunkscope.console import Progress
from chunkscope.errors import EngineError
from chunkscope.lengths import on_ray
from chunkscope.lengths.analyze import discovered
from chunkscope.lengths.on_ray import (
    Cluster,
    Counted,
    Job,
    analyze_on_ray,
    count_task,
    joined,
    parts_of,
    summed_notes,
)
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.lengths.scan import Scan
from chunkscope.sources.base import Source
from tests.commands.helpers import analyze_apart, command, environment
from tests.large_input import write_large_input
from tests.processes import PATIENCE_S

OPTIONS = AnalyzeOptions()


def counts(dataset: DatasetProfile) -> DatasetProfile:
    """What does not depend on how much was compared or read at once."""
    return replace(dataset, prefixes=None, sharing=None, engine=None)


def write_parquet(path: Path, texts: list[str], rows_per_group: int) -> None:
    table = pa.Table.from_pylist([{"prompt": text} for text in texts])
    pq.write_table(table, path, row_group_size=rows_per_group)


def sources_at(place: Path) -> list[Source]:
    with discovered(place, OPTIONS, Progress()) as sources:
        return list(sources)


# -- tasks ---------------------------------------------------------------------------


def test_a_large_parquet_file_is_a_task_for_each_row_group(tmp_path):
    write_parquet(tmp_path / "x.parquet", ["a b"] * 10, 4)
    (source,) = sources_at(tmp_path)

    parts = parts_of(source, OPTIONS, split_bytes=1)

    assert [part.row_group for part in parts] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "options", "split_bytes"),
    [
        pytest.param("x.parquet", OPTIONS, 1 << 30, id="a small one"),
        pytest.param("x.parquet", replace(OPTIONS, sample=3), 1, id="a sample"),
        pytest.param("x.jsonl", OPTIONS, 1, id="lines"),
    ],
)
def test_any_other_file_is_one_task(tmp_path, name, options, split_bytes):
    if name == "x.parquet":
        write_parquet(tmp_path / name, ["a b"] * 10, 4)
    else:
        (tmp_path / name).write_text('{"prompt": "a b"}\n' * 10)
    (source,) = sources_at(tmp_path)

    assert parts_of(source, options, split_bytes) == [source]


def test_row_groups_add_up_to_the_whole(tmp_path):
    texts = [f"{'word ' * (n % 50)}{n}" for n in range(300)]
    write_parquet(tmp_path / "x.parquet", texts, 40)
    (whole,) = analyze(tmp_path, options=OPTIONS).datasets
    (source,) = sources_at(tmp_path)
    parts = parts_of(source, OPTIONS, split_bytes=1)

    again = joined([Scan(OPTIONS).datasets([part])[0] for part in parts], OPTIONS)

    assert len(parts) == 8
    assert counts(again) == replace(counts(whole), digest=again.digest)
    assert again.longest == whole.longest, "positions are those of the file"
    assert again.prefixes.is_partial
    assert again.prefixes.out_of_tokens == whole.lengths.total


def test_a_bad_row_is_reported_by_its_own_row_group_alone(tmp_path):
    texts = ["fine"] * 10
    texts[1] = None
    write_parquet(tmp_path / "x.parquet", texts, 4)
    (source,) = sources_at(tmp_path)
    parts = parts_of(source, OPTIONS, split_bytes=1)

    again = joined([Scan(OPTIONS).datasets([part])[0] for part in parts], OPTIONS)

    assert again.skipped == 1
    assert [row.position for row in again.bad_rows] == [2]


def test_counts_of_the_same_note_are_summed_up():
    notes = [note("media_rows", count=2), note("media_rows", count=3), note("turns")]

    assert summed_notes(notes) == (note("media_rows", count=5), note("turns"))


# -- without a cluster ---------------------------------------------------------------


class Inline:
    """As much of Ray as tasks need, in this process."""

    class exceptions:  # noqa: N801
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            pass

        class WorkerCrashedError(RayError):
            pass

        class OutOfMemoryError(RayError):
            pass

    def __init__(self) -> None:
        self.tasks: list[tuple[str, bool]] = []

    def put(self, value: Any) -> Any:
        return value

    def remote(self, function: Callable[..., Any]) -> Any:
        def call(job: Job, source: Source, *, by_reference: bool) -> Any:
            self.tasks.append((source.name, by_reference))
            return lambda: function(job, source, by_reference=by_reference)

        call.remote = call  # type: ignore[attr-defined]
        call.options = lambda **_: call  # type: ignore[attr-defined]
        return call

    def wait(self, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return tasks[:1], tasks[1:]

    def get(self, task: Any) -> Any:
        return task()


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Job(str(tmp_path), str(tmp_path), OPTIONS, 0)


@pytest.fixture
def files(tmp_path):
    """Four tables of one to four rows."""
    for number in range(4):
        rows = "hello there\n" * (number + 1)
        (tmp_path / f"{number}.csv").write_text(f"prompt\n{rows}")
    return sources_at(tmp_path)


def test_where_an_engine_differs_everything_is_counted_by_the_reference(
    job, files, monkeypatch
):
    profile = analyze(files[0].path, options=OPTIONS)

    def counted(_: Job, source: Source, *, by_reference: bool) -> Counted:
        is_wrong = source.name == "1" or by_reference
        notes = (note("counted_again"),) if is_wrong else ()
        tokenizer = replace(profile.tokenizer, notes=notes)
        return Counted(source, profile.datasets[0], tokenizer)

    monkeypatch.setattr(on_ray, "count_task", counted)
    ray = Inline()
    results = Cluster(ray, job, Progress()).count(files)

    assert [result.source for result in results] == files
    assert ray.tasks == [
        (name, by_reference) for by_reference in (False, True) for name in "0123"
    ]


def test_a_file_that_kills_its_workers_is_a_failure_and_the_others_count(
    job, files, monkeypatch
):
    def counted(job: Job, source: Source, *, by_reference: bool) -> Any:
        if source.name == "2":
            raise Inline.exceptions.WorkerCrashedError("worker died")
        return count_task(job, source, by_reference=by_reference)

    monkeypatch.setattr(on_ray, "count_task", counted)
    results = Cluster(Inline(), job, Progress()).count(files)

    assert [result.dataset.rows for result in results] == [1, 2, 0, 4]
    assert results[2].dataset.failure.code == "worker_died"


def test_a_file_of_another_size_on_its_node_is_a_failure(job, files, tmp_path):
    (tmp_path / "0.csv").write_text("prompt\nanother\n")

    result = count_task(job, files[0], by_reference=False)

    assert result.dataset.failure.code == "another_size"


def test_the_end_of_the_cluster_is_an_engine_failure(job, files, monkeypatch):
    def lost(*_: Any, **__: Any) -> Any:
        raise Inline.exceptions.RayError("The task's local raylet died")

    monkeypatch.setattr(on_ray, "count_task", lost)
    with pytest.raises(EngineError, match="raylet died"):
        Cluster(Inline(), job, Progress()).count(files)


def test_a_log_that_was_split_is_counted_whole(job, files, monkeypatch):
    (dataset,) = analyze(files[0].path, options=OPTIONS).datasets
    log = object()

    def counted(_: Job, source: Source, **__: bool) -> Counted:
        return Counted(source, replace(dataset, log=log))

    monkeypatch.setattr(on_ray, "count_task", counted)
    parts = [replace(files[0], row_group=group) for group in range(2)]
    cluster = Cluster(Inline(), job, Progress())
    whole = cluster.count_logs_whole(files, cluster.count(parts))

    assert [task.source for task in whole] == [files[0]]


def test_without_ray_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("prompt\nhello there\n")
    (tmp_path / "ray.py").write_text("raise ImportError('not here')")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"

    run = analyze_apart(
        tmp_path, tmp_path / "few.csv", "--ray", "-q", env={"PYTHONPATH": path}
    )

    assert run.code == 4


# -- on a real cluster ---------------------------------------------------------------

# What Ray leaves open or warns of is not ours.
real = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large_input(tmp_path_factory.mktemp("ray") / "evals").parent


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster in processes of its own, with two workers."""
    pytest.importorskip("ray")
    port = 26379
    ray = str(Path(sys.executable).with_name("ray"))
    start = [ray, "start", "--head", "--block", f"--port={port}", "--num-cpus=2"]
    start += ["--include-dashboard=false", f"--object-store-memory={80 << 20}"]
    folder = tmp_path_factory.mktemp("cluster")
    with (folder / "log").open("wb") as log:
        head = subprocess.Popen(start, cwd=folder, stdout=log, stderr=log)
    until = time.monotonic() + PATIENCE_S
    while b"Ray runtime started" not in (folder / "log").read_bytes():
        assert head.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < until, "the cluster did not start"
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    head.send_signal(signal.SIGINT)
    head.wait(PATIENCE_S)


class TestRealCluster:
    pytestmark = real

    def test_a_cluster_counts_what_one_process_counts(
        self, place: Path, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Workers have another folder: a relative name has to mean the driver's."""
        monkeypatch.chdir(place)
        alone = analyze("evals", options=OPTIONS)

        there = analyze_on_ray("evals", address, options=OPTIONS, split_bytes=1 << 14)

        for far, near in zip(there.datasets, alone.datasets, strict=True):
            assert counts(far) == replace(counts(near), digest=far.digest)
        assert [dataset.name for dataset in there.failures] == ["cut"]

    def test_standard_input_is_counted_in_the_driver(
        self, place: Path, tmp_path: Path, address: str
    ) -> None:
        few = place / "evals" / "few.csv"
        data = b'{"prompt": "hello there"}\n'
        env = {"RAY_ADDRESS": address}

        run = analyze_apart(tmp_path, "-", few, "--ray", input=data, env=env)

        assert run.code == 0, run.err
        stdin, table = run.profile["datasets"]
        assert sum(stdin["lengths"]["counts"].values()) == 1
        assert table["name"] == "few"

    def test_a_task_whose_worker_was_killed_runs_again(
        self, place: Path, tmp_path: Path, address: str
    ) -> None:
        lines = (place / "evals" / "lines.jsonl").read_bytes()
        (tmp_path / "big.jsonl").write_bytes(b"\n".join([lines] * 60))
        words = command("big.jsonl", "--ray", "--json", "--skip-bad-rows")
        env = environment(RAY_ADDRESS=address)
        with subprocess.Popen(words, cwd=tmp_path, stdout=-1, env=env) as run:
            os.kill(busy_worker(), signal.SIGKILL)
            out, _ = run.communicate(timeout=PATIENCE_S)

        assert run.returncode == 0
        (tmp_path / "out.json").write_bytes(out)
        again = Profile.load(tmp_path / "out.json")
        alone = analyze(tmp_path / "big.jsonl", options=OPTIONS)
        assert again.overall == alone.overall


def busy_worker() -> int:
    """The process of a task that runs."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                title = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::count_task"):
                return int(folder.name)
        time.sleep(0.05)
    raise AssertionError("no task runs")
