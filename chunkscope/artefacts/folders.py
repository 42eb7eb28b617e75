"""Where chunkscope keeps what it can make again: compiled tokenizers and counted files."""

import atexit
import os
import shutil
import stat
import sys
import tempfile
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from chunkscope.errors import InputError

_SHARED = "CHUNKSCOPE_SHARED_CACHE"
_DAY_S = 24 * 3600
_UNUSED_S = 90 * _DAY_S
_DONE = ".pruned"


def cache_folder() -> Path:
    """The shared one, else `$CHUNKSCOPE_CACHE_DIR`, else the platform's own place for caches.

    Where that cannot be written, a folder for this run alone: everything works, only not faster
    the next time. One that others could have written is refused: what it holds is believed.
    """
    if shared := os.environ.get(_SHARED):
        return _usable(shared, shared=True)
    return _usable(os.environ.get("CHUNKSCOPE_CACHE_DIR") or _platforms_own())


def do_without_cache() -> Path:
    """A folder for this run alone, from now on: what was written so far stays where it is."""
    temporary = _temporary()
    for place in (*map(os.environ.get, (_SHARED, "CHUNKSCOPE_CACHE_DIR")), _platforms_own()):
        if place:
            _instead[place] = temporary
    return temporary


def _platforms_own() -> str | None:
    with suppress(RuntimeError):  # nobody's home: a container without a user
        home = Path.home()
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA") or home / "AppData/Local"
            return str(Path(local) / "chunkscope")
        if sys.platform == "darwin":
            return str(home / "Library/Caches/chunkscope")
        return str(Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "chunkscope")
    return None


_instead: dict[str, Path] = {}


def _usable(place: str | None, *, shared: bool = False) -> Path:
    return _instead.get(place or "") or _first_usable(place, shared)


@lru_cache(maxsize=8)
def _first_usable(place: str | None, shared: bool) -> Path:
    if place is not None:
        with suppress(OSError, ValueError):
            folder = Path(place)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # results are believed
            if os.access(folder, os.W_OK):
                if not shared:
                    _refuse_what_others_write(folder)
                return folder
    return _temporary()


def _refuse_what_others_write(folder: Path) -> None:
    """Parents do not matter: who replaces the folder owns what is there instead."""
    if not hasattr(os, "geteuid"):  # Windows gives each user a folder of their own
        return
    _refuse(folder, folder.stat())
    if folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):  # else nobody gets further
        for entry in folder.iterdir():
            if not entry.is_symlink():  # of which the folder's owner alone can make one
                _refuse(entry, entry.stat())


def _refuse(place: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        what = "belongs to another user"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        what = "can be written by others"
    else:
        return
    raise InputError(
        f"{place} {what}, and what is in the cache is believed",
        hint="name another folder with CHUNKSCOPE_CACHE_DIR, or make this one yours alone "
        f"(chown, chmod -R go-w); if you trust all who can write it, name it with {_SHARED}",
    )


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
