"""Where chunkscope keeps what it can make again: compiled tokenizers and counted files."""

import atexit
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_DAY_S = 24 * 3600
_UNUSED_S = 90 * _DAY_S
_usable: dict[str, Path] = {}  # by the place that was wanted


def cache_folder() -> Path:
    """`$CHUNKSCOPE_CACHE_DIR`, else `~/.cache/chunkscope`.

    Where that cannot be written, a folder for this run alone: everything works, only not faster
    the next time. So where others could have written it, too: what a cache holds is believed.
    """
    place = _place()
    if place not in _usable:
        _usable[place] = _opened(place)
    return _usable[place]


def do_without_cache() -> None:
    """A folder for this run alone, from now on: what was written so far stays where it is."""
    _usable[_place()] = _temporary()


def _place() -> str:
    """Empty where nobody is at home: a container without a user."""
    if place := os.environ.get("CHUNKSCOPE_CACHE_DIR"):
        return place
    with suppress(RuntimeError):
        return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chunkscope")
    return ""


def _opened(place: str) -> Path:
    if place:
        with suppress(OSError, ValueError):
            folder = Path(place)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and _is_ours(folder.stat()):
                return folder
    return _temporary()


def _is_ours(status: os.stat_result) -> bool:
    """Parents do not matter: who replaces the folder owns what is there instead."""
    if not hasattr(os, "geteuid"):  # Windows gives each user a folder of their own
        return True
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not others_write and status.st_uid in (os.geteuid(), 0)


def _temporary() -> Path:
    temporary = tempfile.mkdtemp(prefix="chunkscope-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


# -- a cache stays small: an entry's time of change is when it was used last -----------------------


def mark_used(entry: Path) -> None:
    with suppress(OSError):  # of somebody else, or gone
        os.utime(entry)


def prune(folder: Path, pattern: str, *, most_bytes: int) -> None:
    """Remove old entries, at most once a day. What was used today stays: it may be in use."""
    now, done = time.time(), folder / ".pruned"
    with suppress(OSError):  # a cache that cannot be tidied is only large
        if done.is_file() and now - done.stat().st_mtime < _DAY_S:
            return
        done.touch()
        entries = {e: e.stat().st_mtime for e in folder.glob(pattern) if e != done}
        total = 0
        for entry in sorted(entries, key=lambda entry: -entries[entry]):
            files = [f for f in entry.rglob("*") if f.is_file()] if entry.is_dir() else [entry]
            total += sum(file.stat().st_size for file in files)
            age = now - entries[entry]
            if age > _UNUSED_S or (age > _DAY_S and total > most_bytes):
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)
