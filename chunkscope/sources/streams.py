"""The door for all bytes: of a file, standard input, another machine or a member of an archive,
their compression undone, their text UTF-8. What is too large or unpacks to too much stays outside.

Compression is found by the first bytes, not by the name, and undone in bounded memory.
"""

import atexit
import codecs
import io
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import IO, Any, cast

from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.sources.base import (
    CHUNK_BYTES,
    MOST_ROW_BYTES,
    DataError,
    Source,
    reason_of,
)
from chunkscope.sources.remote import explaining, is_web, open_remote

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
COMPRESSED = re.compile(
    rb"(?P<gzip>\x1f\x8b\x08)"
    rb"|(?P<bz2>BZh[1-9](1AY&SY|\x17rE8P\x90))"  # a block, or the end at once
    rb"|(?P<lzma>\xfd7zXZ\x00)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"  # a frame, or one that is skipped
)
_MOST_RATIO, _RATIO_FROM_BYTES = 1000, 16 << 20
_BOM = re.compile(
    rb"(?P<utf32>\xff\xfe\0\0|\0\0\xfe\xff)|(?P<utf16>\xff\xfe|\xfe\xff)|(?P<utf8>\xef\xbb\xbf)"
)


class Stream(io.BufferedIOBase):
    """Blocks of bytes, read once from front to back, with a look ahead.

    An error among the blocks waits until all bytes that came before it have been read. `below` is
    closed with the stream. `is_raw`: the bytes are those of the file, and not made of them first.
    """

    def __init__(self, blocks: Iterator[bytes], below: Any = None) -> None:
        self._blocks = blocks
        self._below = below
        self.is_raw = not isinstance(below, Stream)
        # How much of the file (as it is on disk) was read, known to all streams on top of it.
        self.taken: list[int] = [0] if self.is_raw else below.taken
        self._ahead = b""
        self._error: ChunkscopeError | None = None

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end; they stay unread."""
        parts, have = [self._ahead], len(self._ahead)
        try:
            while have < size and (block := next(self._blocks, b"")):
                parts.append(block)
                have += len(block)
                self.taken[0] += len(block) * self.is_raw
        except ChunkscopeError as error:
            self._error = error
        self._ahead = b"".join(filter(None, parts))
        if self._error and not self._ahead:
            raise self._error
        return self._ahead[:size]

    def read(self, size: int | None = CHUNK_BYTES, /) -> bytes:
        """The next `size` bytes (a megabyte unless told), or fewer at the end."""
        data = self.peek(CHUNK_BYTES if size is None or size < 0 else size)
        self._ahead = self._ahead[len(data) :]
        return data

    def read1(self, size: int = CHUNK_BYTES, /) -> bytes:
        return self.read(
            max(size, CHUNK_BYTES)
        )  # TextIOWrapper asks for 8 KiB at a time

    def read_whole(self, shown: str, most: int = MOST_ROW_BYTES) -> bytes:
        """All that is left, unless it is too much; raises the error it ends in."""
        data = self.read(most + 1)
        if len(data) > most:
            raise DataError("too_long", path=shown, most=most >> 20)
        self.peek(1)
        return data

    def close(self) -> None:
        super().close()
        if self._below is not None:
            self._below.close()


def open_stream(source: Source) -> Stream:
    """The source's bytes, decompressed."""
    if source.member is not None:
        raw = open_archive(source).open(source.member, source.path)
    elif source.url is None and source.file is None:
        raw = Stream(blocks_of(sys.stdin.buffer, "standard input"))
    else:
        with explaining(source.path):
            file: Any = (
                open_remote(source.url) if source.url else io.FileIO(str(source.file))
            )
        raw = Stream(blocks_of(file, source.path), file)
    return decompressed(raw, source.path)


def blocks_of(file: Any, shown: str, size: int = sys.maxsize) -> Iterator[bytes]:
    """As much as a file gives at once, so that what comes before an error is not lost with it."""
    read = getattr(file, "read1", file.read)
    with explaining(shown):
        while size > 0 and (block := read(min(CHUNK_BYTES, size))):
            size -= len(block)
            yield block


def open_whole(source: Source) -> IO[bytes]:
    """The bytes of a file to be read in any order; what is on the web is copied first."""
    with explaining(source.path):
        if source.file is not None:
            return source.file.open("rb")
        if source.url is not None and not is_web(source.url):
            return open_remote(source.url)
    with open_stream(source) as stream:
        return spooled(stream, source.path)


def spooled(stream: Stream, shown: str) -> IO[bytes]:
    """The rest of a stream in a temporary file, for formats that must jump about in it."""
    with ExitStack() as on_failure:
        file = on_failure.enter_context(tempfile.TemporaryFile(prefix="chunkscope-"))
        try:
            while block := stream.read():
                file.write(block)
                _refuse_bomb(file.tell(), stream.taken[0], shown)
            file.seek(0)
        except OSError as error:
            why = reason_of(error)
            raise DataError("cannot_read", path=shown, why=why, cause="room") from error
        on_failure.pop_all()
    return file


def _refuse_bomb(unpacked: int, packed: int, shown: str) -> None:
    """Text is packed to a hundredth, at most: what unpacks to a thousand times its size is none."""
    if unpacked > max(_RATIO_FROM_BYTES, _MOST_RATIO * packed):
        raise DataError("bomb", path=shown, times=_MOST_RATIO)


# --- compression -----------------------------------------------------------------------------


