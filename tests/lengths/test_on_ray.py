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

import pytest

from chunkscope import AnalyzeOptions, analyze
from chunkscope.artefacts.note import note
from chunkscope.console import Progress
from chunkscope.errors import EngineError
from chunkscope.lengths import on_ray
from chunkscope.lengths.analyze import discovered
from chunkscope.lengths.on_ray import (
    Counted,
    Job,
    analyze_on_ray,
    count_far,
    count_task,
)
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.sources.base import Source
from tests.commands.helpers import analyze_apart, command, environment
from tests.large_input import write_large_input
from tests.processes import PATIENCE_S

OPTIONS = AnalyzeOptions()


def counts(dataset: DatasetProfile) -> DatasetProfile:
    """What does not depend on which engine counted."""
    return replace(dataset, engine=None)


def sources_at(place: Path) -> list[Source]:
    with discovered(place, OPTIONS, Progress()) as sources:
        return list(sources)


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

    def is_initialized(self) -> bool:
        return True

    def put(self, value: Any) -> Any:
        return value

    def remote(self, function: Callable[..., Any]) -> Any:
        def call(job: Job, source: Source) -> Any:
            return lambda: function(job, source)

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
    files, monkeypatch
):
    profile = analyze(files[0].path, options=OPTIONS)
    tasks: list[tuple[str, bool]] = []

    def counted(job: Job, source: Source) -> Counted:
        tasks.append((source.name, job.by_reference))
        is_wrong = source.name == "1" or job.by_reference
        notes = (note("counted_again"),) if is_wrong else ()
        tokenizer = replace(profile.tokenizer, notes=notes)
        return Counted(profile.datasets[0], tokenizer)

    monkeypatch.setattr(on_ray, "count_task", counted)
    monkeypatch.setitem(sys.modules, "ray", Inline())
    analyze_on_ray([source.path for source in files], options=OPTIONS)

    assert tasks[:4] == [(name, False) for name in "0123"]
    assert tasks[4:] == [(name, True) for name in "0123"]


def test_a_file_that_kills_its_workers_is_a_failure_and_the_others_count(
    job, files, monkeypatch
):
    def counted(job: Job, source: Source) -> Any:
        if source.name == "2":
            raise Inline.exceptions.WorkerCrashedError("worker died")
        return count_task(job, source)

    monkeypatch.setattr(on_ray, "count_task", counted)
    results = count_far(Inline(), job, files, Progress())
    datasets = [results[source].dataset for source in files]

    assert [dataset.rows for dataset in datasets] == [1, 2, 0, 4]
    assert datasets[2].failure.code == "worker_died"


def test_a_bad_row_is_reported_once(job, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a b"}\n{"prompt": 3}\n')
    sources = sources_at(tmp_path)
    (result,) = count_far(Inline(), job, sources, Progress()).values()

    assert result.dataset.skipped == 1
    assert [row.position for row in result.dataset.bad_rows] == [2]


def test_the_end_of_the_cluster_is_an_engine_failure(job, files, monkeypatch):
    def lost(*_: Any, **__: Any) -> Any:
        raise Inline.exceptions.RayError("The task's local raylet died")

    monkeypatch.setattr(on_ray, "count_task", lost)
    with pytest.raises(EngineError, match="raylet died"):
        count_far(Inline(), job, files, Progress())


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
    head.terminate()
    head.wait(PATIENCE_S)


class TestRealCluster:
    pytestmark = real

    def test_a_cluster_counts_what_one_process_counts(
        self, place: Path, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Workers have another folder: a relative name has to mean the driver's."""
        monkeypatch.chdir(place)
        alone = analyze("evals", options=OPTIONS)

        there = analyze_on_ray("evals", address, options=OPTIONS)

        assert [*map(counts, there.datasets)] == [*map(counts, alone.datasets)]
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
