"""`analyze --ray`: the same profile as one process makes, whatever dies."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chunkscope import AnalyzeOptions, analyze
from chunkscope.artefacts.note import note
from chunkscope.console import Progress
from chunkscope.lengths import on_ray
from chunkscope.lengths.analyze import discovered
from chunkscope.lengths.on_ray import (
    CountedPart,
    Job,
    analyze_on_ray,
    joined,
    run_tasks,
)
from chunkscope.lengths.profile import DatasetProfile, Profile
from tests.commands.helpers import analyze_apart, command, environment
from tests.large_input import write_large_input
from tests.processes import PATIENCE_S

OPTIONS = AnalyzeOptions()
PART = 1 << 18


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large_input(tmp_path_factory.mktemp("ray") / "evals").parent


def counts(dataset: DatasetProfile) -> DatasetProfile:
    """What does not depend on how much was compared or read at once."""
    bad_rows = tuple(sorted(dataset.bad_rows, key=lambda row: row.position))
    return replace(dataset, prefixes=None, sharing=None, engine=None, bad_rows=bad_rows)


# -- without Ray -----------------------------------------------------------------------------------


def test_tasks_count_what_one_process_counts(place: Path, monkeypatch) -> None:
    monkeypatch.chdir(place)
    whole = analyze("evals", options=OPTIONS)
    with discovered("evals", OPTIONS, Progress()) as sources:
        job = Job(str(place), str(place), list(sources), OPTIONS)
        parts = run_tasks(Inline(), job, lambda _: None)
    datasets = [joined([part], OPTIONS) for part in parts]
    assert list(map(counts, datasets)) == list(map(counts, whole.datasets))


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
        self.tasks: list[tuple[int, bool]] = []

    def put(self, value: Any) -> Any:
        return value

    def remote(self, function: Any) -> Any:
        def call(job: Job, place: int, *, by_reference: bool) -> Any:
            self.tasks.append((place, by_reference))
            return lambda: function(job, place, by_reference=by_reference)

        call.remote = call  # type: ignore[attr-defined]
        call.options = lambda **_: call  # type: ignore[attr-defined]
        return call

    def wait(self, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return tasks[:1], tasks[1:]

    def get(self, task: Any) -> Any:
        return task()


def job_of(place: Path, files: int) -> Job:
    for number in range(files):
        (place / f"{number}.csv").write_text(
            "prompt\n" + "hello there\n" * (number + 1)
        )
    with discovered(place, OPTIONS, Progress()) as sources:
        return Job(str(place), str(place), list(sources), OPTIONS)


def test_where_an_engine_differs_everything_is_counted_by_the_reference(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    job = job_of(tmp_path, 3)
    profile = analyze(tmp_path / "0.csv", options=OPTIONS)

    def counted(_: Job, place: int, *, by_reference: bool) -> CountedPart:
        notes = (note("counted_again"),) if by_reference or place == 1 else ()
        tokenizer = replace(profile.tokenizer, notes=notes)
        return CountedPart(place, profile.datasets[0], 0, tokenizer)

    monkeypatch.setattr(on_ray, "count_part", counted)
    ray = Inline()
    parts = run_tasks(ray, job, lambda _: None)
    assert [part.place for part in parts] == [0, 1, 2]
    assert ray.tasks == [
        (place, by_reference) for by_reference in (False, True) for place in range(3)
    ]


def test_a_part_that_kills_its_workers_is_a_failure_and_the_others_count(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    job, count_part = job_of(tmp_path, 4), on_ray.count_part
    Path(job.parts[3].path).write_text("prompt\nanother\n")  # on that machine

    def counted(job: Job, place: int, *, by_reference: bool) -> Any:
        if place == 2:
            raise Inline.exceptions.WorkerCrashedError("worker died")
        return count_part(job, place, by_reference=by_reference)

    monkeypatch.setattr(on_ray, "count_part", counted)
    parts = run_tasks(Inline(), job, lambda _: None)
    assert {part.place: part.dataset.rows for part in parts} == {0: 1, 1: 2, 2: 0, 3: 0}
    assert [part.place for part in parts if part.dataset.failure] == [2, 3]

    def lost(*_: Any, **__: Any) -> Any:
        raise Inline.exceptions.RayError("The task's local raylet died")

    monkeypatch.setattr(on_ray, "count_part", lost)
    with pytest.raises(SystemExit, match="raylet died"):
        run_tasks(Inline(), job, lambda _: None)


def test_what_ray_cannot_do_is_refused(place: Path, tmp_path: Path) -> None:
    few = place / "evals" / "few.csv"
    (tmp_path / "ray.py").write_text("raise ImportError('not here')")
    lacking = {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    }
    assert analyze_apart(tmp_path, few, "--ray", "-q", env=lacking).code == 4
    assert analyze_apart(tmp_path, "-", "--ray", input=b'{"prompt": "x"}').code == 2


# -- on a real cluster -----------------------------------------------------------------------------

# What Ray leaves open or warns of is not ours.
real = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]
NODE = {"object_store_memory": 80 << 20, "num_cpus": 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that only manages, and two nodes of one worker each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


@pytest.fixture
def big(place: Path, tmp_path: Path) -> Path:
    """A file of many parts, in an empty folder."""
    path = tmp_path / "big.jsonl"
    path.write_bytes(b"\n".join([(place / "evals" / "lines.jsonl").read_bytes()] * 120))
    return path


class TestRealCluster:
    pytestmark = real

    def test_a_cluster_counts_what_one_process_counts_from_any_folder_though_a_node_dies(
        self, place: Path, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Workers have the folder of `ray start`: a relative name has to mean the driver's."""
        monkeypatch.chdir(place)
        cache = set(tmp_path.rglob("*"))
        monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path))
        doomed = cluster.add_node(**NODE)
        cluster.wait_for_nodes()

        class Killing(Progress):
            seen = 0

            def at(self, **_: int) -> None:
                self.seen += 1
                if self.seen == 1:
                    cluster.remove_node(doomed, allow_graceful=False)

        listener = Killing()
        there = analyze_on_ray(
            "evals",
            cluster.address,
            options=OPTIONS,
            listener=listener,
        )
        alone = analyze("evals", options=OPTIONS)
        assert list(map(counts, there.datasets)) == list(map(counts, alone.datasets))
        assert [dataset.name for dataset in there.failures] == ["cut"]
        assert not [
            path for path in {*tmp_path.rglob("*")} - cache if "ray" in path.name
        ]

    def test_a_dead_worker_says_nothing_on_stdout(self, big, tmp_path, cluster) -> None:
        words = command(big, "--ray", "--json", "--skip-bad-rows")
        # It once ended with a segmentation fault: the next time we see where.
        env = environment(RAY_ADDRESS=cluster.address, PYTHONFAULTHANDLER="1")
        with subprocess.Popen(words, cwd=tmp_path, stdout=-1, env=env) as run:
            worker = _busy_worker()
            os.kill(worker, signal.SIGKILL)
            out, _ = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0
        (tmp_path / "out.json").write_bytes(out)
        assert Profile.load(tmp_path / "out.json").overall.count > 100_000

    def test_the_end_of_the_cluster_is_an_engine_failure(
        self, big, tmp_path, cluster
    ) -> None:
        """The last test of this cluster."""
        words = command(big, "--ray")
        env = environment(RAY_ADDRESS=cluster.address)
        with subprocess.Popen(
            words, cwd=tmp_path, stdout=-1, stderr=-1, env=env
        ) as run:
            _busy_worker()
            cluster.shutdown()
            out, err = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 5, err.decode()
        assert out == b""
        assert not (tmp_path / "reports").exists()


def _busy_worker() -> int:
    """The process of a task that runs."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                title = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::count_part"):
                return int(folder.name)
        time.sleep(0.05)
    raise AssertionError("no task runs")
