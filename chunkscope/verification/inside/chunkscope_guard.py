"""Stand between chunkscope and the engine, so that nothing of the engine outlives chunkscope.

    python chunkscope_guard.py LOG COMMAND...

Leads a process group of its own and starts COMMAND in it, with its task as stdin. When COMMAND
ends, or the guard's stdin does (when chunkscope is gone, however it went), everything in the group
is killed; Python's resource trackers last, as they remove the shared memory of those that were
killed. Imports nothing heavy: no native code of the engine can keep it from watching.
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
    events, task = (
        int(os.environ[f"CHUNKSCOPE_{name}_FD"]) for name in ("EVENTS", "TASK")
    )
    with open(log, "ab", buffering=0) as out:
        engine = subprocess.Popen(
            command, stdin=task, stdout=out, stderr=out, pass_fds=[events]
        )
    os.close(events)
    code = watch(engine)
    leave_nothing(engine)
    sys.exit(code if code >= 0 else 128 - code)


def watch(engine: "subprocess.Popen[bytes]") -> int:
    """Wait for the engine's end or for chunkscope's."""
    while engine.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], 0.1)
        if readable and not os.read(sys.stdin.fileno(), 1):
            return 1
    return int(engine.returncode)


def leave_nothing(engine: "subprocess.Popen[bytes]") -> None:
    """Ask the group to end, then make it. The guard is in it too, and stays to the last."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    if not os.path.isdir("/proc/self"):  # no way to see who is left
        time.sleep(GRACE_S)
        os.killpg(0, signal.SIGKILL)
    for spared in (TRACKER, None):
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and others_in_group():
            engine.poll()
            time.sleep(0.05)
        for process in others_in_group(spared):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    engine.wait()
    while others_in_group():
        time.sleep(0.02)


def others_in_group(spared: "bytes | None" = None) -> list[int]:
    """Live members of this process group besides this process, and those called like that."""
    group, processes = os.getpgid(0), []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, _, member_of = file.read().rpartition(")")[2].split()[:3]
            with open(f"/proc/{name}/cmdline", "rb") as file:
                is_spared = spared is not None and spared in file.read()
            if int(member_of) == group and state not in "ZX" and not is_spared:
                processes.append(int(name))
    return processes


if __name__ == "__main__":
    main()
