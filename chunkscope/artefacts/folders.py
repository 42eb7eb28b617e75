"""Where chunkscope keeps what it can make again: compiled tokenizers and counted files."""

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path


def cache_folder() -> Path:
    """`$CHUNKSCOPE_CACHE_DIR`, else the platform's own place for caches.

    Where that cannot be written, a folder for this run alone: everything works, only not faster
    the next time.
    """
    return _usable(os.environ.get("CHUNKSCOPE_CACHE_DIR") or _platforms_own())


def do_without_cache() -> Path:
    """A folder for this run alone, from now on: what was written so far stays where it is."""
    temporary = _temporary()
    for place in (os.environ.get("CHUNKSCOPE_CACHE_DIR"), _platforms_own()):
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


def _usable(place: str | None) -> Path:
    return _instead.get(place or "") or _first_usable(place)


@lru_cache(maxsize=8)
def _first_usable(place: str | None) -> Path:
    if place is not None:
        with suppress(OSError, ValueError):
            folder = Path(place)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # results are believed
            if os.access(folder, os.W_OK):
                return folder
    return _temporary()


def _temporary() -> Path:
    temporary = tempfile.mkdtemp(prefix="chunkscope-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)