def decompressed(raw: Stream, shown: str) -> Stream:
    """What a stream holds, a megabyte at most at a time: a bomb cannot fill the memory."""
    if (start := raw.peek(30)).startswith(b"version https://git-lfs"):
        with raw:
            raise DataError("lfs_pointer", path=shown)
    if (match := COMPRESSED.match(start)) and (name := match.lastgroup):
        return Stream(blocks_of(_unpacking(raw, name), shown), raw)
    return raw


def _unpacking(raw: Stream, name: str) -> Any:
    """A file object of the library for this compression."""
    if name == "zstd":
        python = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        zstd: Any = import_module(python)
        # 2 GiB windows are what `zstd --long=31` writes; memory follows the file's own window.
        return zstd.ZstdFile(
            raw, options={zstd.DecompressionParameter.window_log_max: 31}
        )
    return import_module(name).open(raw)


# --- encodings -------------------------------------------------------------------------------


def as_utf8(raw: Stream, shown: str, encoding: str = "utf-8") -> Stream:
    """The text as UTF-8 without a byte order mark, which outranks the default encoding.

    A byte that cannot be decoded stays as it is, which is no UTF-8: its row is found bad.
    """
    if encoding.lower() in ("utf-8", "utf8", "utf-8-sig"):
        mark = _BOM.match(raw.peek(4))
        encoding = (mark and mark.lastgroup) or "utf8"
        if encoding == "utf8":
            raw.read(len(mark[0]) if mark else 0)
            return raw
    try:
        text = io.TextIOWrapper(
            cast("IO[bytes]", raw), encoding, "surrogateescape", newline=""
        )
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"unknown text encoding: {encoding}",
            hint="try utf-8, latin-1, cp1252 or utf-16",
        ) from error

    def blocks() -> Iterator[bytes]:
        with explaining(shown):
            for part in iter(partial(text.read, CHUNK_BYTES), ""):
                yield part.encode("utf-8", "surrogateescape")

    return Stream(blocks(), raw)


def looks_binary(start: bytes) -> bool:
    """Is this the start of something that is no text? A stray NUL in UTF-8 is still text."""
    if b"\0" not in start or ((mark := _BOM.match(start)) and mark.lastgroup != "utf8"):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return start.count(b"\0") * 20 > len(start)


# --- archives --------------------------------------------------------------------------------

_LINK, _KIND = 0o120000, 0o170000  # of a file, in the upper half of its attributes
_MOST_ARCHIVES = 16
_archives: dict[tuple[Source, int], "Archive"] = {}  # open ones, for all threads


def open_archive(source: Source) -> "Archive":
    """The archive that a source is, or is a member of; open until `close_archives`."""
    with explaining(source.path):
        changed_ns = source.file.stat().st_mtime_ns if source.file else 0
    path = source.path.removesuffix(f"/{source.member}")
    key = Source(path=path, file=source.file, url=source.url), changed_ns
    if (archive := _archives.get(key)) is None:
        archive = Archive(open_whole(key[0]), path)
        while (
            len(_archives) >= _MOST_ARCHIVES
        ):  # closed when nobody reads from it any more
            _archives.pop(next(iter(_archives)))
        _archives[key] = archive
    return archive


@atexit.register
def close_archives() -> None:
    """To be called when all members are read."""
    while _archives:
        _archives.popitem()[1].close()


class Archive:
    """A zip or tar that was opened, for all threads. `sizes` are the bytes of its files by name, in
    the order of the archive; of a name that comes again the last counts, as when it is unpacked.
    """

    def __init__(self, file: IO[bytes], shown: str) -> None:
        self._files, self._lock = [file], threading.Lock()
        try:
            with explaining(shown):
                self._bytes = file.seek(0, io.SEEK_END)
                file.seek(0)
                is_zip = file.read(2) == b"PK"
                file.seek(0)
                self.sizes = (
                    self._open_zip(file) if is_zip else self._open_tar(file, shown)
                )
        except ChunkscopeError:
            self.close()
            raise

    def close(self) -> None:
        for file in self._files:
            file.close()

    __del__ = close

    def _open_zip(self, file: IO[bytes]) -> dict[str, int]:
        knows_zstd = sys.version_info >= (3, 14)
        zipfile: Any = import_module(
            "zipfile" if knows_zstd else "backports.zstd.zipfile"
        )
        opened = zipfile.ZipFile(file)
        infos = sorted(opened.infolist(), key=lambda info: info.header_offset)
        infos = [
            i
            for i in infos
            if not i.is_dir() and (i.external_attr >> 16) & _KIND != _LINK
        ]
        self._open: Callable[[str], Any] = opened.open
        return {info.filename: info.file_size for info in infos}

    def _open_tar(self, file: IO[bytes], shown: str) -> dict[str, int]:
        """A compressed one is unpacked to a temporary file, to read its members in any order."""
        import tarfile

        plain = decompressed(Stream(blocks_of(file, shown)), shown)
        if not plain.is_raw:
            file = spooled(plain, shown)
            self._files.append(file)
        file.seek(0)
        opened = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115
        infos = [info for info in opened.getmembers() if info.isreg()]
        # Python takes a broken header for the end of the archive.
        file.seek(opened.offset)
        if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError("bad header")
        self._open = opened.extractfile
        return {info.name: info.size for info in infos}

    def open(self, member: str, shown: str) -> Stream:
        with explaining(shown):  # encrypted, a method nobody knows
            file = self._open(member)
        return Stream(self._blocks(file, shown), file)

    def _blocks(self, file: IO[bytes], shown: str) -> Iterator[bytes]:
        with explaining(shown):
            while True:
                with self._lock:  # which also holds on to the archive
                    block = file.read(CHUNK_BYTES)
                if not block:
                    return
                _refuse_bomb(file.tell(), self._bytes, shown)
                yield block
