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
from typing import IO, Any

from chunkscope.errors import InputError
from chunkscope.vllm.check import PROGRAM

INSIDE = Path(__file__).parent / "inside"
TICK_S = 0.25
GOODBYE_S = 15.0


class EngineProcess:
    """An engine that runs. Its guard leads the process group."""

    def __init__(self, guard: "subprocess.Popen[bytes]", events: int) -> None:
        self._guard = guard
        self._events = events

    def events(self) -> Iterator[dict[str, Any] | None]:
        """What the engine tells until it ends; None after each silent moment."""
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
            for line in lines:
                yield json.loads(line)

    def exit_code(self) -> int:
        """Wait for the end: the code, or the negative number of a signal.

        The guard gives a signal as 128 and its number.
        """
        try:
            code = self._guard.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            return 1
        signals = {number.value for number in signal.Signals}
        return 128 - code if code - 128 in signals else code

    def end(self) -> None:
        """End the engine: the guard kills its group when its stdin closes."""
        with suppress(OSError):
            if self._guard.stdin:
                self._guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(GOODBYE_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        os.close(self._events)


@contextmanager
def engine_process(
    python: str, task: dict[str, Any], log: Path
) -> Iterator[EngineProcess]:
    """When this context is left, nothing of the engine is left either."""
    # A file without a name goes with chunkscope, however that ends.
    with tempfile.TemporaryFile() as file:
        _write(task, file, log)
        process = _started(python, file, log)
        try:
            yield process
        finally:
            process.end()


def _write(task: dict[str, Any], file: IO[bytes], log: Path) -> None:
    try:
        file.write(json.dumps(task).encode())
        file.seek(0)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
    except OSError as error:
        place = error.filename or tempfile.gettempdir()
        raise InputError(
            f"cannot write {place}: {error.strerror}",
            hint="choose another place with -o",
        ) from error


def _started(python: str, task: IO[bytes], log: Path) -> EngineProcess:
    """The engine's guard, which starts the engine."""
    guard = [sys.executable, "-I", str(INSIDE / "chunkscope_guard.py")]
    program = [python, str(INSIDE / "chunkscope_engine.py")]
    events, write = os.pipe()
    folders = [str(INSIDE), str(PROGRAM.parent)]
    if os.environ.get("PYTHONPATH"):
        folders.append(os.environ["PYTHONPATH"])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "CHUNKSCOPE_EVENTS_FD": str(write),
        "CHUNKSCOPE_TASK_FD": str(task.fileno()),
        "VLLM_NO_USAGE_STATS": "1",  # nothing is sent anywhere
        "PYTHONUNBUFFERED": "1",
    }
    running = subprocess.Popen(  # noqa: S603
        [*guard, str(log.absolute()), *program],
        stdin=subprocess.PIPE,
        env=environment,
        pass_fds=[write, task.fileno()],
        start_new_session=True,
    )
    os.close(write)
    return EngineProcess(running, events)
