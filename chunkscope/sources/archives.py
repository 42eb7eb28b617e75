"""Members of .zip and .tar archives, listed and read in place: nothing is ever unpacked to disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, Source, cannot_read
from chunkscope.sources.opening import ByteStream, as_utf8, decompressed, open_bytes

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
        return list(_tar_members(stream, shown))
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
    raw = ByteStream(
        _ZipMember(source.file, source.member, source.path)
        if source.offset is None
        else _TarMember(source.file, source.offset, source.bytes or 0, source.path)
    )
    try:
        plain = decompressed(raw, source.path)
        return as_utf8(plain, source.path, encoding) if text else plain
    except BaseException:
        raw.close()
        raise


class _ZipMember:
    def __init__(self, archive: Path, member: str, shown: str) -> None:
        import zipfile

        self._shown = shown
        self.bytes_read = 0
        try:
            self._zip = zipfile.ZipFile(archive)
        except OSError as error:
            raise cannot_read(shown, error) from error
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._damaged(error) from error
        try:
            self._file = self._zip.open(member)
        except (KeyError, RuntimeError, zipfile.BadZipFile, OSError, ValueError) as error:
            self._zip.close()
            raise self._damaged(error) from error

    def read(self, size: int = -1, /) -> bytes:
        try:
            data = self._file.read(size)
        except Exception as error:  # each compression in a zip has an error class of its own
            raise self._damaged(error) from error
        self.bytes_read += len(data)
        return data

    def _damaged(self, error: Exception) -> InputError:
        said = str(error).strip("'\"") or type(error).__name__
        return InputError(f"cannot read {self._shown}: {said}", hint=_HINT)

    def close(self) -> None:
        self._file.close()
        self._zip.close()


class _TarCursor:
    """A decompressed tar, somewhere in the middle."""

    def __init__(self, archive: Path) -> None:
        self.key = _identity(archive)
        self.stream = open_bytes(archive, shown=archive.name, text=False)
        self.at = 0

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.at += len(data)
        return data


# The cursor of the last member that was read. Members are mostly read in the order in which they
# lie, so the next one goes on from there: each archive is decompressed once, not once per member.
_idle_cursors: list[_TarCursor] = []


def _identity(archive: Path) -> tuple[int, int, int, int]:
    status = archive.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _cursor_before(archive: Path, offset: int) -> _TarCursor:
    try:
        cursor = _idle_cursors.pop()
    except IndexError:
        return _TarCursor(archive)
    if cursor.key == _identity(archive) and cursor.at <= offset:
        return cursor
    cursor.stream.close()
    return _TarCursor(archive)


class _TarMember:
    def __init__(self, archive: Path, offset: int, size: int, shown: str) -> None:
        self._left = size
        self._shown = shown
        self.bytes_read = 0
        try:
            self._cursor: _TarCursor | None = _cursor_before(archive, offset)
        except OSError as error:
            raise cannot_read(shown, error) from error
        while self._cursor.at < offset:
            if not self._cursor.read(min(CHUNK_BYTES, offset - self._cursor.at)):
                raise self._short()

    def read(self, size: int = -1, /) -> bytes:
        if self._cursor is None or not self._left or not size:
            return b""
        data = self._cursor.read(self._left if size < 0 else min(size, self._left))
        if not data:
            raise self._short()
        self._left -= len(data)
        self.bytes_read += len(data)
        return data

    def _short(self) -> InputError:
        return InputError(f"{self._shown} ends early: the archive is truncated", hint=_HINT)

    def close(self) -> None:
        if self._cursor is not None:
            _idle_cursors.append(self._cursor)
            self._cursor = None
            for cursor in _idle_cursors[:-1]:
                _idle_cursors.remove(cursor)
                cursor.stream.close()
