"""One engine in a process group of its own: started, listened to, and always ended."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError
from chunkscope.vllm.check import PROGRAM

INSIDE = Path(__file__).parent / "inside"
TICK_S = 0.25
GOODBYE_S = 15.0


class EngineProcess:
    """An engine that runs. Its guard leads the process group."""

    def __init__(self, guard: "subprocess.Popen[bytes]", events: int) -> None:
        self._guard, self._events = guard, events

    def events(self) -> Iterator[dict[str, Any] | None]:
        """What the engine tells, and None whenever it tells nothing for a while, till it ends."""
        pending = b""
        while True:
            ready, _, _ = select.select([self._events], [], [], TICK_S)
            if not ready:
                yield None
                continue
            read = os.read(self._events, 1 << 20)
            if not read:
                return
            *lines, pending = (pending + read).split(b"\n")
            yield from (json.loads(line) for line in lines)

    def exit_code(self) -> int:
        """Wait for the end. Negative for a signal, which the guard gives as 128 and the signal."""
        try:
            code = self._guard.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            return 1
        return 128 - code if code - 128 in set(signal.Signals) else code


@contextmanager
def engine_process(
    python: str, task: dict[str, Any], log: Path
) -> Iterator[EngineProcess]:
    """When this context is left, nothing of the engine is left either."""
    with (
        tempfile.TemporaryFile() as file
    ):  # without a name: it goes with chunkscope, however
        try:
            file.write(json.dumps(task).encode())
            file.seek(0)
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"")
        except OSError as error:
            raise InputError(
                f"cannot write {error.filename or tempfile.gettempdir()}: {error.strerror}",
                hint="choose another place with --output",
            ) from error
        guard = [
            sys.executable,
            "-I",
            str(INSIDE / "chunkscope_guard.py"),
            str(log.absolute()),
        ]
        events, write = os.pipe()
        folders = (str(INSIDE), str(PROGRAM.parent), os.environ.get("PYTHONPATH", ""))
        environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, folders)),
            "CHUNKSCOPE_EVENTS_FD": str(write),
            "CHUNKSCOPE_TASK_FD": str(file.fileno()),
            "VLLM_NO_USAGE_STATS": "1",  # nothing is sent anywhere
            "PYTHONUNBUFFERED": "1",
        }
        running = subprocess.Popen(  # noqa: S603
            [*guard, python, str(INSIDE / "chunkscope_engine.py")],
            stdin=subprocess.PIPE,
            env={**os.environ, **environment},
            pass_fds=[write, file.fileno()],
            start_new_session=True,
        )
        os.close(write)
        try:
            yield EngineProcess(running, events)
        finally:
            # Closing its stdin makes the guard kill the group; whatever is left then is killed.
            with suppress(OSError):
                if running.stdin:
                    running.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                running.wait(GOODBYE_S)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            os.close(events)
