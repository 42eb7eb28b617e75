"""A cache stays small: what nobody used for months goes, and the oldest of too much.

An entry is a file or a folder, and its time of change is when it was used last.
"""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

_DAY_S = 24 * 3600
_UNUSED_S = 90 * _DAY_S
_DONE = ".pruned"


def mark_used(entry: Path) -> None:
    with suppress(OSError):  # of somebody else, or gone
        os.utime(entry)


def prune(folder: Path, pattern: str, *, most_bytes: int) -> None:
    """Remove old entries, at most once a day. What was used today stays: it may be in use."""
    now = time.time()
    done = folder / _DONE
    with suppress(OSError):  # a cache that cannot be tidied is only large
        if done.is_file() and now - done.stat().st_mtime < _DAY_S:
            return
        done.touch()
        entries = [(entry.stat().st_mtime, entry) for entry in folder.glob(pattern)]
        total = 0
        for used, entry in sorted(entries, reverse=True):
            if entry == done:
                continue
            total += _size(entry)
            age = now - used
            if age > _UNUSED_S or (age > _DAY_S and total > most_bytes):
                _remove(entry)


def _size(entry: Path) -> int:
    files = entry.rglob("*") if entry.is_dir() else [entry]
    return sum(file.stat().st_size for file in files)


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
