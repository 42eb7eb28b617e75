"""`analyze --ray` on a real cluster of several nodes: the same profile, whatever dies."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chunkscope import AnalyzeOptions
from chunkscope.console import Progress
from chunkscope.lengths import on_ray
from chunkscope.lengths.analyze import analyze as in_one_process
from chunkscope.lengths.on_ray import analyze_on_ray, count_pieces
from chunkscope.lengths.scan import Listener
from tests.commands.helpers import analyze
from tests.large_input import PIECE, comparable, write_large_input
from tests.processes import PATIENCE_S
from tests.remote_servers import s3_server, upload

# What Ray leaves open or warns of is not ours.
pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]
SMALL = {"object_store_memory": 80 << 20, "num_cpus": 1}
OPTIONS = AnalyzeOptions(piece_bytes=1 << 20, use_cache=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ray")
    write_large_input(place / "evals")
    return place


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Any]:
    """A head that only manages, and two nodes of one worker each; their S3 has s3://evals."""
    from ray.cluster_utils import Cluster

    with s3_server():
        upload(place / "evals", "evals")
        head = {**SMALL, "num_cpus": 0, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(**SMALL)
        cluster.wait_for_nodes()
        yield cluster
        cluster.shutdown()
        gc.collect()  # what Ray left open is closed here, not in somebody else's test


@pytest.fixture
def driver(cluster: Any) -> Iterator[Any]:
    """This process as a driver of the cluster."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()


def test_a_cluster_finds_what_one_process_finds(place: Path, cluster: Any) -> None:
    alone = analyze(place, "evals", *PIECE, "--no-cache")
    on_cluster = analyze(place, "evals", *PIECE, "--no-cache", "--ray", cluster.address)
    assert on_cluster.code == alone.code == 3  # bad rows, and a file that cannot be read
    assert comparable(on_cluster.profile) == comparable(alone.profile)
    assert on_cluster.profile["options"]["command"] == alone.profile["options"]["command"]
    failed = [dataset for dataset in on_cluster.profile["datasets"] if dataset["failure"]]
    assert [dataset["name"] for dataset in failed] == ["cut"]


def test_a_bucket_is_counted_on_a_cluster(place: Path, cluster: Any) -> None:
    words = ("s3://evals/table.parquet", "s3://evals/chats.jsonl", *PIECE)
    alone = analyze(place, *words)
    on_cluster = analyze(place, *words, "--ray", cluster.address)
    assert comparable(on_cluster.profile) == comparable(alone.profile)


class _Killing(Progress):
    """Kills something when the first piece is counted: others are on their way then."""

    def __init__(self, kill: Any) -> None:
        self.kill = kill
        self.seen: list[int] = []

    def at(self, *, rows: int, tokens: int, bytes_read: int) -> None:  # noqa: ARG002
        if not self.seen:
            self.kill()
        self.seen.append(bytes_read)


def test_a_node_that_dies_costs_its_pieces_only(place: Path, cluster: Any, driver: Any) -> None:
    doomed = cluster.add_node(**SMALL)
    cluster.wait_for_nodes()
    assert driver.cluster_resources()["CPU"] == 3
    progress = _Killing(lambda: cluster.remove_node(doomed, allow_graceful=False))
    profile = analyze_on_ray(place / "evals", options=OPTIONS, listener=Listener(progress=progress))
    alone = in_one_process(place / "evals", options=OPTIONS)
    assert comparable(profile.to_json()) == comparable(alone.to_json())
    assert len(progress.seen) > 3
    assert progress.seen == sorted(progress.seen)


def deadly(name: str, job: list[Any], places: Sequence[int], *, by_reference: bool) -> Any:
    """No worker survives the third piece."""
    if 2 in places:
        os.kill(os.getpid(), signal.SIGKILL)
    return count_pieces(name, job, places, by_reference=by_reference)


def test_a_piece_that_kills_its_workers_is_a_failure_and_the_others_count(
    place: Path, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver
    monkeypatch.setattr(on_ray, "count_pieces", deadly)
    monkeypatch.setattr(on_ray, "RETRIES", 1)
    files = [place / f"{number}.csv" for number in range(4)]
    for number, file in enumerate(files):
        file.write_text("prompt\n" + "how far is it\n" * (number + 1))
    profile = analyze_on_ray(files, options=AnalyzeOptions())
    assert [dataset.rows for dataset in profile.datasets] == [1, 2, 0, 4]
    (failed,) = profile.failures
    assert (failed.name, "died 2 times" in (failed.failure or "")) == ("2", True)


class _Inline:
    """As much of Ray as tasks need, in this process."""

    class exceptions:  # noqa: N801
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            pass

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], bool]] = []
        self.found: list[Any] = []

    def put(self, value: Any) -> Any:
        return value

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, function: Any) -> Any:
        def call(name: str, job: list[Any], places: list[int], *, by_reference: bool) -> Any:
            self.asked.append((places, by_reference))
            self.found.append(function(name, job, places, by_reference=by_reference))
            return len(self.found) - 1

        call.remote = call  # type: ignore[attr-defined]
        call.options = lambda **_: call  # type: ignore[attr-defined]
        return call

    def wait(self, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return tasks[:1], tasks[1:]

    def get(self, task: int) -> Any:
        return self.found[task]

    def cancel(self, task: Any, *, force: bool) -> None:
        pass


def test_where_an_engine_differs_everything_is_counted_by_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chunkscope.sources.pieces import Shard

    from chunkscope.lengths.analyze import CountingRun, found
    from chunkscope.lengths.parts import Checks, ProfilePart

    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("prompt\nhello there\n")

    with found(tmp_path, AnalyzeOptions(), Listener()) as work:
        run = CountingRun(work.options, Listener())
        counted = run.count(work.pieces)

    def part(_: str, __: list[Any], places: list[int], *, by_reference: bool) -> ProfilePart:
        made = work.part(Shard(number=1, of=1), places, [counted[p] for p in places], run)
        checks = Checks(only_reference=by_reference or places == [1], sampled=places != [1])
        return replace(made, checks=checks)

    monkeypatch.setattr(on_ray, "count_pieces", part)
    ray = _Inline()
    profile = on_ray._Tasks(ray, on_ray._Job.of(work), Listener()).profile()
    assert ray.asked == [([0], False), ([1], False), ([2], False), ([0], True), ([2], True)]
    assert [dataset.rows for dataset in profile.datasets] == [1, 1, 1]
    assert "everything was counted again with the reference" in profile.tokenizer.notes[-1]


def test_tokenizers_travel_with_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkscope.lengths.analyze import found
    from chunkscope.tokenizers.resolve import embedded_default
    from chunkscope.tokenizers.tokenizer import Tokenizer

    file = tmp_path / "here" / "tekken.json"
    file.parent.mkdir()
    file.write_bytes(embedded_default().read_bytes())
    (tmp_path / "chat.jinja").write_text("{{ messages }}")
    (tmp_path / "x.csv").write_text("prompt\nhello\n")
    for named in (file, file.parent):
        options = AnalyzeOptions(tokenizer=str(named), chat_template=tmp_path / "chat.jinja")
        with found(tmp_path / "x.csv", options, Listener()) as work:
            job = on_ray._Job.of(work)
        monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "there"))
        there = job.unpacked()
        monkeypatch.undo()
        assert str(tmp_path / "there") in str(there.tokenizer)
        assert Tokenizer(there.tokenizer).digest == Tokenizer(str(named)).digest
        assert there.chat_template
        assert there.chat_template.read_text() == "{{ messages }}"


PREPARING = """
from chunkscope import AnalyzeOptions
from chunkscope.lengths.analyze import CountingRun
from chunkscope.lengths.on_ray import _one_at_a_time
from chunkscope.lengths.scan import Listener
run = CountingRun(AnalyzeOptions(), Listener(preparing=print))
with _one_at_a_time():
    run.prepare(1 << 30)
"""


def test_a_node_prepares_the_tokenizer_once_for_all_its_workers(tmp_path: Path) -> None:
    env = {**os.environ, "CHUNKSCOPE_CACHE_DIR": str(tmp_path)}
    workers = [
        subprocess.Popen([sys.executable, "-c", PREPARING], env=env, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [worker.communicate(timeout=PATIENCE_S)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert sorted(map(bool, said)) == [False, True]


def test_a_worker_keeps_its_tokenizer_from_task_to_task() -> None:
    assert on_ray._worker("a") is on_ray._worker("a")
    assert on_ray._worker("a") is not on_ray._worker("b")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--ray", "127.0.0.1:1"), 4, "there is no Ray cluster at 127.0.0.1:1"),
        (("--ray", "--order", "x.csv"), 2, "--ray excludes --order"),
        (("--ray", "--export-trace", "x.jsonl"), 2, "--ray excludes --export-trace"),
        (("--ray", "--shard", "1/2"), 2, "--shard excludes --ray"),
    ],
)
def test_what_ray_cannot_do_is_said(
    place: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    run = analyze(place, "evals/few.csv", *words)
    assert (run.code, said in run.err) == (code, True), run.err


def test_without_ray_it_is_said_how_to_get_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    run = analyze(place, "evals/few.csv", "--ray")
    assert run.code == 4
    assert "pip install 'chunkscope[ray]'" in run.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["--ray"], ["--ray="]),
        (["--ray", "auto"], ["--ray=auto"]),
        (["--ray", "head:6379", "data"], ["--ray=head:6379", "data"]),
        (["--ray", "ray://head:10001"], ["--ray=ray://head:10001"]),
        (["--ray", "s3://bucket/"], ["--ray=", "s3://bucket/"]),
        (["--ray", "data/", "-q"], ["--ray=", "data/", "-q"]),
        (["data", "--ray=auto"], ["data", "--ray=auto"]),
    ],
)
def test_an_address_after_ray_may_be_left_out(typed: list[str], meant: list[str]) -> None:
    from chunkscope.commands.analyze import spelled_out

    assert spelled_out(typed) == meant
