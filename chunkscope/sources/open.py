"""The door for all bytes of files, pipes and other machines, and what undoes packing.

Compression is found by the first bytes, not by the name, and undone a megabyte at a
time. What unpacks to too much is refused here.
"""

import bz2
import codecs
import gzip
import io
import lzma
import re
import sys
import tempfile
from contextlib import ExitStack
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.sources.base import (
    CHUNK_BYTES,
    MOST_ROW_BYTES,
    DataError,
    Source,
    reason_of,
)
from chunkscope.sources.remote import explained, explaining, is_web, open_remote

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
LFS_POINTER = b"version https://git-lfs"
# Text is packed to a hundredth at most. What unpacks to more than a thousand times its
# size is refused, unless it is small anyway.
MOST_RATIO = 1000
RATIO_FROM_BYTES = 16 << 20
_LEAST_BUFFER_BYTES = 4096
_GZIP = b"\x1f\x8b\x08"
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # a block, or the end at once
_XZ = b"\xfd7zXZ\x00"
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # also skipped frames


class ByteReader(io.RawIOBase):
    """The bytes of a library's file object; its errors are ours.

    A buffer is filled as far as possible. An error waits until all bytes that came
    before it have been read. `bytes_read` says how much was read so far.
    """

    def __init__(
        self, file: Any, shown: str, *, below: "ByteReader | None" = None
    ) -> None:
        super().__init__()
        self._file = file
        # A file of a compression module loses what precedes an error unless it is
        # read piece by piece, which is what `readinto1` does.
        self._fill = getattr(file, "readinto1", file.readinto)
        self._shown = shown
        self._below = below
        self._error: ChunkscopeError | None = None
        self._bytes = 0

    @property
    def bytes_read(self) -> int:
        """How much of the file was read, as it is on disk."""
        return self._bytes if self._below is None else self._below.bytes_read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._below is None and bool(self._file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        # Not explained: `zipfile` looks for places that may not exist.
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        filled = 0
        while filled < len(view) and self._error is None:
            try:
                count = self._fill(view[filled:])
            except Exception as error:  # libraries raise all sorts
                self._error = explained(self._shown, error)
                self._error.__cause__ = error
                break
            if not count:
                break
            filled += count
        if self._error is not None and filled == 0:
            raise self._error
        self._bytes += filled
        return filled

    def close(self) -> None:
        super().close()
        self._file.close()
        if self._below is not None:  # which a decompressor leaves open
            self._below.close()


Stream = io.BufferedReader


def open_stream(source: Source) -> Stream:
    """The decompressed bytes of a file, a pipe or a file on another machine."""
    packed = open_packed(source)
    try:
        return decompressed(packed, source.path)
    except BaseException:
        packed.close()
        raise


def open_packed(source: Source) -> Stream:
    """The bytes as they are on disk."""
    file: Any
    with explaining(source.path):
        if source.url is not None:
            file = open_remote(source.url)
        elif source.file is not None:
            file = io.FileIO(str(source.file))
        else:
            file = sys.stdin.buffer
    # A megabyte takes longer to get than a small file to read, and files are many.
    size = CHUNK_BYTES if source.bytes is None else source.bytes
    buffer_bytes = max(_LEAST_BUFFER_BYTES, min(CHUNK_BYTES, size))
    return io.BufferedReader(ByteReader(file, source.path), buffer_bytes)


def buffered(file: Any, shown: str, below: ByteReader | None = None) -> Stream:
    return io.BufferedReader(ByteReader(file, shown, below=below), CHUNK_BYTES)


def bytes_read(stream: Stream) -> int:
    """How much of its file a stream has read, as it is on disk."""
    raw = stream.raw
    return raw.bytes_read if isinstance(raw, ByteReader) else 0


# --- compression ----------------------------------------------------------------------


def compression(start: bytes) -> str | None:
    """The compression of data that starts like this."""
    if start.startswith(_GZIP):
        return "gzip"
    if start.startswith(_XZ):
        return "xz"
    if _BZIP2.match(start):
        return "bzip2"
    if _ZSTD.match(start):
        return "zstd"
    return None


def decompressed(packed: Stream, shown: str) -> Stream:
    """What a stream holds, a megabyte at most at a time: a bomb cannot fill memory."""
    start = packed.peek(30)
    if start.startswith(LFS_POINTER):
        packed.close()
        raise DataError("lfs_pointer", path=shown)
    name = compression(start)
    if name is None:
        return packed
    file: Any
    if name == "gzip":
        file = gzip.GzipFile(fileobj=packed)
    elif name == "bzip2":
        file = bz2.BZ2File(packed)
    elif name == "xz":
        file = lzma.LZMAFile(packed)  # noqa: SIM115  (closed with the stream)
    else:
        file = _zstd_file(packed)
    below = packed.raw
    return buffered(file, shown, below if isinstance(below, ByteReader) else None)


def _zstd_file(packed: Stream) -> Any:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    zstd = import_module(name)
    # 2 GiB windows are what `zstd --long=31` writes; memory follows the file's window.
    options = {zstd.DecompressionParameter.window_log_max: 31}
    return zstd.ZstdFile(packed, options=options)


def refuse_bomb(unpacked: int, packed: int, shown: str) -> None:
    if unpacked > max(RATIO_FROM_BYTES, MOST_RATIO * packed):
        raise DataError("bomb", path=shown, times=MOST_RATIO)


# --- all at once ----------------------------------------------------------------------


def read_whole(stream: Stream, shown: str, most: int = MOST_ROW_BYTES) -> bytes:
    """All that is left, unless it is too much; raises the error it ends in."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise DataError("too_long", path=shown, most=most >> 20)
    stream.peek(1)
    return data


def open_seekable(source: Source) -> IO[bytes]:
    """The bytes of a file, to be read in any order; a file on the web is copied."""
    return in_any_order(open_packed(source), source)


def in_any_order(stream: Stream, source: Source) -> IO[bytes]:
    """The stream itself where it can be read in any order, else a copy."""
    is_web_file = source.url is not None and is_web(source.url)
    if stream.seekable() and not is_web_file:
        return stream
    with stream:
        return spooled(stream, source.path)


def spooled(stream: Stream, shown: str) -> IO[bytes]:
    """The rest of a stream in a temporary file, to be read in any order."""
    with ExitStack() as on_failure:
        file = on_failure.enter_context(tempfile.TemporaryFile(prefix="chunkscope-"))
        try:
            while block := stream.read1(CHUNK_BYTES):
                file.write(block)
                refuse_bomb(file.tell(), bytes_read(stream), shown)
            file.seek(0)
        except OSError as error:
            why = reason_of(error)
            raise DataError("cannot_read", path=shown, why=why, cause="room") from error
        on_failure.pop_all()
    return file


# --- encodings ------------------------------------------------------------------------


def as_utf8(stream: Stream, shown: str, encoding: str = "utf-8") -> Stream:
    """The text as UTF-8 without a byte order mark, which outranks the default encoding.

    A byte that cannot be decoded stays as it is. That is no UTF-8, so its row is bad.
    """
    if encoding.lower() in ("utf-8", "utf8", "utf-8-sig"):
        marked = marked_encoding(stream.peek(4))
        if marked == "utf-8-sig":
            stream.read(len(codecs.BOM_UTF8))
        if marked in (None, "utf-8-sig"):
            return stream
        encoding = marked
    try:
        text = io.TextIOWrapper(stream, encoding, "surrogateescape", newline="")
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"unknown text encoding: {encoding}",
            hint="try utf-8, latin-1, cp1252 or utf-16",
        ) from error
    below = stream.raw
    encoder = _Utf8Encoder(text)
    return buffered(encoder, shown, below if isinstance(below, ByteReader) else None)


def marked_encoding(start: bytes) -> str | None:
    """The encoding that a byte order mark names."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    return None


class _Utf8Encoder(io.RawIOBase):
    """Text as UTF-8 bytes."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        super().__init__()
        self._text = text

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        characters = max(1, len(view) // 4)  # a character has four bytes at most
        data = self._text.read(characters).encode("utf-8", "surrogateescape")
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        super().close()
        self._text.close()


def looks_binary(start: bytes) -> bool:
    """Whether data that starts like this is no text. A stray NUL in UTF-8 is text."""
    if b"\0" not in start or marked_encoding(start) in ("utf-16", "utf-32"):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return start.count(b"\0") * 20 > len(start)
