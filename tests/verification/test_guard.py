"""The guard leaves nothing behind, whatever ends first.

Real processes, no engine needed.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from chunkscope.verification.process import INSIDE
from tests.processes import PATIENCE_S, members, started, wait_until

# It ignores the polite signal, has a child of its own and holds shared memory.
STUBBORN = """
import signal, subprocess, time
from multiprocessing import shared_memory
made = shared_memory.SharedMemory(create=True, size=4096)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"])
print("up", made.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def guarded(tmp_path):
    """Start a guard over some Python; give it and its log."""
    with ExitStack() as running:

        def start(program):
            read, write = os.pipe()
            nothing = os.open(os.devnull, os.O_RDONLY)
            environment = {
                **os.environ,
                "CHUNKSCOPE_EVENTS_FD": str(write),
                "CHUNKSCOPE_TASK_FD": str(nothing),
            }
            log = tmp_path / "log"
            guard = [sys.executable, "-I", str(INSIDE / "chunkscope_guard.py")]
            guarding = started(
                [*guard, str(log), sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                env=environment,
                pass_fds=[write, nothing],
            )
            process = running.enter_context(guarding)
            for fd in (read, write, nothing):
                os.close(fd)
            return process, log

        yield start


def test_ctrl_c_does_not_end_an_engine_and_the_end_of_stdin_ends_even_a_stubborn_one(
    guarded,
):
    guard, log = guarded(STUBBORN)
    wait_until(lambda: log.exists() and "up" in log.read_text())
    segment = Path("/dev/shm") / log.read_text().split()[1]
    os.kill(guard.pid, signal.SIGINT)
    time.sleep(0.2)
    assert guard.poll() is None
    assert segment.exists()
    guard.stdin.close()
    guard.wait(PATIENCE_S)
    assert members(guard.pid) == []
    assert not segment.exists()


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (
            "import subprocess, sys\nsubprocess.Popen(['sleep', '600'])\nsys.exit(7)",
            7,
        ),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
    ],
)
def test_how_the_engine_ended_is_passed_on_and_its_children_end_too(
    guarded, program, code
):
    guard, _ = guarded(program)
    assert guard.wait(PATIENCE_S) == code
    assert members(guard.pid) == []
