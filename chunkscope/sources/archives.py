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
from contextlib import closing
from functools import partial
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, MOST_ROW_BYTES, first_line, too_long
from chunkscope.sources.streams import Stream, decompressed, file_stream

if TYPE_CHECKING:  # at run time they are imported where an archive is met: most runs meet none
    import tarfile
    from zipfile import ZipInfo

SUFFIXES = (
    ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".zip",
)  # fmt: skip
_HINT = "fetch or pack the archive again"
_KNOWS_ZSTD = sys.version_info >= (3, 14)
_ENCRYPTED = 1
_LINK, _KIND = 0o120000, 0o170000  # of a file, in the upper half of its attributes
# Text is packed to a hundredth, at most: what unpacks to a thousand times its size is a bomb.
_MOST_RATIO = 1000
_RATIO_FROM_BYTES = 16 << 20
_MEMORY_BYTES = 16 << 20  # larger members of a tar go to a temporary file while they are read
_RECENT_BLOCKS = 32  # of a tar are kept: threads ask for neighbours in any order
_MOST_OPEN = max(8, os.cpu_count() or 1)  # no thread loses the one that it reads

Opener = Callable[[], IO[bytes]]  # opens the archive's bytes, from their start


class Member(NamedTuple):
    """A file in an archive; `offset` is where its data starts in the (decompressed) tar."""

    name: str
    size: int
    offset: int | None
    problem: str | None = None


def archive_suffix(name: str) -> str | None:
    """ "packs.tar.gz" -> ".tar.gz"; None for a file that is no archive."""
    if not name.lower().endswith(SUFFIXES):
        return None
    return max((one for one in SUFFIXES if name.lower().endswith(one)), key=len)


def is_zip(start: bytes) -> bool:
    return start.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(start: bytes) -> bool:
    return start[257:262] == b"ustar"


def members(open_file: Opener, shown: str) -> list[Member]:
    """The files in an archive, in the order in which they lie there.

    A name that comes again replaces what was there, as it does when an archive is unpacked.
    """
    with decompressed(file_stream(open_file(), shown), shown) as stream:
        is_tape = not is_zip(stream.peek(4))
        listed = list(_tar_members(stream, shown)) if is_tape else []
    if not is_tape:
        with closing(Zip(open_file(), shown)) as archive:
            listed = [
                Member(
                    info.filename,
                    info.file_size,
                    None,
                    "encrypted" if info.flag_bits & _ENCRYPTED else None,
                )
                for info in archive.infos
            ]
    last = {member.name: place for place, member in enumerate(listed)}
    replaced = "a later file of the archive has the same name"
    return [
        member if last[member.name] == place else member._replace(problem=replaced)
        for place, member in enumerate(listed)
    ]


def open_member(
    key: Hashable, open_file: Opener, name: str, offset: int | None, size: int, shown: str
) -> Stream:
    """A member's bytes; `key` names the archive, which stays open for its other members."""
    kind = Zip if offset is None else Tape
    with _open_lock:
        archive = _open_archives.pop(key, None) or kind(open_file(), shown, open_file)
        _open_archives[key] = archive
        stale = [_open_archives.pop(k) for k in list(_open_archives)[:-_MOST_OPEN]]
    for one in stale:
        one.close()
    if isinstance(archive, Zip):
        return archive.stream(name, shown)
    return file_stream(archive.member(offset or 0, size, shown), shown)


def close_archives() -> None:
    """To be called when all members are read."""
    with _open_lock:
        archives = list(_open_archives.values())
        _open_archives.clear()
    for archive in archives:
        archive.close()


_open_lock = threading.Lock()
_open_archives: dict[Hashable, "Zip | Tape"] = {}
atexit.register(close_archives)


# --- zip -------------------------------------------------------------------------------------


class Zip:
    """A zip that was opened; `infos` are its files, as its directory lists them."""

    def __init__(self, file: IO[bytes], shown: str, _: Opener | None = None) -> None:
        zipfile: Any = import_module("zipfile" if _KNOWS_ZSTD else "backports.zstd.zipfile")
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            file.close()
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

    def read(self, info: "ZipInfo", shown: str) -> bytes:
        """What one file holds, as a whole: at most as much as one row may be."""
        with self.stream(info, shown) as stream:
            data = stream.read_whole(MOST_ROW_BYTES)
        if len(data) > MOST_ROW_BYTES:
            raise too_long(shown, "what it holds")
        return data

    def stream(self, member: "ZipInfo | str", shown: str) -> Stream:
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


# --- tar -------------------------------------------------------------------------------------


def _tar_members(stream: Stream, shown: str) -> Iterator[Member]:
    import tarfile

    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_strict_headers()) as tar:
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


class Tape:
    """A tar's bytes, decompressed, from which threads copy members one after the other."""

    def __init__(self, file: IO[bytes], shown: str, open_file: Opener) -> None:
        self._open_file = open_file
        self._stream = decompressed(file_stream(file, shown), "")
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=_RECENT_BLOCKS)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._stream.close()

    def member(self, offset: int, size: int, shown: str) -> IO[bytes]:
        file: Any = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, prefix="chunkscope-")  # noqa: SIM115
        with self._lock:
            if self._recent and offset < self._recent[0][0]:  # it is gone by: back to the start
                self._stream.close()
                self._stream = decompressed(file_stream(self._open_file(), shown), "")
                self._recent.clear()
            for start, block in self._blocks():
                file.write(block[max(0, offset - start) : max(0, offset + size - start)])
                if start + len(block) >= offset + size:
                    break
            else:
                file.close()
                raise InputError(f"{shown} ends early: the archive is truncated", hint=_HINT)
        file.seek(0)
        return file  # type: ignore[no-any-return]

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """The blocks that are still known, then those that follow, each with its place."""
        yield from tuple(self._recent)
        at = self._recent[-1][0] + len(self._recent[-1][1]) if self._recent else 0
        while block := self._stream.read(CHUNK_BYTES):
            self._recent.append((at, block))
            yield at, block
            at += len(block)
