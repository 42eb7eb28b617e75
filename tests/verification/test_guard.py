"""The guard leaves nothing behind, whatever ends first. Real processes, no engine needed."""

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

GUARD = INSIDE / "chunkscope_guard.py"
# A child that ignores the polite signal and has a child of its own.
STUBBORN = (
    "import signal, subprocess, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "subprocess.Popen(['sleep', '600'])\n"
    "print('up', flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.fixture
def guarded(tmp_path):
    """Start a guard over some Python; give it and its log."""
    with ExitStack() as running:

        def start(program):
            read, write = os.pipe()
            log = tmp_path / "log"
            words = [sys.executable, "-I", str(GUARD), str(log), sys.executable, "-c", program]
            env = {**os.environ, "CHUNKSCOPE_EVENTS_FD": str(write)}
            guard = running.enter_context(
                started(words, stdin=subprocess.PIPE, env=env, pass_fds=[write])
            )
            os.close(write)
            os.close(read)
            return guard, log

        yield start


def is_up(log):
    return lambda: log.exists() and "up" in log.read_text()


def test_the_end_of_stdin_ends_everything_even_the_stubborn(guarded) -> None:
    guard, log = guarded(STUBBORN)
    wait_until(is_up(log))
    wait_until(lambda: len(members(guard.pid)) == 3)
    guard.stdin.close()
    guard.wait(PATIENCE_S)
    assert members(guard.pid) == []


def test_when_the_engine_ends_its_children_do_too(guarded) -> None:
    guard, _ = guarded("import subprocess; subprocess.Popen(['sleep', '600'])")
    assert guard.wait(PATIENCE_S) == 0
    assert members(guard.pid) == []


def test_shared_memory_of_the_killed_is_removed(guarded) -> None:
    hold = (
        "import signal, time\n"
        "from multiprocessing import resource_tracker, shared_memory\n"
        "made = shared_memory.SharedMemory(create=True, size=4096)\n"
        "resource_tracker.unregister(made._name, 'shared_memory')\n"  # as if killed
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', made.name, flush=True)\n"
        "time.sleep(600)\n"
    )
    guard, log = guarded(hold)
    wait_until(is_up(log))
    segment = Path("/dev/shm") / log.read_text().split()[1]
    assert segment.exists()
    guard.stdin.close()
    guard.wait(PATIENCE_S)
    assert not segment.exists()


@pytest.mark.parametrize(
    ("program", "code"),
    [
        pytest.param("raise SystemExit(7)", 7, id="its exit code"),
        pytest.param("import os; os.kill(os.getpid(), 9)", 128 + 9, id="its signal"),
    ],
)
def test_how_the_engine_ended_is_passed_on(guarded, program, code) -> None:
    assert guarded(program)[0].wait(PATIENCE_S) == code


def test_ctrl_c_is_not_for_the_engine(guarded) -> None:
    guard, log = guarded("print('up', flush=True); import time; time.sleep(600)")
    wait_until(is_up(log))
    os.kill(guard.pid, signal.SIGINT)
    time.sleep(0.3)
    assert guard.poll() is None
