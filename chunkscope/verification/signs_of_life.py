"""Is an engine that tells nothing still at work? By its log, its processes and its caches.

A start may take a minute or an hour: weights are read, graphs compiled, kernels built on first use.
How long is nobody's to say, so what is waited for is a start that moves.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chunkscope.vllm.log.fate import COMPILERS, doing_in

LOOK_EVERY_S = 2.0
BUSY_SHARE = 0.05  # of one core: a process that only waits takes less
LONGEST_BUSY_S = 3_600.0  # computing without a word or a file: by then it turns in circles
TAIL_BYTES = 1 << 16
CACHES = {
    "VLLM_CACHE_ROOT": "~/.cache/vllm",
    "TRITON_CACHE_DIR": "~/.triton/cache",
    "TORCHINDUCTOR_CACHE_DIR": f"/tmp/torchinductor_{os.environ.get('USER', 'root')}",  # noqa: S108
    "FLASHINFER_WORKSPACE_BASE": "~/.cache/flashinfer",
    "DG_JIT_CACHE_DIR": "~/.deep_gemm",
    "CUDA_CACHE_PATH": "~/.nv/ComputeCache",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process of the engine; its CPU time is that of children that ended, too."""

    name: str
    cpu_s: float


def workers_of(group: int) -> Iterator[Worker]:
    """Of a process group, all but the one that leads it; none where nobody can say."""
    with suppress(OSError):
        tick = os.sysconf("SC_CLK_TCK")
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == group:
                continue
            with suppress(OSError, IndexError, ValueError):
                named, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
                fields = rest.split()
                if int(fields[2]) == group:
                    name = named.partition("(")[2]
                    yield Worker(name=name, cpu_s=sum(map(int, fields[11:15])) / tick)


def cache_folders() -> list[Path]:
    """Where kernels and graphs are kept once they are built."""
    return [Path(os.environ.get(name) or usual).expanduser() for name, usual in CACHES.items()]


def size_of(folders: Iterable[Path]) -> int:
    """All bytes below them; what vanishes meanwhile counts for nothing."""
    size = 0
    for folder in folders:
        for place, _, files in os.walk(folder):
            for name in files:
                with suppress(OSError):
                    size += Path(place, name).stat().st_size
    return size


class SignsOfLife:
    """`look` now and then: what it is doing, and for how long it has shown nothing."""

    def __init__(
        self,
        log: Path,
        workers: Callable[[], Iterable[Worker]],
        *,
        caches: Iterable[Path] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._workers, self._clock = log, workers, clock
        self._caches = cache_folders() if caches is None else list(caches)
        self._looked = self._moved = self._told = clock()
        self._size = self._cached = -1
        self._cpu_s = 0.0
        self.doing: str | None = None

    def hear(self) -> None:
        """It has told something itself."""
        self._moved = self._told = self._clock()

    @property
    def silent_s(self) -> float:
        return self._clock() - self._moved

    def look(self, *, every_s: float = LOOK_EVERY_S) -> None:
        now = self._clock()
        if now - self._looked < every_s:
            return
        workers = list(self._workers())
        is_busy = self._has_computed(workers, now - self._looked)
        has_told = self._has_written() or (not is_busy and self._has_cached())
        if has_told:
            self._told = now
        if has_told or (is_busy and now - self._told < LONGEST_BUSY_S):
            self._moved = now
        self._looked = now
        builds = any(worker.name in COMPILERS for worker in workers)
        self.doing = "building kernels" if builds else doing_in(self._tail())

    def _has_computed(self, workers: Iterable[Worker], seconds: float) -> bool:
        before, self._cpu_s = self._cpu_s, sum(worker.cpu_s for worker in workers)
        return abs(self._cpu_s - before) > BUSY_SHARE * seconds

    def _has_written(self) -> bool:
        before, self._size = self._size, self._log.stat().st_size if self._log.exists() else 0
        return self._size != before

    def _has_cached(self) -> bool:
        """Looked at only when nothing else moves: there may be many files."""
        before, self._cached = self._cached, size_of(self._caches)
        return before >= 0 and self._cached != before

    def _tail(self) -> str:
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, self._size - TAIL_BYTES))
            return file.read().decode(errors="replace")
        return ""
