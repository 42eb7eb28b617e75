"""What earlier runs prepared and counted, in files that can be made again; the digests
of files."""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from xxhash import xxh3_128, xxh3_128_hexdigest

from chunkscope.artefacts.files import cache_folder

_UNUSED_S = 30 * 24 * 3600  # how long the cache keeps what nobody asks for


def file_digest(path: Path) -> str:
    """The digest of a file, or of all files below a folder; SHA-256 takes twenty times
    as long."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        lines = []
        for file in files:
            name = file.relative_to(path).as_posix()
            lines.append(f"{name}\0{file_digest(file)}\n")
        return xxh3_128_hexdigest("".join(lines).encode())
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, xxh3_128).hexdigest()


def cache_file(kind: str, key: str) -> Path:
    digest = hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()
    return cache_folder() / f"{kind}/{digest[:2]}/{digest}"


def read_cached(kind: str, key: str) -> bytes:
    """What is in the cache file; nothing where there is none."""
    file = cache_file(kind, key)
    with suppress(OSError):
        os.utime(file)  # `prune_cache` goes by it
        return file.read_bytes()
    return b""


def prune_cache() -> None:
    """Remove what was not used for long."""
    for file in cache_folder().rglob("*"):
        with suppress(OSError):  # a cache that cannot be tidied is only large
            if file.is_file() and time.time() - file.stat().st_mtime > _UNUSED_S:
                file.unlink()
