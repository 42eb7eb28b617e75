"""One engine in a process group of its own: started, listened to, watched, and always ended."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError
from chunkscope.vllm.check import PROGRAM
from chunkscope.vllm.log.failures import doing_in

INSIDE = Path(__file__).parent / "inside"
TICK_S = 0.25
GOODBYE_S = 15.0
LOOK_EVERY_S = 2.0
BUSY_SHARE = 0.05  # of one core: a process that only waits takes less
LONGEST_BUSY_S = 3_600.0  # computing without a word: by then it turns in circles
TAIL_BYTES = 1 << 16


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

    def cpu_seconds(self) -> float:
        """What all processes of the group but the guard, which leads it, have computed so far."""
        return group_cpu_seconds(self._guard.pid) if self._guard else 0.0

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
    folders = (str(INSIDE), str(PROGRAM.parent), os.environ.get("PYTHONPATH", ""))
    path = os.pathsep.join(filter(None, folders))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "CHUNKSCOPE_EVENTS_FD": str(events),
        "VLLM_NO_USAGE_STATS": "1",  # nothing is sent anywhere
        "PYTHONUNBUFFERED": "1",
    }


def group_cpu_seconds(group: int) -> float:
    """CPU time of a process group, ended children included; 0 where /proc does not tell."""
    total = 0.0
    with suppress(OSError):
        tick = os.sysconf("SC_CLK_TCK")
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == group:
                continue
            with suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[2]) == group:
                    total += sum(map(int, fields[11:15])) / tick
    return total


class Liveness:
    """Is an engine that tells nothing still at work? By its log and its CPU time.

    A start may take a minute or an hour (weights are read, graphs compiled, kernels built), so
    what is waited for is a start that moves. `phase`: what its log says it does.
    """

    def __init__(
        self,
        log: Path,
        cpu_seconds: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._cpu_seconds, self._clock = log, cpu_seconds, clock
        self._looked = self._moved = self._told = clock()
        self._log_size, self._cpu_s = -1, 0.0
        self.phase: str | None = None

    def hear(self) -> None:
        """The engine has told something itself."""
        self._moved = self._told = self._clock()

    @property
    def silent_s(self) -> float:
        return self._clock() - self._moved

    def look(self, *, every_s: float = LOOK_EVERY_S) -> None:
        now = self._clock()
        if now - self._looked < every_s:
            return
        log_size = self._log.stat().st_size if self._log.exists() else 0
        cpu_s = self._cpu_seconds()
        is_busy = abs(cpu_s - self._cpu_s) > BUSY_SHARE * (now - self._looked)
        if log_size != self._log_size:
            self._told = now
            self.phase = doing_in(self._tail(log_size))
        if self._told == now or (is_busy and now - self._told < LONGEST_BUSY_S):
            self._moved = now
        self._looked, self._log_size, self._cpu_s = now, log_size, cpu_s

    def _tail(self, size: int) -> str:
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            return file.read().decode(errors="replace")
        return ""
