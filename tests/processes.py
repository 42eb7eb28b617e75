"""Processes that tests start: with the usual signals, ended whatever happens, waited
for by events.

A limit is there to end a test that hangs. None says how fast this machine is.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE_S = 300.0
PROC = Path("/proc")


@contextmanager
def started(words: Sequence[str], **how: Any) -> "Iterator[subprocess.Popen[Any]]":
    """A process in a group of its own, of which nothing is left afterwards."""
    process = subprocess.Popen(
        words, start_new_session=True, preexec_fn=_hear_ctrl_c, **{"text": False, **how}
    )
    try:
        with process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    finally:
        wait_until(lambda: not members(process.pid))


def _hear_ctrl_c() -> None:
    """A job in the background of a script, or under nohup, ignores it and hands that
    down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def ended_by_ctrl_c(process: "subprocess.Popen[bytes]") -> None:
    """Press it: it must end with the right code and without a traceback."""
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, b""), err.decode()
    assert b"Traceback" not in err
    assert err.endswith(b"interrupted\n")


# -- what the kernel says of a process
# ----------------------------------------------------------


def members(group: int) -> list[int]:
    """Live processes of a group."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, _, member_of = (
                    (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                )
                if int(member_of) == group and state not in "ZX":
                    found.append(int(entry.name))
    return found


def named(*words: str) -> set[int]:
    """Processes with all of these in their command; vLLM writes over its own."""
    found = set()
    for entry in PROC.glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = entry.read_bytes()
            found |= (
                {int(entry.parent.name)}
                if all(w.encode() in command for w in words)
                else set()
            )
    return found


def wait_until_idle(process: "subprocess.Popen[Any]", checks: int = 25) -> None:
    """All its threads sleep, whenever one looks: it waits for something from outside.

    A thread that only waits for its turn on a busy machine is not asleep by the
    kernel's word.
    """
    asleep = 0

    def is_idle() -> bool:
        nonlocal asleep
        tasks = (PROC / str(process.pid) / "task").iterdir()
        states = {
            (task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks
        }
        asleep = asleep + 1 if states == {"S"} else 0
        return asleep >= checks

    wait_until(is_idle)
