"""Members of .zip and .tar archives, listed and read in place: nothing is ever unpacked to disk."""

import atexit
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

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
            return _replaced_named(list(_zip_members(archive, shown)))
        return _replaced_named(list(_tar_members(stream, shown)))
    finally:
        stream.close()


def _replaced_named(found: list[Member]) -> list[Member]:
    """A name that comes again replaces what was there, as it does when an archive is unpacked."""
    last = {member.name: place for place, member in enumerate(found)}
    problem = "a later file of the archive has the same name"
    return [
        member if last[member.name] == place else replace(member, problem=problem)
        for place, member in enumerate(found)
    ]


def _zip_members(archive: Path, shown: str) -> Iterator[Member]:
    import zipfile

    try:
        with zipfile.ZipFile(archive) as zipped:
            infos = zipped.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise InputError(f"{shown} is not a readable zip archive ({error})", hint=_HINT) from error
    for info in infos:
        if not info.filename.endswith("/") and not _is_link(info):  # it may have no name at all
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


class _OpenArchive:
    """An archive that was opened: a ZipFile, or a decompressed tar that was read up to `at`."""

    def __init__(self, archive: Path, content: Any) -> None:
        self.key = _identity(archive)
        self.content = content
        self.at = 0

    def read_on(self, size: int) -> bytes:
        data: bytes = self.content.read(size)
        self.at += len(data)
        return data


class _Idle:
    """Archives that were opened and are not in use: one per reading thread is enough.

    Opening one again for each of its members would list a zip, or decompress a tar, from the
    start as many times as it has members. These are mostly read in the order in which they lie,
    so the next one goes on from where an earlier one ended.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._archives: list[_OpenArchive] = []
        self._lock = threading.Lock()

    def take(self, archive: Path, before: int) -> _OpenArchive | None:
        """One that has been read up to `before` or less far, but as far as any."""
        key = _identity(archive)
        with self._lock:
            fits = [found for found in self._archives if found.key == key and found.at <= before]
            if not fits:
                return None
            found = max(fits, key=lambda fitting: fitting.at)
            self._archives.remove(found)
            return found

    def give(self, archive: _OpenArchive) -> None:
        with self._lock:
            self._archives.append(archive)
            unused = self._archives[: -self._most]
            del self._archives[: -self._most]
        for old in unused:
            old.content.close()

    def close(self) -> None:
        with self._lock:
            unused, self._archives = self._archives, []
        for archive in unused:
            archive.content.close()


def _identity(archive: Path) -> tuple[int, ...]:
    status = archive.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def close_idle() -> None:
    """To be called when all members are read."""
    _idle.close()


class _ZipMember(ByteStream):
    def __init__(self, archive: Path, member: str, shown: str) -> None:
        import zipfile

        super().__init__()
        self._shown = shown
        try:
            self._zip = _idle.take(archive, before=0) or _OpenArchive(
                archive, zipfile.ZipFile(archive)
            )
        except OSError as error:
            raise cannot_read(shown, error) from error
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._damaged(error) from error
        try:
            self._file = self._zip.content.open(member)
        except (KeyError, RuntimeError, zipfile.BadZipFile, OSError, ValueError) as error:
            self._zip.content.close()
            raise self._damaged(error) from error

    def _more(self, size: int) -> bytes:
        try:
            data: bytes = self._file.read(size)
        except Exception as error:  # each compression in a zip has an error class of its own
            raise self._damaged(error) from error
        return data

    def _damaged(self, error: Exception) -> InputError:
        said = str(error).strip("'\"") or type(error).__name__
        return InputError(f"cannot read {self._shown}: {said}", hint=_HINT)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            _idle.give(self._zip)


class _TarMember(ByteStream):
    def __init__(self, archive: Path, offset: int, size: int, shown: str) -> None:
        super().__init__()
        self._left = size
        self._shown = shown
        self._tar: _OpenArchive | None = None
        try:
            tar = _idle.take(archive, before=offset) or _OpenArchive(
                archive, open_bytes(archive, shown=archive.name, text=False)
            )
        except OSError as error:
            raise cannot_read(shown, error) from error
        try:
            self._go_to(tar, offset)
        except BaseException:
            tar.content.close()
            raise
        self._tar = tar

    def _go_to(self, tar: _OpenArchive, offset: int) -> None:
        while tar.at < offset:
            if not tar.read_on(min(CHUNK_BYTES, offset - tar.at)):
                raise self._short()

    def _more(self, size: int) -> bytes:
        if self._tar is None or not self._left:
            return b""
        data = self._tar.read_on(min(size, self._left))
        if not data:
            raise self._short()
        self._left -= len(data)
        return data

    def _short(self) -> InputError:
        return InputError(f"{self._shown} ends early: the archive is truncated", hint=_HINT)

    def close(self) -> None:
        if self._tar is not None:
            _idle.give(self._tar)
            self._tar = None


_idle = _Idle(os.cpu_count() or 1)
atexit.register(close_idle)
