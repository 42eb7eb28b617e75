"""Members of .zip and .tar archives, listed and read in place: nothing is ever unpacked to disk."""

import atexit
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, Source, cannot_read
from chunkscope.sources.byte_stream import ByteStream
from chunkscope.sources.opening import open_bytes, unwrapped

if TYPE_CHECKING:  # at run time they are imported where an archive is met: most runs meet none
    import tarfile
    import zipfile

_HINT = "fetch or pack the archive again"


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    size: int
    offset: int | None
    problem: str | None = None


def is_zip(start: bytes) -> bool:
    return start.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(start: bytes) -> bool:
    return start[257:262] == b"ustar"


def members(archive: Path, shown: str) -> list[Member]:
    """The files in an archive, in the order in which they lie there."""
    stream = open_bytes(archive, shown=shown, text=False)
    try:
        if is_zip(stream.peek(4)):
            return list(_zip_members(archive, shown))
        # A name that comes again replaces what was there, as it does when a tar is unpacked.
        return list({member.name: member for member in _tar_members(stream, shown)}.values())
    finally:
        stream.close()


def _zip_members(archive: Path, shown: str) -> Iterator[Member]:
    import zipfile

    try:
        with zipfile.ZipFile(archive) as zipped:
            last_of_name = {info.filename: info for info in zipped.infolist()}
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise InputError(f"{shown} is not a readable zip archive ({error})", hint=_HINT) from error
    for info in last_of_name.values():
        if not info.is_dir() and not _is_link(info):
            problem = "encrypted" if info.flag_bits & 1 else None
            yield Member(info.filename, info.file_size, None, problem)


def _is_link(info: "zipfile.ZipInfo") -> bool:
    return (info.external_attr >> 16) & 0o170000 == 0o120000


def _tar_members(stream: ByteStream, shown: str) -> Iterator[Member]:
    import tarfile

    raw = cast("IO[bytes]", stream)
    try:
        with tarfile.open(fileobj=raw, mode="r|", tarinfo=_strict_headers()) as tar:
            for info in tar:
                if info.isreg():
                    problem = "a sparse file" if info.issparse() else None
                    yield Member(info.name, info.size, info.offset_data, problem)
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
    except (tarfile.TarError, EOFError, ValueError, OverflowError, OSError) as error:
        raise InputError(f"{shown} is not a readable tar archive ({error})", hint=_HINT) from error


def _strict_headers() -> "type[tarfile.TarInfo]":
    """Python takes a broken header for the end of the archive; we want to know."""
    import tarfile

    class StrictInfo(tarfile.TarInfo):
        @classmethod
        def fromtarfile(cls, tar: tarfile.TarFile) -> "StrictInfo":
            try:
                return super().fromtarfile(tar)
            except tarfile.HeaderError as error:
                if type(error).__name__ in ("TruncatedHeaderError", "InvalidHeaderError"):
                    raise tarfile.ReadError(str(error)) from error
                raise

    return StrictInfo


def open_member(source: Source, *, encoding: str, text: bool) -> ByteStream:
    """A member's data, decompressed once more where the member itself is compressed."""
    if source.file is None or source.member is None:
        raise InputError(f"{source.path} is no member of an archive", hint=_HINT)
    raw = (
        _ZipMember(source.file, source.member, source.path)
        if source.offset is None
        else _TarMember(source.file, source.offset, source.bytes or 0, source.path)
    )
    return unwrapped(raw, source.path, encoding=encoding, text=text)


# --- open archives ---------------------------------------------------------------------------


class _Open(Protocol):
    """An archive that was opened, and how far it was read."""

    key: tuple[int, ...]
    at: int

    def close(self) -> None: ...


_A = TypeVar("_A", bound=_Open)


