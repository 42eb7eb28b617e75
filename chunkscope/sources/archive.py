"""Members of zip and tar archives."""

import atexit
import io
import sys
import tarfile
import threading
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from chunkscope.errors import ChunkscopeError
from chunkscope.sources.base import DataError, Source
from chunkscope.sources.open import (
    Stream,
    buffered,
    decompressed,
    open_seekable,
    refuse_bomb,
    spooled,
)
from chunkscope.sources.remote import explaining

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_MOST_OPEN = 16
# Of a file, in the upper half of its attributes in a zip.
_KIND = 0o170000
_LINK = 0o120000


def open_archive(source: Source) -> "Archive":
    """The archive that a source is, or is a member of.

    The last few stay open, so that their members are read without opening them again.
    One that is dropped from them is closed when its last reader is.
    """
    path = source.path
    if source.member is not None:
        path = path.removesuffix(f"/{source.member}")
    changed_ns = 0
    if source.file is not None:
        with explaining(path):
            changed_ns = source.file.stat().st_mtime_ns
    return _opened(path, source.file, source.url, changed_ns)


@lru_cache(_MOST_OPEN)
def _opened(
    path: str, file: Path | None, url: str | None, _changed_ns: int
) -> "Archive":
    return Archive(open_seekable(Source(path=path, file=file, url=url)), path)


@atexit.register
def close_archives() -> None:
    """Close those from which nobody reads."""
    _opened.cache_clear()


class Archive:
    """A zip or tar that was opened, for all threads.

    `sizes` are the bytes of its files by name, in the order of the archive. Of a name
    that comes again the last counts, as when it is unpacked.
    """

    def __init__(self, file: IO[bytes], shown: str) -> None:
        self.lock = threading.Lock()
        self._files = [file]
        try:
            with explaining(shown):
                self.bytes = file.seek(0, io.SEEK_END)
                file.seek(0)
                is_zip = file.read(2) == b"PK"
                file.seek(0)
                if is_zip:
                    self._open_zip(file)
                else:
                    self._open_tar(file, shown)
        except ChunkscopeError:
            self.close()
            raise

    def close(self) -> None:
        for file in self._files:
            file.close()

    __del__ = close

    def _open_zip(self, file: IO[bytes]) -> None:
        zipfile = import_module(
            "zipfile" if sys.version_info >= (3, 14) else "backports.zstd.zipfile"
        )
        opened = zipfile.ZipFile(file)
        self._open_member: Any = opened.open
        self.sizes = {}
        for info in sorted(opened.infolist(), key=lambda info: info.header_offset):
            is_link = (info.external_attr >> 16) & _KIND == _LINK
            if not info.is_dir() and not is_link:
                self.sizes[info.filename] = info.file_size

    def _open_tar(self, file: IO[bytes], shown: str) -> None:
        """A compressed one is unpacked to a temporary file first."""
        packed = buffered(file, shown)
        plain = decompressed(packed, shown)
        if plain is not packed:
            file = spooled(plain, shown)
            self._files.append(file)
        file.seek(0)
        opened = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115
        self.sizes = {info.name: info.size for info in opened if info.isreg()}
        # Python takes a broken header for the end of the archive.
        file.seek(opened.offset)
        if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError("bad header")
        self._files += [packed, plain]
        self._open_member = opened.extractfile

    def open(self, member: str, shown: str) -> Stream:
        """The bytes of a member, as they are in the archive."""
        with explaining(shown):  # encrypted, or a method that nobody knows
            file = self._open_member(member)
        return buffered(_Member(self, file, shown), shown)


class _Member(io.RawIOBase):
    """A file of an archive, whose other files other threads may be reading."""

    def __init__(self, archive: Archive, file: Any, shown: str) -> None:
        super().__init__()
        self._archive = archive
        self._file = file
        self._shown = shown
        self._unpacked = 0

    def seekable(self) -> bool:
        return False

    def readinto(self, buffer: "WriteableBuffer") -> int:
        with self._archive.lock:
            count = int(self._file.readinto1(buffer))
        self._unpacked += count
        refuse_bomb(self._unpacked, self._archive.bytes, self._shown)
        return count

    def close(self) -> None:
        super().close()
        self._file.close()


def open_member(source: Source) -> Stream:
    """The decompressed bytes of a member of an archive."""
    if source.member is None:
        raise DataError("unknown_data", path=source.path, kind="archive")
    stream = open_archive(source).open(source.member, source.path)
    return decompressed(stream, source.path)
