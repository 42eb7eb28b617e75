"""SHA-256 of files, remembered by their stat so that an unchanged file is not read again."""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

import orjson

from chunkscope.artefacts.codec import write_atomically
from chunkscope.artefacts.folders import cache_folder
from chunkscope.errors import ChunkscopeError

_BLOCK = 1 << 20
_MOST_KEPT = 50_000  # some ten megabytes
# A file changed within the clock's grain of being hashed could change again unnoticed (git calls
# this "racily clean"), so digests of such fresh files are not remembered.
_SETTLED_NS = 2_000_000_000
Stamped = list[int | str]  # size, times and inode of a file, and its digest


def sha256_of_file(path: Path, size: int | None = None) -> str:
    """The digest of the file, or of its first `size` bytes."""
    digest = hashlib.sha256()
    left = size if size is not None else float("inf")
    with path.open("rb", buffering=0) as file:
        while left > 0 and (block := file.read(int(min(_BLOCK, left)))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


class DigestMemo:
    """Digests by path, size, times and inode; one small file in the cache folder."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_folder() / "digests.json"
        self._new: dict[str, Stamped] = {}
        self._known = self._read()

    def sha256(self, path: Path) -> str:
        """The digest of a file, or of all files below a folder."""
        stat = os.stat(path)  # noqa: PTH116  (pathlib's takes twice as long: files are many)
        if S_ISDIR(stat.st_mode):
            return self._of_folder(path)
        stamp: Stamped = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
        key = os.fsencode(os.path.abspath(path)).decode("utf-8", "backslashreplace")  # noqa: PTH100
        if (entry := self._known.get(key)) and entry[:4] == stamp:
            return str(entry[4])
        # No more than it has now: a file that others write to may never end.
        digest = sha256_of_file(path, stat.st_size)
        newest = max(stat.st_mtime_ns, stat.st_ctime_ns)
        if time.time_ns() - newest > _SETTLED_NS and path.stat().st_size == stat.st_size:
            self._new[key] = self._known[key] = [*stamp, digest]
        return digest

    def save(self) -> None:
        """Keep what is new. Losing a race with another run only costs a hash later."""
        if self._new:
            known = {path: entry for path, entry in self._read().items() if path not in self._new}
            newest_last = [*known.items(), *self._new.items()][-_MOST_KEPT:]
            with suppress(ChunkscopeError):
                write_atomically(self._path, orjson.dumps(dict(newest_last)))

    def _of_folder(self, folder: Path) -> str:
        digest = hashlib.sha256()
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = file.relative_to(folder).as_posix()
            digest.update(f"{name}\0{self.sha256(file)}\n".encode())
        return digest.hexdigest()

    def _read(self) -> dict[str, Stamped]:
        """Nothing where the file was damaged."""
        with suppress(OSError, ValueError, AttributeError, TypeError):
            known = orjson.loads(self._path.read_bytes())
            return {path: entry for path, entry in known.items() if len(entry) == 5}
        return {}
