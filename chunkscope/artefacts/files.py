"""Files: written whole or not at all, digested, and kept in the cache for the next run."""

import atexit
import hashlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from stat import S_IWGRP, S_IWOTH

from chunkscope.errors import InputError

_DAY_S = 24 * 3600
_UNUSED_S = 90 * _DAY_S
_MOST_BYTES = 2 << 30  # in the cache
_LARGE_BYTES = 1 << 20  # of a file: its digest is remembered
# A file changed within the clock's grain of being hashed could change again unnoticed (git calls
# this "racily clean"), so digests of such fresh files are not remembered.
_SETTLED_NS = 2_000_000_000


def write_atomically(path: Path, data: bytes | Iterable[bytes], *, sync: bool = True) -> None:
    """Replace `path` by `data` in one step, so that a full disk or a kill leaves the old file."""
    parts = [data] if isinstance(data, bytes) else data
    temporary = None
    try:
        path = Path(os.path.realpath(path))  # a link is followed, not replaced
        if path.exists() and not path.is_file() and not path.is_dir():  # -o /dev/stdout
            with path.open("wb") as special:
                special.writelines(parts)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name[:200]}.{secrets.token_hex(4)}")
        with temporary.open("xb") as file:
            file.writelines(parts)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        if temporary:
            with suppress(OSError):
                temporary.unlink()
        if not isinstance(error, OSError | ValueError):
            raise
        raise InputError(
            f"cannot write {path}: {getattr(error, 'strerror', None) or error}",
            hint="nothing was changed; choose another place with --output",
        ) from error


def read_text(path: Path, what: str = "file", *, hint: str) -> str:
    """A file that people write, called `what` in messages; `hint`: how to get one."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the {what} {path}: {reason}", hint=hint) from None


def sha256(path: Path) -> str:
    """The digest of a file, or of all files below a folder; of a large file it is remembered."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        lines = (f"{file.relative_to(path).as_posix()}\0{sha256(file)}\n" for file in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    stat = path.stat()
    if stat.st_size <= _LARGE_BYTES:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    stamp = (os.path.abspath(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)  # noqa: PTH100
    if earlier := read_cached("digests", repr(stamp)):
        return earlier.decode()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    newest = max(stat.st_mtime_ns, stat.st_ctime_ns)
    if time.time_ns() - newest > _SETTLED_NS and path.stat() == stat:
        with suppress(InputError):
            write_cached("digests", repr(stamp), digest.encode())
    return digest


# -- the cache: what can be made again -------------------------------------------------------------


def cache_folder() -> Path:
    """`$CHUNKSCOPE_CACHE_DIR`, else `~/.cache/chunkscope`.

    Where that cannot be written, a folder for this run alone: everything works, only not faster
    the next time. So where others could have written it, too: what a cache holds is believed.
    """
    place = os.environ.get("CHUNKSCOPE_CACHE_DIR")
    return _usable(place or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/chunkscope")


@cache
def _usable(place: str) -> Path:
    # A container without a user has no home, Windows no such modes.
    with suppress(OSError, ValueError, RuntimeError, AttributeError):
        folder = Path(place).expanduser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        others_write = status.st_mode & (S_IWGRP | S_IWOTH)
        if not others_write and status.st_uid in (os.geteuid(), 0) and os.access(folder, os.W_OK):
            return folder
    temporary = tempfile.mkdtemp(prefix="chunkscope-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


def _cached(kind: str, key: str) -> Path:
    digest = hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()
    return cache_folder() / f"{kind}/{digest[:2]}/{digest}"


def read_cached(kind: str, key: str) -> bytes | None:
    """What `write_cached` wrote; None where nothing is there, or it is damaged."""
    place = _cached(kind, key)
    with suppress(OSError):
        checksum, _, data = place.read_bytes().partition(b"\n")
        if checksum == hashlib.sha256(data).hexdigest().encode():
            os.utime(place)  # `prune` goes by it
            return data
    return None


def write_cached(kind: str, key: str, data: bytes) -> Path:
    """Keep data under its checksum: quickly, as a cache may lose it."""
    place = _cached(kind, key)
    write_atomically(place, (hashlib.sha256(data).hexdigest().encode(), b"\n", data), sync=False)
    return place


def prune_cache() -> None:
    """Remove what was not used for long, and the oldest if there is too much; once a day."""
    now, done = time.time(), cache_folder() / ".pruned"
    with suppress(OSError):  # a cache that cannot be tidied is only large
        if done.is_file() and now - done.stat().st_mtime < _DAY_S:
            return
        done.touch()
        files = [(f.stat(), f) for f in cache_folder().rglob("*") if f.is_file() and f != done]
        total = 0
        for stat, file in sorted(files, key=lambda one: -one[0].st_mtime):
            total, age = total + stat.st_size, now - stat.st_mtime
            if age > _UNUSED_S or (age > _DAY_S and total > _MOST_BYTES):
                file.unlink()
