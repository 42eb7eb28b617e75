"""Native code cannot be stopped, but it lets other threads run while it counts.

So whoever waits for it looks at the clock and at this process's memory, and gives up: the thread
goes on, and the command ends without waiting for it. (What holds the interpreter's lock while it
runs is `confined` instead.)
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from chunkscope.errors import StillRunning

SECONDS = 300.0
CHARS_A_SECOND = 5_000  # the slowest tokenizers, those in Python, are ten times as fast
MEMORY = 4 << 30
MEMORY_PER_CHAR = 64
_TICK_S = 0.1
_HINT = "is it as it was published? Take another one"

T = TypeVar("T")


class Watch:
    """What is waited for: a stranger's tokenizer, at work."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._before = _resident_bytes()
        self._awaited: dict[Future[Any], int] = {}  # memory is everybody's: all that is on its way
        self.gave_up = False

    def result(self, future: "Future[T]", chars: int) -> T:
        """What a job with so many characters makes. StillRunning when it takes too much."""
        self._awaited[future] = chars
        try:
            return self._result(future, SECONDS + chars / CHARS_A_SECOND)
        finally:
            del self._awaited[future]

    def _result(self, future: "Future[T]", seconds: float) -> T:
        began, computed = time.monotonic(), time.process_time()
        while True:
            try:
                return future.result(timeout=_TICK_S)
            except TimeoutError:
                if future.done():
                    return future.result()
            waited = time.monotonic() - began
            # On a busy machine it may wait for its turn most of the time.
            busy = time.process_time() - computed >= seconds / 3 or waited > 10 * seconds
            if waited > seconds and busy:
                self.gave_up = True
                raise StillRunning(f"{self._what} takes longer than {seconds:.0f} s", hint=_HINT)
            memory = MEMORY + MEMORY_PER_CHAR * sum(list(self._awaited.values()))
            if _resident_bytes() - self._before > memory:
                self.gave_up = True
                gib = memory / (1 << 30)
                raise StillRunning(f"{self._what} takes more than {gib:.1f} GiB", hint=_HINT)

    def call(self, job: Callable[[], T], chars: int = 0) -> T:
        """The same of a job that nobody has begun yet."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        # A daemon: when it was given up, Python must not wait for it.
        threading.Thread(target=run, daemon=True).start()
        return self.result(future, chars)


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0  # where the kernel does not tell
