"""Members of .zip and .tar archives, listed and read in place, here or on another machine.

An archive is opened once for all threads that read its members. A zip is read at any place. A tar
is one stream, mostly compressed, which goes on from where the member before ended.
"""

import atexit
import os
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, MOST_ROW_BYTES, first_line, too_long
from chunkscope.sources.formats import kind_of_bytes
from chunkscope.sources.streams import Stream, decompressed, file_stream

if TYPE_CHECKING:  # at run time they are imported where an archive is met: most runs meet none
    from zipfile import ZipInfo

_HINT = "fetch or pack the archive again"
_ENCRYPTED = 1
_LINK, _KIND = 0o120000, 0o170000  # of a file, in the upper half of its attributes
# Text is packed to a hundredth, at most: what unpacks to a thousand times its size is a bomb.
_MOST_RATIO = 1000
_RATIO_FROM_BYTES = 16 << 20
_MEMORY_BYTES = 16 << 20  # larger members of a tar go to a temporary file while they are read
_RECENT_BLOCKS = 32  # of a tar are kept: threads ask for neighbours in any order
_MOST_OPEN = max(8, os.cpu_count() or 1)  # no thread loses the one that it reads


class Member(NamedTuple):
    """A file in an archive; `offset` is where its data starts in the (decompressed) tar."""

    name: str
    size: int
    offset: int | None
    problem: str | None = None


def archive_of(key: Hashable, open_file: Callable[[], IO[bytes]], shown: str) -> "Zip | Tar":
    """An archive, which stays open under its key until `close_archives`."""
    with _lock:
        archive = _archives.pop(key, None)
        if archive is None:
            file = open_file()
            try:
                kind = kind_of_bytes(file.read(4))
                archive = Zip(file, shown) if kind == "zip" else Tar(file, shown)
            except BaseException:
                file.close()
                raise
        _archives[key] = archive
        stale = [_archives.pop(k) for k in list(_archives)[:-_MOST_OPEN]]
    for one in stale:
        one.close()
    return archive


def close_archives() -> None:
    """To be called when all members are read."""
    with _lock:
        archives = list(_archives.values())
        _archives.clear()
    for archive in archives:
        archive.close()


_lock = threading.Lock()
_archives: dict[Hashable, "Zip | Tar"] = {}
atexit.register(close_archives)


class Zip:
    """A zip that was opened; `infos` are its files, as its directory lists them."""

    def __init__(self, file: IO[bytes], shown: str) -> None:
        knows_zstd = sys.version_info >= (3, 14)
        zipfile: Any = import_module("zipfile" if knows_zstd else "backports.zstd.zipfile")
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise InputError(
                f"{shown} is not a readable zip archive: cut off or damaged ({first_line(error)})",
                hint=_HINT,
            ) from error
        self.infos: list[ZipInfo] = [
            info
            for info in self._zip.infolist()
            if not info.filename.endswith("/") and (info.external_attr >> 16) & _KIND != _LINK
        ]

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    def members(self) -> Iterator[Member]:
        for info in self.infos:
            problem = "encrypted" if info.flag_bits & _ENCRYPTED else None
            yield Member(info.filename, info.file_size, None, problem)

    def read(self, info: "ZipInfo", shown: str) -> bytes:
        """What one file holds, as a whole: at most as much as one row may be."""
        with self._stream(info, shown) as stream:
            data = stream.read_whole(MOST_ROW_BYTES)
        if len(data) > MOST_ROW_BYTES:
            raise too_long(shown, "what it holds")
        return data

    def open(self, member: Member, shown: str) -> Stream:
        return self._stream(member.name, shown)

    def _stream(self, member: "ZipInfo | str", shown: str) -> Stream:
        """A file's bytes. That it is damaged, or a bomb, is said after what came before."""
        explain = partial(_damaged, shown)
        try:
            info: ZipInfo = self._zip.getinfo(member) if isinstance(member, str) else member
            file = self._zip.open(info)
        except Exception as error:  # encrypted, gone, a method nobody knows
            raise explain(error) from error
        most = max(_RATIO_FROM_BYTES, _MOST_RATIO * info.compress_size)

        def read(size: int) -> bytes:
            if file.tell() > most:
                raise ValueError(f"it unpacks to more than {_MOST_RATIO:,} times its size")
            return file.read(size)  # type: ignore[no-any-return]

        return Stream(read, file, explain)


def _damaged(shown: str, error: Exception) -> InputError:
    words = first_line(error).strip("'\"")
    return InputError(f"cannot read {shown}: {words}", hint=_HINT)


class Tar:
    """A tar's bytes, decompressed, from which threads copy members one after the other."""

    def __init__(self, file: IO[bytes], shown: str) -> None:
        self._file = file
        self._shown = shown
        self._lock = threading.Lock()
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=_RECENT_BLOCKS)
        self._rewind()

    def _rewind(self) -> None:
        self._file.seek(0)
        self._recent.clear()
        raw = file_stream(self._file, self._shown, keep_open=True)
        self._stream = decompressed(raw, self._shown)

    def close(self) -> None:
        self._stream.close()
        self._file.close()

    def members(self) -> Iterator[Member]:
        import tarfile

        class StrictInfo(tarfile.TarInfo):
            """Python takes a broken header for the end of the archive; we want to know."""

            @classmethod
            def fromtarfile(cls, tar: tarfile.TarFile) -> "StrictInfo":
                try:
                    return super().fromtarfile(tar)
                except tarfile.HeaderError as error:
                    if type(error).__name__ in ("TruncatedHeaderError", "InvalidHeaderError"):
                        raise tarfile.ReadError(str(error)) from error
                    raise

        try:
            with tarfile.open(fileobj=self._stream, mode="r|", tarinfo=StrictInfo) as tar:
                for info in tar:
                    if info.isreg():
                        problem = "a sparse file" if info.issparse() else None
                        yield Member(info.name, info.size, info.offset_data, problem)
                    tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
        except (tarfile.TarError, EOFError, ValueError, OverflowError, OSError) as error:
            what = f"{self._shown} is not a readable tar archive ({error})"
            raise InputError(what, hint=_HINT) from error
        self._rewind()

    def open(self, member: Member, shown: str) -> Stream:
        start, end = member.offset or 0, (member.offset or 0) + member.size
        file: Any = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, prefix="chunkscope-")  # noqa: SIM115
        with self._lock:
            if self._recent and start < self._recent[0][0]:  # it is gone by: back to the start
                self._rewind()
            for place, block in self._blocks():
                file.write(block[max(0, start - place) : max(0, end - place)])
                if place + len(block) >= end:
                    break
            else:
                file.close()
                raise InputError(f"{shown} ends early: the archive is truncated", hint=_HINT)
        file.seek(0)
        return file_stream(file, shown)

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """The blocks that are still known, then those that follow, each with its place."""
        yield from tuple(self._recent)
        place = self._recent[-1][0] + len(self._recent[-1][1]) if self._recent else 0
        while block := self._stream.read(CHUNK_BYTES):
            self._recent.append((place, block))
            yield place, block
            place += len(block)
