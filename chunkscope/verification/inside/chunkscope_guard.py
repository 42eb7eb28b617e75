"""Stand between chunkscope and the engine, so that nothing of the engine outlives chunkscope.

    python chunkscope_guard.py LOG COMMAND...

Leads a process group of its own and starts COMMAND in it. When COMMAND ends, or stdin does (it
does when chunkscope is gone, however it went), everything in the group is killed, and the shared
memory that killed processes could not give back is removed. Imports nothing heavy: no native code
of the engine can keep it from watching.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 3.0
LOOK_EVERY_S = 5.0
SHARED = "/dev/shm/psm_"  # how Python names shared memory


def main() -> None:
    log, *command = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # chunkscope decides what Ctrl-C means
    events = int(os.environ["CHUNKSCOPE_EVENTS_FD"])
    with open(log, "ab", buffering=0) as out:
        engine = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[events]
        )
    os.close(events)
    shared: set[str] = set()
    code = watch(engine, shared)
    leave_nothing(engine, shared)
    sys.exit(code if code >= 0 else 128 - code)


def watch(engine: "subprocess.Popen[bytes]", shared: "set[str]") -> int:
    """Wait for the engine's end or for chunkscope's; note the shared memory that is in use."""
    looked = time.monotonic()
    while engine.poll() is None:
        if time.monotonic() - looked > LOOK_EVERY_S:
            shared |= shared_memory()
            looked = time.monotonic()
        readable, _, _ = select.select([sys.stdin], [], [], 0.1)
        if readable and not os.read(sys.stdin.fileno(), 1):
            return 1
    return int(engine.returncode)


def leave_nothing(engine: "subprocess.Popen[bytes]", shared: "set[str]") -> None:
    """Ask the group to end, then make it. The guard is in it too, and stays to the last."""
    shared |= shared_memory()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    if not os.path.isdir("/proc/self"):  # no way to see who is left
        time.sleep(GRACE_S)
        os.killpg(0, signal.SIGKILL)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and others_in_group():
        engine.poll()
        time.sleep(0.05)
    for process in others_in_group():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    engine.wait()
    while others_in_group():
        time.sleep(0.02)
    for path in shared:
        with contextlib.suppress(OSError):
            os.unlink(path)


def shared_memory() -> "set[str]":
    """The segments that members of the group have mapped."""
    found = set()
    for process in others_in_group():
        with contextlib.suppress(OSError), open(f"/proc/{process}/maps", encoding="utf-8") as file:
            found |= {
                word for line in file for word in line.split()[5:6] if word.startswith(SHARED)
            }
    return found


def others_in_group() -> list[int]:
    """Live members of this process group besides this process."""
    group, found = os.getpgid(0), []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, _, member_of = file.read().rpartition(")")[2].split()[:3]
            if int(member_of) == group and state not in "ZX":
                found.append(int(name))
    return found


if __name__ == "__main__":
    main()
