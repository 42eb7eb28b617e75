"""From a source to its bytes, be it a file, standard input, on another machine or in an archive.

An archive is opened once for all threads that read its members. A compressed tar is unpacked to a
temporary file, so that its members can be read in any order.
"""

import atexit
import io
import os
import struct
import sys
import threading
from collections.abc import Hashable, Iterator
from functools import partial
from importlib import import_module
from typing import IO, Any, NamedTuple

from chunkscope.errors import InputError
from chunkscope.sources.base import Source, cannot_read, first_line
from chunkscope.sources.formats import kind_of_bytes
from chunkscope.sources.remote import open_remote, open_remote_stream
from chunkscope.sources.streams import (
    Stream,
    decompressed,
    file_stream,
    open_path,
    open_stdin,
    refuse_bomb,
    spooled,
)

_HINT = "fetch or pack the archive again"
_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 1, 8, 0x800
_LINK, _KIND = 0o120000, 0o170000  # of a file, in the upper half of its attributes
_ZIP_HEADER = struct.Struct("<4s5H3L2H")
_MOST_OPEN = max(8, os.cpu_count() or 1)  # no thread loses the one that it reads


_lock = threading.Lock()
_archives: dict[Hashable, "Zip | Tar"] = {}


def open_raw(source: Source, *, start: int = 0) -> Stream:
    """The source's bytes as they are, from one of them on."""
    if source.member is not None:
        return open_archive(source).open(source.member, source.path)
    if source.url is not None:
        return open_remote_stream(source.url, source.path, size=source.bytes, start=start)
    return open_path(source.file, source.path, start=start) if source.file else open_stdin()


def open_whole(source: Source) -> IO[bytes]:
    """The bytes of a file, or of a member's archive, to be read in any order."""
    try:
        if source.file is not None:
            return source.file.open("rb")
    except OSError as error:
        raise cannot_read(source.path, error) from error
    if source.url is None:
        raise InputError(f"{source.path} is no file", hint="save it to one")
    return open_remote(source.url, source.path)


def open_archive(source: Source) -> "Zip | Tar":
    """The archive that a source is, or is a member of; open until `close_archives`."""
    try:
        key: Hashable = (
            source.file and (source.file, source.file.stat().st_mtime_ns)
        ) or source.url
    except OSError as error:
        raise cannot_read(source.path, error) from error
    shown = source.path.removesuffix(f"/{source.member}")
    with _lock:
        archive = _archives.pop(key, None)
        if archive is None:
            opened = open_whole(source)
            try:
                kind = kind_of_bytes(opened.read(4))
                archive = Zip(opened, shown) if kind == "zip" else Tar(opened, shown)
            except BaseException:
                opened.close()
                raise
        _archives[key] = archive
        stale = [_archives.pop(k) for k in list(_archives)[:-_MOST_OPEN]]
    for one in stale:
        one.close()
    return archive


@atexit.register
def close_archives() -> None:
    """To be called when all members are read."""
    while _archives:
        _archives.popitem()[1].close()


class Member(NamedTuple):
    name: str
    size: int
    problem: str | None = None  # why it cannot be read


class Zip:
    """A zip that was opened; `infos` are its files. Of a zip that is cut off they are those before
    the cut, and `error` says so.
    """

    def __init__(self, file: IO[bytes], shown: str) -> None:
        knows_zstd = sys.version_info >= (3, 14)
        zipfile: Any = import_module("zipfile" if knows_zstd else "backports.zstd.zipfile")
        self.error: InputError | None = None
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
            infos = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            self.error = InputError(
                f"{shown} is not a readable zip archive: cut off or damaged ({first_line(error)})",
                hint=_HINT,
            )
            self._zip = zipfile.ZipFile(io.BytesIO(b"PK\5\6" + bytes(18)))  # an empty one
            self._zip.fp = file
            infos = list(_before_the_cut(file, zipfile.ZipInfo))
            if not infos:
                raise self.error from error
        self.infos: list[Any] = [
            info
            for info in infos
            if not info.filename.endswith("/") and (info.external_attr >> 16) & _KIND != _LINK
        ]

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    def members(self) -> Iterator[Member]:
        if self.error:
            raise self.error
        for info in self.infos:
            problem = "encrypted" if info.flag_bits & _ENCRYPTED else None
            yield Member(info.filename, info.file_size, problem)

    def open(self, member: Any, shown: str) -> Stream:
        """The bytes of a member, given its name or what `infos` has of it."""
        explain = partial(_damaged, shown)
        try:
            info = self._zip.getinfo(member) if isinstance(member, str) else member
            file = self._zip.open(info)
        except Exception as error:  # encrypted, gone, a method nobody knows
            raise explain(error) from error

        def read(size: int) -> bytes:
            refuse_bomb(file.tell(), info.compress_size, shown)
            return file.read(size)  # type: ignore[no-any-return]

        return Stream(read, file, explain)


def _before_the_cut(file: IO[bytes], zip_info: Any) -> Iterator[Any]:
    """Members by their own headers, up to the first that is not whole: the list of all, which is
    at the end of a zip, is lost.
    """
    end, place = file.seek(0, io.SEEK_END), 0
    while place + _ZIP_HEADER.size <= end:
        file.seek(place)
        magic, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = (
            _ZIP_HEADER.unpack(file.read(_ZIP_HEADER.size))
        )
        name = file.read(name_bytes).decode("utf-8" if flags & _UTF8 else "cp437", "replace")
        info = zip_info(name)
        info.header_offset, info.flag_bits, info.compress_type = place, flags, method
        info.CRC, info.compress_size, info.file_size = crc, packed, size
        place += _ZIP_HEADER.size + name_bytes + extra_bytes + packed
        if magic != b"PK\3\4" or flags & _SIZES_FOLLOW or place > end:
            return
        yield info


def _damaged(shown: str, error: Exception) -> InputError:
    words = first_line(error).strip("'\"")
    return InputError(f"cannot read {shown}: {words}", hint=_HINT)


class Tar:
    """A tar that was opened, which threads read one after the other."""

    def __init__(self, file: IO[bytes], shown: str) -> None:
        import tarfile

        self._lock = threading.Lock()
        file.seek(0)
        plain = decompressed(file_stream(file, shown, keep_open=True), shown)
        self._files = [file] if plain.is_raw else [file, spooled(plain, shown)]
        try:
            self._files[-1].seek(0)
            self._tar = tarfile.open(fileobj=self._files[-1], mode="r:")  # noqa: SIM115
            self._infos = [info for info in self._tar.getmembers() if info.isreg()]
            # Python takes a broken header for the end of the archive.
            self._files[-1].seek(self._tar.offset)
            if self._files[-1].read(tarfile.BLOCKSIZE).strip(b"\0"):
                raise tarfile.ReadError("bad header")
        except (tarfile.TarError, EOFError, ValueError, OverflowError, OSError) as error:
            what = f"{shown} is not a readable tar archive ({error})"
            raise InputError(what, hint=_HINT) from error

    def close(self) -> None:
        for file in self._files:
            file.close()

    def members(self) -> Iterator[Member]:
        for info in self._infos:
            yield Member(info.name, info.size, "a sparse file" if info.issparse() else None)

    def open(self, member: str, shown: str) -> Stream:
        file: Any = self._tar.extractfile(member)

        def read(size: int) -> bytes:
            with self._lock:
                return file.read(size)  # type: ignore[no-any-return]

        return Stream(read, file, partial(_damaged, shown))
