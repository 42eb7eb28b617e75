"""What counts as a sign of life, with a clock that only moves when it is told to."""

import subprocess
import sys
from pathlib import Path

import pytest

from chunkscope.verification.signs_of_life import (
    LONGEST_BUSY_S,
    SignsOfLife,
    Worker,
    workers_of,
)
from tests.processes import started, wait_until


class Engine:
    """One that does as it is told, and who watches it."""

    def __init__(self, folder: Path) -> None:
        self.now, self.workers = 0.0, [Worker(name="python", cpu_s=5.0)]
        self.log, self.cache = folder / "log", folder / "cache"
        self.log.write_bytes(b"")
        self.cache.mkdir()
        self.signs = SignsOfLife(
            self.log, lambda: self.workers, caches=[self.cache], clock=lambda: self.now
        )
        for _ in range(3):  # by then it is known how it looks when nothing happens
            self.wait(10)

    def wait(self, seconds: float) -> float:
        """How long it has been silent after that."""
        self.now += seconds
        self.signs.look()
        return self.signs.silent_s

    def write(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(text)

    def compute(self, seconds: float, name: str = "python") -> None:
        self.workers = [Worker(name=name, cpu_s=self.workers[0].cpu_s + seconds)]


@pytest.fixture
def engine(tmp_path) -> Engine:
    return Engine(tmp_path)


def test_one_that_does_nothing_is_silent_ever_longer(engine) -> None:
    before = engine.signs.silent_s
    assert engine.wait(100) == before + 100
    engine.compute(0.5)
    assert engine.wait(100) == before + 200, "a process that waits computes a little, too"


def test_a_line_in_the_log_is_a_sign(engine) -> None:
    engine.write("Loading safetensors checkpoint shards:  10% Completed")
    assert engine.wait(100) == 0
    assert engine.signs.doing == "loading weights"
    assert engine.wait(100) == 100


def test_computing_is_a_sign_though_nothing_is_said(engine) -> None:
    engine.compute(60)
    assert engine.wait(100) == 0


def test_computing_for_an_hour_without_a_word_or_a_file_is_none(engine) -> None:
    silent = 0.0
    while engine.now < LONGEST_BUSY_S + 200:
        engine.compute(100)
        silent = engine.wait(100)
    assert silent >= 100
    engine.write("a word")
    assert engine.wait(10) == 0


def test_a_cache_that_grows_is_a_sign(engine) -> None:
    (engine.cache / "kernel.cubin").write_bytes(b"x" * 100)
    assert engine.wait(100) == 0
    assert engine.wait(100) == 100


def test_a_compiler_among_its_processes_builds_kernels_whatever_the_log_says(engine) -> None:
    engine.write("Starting to load model")
    engine.compute(90, name="cicc")
    assert engine.wait(100) == 0
    assert engine.signs.doing == "building kernels"


def test_what_it_tells_itself_is_a_sign(engine) -> None:
    engine.wait(100)
    engine.signs.hear()
    assert engine.signs.silent_s == 0


def test_real_processes_are_counted_by_their_group() -> None:
    """One that computes; the leader, which only watches, is left out."""
    busy = "import time\nwhile True: sum(range(10_000))"
    lead = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {busy!r}])\n"
    with started([sys.executable, "-c", f"{lead}time.sleep(600)"], stdin=subprocess.PIPE) as guard:
        wait_until(lambda: sum(worker.cpu_s for worker in workers_of(guard.pid)) > 0.3)
        (worker,) = workers_of(guard.pid)
        assert worker.name.startswith("python")
