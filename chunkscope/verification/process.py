"""One engine in a process group of its own: started, listened to, and always ended."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError

INSIDE = Path(__file__).parent / "inside"
TICK_S = 0.25
GOODBYE_S = 15.0


class EngineProcess:
    """Use it as a context: when it is left, nothing of the engine is left either."""

    def __init__(self, python: str, task: dict[str, Any], log: Path) -> None:
        self._python, self._task, self.log = python, task, log
        self._folder = tempfile.TemporaryDirectory(prefix="chunkscope-")
        self._guard: subprocess.Popen[bytes] | None = None
        self._events = -1

    def __enter__(self) -> "EngineProcess":
        task = Path(self._folder.name) / "task.json"
        try:
            task.write_text(json.dumps(self._task), encoding="utf-8")
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.log.write_bytes(b"")
        except OSError as error:
            self._folder.cleanup()
            raise InputError(
                f"cannot write {error.filename}: {error.strerror}",
                hint="choose another place with --output",
            ) from error
        self._events, write = os.pipe()
        engine = [self._python, str(INSIDE / "chunkscope_engine.py"), str(task)]
        guard = [
            sys.executable,
            "-I",
            str(INSIDE / "chunkscope_guard.py"),
            str(self.log.absolute()),
        ]
        self._guard = subprocess.Popen(  # noqa: S603
            [*guard, *engine],
            stdin=subprocess.PIPE,
            env=_environment(write),
            pass_fds=[write],
            start_new_session=True,
        )
        os.close(write)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._folder.cleanup()

    @property
    def group(self) -> int:
        """The process group that all of it is in; the guard leads it."""
        return self._guard.pid if self._guard else 0

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
        """Wait for the end; like Python's, negative for a signal.

        The guard spells a signal as a shell does, 128 above it; other codes up there are codes.
        """
        if self._guard is None:
            return 0
        try:
            code = self._guard.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            return 1
        return 128 - code if code - 128 in set(signal.Signals) else code

    def end(self) -> None:
        """Closing the guard's stdin makes it kill the group; whatever is left then is killed."""
        if self._guard is None:
            return
        with suppress(OSError):
            if self._guard.stdin:
                self._guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(GOODBYE_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        self._guard = None
        os.close(self._events)

    def log_text(self) -> str:
        try:
            return self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def _environment(events: int) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(INSIDE), os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "CHUNKSCOPE_EVENTS_FD": str(events),
        "VLLM_NO_USAGE_STATS": "1",  # nothing is sent anywhere
        "PYTHONUNBUFFERED": "1",
    }
