"""Files as plain bytes: their compression undone, their text UTF-8.

Compression is found by the first bytes, not by the name, and undone in bounded memory. Rows before
the place where a file is cut or damaged are still delivered: the error comes after them.
"""

import codecs
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import CHUNK_BYTES, cannot_read, first_line

COMPRESSED_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
_MAGICS: dict[str, tuple[bytes, ...]] = {
    "gzip": (b"\x1f\x8b\x08",),
    "bzip2": tuple(
        b"BZh%d%b" % (level, block)
        for level in range(1, 10)
        for block in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")  # a block, or the end at once
    ),
    "xz": (b"\xfd7zXZ\x00",),
    "zstd": (
        b"\x28\xb5\x2f\xfd",
        *(bytes([low]) + b"\x2a\x4d\x18" for low in range(0x50, 0x60)),  # skippable frames
    ),
}
_ALL_MAGICS = tuple(magic for magics in _MAGICS.values() for magic in magics)
_WIDE_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Stream(io.BufferedIOBase):
    """Bytes read once from front to back, in blocks and with a look ahead.

    `read_block` gives the next block, b"" at the end; what it raises becomes one of our errors by
    `explain`, and waits until all bytes that came before it have been read. `below` is closed with
    the stream; if it is a stream, too, that one knows how much of the file on disk was read.
    """

    def __init__(
        self,
        read_block: Callable[[int], bytes],
        below: "IO[bytes] | Stream | None",
        explain: Callable[[Exception], InputError],
    ) -> None:
        self._read_block = read_block
        self._below = below
        self._explain = explain
        self._ahead = b""
        self._at = 0  # how much of it was read
        self._taken = 0
        self._is_end = False  # a terminal would have to say it twice
        self._error: InputError | None = None

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""
        return self._below.bytes_read if isinstance(self._below, Stream) else self._taken

    @property
    def is_raw(self) -> bool:
        """Whether the bytes are those of the file: nothing had to be made of them first."""
        return not isinstance(self._below, Stream)

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end; they stay unread."""
        have = len(self._ahead) - self._at
        if have < size and not self._is_end:
            parts = [self._ahead[self._at :]] if have else []
            while have < size and not self._is_end:
                try:
                    block = self._read_block(CHUNK_BYTES)
                except Exception as error:  # each library has error classes of its own
                    self._error = error if isinstance(error, InputError) else self._explain(error)
                    block = b""
                self._is_end = not block
                parts.append(block)
                have += len(block)
                self._taken += len(block)
            self._ahead, self._at = b"".join(parts), 0
        if self._error is not None and not have:
            raise self._error
        return self._ahead[self._at : self._at + size]

    def read(self, size: int | None = CHUNK_BYTES, /) -> bytes:
        """The next `size` bytes (a megabyte unless told), or fewer at the end."""
        data = self.peek(CHUNK_BYTES if size is None or size < 0 else size)
        self._at += len(data)
        return data

    def read_whole(self, most: int) -> bytes:
        """All that is left, or one byte more than `most`; raises the error in which it ends."""
        data = self.read(most + 1)
        if len(data) <= most:
            self.peek(1)
        return data

    def read1(self, size: int = CHUNK_BYTES, /) -> bytes:
        return self.read(max(size, 1 << 16))  # TextIOWrapper asks for 8 KiB at a time

    def close(self) -> None:
        super().close()
        if self._below is not None:
            self._below.close()


def file_stream(file: IO[bytes], shown: str, *, keep_open: bool = False) -> Stream:
    return Stream(file.read, None if keep_open else file, partial(cannot_read, shown))


def open_path(path: Path, shown: str, *, start: int = 0) -> Stream:
    """A file's bytes as they are, from one of them on."""
    try:
        file = io.FileIO(str(path))
        if start:
            file.seek(start)
        return file_stream(cast("IO[bytes]", file), shown)
    except OSError as error:
        raise cannot_read(shown, error) from error


def open_stdin() -> Stream:
    """Standard input as bytes; tests and notebooks may have put something else there."""
    file: IO[bytes] | None = getattr(sys.stdin, "buffer", None)
    if file is None:
        raise InputError("there is no standard input to read", hint="name a file instead of `-`")
    return file_stream(file, "standard input", keep_open=True)


