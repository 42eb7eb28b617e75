"""Where chunkscope keeps what it can make again: compiled tokenizers and counted files."""

import atexit
import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from chunkscope.errors import InputError

_SHARED = "CHUNKSCOPE_SHARED_CACHE"


def cache_folder() -> Path:
    """The shared one, else `$CHUNKSCOPE_CACHE_DIR`, else the platform's own place for caches.

    Where that cannot be written, a folder for this run alone: everything works, only not faster
    the next time. One that others could have written is refused: what it holds is believed.
    """
    if shared := os.environ.get(_SHARED):
        return _usable(shared, shared=True)
    return _usable(os.environ.get("CHUNKSCOPE_CACHE_DIR") or _platforms_own())


def share_cache(folder: Path | None) -> None:
    """Use this folder and believe who else can write it, here and in processes started here."""
    if folder is not None:
        os.environ[_SHARED] = str(folder)


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
        "(chown, chmod -R go-w); if you trust all who can write it, pass --shared-cache FOLDER",
    )


def _temporary() -> Path:
    temporary = tempfile.mkdtemp(prefix="chunkscope-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)