class _Idle(Generic[_A]):
    """Archives that were opened and are not in use: one per reading thread is enough.

    Opening one again for each of its members would list a zip, or decompress a tar, from the
    start as many times as it has members. These are mostly read in the order in which they lie,
    so the next one goes on from where an earlier one ended.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._archives: list[_A] = []
        self._lock = threading.Lock()

    def take(self, archive: Path, before: int) -> _A | None:
        """One that has been read up to `before` or less far, but as far as any."""
        key = _identity(archive)
        with self._lock:
            fits = [found for found in self._archives if found.key == key and found.at <= before]
            if not fits:
                return None
            found = max(fits, key=lambda fitting: fitting.at)
            self._archives.remove(found)
            return found

    def give(self, archive: _A) -> None:
        with self._lock:
            self._archives.append(archive)
            unused = self._archives[: -self._most]
            del self._archives[: -self._most]
        for old in unused:
            old.close()

    def close(self) -> None:
        with self._lock:
            unused, self._archives = self._archives, []
        for archive in unused:
            archive.close()


def _identity(archive: Path) -> tuple[int, ...]:
    status = archive.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def close_idle() -> None:
    """To be called when all members are read."""
    _idle_zips.close()
    _idle_tars.close()


# --- zip -------------------------------------------------------------------------------------


class _Zip:
    def __init__(self, archive: Path) -> None:
        import zipfile

        self.key = _identity(archive)
        self.at = 0  # a zip can be read anywhere
        self.file = zipfile.ZipFile(archive)

    def close(self) -> None:
        self.file.close()


class _ZipMember(ByteStream):
    def __init__(self, archive: Path, member: str, shown: str) -> None:
        import zipfile

        super().__init__()
        self._shown = shown
        try:
            self._zip = _idle_zips.take(archive, before=0) or _Zip(archive)
        except OSError as error:
            raise cannot_read(shown, error) from error
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._damaged(error) from error
        try:
            self._file = self._zip.file.open(member)
        except (KeyError, RuntimeError, zipfile.BadZipFile, OSError, ValueError) as error:
            self._zip.close()
            raise self._damaged(error) from error

    def _more(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except Exception as error:  # each compression in a zip has an error class of its own
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InputError:
        said = str(error).strip("'\"") or type(error).__name__
        return InputError(f"cannot read {self._shown}: {said}", hint=_HINT)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            _idle_zips.give(self._zip)


# --- tar -------------------------------------------------------------------------------------


class _Tar:
    """A decompressed tar, somewhere in the middle."""

    def __init__(self, archive: Path) -> None:
        self.key = _identity(archive)
        self.stream = open_bytes(archive, shown=archive.name, text=False)
        self.at = 0

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.at += len(data)
        return data

    def close(self) -> None:
        self.stream.close()


class _TarMember(ByteStream):
    def __init__(self, archive: Path, offset: int, size: int, shown: str) -> None:
        super().__init__()
        self._left = size
        self._shown = shown
        self._tar: _Tar | None = None
        try:
            tar = _idle_tars.take(archive, before=offset) or _Tar(archive)
        except OSError as error:
            raise cannot_read(shown, error) from error
        try:
            self._go_to(tar, offset)
        except BaseException:
            tar.close()
            raise
        self._tar = tar

    def _go_to(self, tar: _Tar, offset: int) -> None:
        while tar.at < offset:
            if not tar.read(min(CHUNK_BYTES, offset - tar.at)):
                raise self._short()

    def _more(self, size: int) -> bytes:
        if self._tar is None or not self._left:
            return b""
        data = self._tar.read(min(size, self._left))
        if not data:
            raise self._short()
        self._left -= len(data)
        return data

    def _short(self) -> InputError:
        return InputError(f"{self._shown} ends early: the archive is truncated", hint=_HINT)

    def close(self) -> None:
        if self._tar is not None:
            _idle_tars.give(self._tar)
            self._tar = None


_idle_zips: _Idle[_Zip] = _Idle(os.cpu_count() or 1)
_idle_tars: _Idle[_Tar] = _Idle(os.cpu_count() or 1)
atexit.register(close_idle)
