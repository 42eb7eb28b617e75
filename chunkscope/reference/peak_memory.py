"""The most memory that a run takes: torch's allocator knows on a GPU, the system on a CPU."""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from chunkscope.hardware.gpus import GIB

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class PeakMemory:
    """From when it is made until asked. On a CPU it is the resident memory, and known on Linux."""

    def __init__(self, device: Any) -> None:
        self._device = device
        if device.type == "cuda":
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self._before: float | None = torch.cuda.memory_allocated(device) / GIB
        else:
            self._before = _reset_resident()

    def peak_gib(self) -> float | None:
        if self._before is None:
            return None
        if self._device.type == "cuda":
            import torch

            return float(torch.cuda.max_memory_allocated(self._device) / GIB)
        return _resident_gib("VmHWM")

    def beyond_gib(self) -> float | None:
        """The peak, without what was there before: the weights."""
        peak = self.peak_gib()
        return None if peak is None or self._before is None else max(0.0, peak - self._before)


def _reset_resident() -> float | None:
    """What is resident now, after what earlier runs have freed was given back to the system."""
    if sys.platform != "linux":
        return None
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return None
    return _resident_gib("VmRSS")


def _resident_gib(name: str) -> float | None:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / GIB
    return None