def spooled(stream: Stream, shown: str) -> IO[bytes]:
    """The rest of a stream in a temporary file, for formats that must jump about in it."""
    with ExitStack() as on_failure:
        file = on_failure.enter_context(tempfile.TemporaryFile(prefix="chunkscope-"))
        try:
            shutil.copyfileobj(stream, file)
            file.seek(0)
        except OSError as error:
            raise InputError(
                f"cannot unpack {shown} to a temporary file: {error.strerror or error}",
                hint="set TMPDIR to a folder with more room",
            ) from error
        on_failure.pop_all()
    return file


# --- compression -----------------------------------------------------------------------------


def compression_of(start: bytes) -> str | None:
    """What data that starts like this is compressed with: `b"\\x1f\\x8b\\x08..."` -> "gzip"."""
    if not start.startswith(_ALL_MAGICS):  # as most do
        return None
    return next(name for name, magics in _MAGICS.items() if start.startswith(magics))


def decompressed(raw: Stream, shown: str) -> Stream:
    """What a stream holds, a megabyte at most at a time: a bomb cannot fill the memory."""
    start = raw.peek(10)
    if (name := compression_of(start)) is not None:
        return Stream(_opened(raw, name).read1, raw, partial(_damaged, raw, name, shown))
    if named := COMPRESSED_SUFFIXES.get(shown[shown.rfind(".") :].lower()):
        raw.close()
        begins = f"it starts with {start!r}" if start else "it is empty"
        raise InputError(
            f"{shown} is not {named} data ({begins})",
            hint="if it is not compressed, rename it without the suffix",
        )
    return raw


def _damaged(raw: Stream, name: str, shown: str, error: Exception) -> InputError:
    is_cut = isinstance(error, EOFError)
    what = f"truncated {name}" if is_cut else f"bad {name} data ({first_line(error)})"
    return InputError(
        f"{shown} is cut off or damaged: {what} after {raw.bytes_read:,} bytes",
        hint="was the download or the copy interrupted? Fetch or compress the file again",
    )


def _opened(raw: Any, name: str) -> Any:
    if name == "bzip2":
        import bz2

        return bz2.BZ2File(raw)
    if name == "xz":
        import lzma

        return lzma.LZMAFile(raw)
    if name == "zstd":
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        # 2 GiB windows are what `zstd --long=31` writes; memory follows the file's own window.
        return zstd.ZstdFile(raw, options={zstd.DecompressionParameter.window_log_max: 31})
    try:
        from isal.igzip import IGzipFile as GzipFile
    except ImportError:
        from gzip import GzipFile
    return GzipFile(fileobj=raw)


# --- encodings -------------------------------------------------------------------------------


def as_utf8(raw: Stream, shown: str, encoding: str = "utf-8") -> Stream:
    """The text as UTF-8 without a byte order mark, which outranks the default encoding.

    A byte that cannot be decoded stays as it is, which is no UTF-8: its row is found bad.
    """
    if encoding.lower() in ("utf-8", "utf8", "utf-8-sig"):
        start = raw.peek(4)
        if start.startswith(codecs.BOM_UTF8):
            raw.read(len(codecs.BOM_UTF8))
        wide = next((name for bom, name in _WIDE_BOMS.items() if start.startswith(bom)), None)
        if wide is None:
            return raw
        encoding = wide
    try:
        text = io.TextIOWrapper(cast("IO[bytes]", raw), encoding, "surrogateescape", newline="")
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"unknown text encoding: {encoding}", hint="try utf-8, latin-1, cp1252 or utf-16"
        ) from error
    return Stream(
        lambda size: text.read(size).encode("utf-8", "surrogateescape"),
        raw,
        lambda error: InputError(
            f"{shown} is not text in this encoding ({error})",
            hint="set another encoding in chunkscope.toml",
        ),
    )


def looks_binary(start: bytes) -> bool:
    """Is this the start of something that is no text? A stray NUL in UTF-8 is still text."""
    if b"\0" not in start or start.startswith(tuple(_WIDE_BOMS)):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return start.count(b"\0") * 20 > len(start)
