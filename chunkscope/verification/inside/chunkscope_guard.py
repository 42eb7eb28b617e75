"""Stand guard: nothing of the engine outlives chunkscope.

    python chunkscope_guard.py LOG COMMAND...

Leads a process group of its own and starts COMMAND in it, with its task as stdin. When
COMMAND ends, or the guard's stdin does (when chunkscope is gone, however it went),
everything in the group is killed; Python's resource trackers last, as they remove the
shared memory of those that were killed. Imports nothing heavy: no native code of the
engine can keep it from watching.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 3.0
TRACKER = b"multiprocessing.resource_tracker"  # in its command line


def main() -> None:
    log, *command = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # chunkscope decides what Ctrl-C means
    events = int(os.environ["CHUNKSCOPE_EVENTS_FD"])
    task = int(os.environ["CHUNKSCOPE_TASK_FD"])
    with open(log, "ab", buffering=0) as out:
        engine = subprocess.Popen(
            command, stdin=task, stdout=out, stderr=out, pass_fds=[events]
        )
    os.close(events)
    code = watch(engine)
    leave_nothing(engine)
    sys.exit(code if code >= 0 else 128 - code)


def watch(engine: "subprocess.Popen[bytes]") -> int:
    """Wait for the engine's end or for chunkscope's; the engine's code, or 1."""
    while engine.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], 0.1)
        if readable and not os.read(sys.stdin.fileno(), 1):
            return 1
    return int(engine.returncode)


def leave_nothing(engine: "subprocess.Popen[bytes]") -> None:
    """Ask the group to end, then make it.

    The guard is in it too, and stays to the last.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    if not os.path.isdir("/proc/self"):  # no way to see who is left
        time.sleep(GRACE_S)
        os.killpg(0, signal.SIGKILL)
    wait_for_the_others(engine)
    kill([process for process in others_in_group() if not is_tracker(process)])
    wait_for_the_others(engine)
    kill(others_in_group())
    engine.wait()
    while others_in_group():
        time.sleep(0.02)


def wait_for_the_others(engine: "subprocess.Popen[bytes]") -> None:
    """Give them a few seconds to end by themselves."""
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and others_in_group():
        engine.poll()
        time.sleep(0.05)


def kill(processes: "list[int]") -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def others_in_group() -> "list[int]":
    """Live members of this process group besides this process."""
    group = os.getpgid(0)
    processes = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # "7 (its name) S 1 42 ...": its state, its parent, its group.
                state, _, member_of = file.read().rpartition(")")[2].split()[:3]
            if int(member_of) == group and state not in "ZX":
                processes.append(int(name))
    return processes


def is_tracker(process: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
        return TRACKER in file.read()
    return False


if __name__ == "__main__":
    main()
